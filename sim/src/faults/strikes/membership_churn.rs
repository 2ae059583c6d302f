//! Machines that join and leave the cluster while it works.

use kvs::membership::command;
use node::Input;
use proto::wire::map_command::Body;
use proto::wire::{self, MemberPhase};
use proto::{NodeId, Span};

use crate::faults::event_queue::SimEvent;
use crate::faults::strikes::injection::Fault;
use crate::faults::world::World;
use crate::state::machine::Machine;

/// The largest number of joins in one run.
const JOINS_MAX: u32 = 2;
/// Longest time from the committed join to the start of the process.
const STARTS_WITHIN: Span = Span::from_millis(300);
/// Longest time from the committed leave until the node has left.
const LEAVES_WITHIN: Span = Span::from_secs(300);
/// The pause before an unanswered change is proposed again, and the time until the proposer gives
/// up.
const ASKS_AGAIN: Span = Span::from_secs(1);
const ASKS_FOR: Span = Span::from_secs(60);

impl World {
    /// Proposes that a new machine joins.
    pub(crate) fn ask_to_join(&mut self) {
        let most = self.options.grows.map_or(JOINS_MAX, |grows| grows.joins_max);
        if !self.homes_move() || !self.growth.asks_to_join(most) {
            return;
        }
        let (store, slots) = (self.dice.number() | 1, self.dice.pick(&[1, 2, 4]));
        let keeper = self.joins_as_keeper();
        let slots = if keeper { 0 } else { slots };
        let offer = self.options.offer_bytes(self.machines.len(), slots);
        let join = wire::MemberJoin { store, slots, keeper, offer, ..Default::default() };
        self.propose(Body::Join(join));
    }

    /// Adds a node as an operator would, during any other change. Returns its number once the join
    /// is committed.
    pub fn join(&mut self, slots: u32) -> Option<usize> {
        let (store, node) = (self.dice.number() | 1, self.machines.len());
        let until = self.now + ASKS_FOR;
        while self.now < until && self.violation().is_none() {
            // The store number distinguishes a repeated proposal from a second machine.
            let keeper = slots == 0;
            let offer = self.options.offer_bytes(node, slots);
            let join = wire::MemberJoin { store, slots, keeper, offer, ..Default::default() };
            self.propose(Body::Join(join));
            if self.run_until(self.now + ASKS_AGAIN, |world| world.machines.len() > node) {
                return Some(node);
            }
        }
        None
    }

    /// The join is committed: adds the machine and schedules its start.
    pub(crate) fn has_joined(&mut self, join: &wire::MemberJoin) {
        let node = self.machines.len();
        self.starve.joins(join.slots);
        self.lives.joins(node);
        let machine = Machine::new(join.slots, 1);
        self.machines.push(Machine { store: join.store, is_late: true, ..machine });
        self.tell(|| format!("n{node} may join"));
        let at = self.now + self.dice.span(Span::ZERO, STARTS_WITHIN);
        self.schedule(at, SimEvent::Start { node });
    }

    /// Drains a machine: its data moves to other nodes, then its process ends.
    pub(crate) fn ask_to_leave(&mut self, index: usize) {
        if self.is_whole() && !self.start_a_departure() && self.can_do_without(index, Fault::Leave)
        {
            let by_ns = self.moves_by_ns(index);
            self.propose_unsettling(Body::Leave(wire::MemberLeave { node: index as u32, by_ns }));
        }
    }

    /// Drains a machine as an operator would, during any other change.
    pub fn leave(&mut self, node: usize) {
        let by_ns = self.moves_by_ns(node);
        let leave = Body::Leave(wire::MemberLeave { node: node as u32, by_ns });
        let by = (0..self.machines.len()).find(|&other| self.is_live(other as u32));
        if let Some(by) = by {
            self.deliver(by, Input::Propose(Box::new(command(leave))));
        }
    }

    /// Runs until the node is no longer a member, at most `LEAVES_WITHIN`.
    pub fn run_until_gone(&mut self, node: usize) -> bool {
        self.run_until(self.now + LEAVES_WITHIN, |world| world.is_gone(node))
    }

    #[must_use]
    pub fn is_gone(&self, node: usize) -> bool {
        let member = kvs::membership::member(&self.map, NodeId(node as u32));
        member.is_none_or(|member| member.phase() == MemberPhase::Removed)
    }

    /// True if the cluster is whole and the planner proposes no change.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.is_whole() && kvs::membership::plan(&self.map).is_empty()
    }

    /// True if some node is draining.
    pub(crate) fn start_a_departure(&self) -> bool {
        !self.leavers().is_empty()
    }

    pub(crate) fn leavers(&self) -> Vec<NodeId> {
        let members = self.map.members.iter();
        let leavers = members.filter(|member| member.phase() == MemberPhase::Leaving);
        leavers.map(|member| NodeId(member.node)).collect()
    }

    /// True if the node is draining, or has left and may not know it yet.
    pub(crate) fn leaves_or_left(&self, index: usize) -> bool {
        let member = kvs::membership::member(&self.map, NodeId(index as u32));
        let goes = [MemberPhase::Leaving, MemberPhase::Removed];
        member.is_some_and(|member| goes.contains(&member.phase()))
    }
}
