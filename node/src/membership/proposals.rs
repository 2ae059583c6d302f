//! The changes of the map that this node wants.

use kvs::membership::{member, would_change};
use proto::wire::MemberPhase;
use proto::wire::map_command::Body;
use proto::{NodeId, Time, wire};

use super::Membership;
use super::limits::PROPOSALS_MAX;

impl Membership {
    /// Adds a change that this node proposes until the map shows it.
    pub(crate) fn propose(&mut self, command: wire::MapCommand) {
        if is_fulfilled(&self.map, &command) {
            return;
        }
        if self.wanted.len() < PROPOSALS_MAX && !self.wanted.contains(&command) {
            self.wanted.push(command);
            self.propose_at = Time::ZERO;
        }
    }

    /// This node wants the change no more.
    pub(crate) fn withdraw(&mut self, command: &wire::MapCommand) {
        self.wanted.retain(|wanted| wanted != command);
    }
    pub(crate) fn proposes(&self) -> bool {
        !self.wanted.is_empty()
    }

    /// Replaces the changes that this node's replicas want.
    pub(crate) fn want(&mut self, commands: Vec<wire::MapCommand>) {
        if self.wanted_of_copies != commands {
            self.wanted_of_copies = commands;
            self.propose_at = Time::ZERO;
        }
    }
}

/// Whether a node is to leave that leaves already, and no later than the command says. No later map
/// shows such a command, so it would be proposed without end.
fn is_fulfilled(map: &wire::ClusterMap, command: &wire::MapCommand) -> bool {
    let Some(Body::Leave(leave)) = &command.body else { return false };
    let leaves = |known: &wire::Member| known.phase() == MemberPhase::Leaving;
    member(map, NodeId(leave.node)).is_some_and(leaves) && !would_change(map, command)
}
