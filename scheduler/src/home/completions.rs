//! A home's reactions to reports of other nodes: completions, moves, tasks that are not held.

use proto::event::{Event, RetryReason};
use proto::marks::{Mark, mark};
use proto::wire::message::Body;
use proto::{Attempt, Incarnation, NodeId, PartitionId, TaskId, Time, wire};

use crate::home::Home;
use crate::home::ledger::{End, Ending, State};
use crate::home::recall::Checked;
use crate::output::{Out, task_attempt};
use crate::{Mutant, Scheduler};

impl Home {
    /// Records what a holder reports beside holding a task: that it starts the task, or that an
    /// earlier holder has crashed.
    pub(crate) fn note_of_holder(
        &mut self,
        task: TaskId,
        starts: bool,
        gone: (NodeId, Incarnation),
        out: &mut Out,
    ) {
        if starts {
            self.ledger.note_start(task, out);
        }
        if gone.1 != Incarnation(0) {
            self.ledger.note_held(task, gone, out);
        }
    }
}

impl Scheduler {
    /// The high half of all numbers that this home gives out for a partition. No earlier or later
    /// home of the partition has the same.
    #[must_use]
    pub fn term(&self, partition: PartitionId) -> u32 {
        self.routing.homes().term(partition).unwrap_or(self.options.incarnation.0)
    }

    /// An attempt ended on some node. Its end counts only if the attempt is the current one.
    pub(crate) fn complete(
        &mut self,
        now: Time,
        from: NodeId,
        completion: &mut wire::Completion,
        out: &mut Out,
    ) {
        let task = TaskId::new(completion.job, completion.local);
        let attempt = Attempt(completion.attempt);
        let Some(cell) = self.home.ledger.cell(task) else { return };
        let any_attempt = self.options.mutant == Some(Mutant::CompletionWithoutAttempt);
        match cell.state() {
            // A repeated report: the first one counted.
            State::Ended(_) if cell.attempt() == attempt => return,
            State::Ready if cell.attempt() == attempt || any_attempt => {}
            State::Waiting if any_attempt => {}
            _ => {
                mark(Mark::CompletionStale);
                out.events.push(Event::Stale { task, attempt });
                out.stale.entry(from).or_default().push(task_attempt(task, attempt));
                return;
            }
        }
        if self.home.ledger.is_removed(task.job) {
            // The job was cancelled before the completion arrived.
            self.home.ledger.give_up(now, task, End::Cancelled, "", out);
            return;
        }
        let lost = &completion.lost_inputs;
        if !lost.is_empty() && self.home.ledger.inputs_lost(task, lost, self.routing.homes(), out) {
            return;
        }
        let is_done = completion.verdict == wire::Verdict::Done as i32;
        if is_done && self.hold_for_recall(task, from, completion, out) {
            return;
        }
        self.conclude(now, from, completion, Checked::Same, out);
    }

    /// Counts the end of the current attempt.
    pub(crate) fn conclude(
        &mut self,
        now: Time,
        from: NodeId,
        completion: &mut wire::Completion,
        checked: Checked,
        out: &mut Out,
    ) {
        let task = TaskId::new(completion.job, completion.local);
        let attempt = Attempt(completion.attempt);
        self.home.ledger.count_execution(task, completion);
        let failed = completion.verdict != wire::Verdict::Done as i32;
        if completion.lost {
            match self.home.ledger.runner_died(task, completion.hung, out) {
                Some(error) => completion.error = error,
                None => return self.home.ledger.replace_ready(task, RetryReason::Lost, out),
            }
        } else if failed && checked != Checked::Used && self.home.ledger.try_again(task, out) {
            return;
        }
        if failed && checked != Checked::Used && self.home.ledger.has_earlier_end(task) {
            completion.error = self.home.failed_again(task, completion);
        }
        let end = if failed { End::Failed } else { End::Done };
        self.estimate(task, from, completion, failed);
        if failed {
            let detail = wire::EndDetail {
                index: task.local.index(),
                exit_code: completion.exit_code,
                error: completion.error.clone(),
                stderr_tail: completion.stderr_tail.clone(),
                ..Default::default()
            };
            self.home.ledger.keep_failure(task, attempt, NodeId(completion.node), &detail);
        }
        let ending = Ending::of_completion(completion, checked == Checked::Changed);
        self.home.ledger.end(now, task, end, NodeId(completion.node), ending, out);
    }

