//! Machines that join the cluster and machines that leave it, while it works.

use kvs::membership::command;
use node::Input;
use proto::wire::map_command::Body;
use proto::wire::{self, MemberPhase};
use proto::{NodeId, Span};

use crate::event_queue::SimEvent;
use crate::faults::Fault;
use crate::machine::Machine;
use crate::world::World;

/// Machines that join in one run at most.
const JOINS_MAX: u32 = 2;
/// From the word that it may to the start of its process.
const STARTS_WITHIN: Span = Span::from_millis(300);
/// From the word that it is to leave until it has left.
const LEAVES_WITHIN: Span = Span::from_secs(300);
/// Whoever hears no answer asks for a change again, and gives up at last.
const ASKS_AGAIN: Span = Span::from_secs(1);
const ASKS_FOR: Span = Span::from_secs(60);

impl World {
    /// A new machine asks to be let in.
    pub(crate) fn ask_to_join(&mut self) {
        let most = self.options.grows.map_or(JOINS_MAX, |grows| grows.joins_max);
        if !self.homes_move() || self.joins_asked >= most {
            return;
        }
        self.joins_asked += 1;
        let (store, slots) = (self.dice.number() | 1, self.dice.pick(&[1, 2, 4]));
        let keeper = self.joins_as_keeper();
        let slots = if keeper { 0 } else { slots };
        self.propose(Body::Join(wire::MemberJoin { store, slots, keeper, ..Default::default() }));
    }

    /// As when an operator starts one more node, whatever else is under way. Tells its number, once
    /// the nodes have agreed that it may join.
    pub fn join(&mut self, slots: u32) -> Option<usize> {
        let (store, node) = (self.dice.number() | 1, self.machines.len());
        let until = self.now + ASKS_FOR;
        while self.now < until && self.violation.is_none() {
            // The store tells the one who asks again from another one who asks.
            let keeper = slots == 0;
            let join = wire::MemberJoin { store, slots, keeper, ..Default::default() };
            self.propose(Body::Join(join));
            if self.run_until(self.now + ASKS_AGAIN, |world| world.machines.len() > node) {
                return Some(node);
            }
        }
        None
    }

    /// The nodes have agreed that it may.
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

    /// A machine is to leave: the others get what it has, and it ends by itself.
    pub(crate) fn ask_to_leave(&mut self, index: usize) {
        if self.is_whole() && !self.start_a_departure() && self.can_do_without(index, Fault::Leave)
        {
            self.propose_unsettling(Body::Leave(wire::MemberLeave { node: index as u32 }));
        }
    }

    /// As when an operator asks for it, whatever else is under way.
    pub fn leave(&mut self, node: usize) {
        let leave = Body::Leave(wire::MemberLeave { node: node as u32 });
        let by = (0..self.machines.len()).find(|&other| self.is_live(other as u32));
        if let Some(by) = by {
            self.deliver(by, Input::Propose(Box::new(command(leave))));
        }
    }

    /// Until it is a member no more, for some minutes at most.
    pub fn run_until_gone(&mut self, node: usize) -> bool {
        self.run_until(self.now + LEAVES_WITHIN, |world| world.is_gone(node))
    }

    #[must_use]
    pub fn is_gone(&self, node: usize) -> bool {
        let member = kvs::membership::member(&self.map, NodeId(node as u32));
        member.is_none_or(|member| member.phase() == MemberPhase::Removed)
    }

    /// Everything is where it should be: all that was to be moved has been.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        self.is_whole() && kvs::membership::plan(&self.map).is_empty()
    }

    /// Somebody was asked to leave and has not left yet.
    pub(crate) fn start_a_departure(&self) -> bool {
        !self.leavers().is_empty()
    }

    pub(crate) fn leavers(&self) -> Vec<NodeId> {
        let members = self.map.members.iter();
        let leavers = members.filter(|member| member.phase() == MemberPhase::Leaving);
        leavers.map(|member| NodeId(member.node)).collect()
    }

    /// Is about to leave, or has left and may not have heard of it yet.
    pub(crate) fn leaves_or_left(&self, index: usize) -> bool {
        let member = kvs::membership::member(&self.map, NodeId(index as u32));
        let goes = [MemberPhase::Leaving, MemberPhase::Removed];
        member.is_some_and(|member| goes.contains(&member.phase()))
    }
}
