//! The changes of the map that this node wants.

use proto::{Time, wire};

use super::Membership;
use super::limits::PROPOSALS_MAX;

impl Membership {
    /// Adds a change that this node proposes until the map shows it.
    pub(crate) fn propose(&mut self, command: wire::MapCommand) {
        if self.wanted.len() < PROPOSALS_MAX && !self.wanted.contains(&command) {
            self.wanted.push(command);
            self.propose_at = Time::ZERO;
        }
    }

    /// As `propose`; earlier proposals of the same kind end.
    pub(crate) fn propose_latest(&mut self, command: wire::MapCommand) {
        if self.wanted.contains(&command) {
            return;
        }
        let kind = |it: &wire::MapCommand| it.body.as_ref().map(std::mem::discriminant);
        self.wanted.retain(|other| kind(other) != kind(&command));
        self.propose(command);
    }

    /// Replaces the changes that this node's replicas want.
    pub(crate) fn want(&mut self, commands: Vec<wire::MapCommand>) {
        if self.wanted_of_copies != commands {
            self.wanted_of_copies = commands;
            self.propose_at = Time::ZERO;
        }
    }
}
