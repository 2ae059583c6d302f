//! Where every task is, as far as one node knows: for those who check that none is lost. Nothing
//! decides by it.

use std::collections::BTreeSet;

use proto::{Attempt, Incarnation, JobId, NodeId, TaskId};

use crate::Scheduler;
use crate::ready_queue::Ready;

/// The tasks of one job at one home, by their records; and what the home's counters say.
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
    /// Done, failed, cancelled, skipped by the counters that are reported.
    pub told: [u64; 4],
    /// Tasks that have not ended by the counter.
    pub open: u64,
}

/// A ready task and whom its home believes to hold it.
#[derive(Clone, Copy, Debug)]
pub struct Believed {
    pub task: TaskId,
    pub attempt: Attempt,
    pub holder: NodeId,
    /// 0: the holder has not been heard of.
    pub incarnation: Incarnation,
}

/// What one node knows of tasks.
#[derive(Clone, Debug, Default)]
pub struct Census {
    pub jobs: Vec<JobCount>,
    /// Waiting tasks by records, and by the counter.
    pub waiting: (u64, u64),
    pub believed: Vec<Believed>,
    /// In a queue, staged or running here.
    pub held: BTreeSet<(TaskId, Attempt)>,
    /// Granted to a thief whose homes may not all know yet.
    pub in_transit: BTreeSet<(TaskId, Attempt)>,
    /// Held here, but in no queue, and waiting for nothing: it would never start.
    pub stuck: Vec<(TaskId, Attempt)>,
    /// Something is still to be said to homes that were not served when it was tried last.
    pub has_parked: bool,
}

impl Scheduler {
    /// Counts everything. Slow: for checks alone.
    #[must_use]
    pub fn census(&self) -> Census {
        let queued = self.local.all().chain(self.shared.all());
        let current = queued.filter(|ready| self.is_current(*ready));
        let mut held: BTreeSet<(TaskId, Attempt)> = current.map(key).collect();
        let remote_tasks = self.remote_tasks.iter().map(|(&task, remote)| (task, remote.attempt));
        let mut stuck: Vec<_> = remote_tasks.filter(|remote| !held.contains(remote)).collect();
        for (&task, staged) in &self.staging {
            held.insert((task, staged.attempt));
            if !staged.waits(self.awaiting_slot.contains(&task)) {
                stuck.push((task, staged.attempt));
            }
        }
        held.extend(self.running.iter().map(|(&task, running)| (task, running.attempt)));
        stuck.sort_unstable();
        Census {
            jobs: self.ledger.job_counts(),
            waiting: (self.ledger.waiting_by_records(), self.ledger.waiting),
            believed: self.ledger.believed(),
            held,
            in_transit: self.unacked_grants.values().flat_map(|grant| grant.all()).collect(),
            stuck,
            has_parked: !self.undelivered.is_empty(),
        }
    }
}

fn key(ready: Ready) -> (TaskId, Attempt) {
    (ready.task, ready.attempt)
}
