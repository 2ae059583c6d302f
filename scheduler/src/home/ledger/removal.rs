//! Cancellation at a home: tasks end on request, wherever they are.
//!
//! A task that has not ended takes along all tasks that wait for it. Its children get credits by
//! the outbox, like those of any ended task, and end as cancelled too. A task that has ended stays,
//! and so do its children (the paper's rule).
//!
//! A whole job is marked first, durably. From then on no task of it is placed, run or counted as
//! done here, and its tasks end, a bounded number in each step.

use proto::{Event, JobId, LocalId, TaskId, Time};

use super::records::{End, State};
use super::{Ending, Ledger};
use crate::Mutant;
use crate::output::{Out, task_attempt};

/// The maximum number of tasks of cancelled jobs that end in one step.
const STEP_CANCELS_MAX: usize = 4096;

/// The progress of the cancellation of a whole job.
#[derive(Debug)]
pub(super) struct Removal {
    job: JobId,
    /// Tasks before this one have ended.
    from: LocalId,
}

impl Removal {
    pub(super) fn job(&self) -> JobId {
        self.job
    }
}

impl Ledger {
    /// Ends a task that will not be done, and informs its holder. Returns false if it had ended
    /// before. `by`: the requester; empty if the task ends because of another one.
    pub(crate) fn give_up(
        &mut self,
        now: Time,
        task: TaskId,
        end: End,
        by: &str,
        out: &mut Out,
    ) -> bool {
        let Some(cell) = self.cell(task) else { return false };
        let (state, holder, attempt) = (cell.state, cell.holder, cell.attempt);
        match state {
            State::Ended(_) => return false,
            State::Ready if self.mutant == Some(Mutant::CancelMissesHolder) => {}
            State::Ready => {
                out.stale.entry(holder).or_default().push(task_attempt(task, attempt));
                if self.mutant == Some(Mutant::CancelTrustsHolder) {
                    return true;
                }
            }
            State::Waiting => {}
        }
        let ending = Ending { error: by.to_owned(), ..Ending::default() };
        self.end(now, task, end, holder, ending, out);
        if end == End::Cancelled {
            self.keep_canceller(task, by);
        }
        true
    }

    /// The requester of the first cancelled task of a part is in its report.
    pub(super) fn keep_canceller(&mut self, task: TaskId, by: &str) {
        if let Some(part) = self.part_mut(task)
            && part.count.cancelled_by.is_empty()
        {
            by.clone_into(&mut part.count.cancelled_by);
        }
    }

    /// The whole job is cancelled. Returns false if that was known, or if there is no such job
    /// here. The job's home sends the commit first, on the same link. But the commit may be parked
    /// until a partition is served; then the cancellation is remembered.
    pub(crate) fn begin_removal(
        &mut self,
        now: Time,
        job_id: JobId,
        round: u32,
        out: &mut Out,
    ) -> bool {
        let Some(job) = self.jobs.get_mut(&job_id) else { return false };
        // A cancellation of a round that this node does not know yet is sent again.
        if job.ended || job.round() != round {
            return false;
        }
        if std::mem::replace(&mut job.cancelled, true) || !job.visible {
            return false;
        }
        for (partition, record) in job.visible_records() {
            out.facts.visible.insert((partition, job_id), record);
        }
        // The job's home waits for this report of each part.
        job.report_everything(now);
        out.events.push(Event::Removing { job: job_id });
        self.go_on_removing(job_id);
        true
    }

    /// The job has become visible, or more of it has: an earlier cancellation holds for all of it.
    pub(super) fn remove_if_told(&mut self, job: JobId, out: &mut Out) {
        if self.is_removed(job) {
            out.events.push(Event::Removing { job });
            self.go_on_removing(job);
        }
    }

    pub(super) fn go_on_removing(&mut self, job: JobId) {
        self.removals.push_back(Removal { job, from: LocalId(0) });
    }

    /// Ends tasks of cancelled jobs, until `STEP_CANCELS_MAX` tasks have ended in this step.
    pub(crate) fn remove_some(&mut self, now: Time, out: &mut Out) {
        if self.removals.is_empty() {
            return;
        }
        let ended: usize = out.facts.ends.values().map(|record| record.index.len()).sum();
        for _ in ended..STEP_CANCELS_MAX {
            let Some(removal) = self.removals.front() else { return };
            let Some(task) = self.next_open(removal) else {
                self.removals.pop_front();
                continue;
            };
            let is_skipped = self.skipped_for(task.job).is_some();
            let end = if is_skipped { End::Skipped } else { End::Cancelled };
            self.give_up(now, task, end, "", out);
            let removal = self.removals.front_mut().expect("looked at above");
            removal.from = LocalId(task.local.0 + 1);
        }
    }

    fn next_open(&self, removal: &Removal) -> Option<TaskId> {
        let job = self.jobs.get(&removal.job)?;
        let start = removal.from.partition();
        job.parts.from(start).find_map(|(partition, part)| {
            let first = if partition == start { removal.from.index() } else { 0 };
            let index = part.next_open(first)?;
            Some(TaskId { job: removal.job, local: LocalId::new(partition, index) })
        })
    }

    /// Whether the whole job is cancelled.
    pub(crate) fn is_removed(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|job| job.cancelled)
    }
}
