//! A batch system: it queues, starts, ends and forgets batch jobs.

use std::collections::BTreeMap;

use allocation::{BatchState, How, Row};

/// It forgets batch jobs this long after their end.
const REMEMBERS_MS: u64 = 300_000;

#[derive(Clone, Debug)]
pub(crate) struct BatchJob {
    pub(crate) name: String,
    pub(crate) number: u64,
    pub(crate) nodes: u32,
    pub(crate) state: BatchState,
    pub(crate) ended_ms: u64,
    /// It has claimed its intent.
    pub(crate) works: bool,
    pub(crate) ends_ms: u64,
    /// The ends of the tasks that run in it.
    pub(crate) tasks: Vec<u64>,
    pub(crate) idle_since_ms: u64,
}

#[derive(Default, Debug)]
pub(crate) struct BatchSystem {
    pub(crate) jobs: BTreeMap<u64, BatchJob>,
    pub(crate) away_until_ms: u64,
    next: u64,
}

impl BatchSystem {
    pub(crate) fn is_away(&self, now_ms: u64) -> bool {
        now_ms < self.away_until_ms
    }
    pub(crate) fn submit(&mut self, name: &str, number: u64, nodes: u32) -> u64 {
        self.next += 1;
        let job = BatchJob {
            name: name.to_owned(),
            number,
            nodes,
            state: BatchState::Waiting,
            ended_ms: 0,
            works: false,
            ends_ms: 0,
            tasks: Vec::new(),
            idle_since_ms: 0,
        };
        self.jobs.insert(self.next, job);
        self.next
    }
    pub(crate) fn end(&mut self, id: u64, how: How, now_ms: u64) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        (job.state, job.ended_ms, job.works) = (BatchState::Ended(how), now_ms, false);
        job.tasks.clear();
    }
    /// What it still knows.
    pub(crate) fn rows(&mut self, now_ms: u64) -> Vec<Row> {
        let is_known = |job: &BatchJob| {
            !matches!(job.state, BatchState::Ended(_)) || now_ms < job.ended_ms + REMEMBERS_MS
        };
        self.jobs.retain(|_, job| is_known(job));
        let row = |(id, job): (&u64, &BatchJob)| Row {
            job: id.to_string(),
            name: job.name.clone(),
            state: job.state,
            reason: String::new(),
        };
        self.jobs.iter().map(row).collect()
    }
    pub(crate) fn working(&self) -> impl Iterator<Item = (&u64, &BatchJob)> {
        self.jobs.iter().filter(|(_, job)| job.works)
    }
}
