//! Tasks with a release time. A task with nothing else missing waits here for that time; its record
//! stays Waiting. Only the release times of the chunk and the time of the submission, from which
//! they count, are stored. So a recovered home computes the same times.

use proto::{JobId, TaskId, Time};

use super::Ledger;

impl Ledger {
    /// When the task may start.
    fn released_at(&self, task: TaskId) -> Option<Time> {
        let job = self.jobs.get(&task.job)?;
        let index = task.local.index();
        let release = job.parts.get(task.partition())?.segment(index)?.release(index);
        Some(job.submitted + release)
    }

    /// Whether the task, without missing inputs, still waits for its time.
    pub(crate) fn awaits_release(&mut self, now: Time, task: TaskId) -> bool {
        if !self.has_releases {
            return false;
        }
        let Some(at) = self.released_at(task).filter(|&at| at > now) else { return false };
        self.unreleased.insert((at, task));
        true
    }

    /// Places tasks that are due, up to `budget`.
    pub(crate) fn release_due(&mut self, now: Time, budget: usize) {
        for _ in 0..budget {
            let Some(&(at, task)) = self.unreleased.first().filter(|(at, _)| *at <= now) else {
                return;
            };
            self.unreleased.remove(&(at, task));
            self.ready.push_back(task);
        }
    }

    pub(crate) fn next_release(&self) -> Option<Time> {
        self.unreleased.first().map(|&(at, _)| at)
    }

    /// The next release of the job among tasks that wait only for their time.
    pub(crate) fn next_release_of(&self, job: JobId) -> Option<Time> {
        let next = self.unreleased.iter().find(|(_, task)| task.job == job);
        next.map(|&(at, _)| at)
    }

    /// Whether any task waits for a credit, not only for its release time.
    pub(crate) fn awaits_credits(&self) -> bool {
        self.waiting > self.unreleased.len() as u64
    }

    /// The task ended before its time.
    pub(super) fn forget_release(&mut self, task: TaskId) {
        if self.unreleased.is_empty() {
            return;
        }
        if let Some(at) = self.released_at(task) {
            self.unreleased.remove(&(at, task));
        }
    }

    /// The job has ended: its tasks that still waited were cancelled.
    pub(crate) fn forget_releases(&mut self, job: JobId) {
        self.unreleased.retain(|(_, task)| task.job != job);
    }

    /// Explains the wait of a task without missing inputs.
    pub(super) fn explain_release(&self, task: TaskId) -> Option<String> {
        let at = self.released_at(task)?;
        let submitted = self.jobs.get(&task.job)?.submitted;
        let waits = self.unreleased.contains(&(at, task));
        waits.then(|| {
            let after_s = at.since(submitted).as_secs_f64();
            format!("it waits for its release at {after_s:.3} s after the submission of its job")
        })
    }
}
