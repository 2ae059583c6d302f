//! The attempts of tasks: their numbers and holders, and what their reports count.

use std::collections::BTreeSet;

use proto::event::RetryReason;
use proto::{Attempt, Incarnation, NodeId, TaskId, wire};

use super::{Ledger, State};
use crate::Mutant;
use crate::output::Out;

impl Ledger {
    /// Begins the next attempt of the task, held here. Numbers are never reused: no other home has
    /// this term.
    pub(crate) fn begin_attempt(&mut self, task: TaskId, term: u32) -> Attempt {
        self.attempts = self.attempts.checked_add(1).expect("2^32 attempts in one incarnation");
        let attempt = Attempt::new(term, self.attempts);
        let me = (self.me, self.incarnation);
        let cell = self.cell_mut(task).expect("only live tasks get attempts");
        debug_assert!(!matches!(cell.state, State::Ended(_)));
        let was_waiting = cell.state == State::Waiting;
        cell.state = State::Ready;
        cell.attempt = attempt;
        (cell.started, cell.died_here, cell.has_rested) = (false, false, false);
        let before = std::mem::replace(&mut cell.holder, me.0);
        cell.holder_incarnation = me.1;
        self.waiting -= u64::from(was_waiting);
        self.forget_held_remotely(before, task);
        attempt
    }

    /// Another node (or this one again) holds the current attempt from now on.
    pub(crate) fn set_holder(
        &mut self,
        task: TaskId,
        holder: NodeId,
        incarnation: Incarnation,
        out: &mut Out,
    ) {
        let me = self.me;
        let cell = self.cell_mut(task).expect("only live tasks are moved");
        let before = std::mem::replace(&mut cell.holder, holder);
        cell.holder_incarnation = incarnation;
        let attempt = cell.attempt;
        self.forget_held_remotely(before, task);
        if holder != me {
            self.held_remotely.entry(holder).or_default().insert(task);
            if self.mutant == Some(Mutant::ThrottleForgetsOthers) {
                self.give_place_back(task);
            }
        }
        let record = out.facts.holders.entry((task.partition(), task.job)).or_default();
        record.index.push(task.local.index());
        record.attempt.push(attempt.0);
        record.node.push(holder.0);
        record.incarnation.push(incarnation.0);
    }

    /// No node holds the task any more.
    pub(crate) fn release_holder(&mut self, task: TaskId) {
        if let Some(holder) = self.cell(task).map(|cell| cell.holder) {
            self.forget_held_remotely(holder, task);
        }
    }

    pub(super) fn forget_held_remotely(&mut self, holder: NodeId, task: TaskId) {
        if holder != self.me
            && let Some(tasks) = self.held_remotely.get_mut(&holder)
        {
            tasks.remove(&task);
        }
    }

    /// A task of this home returns to it, by a steal or from an earlier home. Returns false if the
    /// task is not wanted any more, or runs elsewhere: then this node had given it away and took it
    /// back too soon.
    pub(crate) fn take_home(&mut self, task: TaskId, attempt: Attempt, out: &mut Out) -> bool {
        let me = self.me;
        let current = self.cell(task).is_some_and(|cell| {
            let runs_elsewhere = cell.started && cell.holder != me;
            cell.state == State::Ready && cell.attempt == attempt && !runs_elsewhere
        });
        let current = current && !self.is_removed(task.job);
        if current {
            let (me, incarnation) = (self.me, self.incarnation);
            self.set_holder(task, me, incarnation, out);
        }
        current
    }

    /// Whether this attempt is ready or runs on that node, according to the task's record.
    pub(crate) fn is_held_by(&self, task: TaskId, attempt: Attempt, node: NodeId) -> bool {
        self.cell(task).is_some_and(|cell| cell.attempt == attempt && cell.is_held_by(node))
    }

