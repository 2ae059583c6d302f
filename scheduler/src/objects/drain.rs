//! A node leaves the cluster: outputs of its tasks that may still be read go to nodes that stay.
//! This begins when the map marks the node as leaving, and ends when nothing is left.
//!
//! All outputs of an attempt go to one node with space, chosen in turn. Their home decides whether
//! they are still needed, and confirms that they have arrived (`output_transfer.rs`). Messages may
//! be lost; this node repeats them. Until it is gone, it also delivers outputs that it has handed
//! over.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proto::event::RetryReason;
use proto::{Attempt, NodeId, ObjectId, TaskId, Time, wire};

use crate::Scheduler;
use crate::holder::execution::RemoteTask;
use crate::limits::STEP_POPS_MAX;
use crate::objects::Objects;
use crate::objects::limits::{HANDOVER_PAUSE, HANDOVER_TRIES_MAX, HANDOVERS_AT_A_TIME_MAX};
use crate::output::{Out, send_tasks_not_held, task_attempt};

/// The outputs of one attempt, which stay together.
pub(crate) type AttemptKey = (TaskId, Attempt);

#[derive(Debug, Default)]
struct Offer {
    to: Option<NodeId>,
    tries: u32,
    /// The end of the wait for an answer.
    until: Option<Time>,
}

#[derive(Debug, Default)]
pub(crate) struct Drain {
    /// Outputs that are still to be handed over.
    offers: BTreeMap<AttemptKey, Offer>,
    /// The offers that wait for their turn; some may be settled meanwhile.
    waiting: VecDeque<AttemptKey>,
    /// Attempts with outputs that other nodes must copy first.
    uncopied: BTreeSet<AttemptKey>,
    /// The open offers, by the time at which they are repeated.
    asked: BTreeSet<(Time, AttemptKey)>,
    /// Nodes that had no space, and until when they are not asked again.
    full: BTreeMap<NodeId, Time>,
    turn: usize,
    /// No node has space for the next offer, or for the copies that it waits for.
    blocked: bool,
}

impl Drain {
    fn add(&mut self, made: AttemptKey) {
        if let Entry::Vacant(offer) = self.offers.entry(made) {
            offer.insert(Offer::default());
            self.waiting.push_back(made);
        }
    }
    /// Another node has the outputs, or no task needs them.
    fn done(&mut self, made: &AttemptKey) {
        self.uncopied.remove(made);
        if let Some(until) = self.offers.remove(made).and_then(|offer| offer.until) {
            self.asked.remove(&(until, *made));
        }
    }
    fn refused(&mut self, now: Time, made: &AttemptKey, by: NodeId) {
        self.full.insert(by, now + HANDOVER_PAUSE);
        let Some(offer) = self.offers.get_mut(made) else { return };
        if offer.to == Some(by)
            && let Some(until) = offer.until.take()
        {
            *offer = Offer::default();
            self.asked.remove(&(until, *made));
            self.waiting.push_back(*made);
        }
    }
    /// Repeats offers that were not answered in time: to the same node, or after
    /// `HANDOVER_TRIES_MAX` tries to another one.
    fn take_back(&mut self, now: Time) {
        while let Some(&(until, made)) = self.asked.first()
            && until <= now
        {
            self.asked.pop_first();
            let Some(offer) = self.offers.get_mut(&made) else { continue };
            offer.until = None;
            offer.tries += 1;
            if offer.tries >= HANDOVER_TRIES_MAX {
                *offer = Offer::default();
            }
            self.waiting.push_back(made);
        }
        self.full.retain(|_, until| now < *until);
    }
    /// Chooses the node to receive the outputs: one of `holders`, which have them already, if there
    /// are any. Other nodes without space are skipped.
    fn taker(
        &mut self,
        made: &AttemptKey,
        holders: &[NodeId],
        others: &[NodeId],
    ) -> Option<NodeId> {
        let (others, need_space) =
            if holders.is_empty() { (others, true) } else { (holders, false) };
        let has_space = |node: &NodeId| !need_space || !self.full.contains_key(node);
        let may = |node: &NodeId| others.contains(node) && has_space(node);
        let before = self.offers.get(made).and_then(|offer| offer.to).filter(may);
        let turn = self.turn % others.len().max(1);
        let in_turn = others[turn..].iter().chain(&others[..turn]).copied().find(may);
        if before.is_none() {
            self.turn = self.turn.wrapping_add(1);
        }
        before.or(in_turn)
    }
    fn offered(&mut self, made: AttemptKey, to: NodeId, until: Time) {
        let Some(offer) = self.offers.get_mut(&made) else { return };
        (offer.to, offer.until) = (Some(to), Some(until));
        self.asked.insert((until, made));
    }

