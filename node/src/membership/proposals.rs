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