    /// Adds what the attempt has used to the counts of its part.
    pub(crate) fn count_execution(&mut self, task: TaskId, completion: &wire::Completion) {
        let Some(part) = self.part_mut(task) else { return };
        let count = &mut part.count;
        count.executions += 1;
        let add = |sum: &mut u64, n: u64| *sum = sum.saturating_add(n);
        add(&mut count.work_ns, completion.finished_ns.saturating_sub(completion.started_ns));
        for &size_bytes in &completion.output_sizes {
            add(&mut count.produced_bytes, size_bytes);
        }
        add(&mut count.moved_bytes, completion.moved_bytes);
        add(&mut count.local_bytes, completion.local_bytes);
        add(&mut count.inputs, completion.inputs.into());
        add(&mut count.inputs_local, completion.inputs_local.into());
        add(&mut count.inputs_copied, completion.inputs_copied.into());
        count.last_finish_ns = count.last_finish_ns.max(completion.finished_ns);
        if count.first_start_ns == 0 || completion.started_ns < count.first_start_ns {
            count.first_start_ns = completion.started_ns;
        }
    }

    /// Starts a further attempt of a failed task, if retries are left.
    pub(crate) fn try_again(&mut self, task: TaskId, out: &mut Out) -> bool {
        let retries = self.spec(task).map_or(0, |spec| spec.retries);
        let Some(cell) = self.cell_mut(task) else { return false };
        if u32::from(cell.tries) >= retries.min(u16::MAX.into()) {
            return false;
        }
        cell.tries = cell.tries.saturating_add(1);
        self.replace_ready(task, RetryReason::Retry, out);
        true
    }

    /// Whether the node holds tasks of this home, or has held some.
    pub(crate) fn has_given_to(&self, holder: NodeId) -> bool {
        self.held_remotely.contains_key(&holder)
    }
    /// The tasks that this other node holds.
    pub(crate) fn given_to(&self, holder: NodeId) -> Vec<TaskId> {
        self.held_remotely.get(&holder).into_iter().flatten().copied().collect()
    }
    /// The tasks that other nodes hold, by holder.
    pub(crate) fn given_away(&self) -> impl Iterator<Item = (NodeId, &BTreeSet<TaskId>)> {
        self.held_remotely.iter().map(|(&holder, tasks)| (holder, tasks))
    }

    /// Whether the task is held by this incarnation of its holder or an earlier one.
    pub(crate) fn is_held_up_to(&self, task: TaskId, incarnation: Incarnation) -> bool {
        let cell = self.cell(task).expect("held tasks have records");
        cell.state == State::Ready && cell.holder_incarnation <= incarnation
    }

    /// The holder of the task runs as this incarnation. It was unknown when the task was moved.
    pub(crate) fn name_holder_incarnation(&mut self, task: TaskId, incarnation: Incarnation) {
        let cell = self.cell_mut(task).expect("held tasks have records");
        cell.holder_incarnation = incarnation;
    }

    /// The node runs as `incarnation`, and was `before` as far as this node knew. Returns the tasks
    /// that another incarnation of it held, and those that it may never have received.
    pub(crate) fn check_incarnation_of_holder(
        &mut self,
        holder: NodeId,
        before: Option<Incarnation>,
        incarnation: Incarnation,
    ) -> (Vec<TaskId>, Vec<TaskId>) {
        let (mut lost, mut uncertain_tasks) = (Vec::new(), Vec::new());
        for task in self.given_to(holder) {
            let cell = self.cell_mut(task).expect("held tasks have records");
            if cell.holder_incarnation == Incarnation(0) {
                // The node that gave the task away did not know the peer's incarnation. The first
                // incarnation heard need not be the one that got the task.
                cell.holder_incarnation = before.unwrap_or(incarnation);
                if before.is_none() && incarnation > Incarnation::FIRST {
                    uncertain_tasks.push(task);
                }
            }
            if cell.holder_incarnation != incarnation {
                lost.push(task);
            }
        }
        (lost, uncertain_tasks)
    }
}
