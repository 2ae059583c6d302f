//! The map says which nodes are paused: no gang chooses them.

use kvs::membership::command;
use proto::wire;
use proto::wire::map_command::Body;

use crate::Node;

impl Node {
    /// Proposes that the map shows the state of this node, until it does.
    pub(crate) fn tell_pause(&mut self) {
        let Some(member) = &mut self.member else { return };
        let (node, paused) = (self.own.node, self.scheduler.is_paused());
        let is_known = self.scheduler.homes().is_paused(node) == paused;
        if is_known && !member.proposes() {
            return;
        }
        let incarnation = self.own.incarnation.0;
        let set = |paused| {
            command(Body::SetPaused(wire::SetPaused { node: node.0, incarnation, paused }))
        };
        member.withdraw(&set(!paused));
        if !is_known {
            member.propose(set(paused));
        }
    }
}
