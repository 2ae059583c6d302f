//! The tasks that the commands of a list have spawned.

use std::collections::HashMap;

use lens::TaskRow;
use lens::record::Tasks;
use proto::wire::{JobState, TaskPhase, TaskState};
use proto::{JobId, LocalId};
use verb::output::say;
use verb::units::count;

use crate::views::{alike, jobs};

/// The maximum of sorts of failures that are listed; all failures are counted.
const SPAWNED_FAILURES_TOLD_MAX: usize = 5;

#[derive(Debug, Default)]
pub(super) struct SpawnedTasks {
    /// The ended ones.
    pub(super) counts: Tasks,
    /// The failed ones of batches that have not ended.
    failed: HashMap<JobId, HashMap<LocalId, TaskRow>>,
    /// Sorts of failures so far.
    sorts: usize,
}

impl SpawnedTasks {
    /// A task of this batch has ended that is no entry.
    pub(super) fn add(&mut self, job: JobId, task: &TaskState) {
        self.counts.total += 1;
        match task.phase() {
            TaskPhase::TaskDone => self.counts.done += 1,
            TaskPhase::TaskFailed => {
                self.counts.failed += 1;
                let of_batch = self.failed.entry(job).or_default();
                of_batch.insert(LocalId(task.local), alike::row(task));
            }
            TaskPhase::TaskSkipped => self.counts.skipped += 1,
            _ => self.counts.cancelled += 1,
        }
    }

    /// Tells the failures of a batch that has ended.
    pub(super) fn tell(&mut self, state: &JobState, tells_all: bool) {
        let Some(failed) = self.failed.remove(&JobId(state.job)) else { return };
        let mut kept = jobs::counts(state).failures;
        kept.retain(|failure| failed.contains_key(&LocalId(failure.local)));
        for group in alike::group(failed, &kept) {
            self.sorts += 1;
            if tells_all || self.sorts <= SPAWNED_FAILURES_TOLD_MAX {
                group.lines().iter().for_each(|line| say(line));
            }
        }
    }

    pub(super) fn are_done(&self) -> bool {
        self.counts.done == self.counts.total
    }

    /// How many are not done, in a line. `--halt` leaves tasks out by intent.
    pub(super) fn line(&self, is_halted: bool) -> Option<String> {
        let Tasks { total, failed, skipped, cancelled, .. } = self.counts;
        let parts = [(failed, "failed"), (skipped, "skipped"), (cancelled, "cancelled")];
        let parts = if is_halted { &parts[..1] } else { &parts[..] };
        let parts = parts.iter().filter(|(number, _)| *number > 0);
        let parts: Vec<String> =
            parts.map(|(number, what)| format!("{} {what}", count(*number))).collect();
        let total = count(total);
        (!parts.is_empty()).then(|| format!("spawned tasks: {} of {total}", parts.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spawned_task_that_is_not_done_is_told() {
        let mut spawned = SpawnedTasks::default();
        let mut add = |local: u64, phase: TaskPhase| {
            let task = TaskState { local, phase: phase as i32, ..TaskState::default() };
            spawned.add(JobId(1), &task);
            (spawned.are_done(), spawned.line(false), spawned.line(true))
        };
        assert_eq!(add(5, TaskPhase::TaskDone), (true, None, None));
        let skipped = Some("spawned tasks: 1 skipped of 2".to_owned());
        assert_eq!(add(6, TaskPhase::TaskSkipped), (false, skipped, None));
        let both = Some("spawned tasks: 1 failed, 1 skipped of 3".to_owned());
        let failed = Some("spawned tasks: 1 failed of 3".to_owned());
        assert_eq!(add(7, TaskPhase::TaskFailed), (false, both, failed));
        let other = JobState { job: 2, ..JobState::default() };
        spawned.tell(&other, false);
        assert_eq!(spawned.failed.len(), 1);
        spawned.tell(&JobState { job: 1, ..JobState::default() }, false);
        assert_eq!((spawned.failed.len(), spawned.sorts), (0, 1));
    }
}
