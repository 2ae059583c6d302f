//! The end of a job at nodes that hold something of it: its home tells them, or is asked.

use std::collections::BTreeSet;

use proto::wire::message::Body;
use proto::{JobId, wire};

use crate::Scheduler;
use crate::out::Out;

/// Jobs of which tasks were staged or objects brought here, or stored before.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    jobs: BTreeSet<JobId>,
    /// Those whose home was asked whether they have ended, and of which nothing has come since.
    asked: BTreeSet<JobId>,
}

impl Touched {
    pub(crate) fn touch(&mut self, job: JobId) {
        self.jobs.insert(job);
        self.came(job);
    }
    /// Something of it has come.
    pub(crate) fn came(&mut self, job: JobId) {
        self.asked.remove(&job);
    }
    /// False where nothing of it is here.
    pub(crate) fn forget(&mut self, job: JobId) -> bool {
        self.asked.remove(&job);
        self.jobs.remove(&job)
    }
    pub(crate) fn iter(&self) -> impl Iterator<Item = JobId> + '_ {
        self.jobs.iter().copied()
    }
}

impl Scheduler {
    /// An empty report asks a job's home whether it has ended. Only a node that is home of none of
    /// it may ask so early: a commit may have been lost in a power cut, and "no such job" would
    /// drop chunks that their client is about to commit again.
    pub(crate) fn ask_of_end(&mut self, job: JobId, out: &mut Out) {
        if self.ledger.jobs.contains_key(&job) {
            return;
        }
        self.data.touched.asked.insert(job);
        let counts = wire::Counts { job: job.0, ..Default::default() };
        out.reliable.push((self.homes.job_home(job), Body::Counts(counts)));
    }

    /// The job is over everywhere: what it holds in memory may go when there is need of room. Or
    /// its home knew of no such job.
    pub(crate) fn on_job_end(&mut self, end: wire::JobEnd, out: &mut Out) {
        let job_id = JobId(end.job);
        if end.unknown && self.is_known_by_now(job_id, out) {
            return;
        }
        self.forget_data(job_id, out);
        let Some(job) = self.ledger.jobs.get_mut(&job_id) else { return };
        if job.ended {
            return;
        }
        if !job.visible {
            self.ledger.expire(job_id, out);
            return;
        }
        job.ended = true;
        self.ledger.live.remove(&job_id);
        let mut retired = Vec::new();
        for (&partition, part) in &mut job.parts {
            retired.push((partition, part.take_ended()));
        }
        for (&partition, part) in &job.parts {
            let record = job.visible_record(part.chunks());
            out.facts.visible.insert((partition, job_id), record);
        }
        for (partition, chunks) in retired {
            self.ledger.retire(job_id, partition, &chunks);
        }
        self.ledger.forget_releases(job_id);
    }

    /// That there is no such job was true when it was said. Where the job is visible it has been
    /// committed since; where something of it has come since, it may have been: its home is asked
    /// once more.
    fn is_known_by_now(&mut self, job_id: JobId, out: &mut Out) -> bool {
        match self.ledger.jobs.get(&job_id) {
            Some(job) => job.visible,
            None if self.data.touched.asked.contains(&job_id) => false,
            None => {
                self.ask_of_end(job_id, out);
                true
            }
        }
    }
}
