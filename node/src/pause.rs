//! The map says which nodes are paused: no gang chooses them.

use kvs::membership::command;
use proto::wire;
use proto::wire::map_command::Body;

use crate::Node;

impl Node {
    /// Proposes that the map shows the state of this node, until it does.
    pub(crate) fn tell_pause(&mut self) {
        let (node, paused) = (self.own.node, self.scheduler.is_paused());
        if paused == self.scheduler.homes().is_paused(node) {
            return;
        }
        let incarnation = self.own.incarnation.0;
        if let Some(member) = &mut self.member {
            let set = wire::SetPaused { node: node.0, incarnation, paused };
            member.propose_latest(command(Body::SetPaused(set)));
        }
    }
}