    /// The map has changed, and with it the number of copies that others must have.
    fn look_again(&mut self) {
        self.waiting.extend(std::mem::take(&mut self.uncopied));
    }

    /// All offers that are left wait for copies.
    fn waits_for_copies(&self) -> bool {
        self.waiting.is_empty() && self.asked.is_empty() && !self.uncopied.is_empty()
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        let asked = self.asked.first().map(|&(until, _)| until);
        if self.waiting.is_empty() || self.asked.len() >= HANDOVERS_AT_A_TIME_MAX {
            return asked;
        }
        match self.blocked {
            true => asked.into_iter().chain(self.full.values().copied()).min(),
            false => Some(Time::ZERO),
        }
    }
}

impl Objects {
    /// A task has made an object here; if this node leaves, the object must be handed over.
    pub(crate) fn note_made(&mut self, object: &ObjectId) {
        if let Some(drain) = &mut self.drain {
            drain.add((object.task, object.attempt));
        }
    }

    /// Their home confirms that other nodes have these outputs, or that no task needs them.
    pub(crate) fn on_transfer_free(&mut self, made: &[wire::AttemptOutputs]) {
        let Some(drain) = &mut self.drain else { return };
        made.iter().for_each(|transferred| {
            drain.done(&crate::objects::output_transfer::attempt_key(transferred))
        });
    }

    /// The node that was to receive these outputs has no space for them.
    pub(crate) fn on_transfer_no_space(
        &mut self,
        now: Time,
        from: NodeId,
        made: &[wire::AttemptOutputs],
    ) {
        let Some(drain) = &mut self.drain else { return };
        made.iter().for_each(|it| {
            drain.refused(now, &crate::objects::output_transfer::attempt_key(it), from)
        });
    }

    /// Adds the remaining objects to this node's state.
    pub(crate) fn drain_state(&self, state: &mut wire::NodeState) {
        let Some(drain) = &self.drain else { return };
        state.leaving_refused = drain.blocked;
        for &made in drain.offers.keys() {
            for output in self.table.outputs_of(made) {
                state.leaving_objects += 1;
                state.leaving_bytes = state.leaving_bytes.saturating_add(output.size_bytes);
            }
        }
    }
}

impl Scheduler {
    /// Begins the hand-over if the map marks this node as leaving, and ends it if the map shows the
    /// node as one that stays: the mark may have been of an earlier life, which went down.
    pub(crate) fn follow_drain(&mut self, now: Time, out: &mut Out) {
        let (homes, me) = (self.routing.homes(), self.options.me);
        if self.objects.drain.is_some() && !homes.is_leaving(me) && !homes.is_gone(me) {
            self.objects.drain = None;
            self.objects.output_copies.stay();
            self.holder.stay();
        }
        if let Some(drain) = &mut self.objects.drain {
            return drain.look_again();
        }
        if !homes.is_leaving(me) {
            return;
        }
        let mut drain = Box::<Drain>::default();
        self.objects.table.made_here().for_each(|object| drain.add((object.task, object.attempt)));
        self.objects.drain = Some(drain);
        self.leave_copies(now);
        self.holder.leave();
        self.return_remote_tasks(out);
    }

    /// Another node may have sent tasks before it knew that this one is a keeper.
    pub(crate) fn return_tasks_if_keeper(&mut self, out: &mut Out) {
        if self.holder.slots().total() == 0 && self.holder.remote_tasks().iter().next().is_some() {
            self.return_remote_tasks(out);
        }
    }

    /// Returns queued remote tasks to their homes, which place them again.
    fn return_remote_tasks(&mut self, out: &mut Out) {
        let may_go = |remote: &RemoteTask| remote.home_knows && !remote.work.is_bound();
        let known = self.holder.remote_tasks().iter().filter(|(_, remote)| may_go(remote));
        let mut remote_tasks: Vec<AttemptKey> =
            known.map(|(&task, remote)| (task, remote.attempt)).collect();
        remote_tasks.sort_unstable();
        let mut told: BTreeMap<NodeId, Vec<wire::TaskAttempt>> = BTreeMap::new();
        for (task, attempt) in remote_tasks {
            self.holder.forget_remote(&task);
            told.entry(self.routing.homes().home_of(task))
                .or_default()
                .push(task_attempt(task, attempt));
        }
        send_tasks_not_held(told, RetryReason::NotHeld, out);
    }

