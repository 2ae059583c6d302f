//! Jobs that run at most a number of their tasks at once.
//!
//! All tasks of such a job are in one partition, so one home counts all of them. It places a task
//! only while fewer are placed, and keeps the others here. A placed task is one with a current
//! attempt, on whatever node: the records say which, so a count is never stored, and a recovered
//! home finds the same number.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use proto::{JobId, LocalId, PartitionId, TaskId};

use super::{Ledger, State};

/// The tasks of all jobs with a limit that are homed here.
#[derive(Debug, Default)]
pub(crate) struct Throttles {
    jobs: BTreeMap<(JobId, PartitionId), Throttle>,
}

#[derive(Debug, Default)]
struct Throttle {
    /// The tasks with a current attempt.
    placed: BTreeSet<u64>,
    /// Tasks that could be placed: those of higher priority first, then in the order of the job.
    held: BTreeSet<(Reverse<i32>, u64)>,
}

impl Ledger {
    /// The maximum number of tasks of a job that run at once; 0: no limit.
    pub(crate) fn at_most(&self, job: JobId) -> usize {
        self.jobs.get(&job).map_or(0, |job| job.settings.at_most as usize)
    }

    /// Whether the task has to wait because enough tasks of its job are placed. If not, it counts
    /// as placed.
    pub(crate) fn is_throttled(&mut self, task: TaskId) -> bool {
        let at_most = self.at_most(task.job);
        if at_most == 0 {
            return false;
        }
        let key = (task.job, task.partition());
        let mut all = self.throttles.take().unwrap_or_default();
        let throttle = all
            .jobs
            .entry(key)
            .or_insert_with(|| Throttle { placed: self.placed_in(key), ..Throttle::default() });
        let waits = throttle.placed.len() >= at_most;
        let index = task.local.index();
        match waits {
            true => _ = throttle.held.insert((Reverse(self.priority(task)), index)),
            false => _ = throttle.placed.insert(index),
        }
        self.throttles = Some(all);
        waits
    }

    /// Places tasks that were held back, as many as the limits allow.
    pub(crate) fn release_throttled(&mut self) {
        let Some(mut all) = self.throttles.take() else { return };
        for (&key, throttle) in &mut all.jobs {
            let left = self.at_most(key.0).saturating_sub(throttle.placed.len());
            for _ in 0..left {
                let Some((_, index)) = throttle.held.pop_first() else { break };
                self.ready.push_back(TaskId { job: key.0, local: LocalId::new(key.1, index) });
            }
        }
        all.jobs.retain(|(job, _), _| self.live.contains(job));
        self.throttles = (!all.jobs.is_empty()).then_some(all);
    }

    /// Whether a task that is held back could be placed.
    pub(super) fn releases_throttled(&self) -> bool {
        let Some(all) = &self.throttles else { return false };
        all.jobs.iter().any(|(&key, throttle)| {
            !throttle.held.is_empty() && throttle.placed.len() < self.at_most(key.0)
        })
    }

    /// The task has no current attempt any more: another task of its job may have its place.
    pub(super) fn give_place_back(&mut self, task: TaskId) {
        let Some(all) = &mut self.throttles else { return };
        if let Some(throttle) = all.jobs.get_mut(&(task.job, task.partition())) {
            throttle.placed.remove(&task.local.index());
        }
    }

    fn placed_in(&self, key: (JobId, PartitionId)) -> BTreeSet<u64> {
        let part = self.jobs.get(&key.0).and_then(|job| job.parts.get(key.1));
        let all = part.into_iter().flat_map(|part| part.indices());
        all.filter(|&index| self.is_placed(key, index)).collect()
    }

    fn is_placed(&self, (job, partition): (JobId, PartitionId), index: u64) -> bool {
        self.state(TaskId { job, local: LocalId::new(partition, index) }) == Some(State::Ready)
    }

    fn priority(&self, task: TaskId) -> i32 {
        self.spec(task).map_or(0, |spec| spec.priority)
    }

    /// The limit of the job, if the task waits because of it.
    pub(crate) fn throttled_by(&self, task: TaskId) -> Option<usize> {
        let throttle = self.throttles.as_ref()?.jobs.get(&(task.job, task.partition()))?;
        let place = (Reverse(self.priority(task)), task.local.index());
        throttle.held.contains(&place).then(|| self.at_most(task.job))
    }

    /// Another node is home of this partition from now on.
    pub(super) fn give_up_throttled(&mut self, partition: PartitionId) {
        if let Some(all) = &mut self.throttles {
            all.jobs.retain(|(_, other), _| *other != partition);
        }
    }
}
