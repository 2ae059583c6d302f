//! A cache of recently reported completions. If a home fails before it has persisted one, the
//! report is sent to the new home. That home may ask this node which tasks it holds before the
//! report arrives. Without the cache the answer would be "not held", and the task would run twice.

use std::collections::{BTreeMap, VecDeque};

use proto::{Attempt, JobId, PartitionId, TaskId, wire};

/// The number of completions reported to other homes that a node remembers for the next home.
const ENDS_REMEMBERED_MAX: usize = 1024;

/// The cache of reported ends. Filled only where homes may move.
#[derive(Debug, Default)]
pub(crate) struct RecentCompletions {
    ends: BTreeMap<TaskId, wire::Completion>,
    /// All cached tasks, oldest first.
    order: VecDeque<TaskId>,
}

impl RecentCompletions {
    pub(crate) fn note(&mut self, task: TaskId, completion: wire::Completion) {
        if self.ends.insert(task, completion).is_none() {
            self.order.push_back(task);
        }
        if self.order.len() > ENDS_REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.ends.remove(&oldest);
        }
    }

    pub(crate) fn of(&self, task: TaskId, attempt: Attempt) -> Option<&wire::Completion> {
        self.ends.get(&task).filter(|end| end.attempt == attempt.0)
    }

    pub(crate) fn of_partition(
        &self,
        partition: PartitionId,
    ) -> impl Iterator<Item = (TaskId, Attempt)> + '_ {
        let ends = self.ends.iter().filter(move |(task, _)| task.partition() == partition);
        ends.map(|(&task, end)| (task, Attempt(end.attempt)))
    }

    /// The end does not count.
    pub(crate) fn forget(&mut self, task: TaskId, attempt: Attempt) {
        if self.of(task, attempt).is_some() {
            self.ends.remove(&task);
            self.order.retain(|&other| other != task);
        }
    }

    pub(crate) fn forget_job(&mut self, job: JobId) {
        self.ends.retain(|task, _| task.job != job);
        self.order.retain(|task| task.job != job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(number: u64, attempt: u64) -> (TaskId, wire::Completion) {
        (TaskId::new(1, number), wire::Completion { attempt, ..Default::default() })
    }

    #[test]
    fn the_last_ones_are_remembered_each_with_its_last_attempt() {
        let mut recent = RecentCompletions::default();
        for number in 0..ENDS_REMEMBERED_MAX as u64 {
            let (task, end) = end(number, 1);
            recent.note(task, end);
        }
        let (first, again) = end(0, 2);
        recent.note(first, again);
        assert!(recent.of(first, Attempt(1)).is_none() && recent.of(first, Attempt(2)).is_some());
        let (one_more, end) = end(1 << 20, 1);
        recent.note(one_more, end);
        assert!(recent.of(first, Attempt(2)).is_none(), "it is the oldest");
        assert!(recent.of(one_more, Attempt(1)).is_some());
        assert_eq!(recent.ends.len(), ENDS_REMEMBERED_MAX);
        recent.forget_job(JobId(1));
        assert!(recent.ends.is_empty() && recent.order.is_empty());
    }
}