    /// Offers the remaining outputs, `HANDOVERS_AT_A_TIME_MAX` at a time.
    pub(crate) fn offer_outputs(&mut self, now: Time, out: &mut Out) {
        let Some(mut drain) = self.objects.drain.take() else { return };
        drain.take_back(now);
        drain.blocked = false;
        let me = self.options.me;
        let others: Vec<NodeId> = self.takers().collect();
        let changed = self.objects.output_copies.changes();
        drain.waiting.extend(changed.iter().filter(|made| drain.uncopied.remove(*made)));
        let mut said: BTreeMap<(NodeId, NodeId), Vec<wire::AttemptOutputs>> = BTreeMap::new();
        for _ in 0..STEP_POPS_MAX {
            if drain.asked.len() >= HANDOVERS_AT_A_TIME_MAX {
                break;
            }
            let Some(made) = drain.waiting.pop_front() else { break };
            let outputs = self.objects.table.outputs_of(made);
            let home = self.routing.homes().owner(made.0.partition());
            let Some(home) = home.filter(|_| !outputs.is_empty()) else {
                drain.done(&made); // No task needs it any more.
                continue;
            };
            if !drain.offers.contains_key(&made) {
                continue;
            }
            if self.must_stay_for(&made) {
                drain.uncopied.insert(made);
                continue;
            }
            let holders = self.holders_among(&made, &others);
            let Some(to) = drain.taker(&made, &holders, &others) else {
                drain.waiting.push_front(made);
                drain.blocked = true;
                break;
            };
            let bytes = outputs.iter().fold(0, |sum: u64, it| sum.saturating_add(it.size_bytes));
            drain.offered(made, to, now + self.locate_timeout(bytes));
            let (task, attempt) = (made.0, made.1.0);
            let (job, task) = (task.job.0, task.local.0);
            let transferred = wire::AttemptOutputs { job, task, attempt, outputs, replicas: 0 };
            said.entry((home, to)).or_default().push(transferred);
        }
        drain.blocked |= drain.waits_for_copies() && self.objects.output_copies.waits_for_space();
        self.objects.drain = Some(drain);
        for ((home, to), made) in said {
            crate::objects::output_transfer::send_output_transfer(
                home,
                wire::TransferStage::Offered,
                (me, to),
                made,
                out,
            );
        }
    }

    /// Whether this node leaves and has nothing that other nodes would miss.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.objects.drain.as_ref().is_some_and(|drain| drain.offers.is_empty())
            && self.holder.running().is_empty()
            && self.holder.staging().is_empty()
            && self.holder.remote_tasks().iter().next().is_none()
            && self.stealing.is_settled()
            && self.routing.undelivered().is_empty()
            && !self.holder.has_turns()
            && !self.holder.is_held_by_gang()
    }

    /// Whether all other nodes have recently reported no space for the next offer. This node cannot
    /// leave until one has.
    #[must_use]
    pub fn is_drain_blocked(&self) -> bool {
        let drain = self.objects.drain.as_ref().filter(|drain| drain.blocked);
        drain.is_some_and(|drain| !drain.full.is_empty() || drain.waits_for_copies())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Time = Time(1_000_000_000);
    fn made(number: u64) -> AttemptKey {
        (TaskId::new(1, number), Attempt(7))
    }

    #[test]
    fn a_node_without_room_is_skipped_for_a_while() {
        let mut drain = Drain::default();
        let others = [NodeId(1), NodeId(2)];
        drain.add(made(1));
        drain.add(made(1));
        assert_eq!(drain.waiting.pop_front(), Some(made(1)));
        assert_eq!(drain.waiting.pop_front(), None, "once");
        let first = drain.taker(&made(1), &[], &others).expect("no node is full");
        drain.offered(made(1), first, NOW);
        drain.refused(NOW, &made(1), first);
        let second = drain.taker(&made(1), &[], &others).expect("one is not full");
        assert_ne!(first, second);
        drain.offered(made(1), second, NOW);
        drain.refused(NOW, &made(1), first);
        assert_eq!(drain.asked.len(), 1, "the other one has not answered");
        drain.refused(NOW, &made(1), second);
        assert_eq!(drain.taker(&made(1), &[], &others), None);
        let holders = [others[0]];
        assert_eq!(drain.taker(&made(1), &holders, &others), Some(others[0]), "it has them");
        drain.take_back(NOW + HANDOVER_PAUSE);
        assert!(drain.taker(&made(1), &[], &others).is_some());
    }

    #[test]
    fn what_is_not_answered_is_offered_to_the_same_node_and_then_to_another() {
        let mut drain = Drain::default();
        let others = [NodeId(1), NodeId(2)];
        drain.add(made(1));
        let first = drain.taker(&made(1), &[], &others).expect("no node is full");
        for _ in 1..HANDOVER_TRIES_MAX {
            drain.offered(made(1), first, NOW);
            drain.take_back(NOW);
            assert_eq!(drain.taker(&made(1), &[], &others), Some(first));
        }
        drain.offered(made(1), first, NOW);
        drain.take_back(NOW);
        assert_ne!(drain.taker(&made(1), &[], &others), Some(first));
        drain.done(&made(1));
        assert!(drain.offers.is_empty() && drain.asked.is_empty());
    }
}
