//! A list of all tasks that one node knows. Checkers use it to find lost tasks; no decision depends
//! on it.

use std::collections::BTreeSet;

use proto::{Attempt, Incarnation, JobId, NodeId, TaskId};

use crate::Scheduler;
use crate::holder::queues::ready_queue::Ready;

/// The tasks of one job at one home, counted according to their records, and the home's own
/// counters.
#[derive(Clone, Debug, Default)]
pub struct JobCount {
    pub job: JobId,
    pub visible: bool,
    pub tasks: u64,
    pub waiting: u64,
    pub ready: u64,
    pub done: u64,
    pub failed: u64,
    pub cancelled: u64,
    pub skipped: u64,
    /// The counters that are reported: done, failed, cancelled, skipped.
    pub told: [u64; 4],
    /// The counter of tasks that have not ended.
    pub open: u64,
}

/// A ready task and its holder according to the home's record.
#[derive(Clone, Copy, Debug)]
pub struct Believed {
    pub task: TaskId,
    pub attempt: Attempt,
    pub holder: NodeId,
    /// 0: no incarnation of the holder is known yet.
    pub incarnation: Incarnation,
}

/// All that one node knows of tasks.
#[derive(Clone, Debug, Default)]
pub struct Census {
    pub jobs: Vec<JobCount>,
    /// Waiting tasks: counted by records, and the counter.
    pub waiting: (u64, u64),
    pub believed: Vec<Believed>,
    /// Tasks that are queued, staged or running here.
    pub held: BTreeSet<(TaskId, Attempt)>,
    /// Tasks granted to thieves that have not confirmed yet that all homes know.
    pub in_transit: BTreeSet<(TaskId, Attempt)>,
    /// Tasks held here that are in no queue and wait for nothing, so that they would never start.
    pub stuck: Vec<(TaskId, Attempt)>,
    /// Whether messages are parked here for homes that were not served at the last try.
    pub has_parked: bool,
}

impl Scheduler {
    /// Counts everything. Slow: for checkers only.
    #[must_use]
    pub fn census(&self) -> Census {
        let queued = self.holder.local().all().chain(self.holder.shared().all());
        let current = queued.filter(|ready| self.is_current(*ready));
        let mut held: BTreeSet<(TaskId, Attempt)> = current.map(key).collect();
        let remote_tasks =
            self.holder.remote_tasks().iter().map(|(&task, remote)| (task, remote.attempt));
        let mut stuck: Vec<_> = remote_tasks.filter(|remote| !held.contains(remote)).collect();
        for (&task, staged) in self.holder.staging() {
            held.insert((task, staged.attempt()));
            if !staged.waits(self.holder.is_in_line(task)) {
                stuck.push((task, staged.attempt()));
            }
        }
        held.extend(self.holder.running().iter().map(|(&task, running)| (task, running.attempt())));
        held.extend(self.holder.attempts_with_turns());
        stuck.sort_unstable();
        Census {
            jobs: self.home.ledger.job_counts(),
            waiting: (self.home.ledger.waiting_by_records(), self.home.ledger.waiting()),
            believed: self.home.ledger.believed(),
            held,
            in_transit: self.stealing.in_transit().collect(),
            stuck,
            has_parked: !self.routing.undelivered().is_empty(),
        }
    }
}

fn key(ready: Ready) -> (TaskId, Attempt) {
    (ready.task, ready.attempt)
}
