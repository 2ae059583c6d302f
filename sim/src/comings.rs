//! Machines that join the cluster and machines that leave it, while it works.

use proto::wire::map_command::Body;
use proto::wire::{self, MemberPhase};
use proto::{NodeId, Span};

use crate::faults::Fault;
use crate::machine::Machine;
use crate::queue::Happening;
use crate::world::World;

/// Machines that join in one run at most.
const JOINS_MAX: u32 = 2;
/// From the word that it may to the start of its process.
const STARTS_WITHIN: Span = Span::from_millis(300);

impl World {
    /// A new machine asks to be let in.
    pub(crate) fn ask_to_join(&mut self) {
        if !self.homes_move() || self.joins_asked >= JOINS_MAX {
            return;
        }
        self.joins_asked += 1;
        let (store, slots) = (self.dice.number() | 1, self.dice.pick(&[1, 2, 4]));
        self.propose(Body::Join(wire::MemberJoin { store, slots, ..Default::default() }));
    }

    /// The nodes have agreed that it may.
    pub(crate) fn has_joined(&mut self, join: &wire::MemberJoin) {
        let node = self.machines.len();
        self.starve.joins(join.slots);
        let machine = Machine::new(join.slots, 1);
        self.machines.push(Machine { store: join.store, is_late: true, ..machine });
        self.tell(|| format!("n{node} may join"));
        let at = self.now + self.dice.span(Span::ZERO, STARTS_WITHIN);
        self.schedule(at, Happening::Start { node });
    }

    /// A machine is to leave: the others get what it has, and it ends by itself.
    pub(crate) fn ask_to_leave(&mut self, index: usize) {
        if self.is_whole() && !self.somebody_leaves() && self.can_do_without(index, Fault::Leave) {
            self.propose(Body::Leave(wire::MemberLeave { node: index as u32 }));
        }
    }

    /// Somebody was asked to leave and has not left yet.
    pub(crate) fn somebody_leaves(&self) -> bool {
        (0..self.machines.len()).any(|index| self.is_leaving(index))
    }

    pub(crate) fn is_leaving(&self, index: usize) -> bool {
        let member = kvs::membership::member(&self.map, NodeId(index as u32));
        member.is_some_and(|member| member.phase() == MemberPhase::Leaving)
    }
}