    /// Updates the estimates of this home. An attempt that ran here was counted when it ended.
    fn estimate(
        &mut self,
        task: TaskId,
        from: NodeId,
        completion: &wire::Completion,
        failed: bool,
    ) {
        if failed || from == self.options.me {
            return;
        }
        if let Some(spec) = self.home.ledger.spec(task) {
            let length = Time(completion.finished_ns).since(Time(completion.started_ns));
            self.policy.note_length(&spec.kind, length);
        }
    }

    /// A thief reports the tasks that it holds now.
    pub(crate) fn on_tasks_moved(
        &mut self,
        thief: NodeId,
        moved: &wire::TasksMoved,
        out: &mut Out,
    ) {
        let (mut stale, mut doubtful) = (Vec::new(), Vec::new());
        let misses = self.options.mutant == Some(Mutant::CancelMissesHolder);
        let (starts, start_withdrawn) = (moved.starts, moved.start_withdrawn);
        // The sender has not run the tasks.
        let has_not_run = starts || start_withdrawn || moved.gone_incarnation > 0;
        let gone = (NodeId(moved.gone_node), Incarnation(moved.gone_incarnation));
        for moved in &moved.tasks {
            let task = TaskId::new(moved.job, moved.local);
            let attempt = Attempt(moved.attempt);
            let Some(cell) = self.home.ledger.cell(task) else {
                if starts || start_withdrawn {
                    stale.push(task_attempt(task, attempt)); // The task ended long ago.
                }
                continue;
            };
            match cell.state() {
                State::Ended(End::Cancelled) if misses => {}
                // The job is cancelled, and this task's turn has not come: it must not run
                // meanwhile.
                State::Ready if self.home.ledger.is_removed(task.job) => {
                    stale.push(task_attempt(task, attempt));
                }
                // The task runs elsewhere: the sender had given it away, and took it back too soon.
                State::Ready if cell.has_started() && cell.holder() != thief => {
                    stale.push(task_attempt(task, attempt));
                }
                // The sender took the task back from a node that died. That node had reported it,
                // or had given it away: another node has it, or this home places it again.
                State::Ready if gone.1 != Incarnation(0) && cell.holder() != thief => {
                    stale.push(task_attempt(task, attempt));
                }
                State::Ready if cell.attempt() == attempt => {
                    let incarnation = self.incarnation_of(thief);
                    if cell.holder() != thief || cell.holder_incarnation() != incarnation {
                        self.home.ledger.set_holder(task, thief, incarnation, out);
                    }
                    if start_withdrawn {
                        self.home.ledger.start_is_over(task, out); // Withdrawn: it has not run.
                    }
                    self.home.note_of_holder(task, starts, gone, out);
                    // An earlier incarnation may have revoked the attempt before a power cut lost
                    // that. Then the thief has dropped the task since it sent this message.
                    if attempt.term() < self.term(task.partition()) {
                        doubtful.push(task_attempt(task, attempt));
                    }
                }
                // The thief has run the task already. A task that was cancelled or skipped must not
                // run.
                State::Ended(End::Done | End::Failed)
                    if cell.attempt() == attempt
                        && (!has_not_run || starts && cell.holder() == thief) => {}
                _ => stale.push(task_attempt(task, attempt)),
            }
        }
        let reply = wire::TasksMovedAck { steal: moved.steal, stale };
        out.reliable.push((thief, Body::TasksMovedAck(reply)));
        if !doubtful.is_empty() {
            out.reliable
                .push((thief, Body::HeldTasksQuery(wire::HeldTasksQuery { tasks: doubtful })));
        }
    }

    /// A holder reports that it does not have tasks that it has according to this home's records.
    pub(crate) fn on_tasks_not_held(
        &mut self,
        holder: NodeId,
        told: &wire::TasksNotHeld,
        out: &mut Out,
    ) {
        let why = match told {
            wire::TasksNotHeld { moved: true, .. } => RetryReason::Moved,
            wire::TasksNotHeld { member_gone: true, .. } => RetryReason::MemberGone,
            _ => RetryReason::NotHeld,
        };
        for asked in &told.tasks {
            let task = TaskId::new(asked.job, asked.local);
            if self.home.ledger.is_held_by(task, Attempt(asked.attempt), holder) {
                let moved = Event::Moved { task, attempt: Attempt(asked.attempt), from: holder };
                out.events.extend(told.moved.then_some(moved));
                self.home.ledger.replace_ready(task, why, out);
                // Tasks that a leaving node gives back have only waited there.
                if !told.moved && self.routing.homes().is_leaving(holder) {
                    self.home.ledger.waits_for_its_turn(task);
                }
            }
        }
    }
}
