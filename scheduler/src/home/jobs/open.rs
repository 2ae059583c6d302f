//! Open jobs at their homes: the partitions that hold weight, reserved ids, and the close.
//!
//! The weight of a part is its membership: the job's home adds the partition to the job's record,
//! syncs, and answers. Nothing is added after the close. The job ends when all its partitions
//! have reported that they know of the close and that all their tasks have ended.

use proto::limits::NAME_BYTES_MAX;
use proto::wire::message::Body;
use proto::wire::{Openness, response};
use proto::{JobId, NodeId, PartitionId, Time, wire};

use super::silence::silence_of;
use super::{Job, Jobs};
use crate::home::ledger::open::{SPAWNED_CHUNKS, SPAWNED_INDICES};
use crate::home::requests::{refused, unknown_job};
use crate::output::Out;
use crate::routing::partition_owners::Homes;

/// The reason why nothing can be added to a job that has ended or is closed.
pub(crate) fn closed_text(job: u64) -> String {
    format!("job {job} is closed: no tasks can be added; hint: submit --open opens another job")
}
/// The reason why nothing can be added to a job that was submitted as a whole.
pub(crate) fn not_open_text(job: u64) -> String {
    format!(
        "job {job} was submitted as a whole: no tasks can be added; hint: submit --open makes a \
         job to which tasks are added later"
    )
}

impl Jobs {
    /// A partition asks for weight of a job.
    pub(crate) fn on_join(&mut self, from: NodeId, join: wire::Join, homes: &Homes, out: &mut Out) {
        let wire::Join { job, partition } = join;
        if homes.owner(PartitionId(partition)) != Some(from) {
            return; // The present home asks itself.
        }
        let refusal = match self.jobs.get_mut(&JobId(job)) {
            None => unknown_job(job),
            Some(job) => match job.admit(partition, out) {
                Ok(()) => {
                    let total = wire::PartitionTotal { partition, chunks: 0, tasks: 0 };
                    out.reliable.push((from, job.visible(vec![total])));
                    return;
                }
                Err(text) => refused(text),
            },
        };
        let wire::Error { code, text, .. } = refusal;
        let refusal = wire::JoinRefused { job, partition, code, text };
        out.reliable.push((from, Body::JoinRefused(refusal)));
    }

    /// Reserves ids for one client.
    pub(crate) fn reserve(
        &mut self,
        now: Time,
        job: u64,
        ids: wire::ReserveIds,
        out: &mut Out,
    ) -> Result<response::Body, wire::Error> {
        let job = self.jobs.get_mut(&JobId(job)).ok_or_else(|| unknown_job(job))?;
        job.check_open().map_err(refused)?;
        let state = &mut job.state;
        let (first, chunk) = (state.reserved_tasks, state.reserved_chunks);
        let tasks = first.saturating_add(ids.tasks);
        let chunks = chunk.saturating_add(ids.chunks);
        if tasks > SPAWNED_INDICES || chunks > SPAWNED_CHUNKS {
            let text = format!("job {} has no ids left: close it, and open another", state.job);
            return Err(refused(text));
        }
        (state.reserved_tasks, state.reserved_chunks) = (tasks, chunks);
        let (job_id, attachment) = (JobId(state.job), state.attachment);
        let silence_ns = silence_of(state).map_or(0, |silence| silence.after_ns);
        out.facts.jobs.insert(job_id, state.clone());
        self.heard(now, job_id, out);
        let (tasks, chunks) = (ids.tasks, ids.chunks);
        let reserved = wire::Reserved { first, tasks, chunk, chunks, attachment, silence_ns };
        Ok(response::Body::Reserved(reserved))
    }

    /// Closes a job: no more tasks are added. A repetition changes nothing.
    pub(crate) fn close(
        &mut self,
        now: Time,
        job: u64,
        homes: &Homes,
        out: &mut Out,
    ) -> Result<response::Body, wire::Error> {
        let job_id = JobId(job);
        let job = self.jobs.get_mut(&job_id).ok_or_else(|| unknown_job(job))?;
        if job.is_forgotten() {
            return Err(refused(job.forgotten_text()));
        }
        match job.state.openness() {
            Openness::ClosedGraph => return Err(refused(not_open_text(job.state.job))),
            Openness::Open if job.state.ended_ns == 0 => {
                job.begin_closing(homes, out);
                job.end_if_complete(now, homes, self.mutant, out);
                job.notify(out);
                self.collect(now, job_id, homes, out);
            }
            Openness::Open | Openness::Closing => {}
        }
        Ok(response::Body::Accepted(wire::Accepted {}))
    }
}

impl Job {
    pub(super) fn is_of_open_job(&self) -> bool {
        self.state.openness() != Openness::ClosedGraph
    }

    /// Refuses if no tasks can be added.
    pub(super) fn check_open(&self) -> Result<(), String> {
        if self.is_forgotten() {
            return Err(self.forgotten_text());
        }
        match self.state.openness() {
            Openness::ClosedGraph => Err(not_open_text(self.state.job)),
            Openness::Open if self.state.ended_ns == 0 => Ok(()),
            Openness::Open | Openness::Closing => Err(closed_text(self.state.job)),
        }
    }

    /// Gives weight to a partition. A partition that has it gets the answer again.
    fn admit(&mut self, partition: u32, out: &mut Out) -> Result<(), String> {
        let has_it = self.state.partitions.iter().any(|total| total.partition == partition);
        if has_it && self.state.ended_ns == 0 && self.is_of_open_job() {
            return Ok(());
        }
        self.check_open()?;
        self.state.partitions.push(wire::PartitionTotal { partition, chunks: 0, tasks: 0 });
        out.facts.jobs.insert(JobId(self.state.job), self.state.clone());
        Ok(())
    }

    /// Records the close and announces it to all partitions.
    pub(super) fn begin_closing(&mut self, homes: &Homes, out: &mut Out) {
        self.state.set_openness(Openness::Closing);
        out.facts.jobs.insert(JobId(self.state.job), self.state.clone());
        self.notify_homes(homes, out);
    }

    /// Whether tasks may still be added in some partition, as far as the reports say.
    pub(super) fn may_grow(&self) -> bool {
        let has_closed = |total: &wire::PartitionTotal| {
            self.counts.get(&total.partition).is_some_and(|count| count.closed)
        };
        match self.state.openness() {
            Openness::ClosedGraph => false,
            Openness::Open => true,
            Openness::Closing => !self.state.partitions.iter().all(has_closed),
        }
    }

    /// The number of submitted tasks follows the reports.
    pub(super) fn count_submitted(&mut self) {
        if self.is_of_open_job() {
            self.state.total = self.state.sum.as_ref().map_or(0, |sum| sum.submitted);
        }
    }

    /// An open job that waits for its clients is not stalled.
    pub(super) fn waits_for_clients(&self) -> bool {
        let sum = self.state.sum.as_ref();
        let ended = sum.map_or(0, |sum| sum.done + sum.failed + sum.cancelled + sum.skipped);
        self.state.openness() == Openness::Open && ended >= self.total()
    }

    /// The tasks of a partition as far as its home has reported or the commit says.
    pub(super) fn tasks_in(&self, part: &wire::PartitionTotal) -> u64 {
        let count = self.counts.get(&part.partition);
        if !self.is_of_open_job() {
            return part.tasks + count.map_or(0, |count| count.spawned);
        }
        count.map_or(1, |count| count.submitted + count.spawned + u64::from(!count.closed))
    }
}

/// Refuses a commit that opens a job, and has tasks.
pub(super) fn check_opening(commit: &wire::JobCommit) -> Result<(), String> {
    let is_bare = commit.partitions.is_empty() && commit.openness() == Openness::Open;
    match is_bare && commit.name.len() <= NAME_BYTES_MAX {
        true => Ok(()),
        false => Err(format!("job {} is opened without tasks", commit.job)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As many tasks as were submitted have ended, but one of them has spawned another.
    #[test]
    fn spawned_tasks_of_a_graph_are_tasks_of_their_partition() {
        let part = wire::PartitionTotal { partition: 2, tasks: 1, ..Default::default() };
        let mut job = Job::new(wire::JobState { job: 3, ..Default::default() });
        assert_eq!(job.tasks_in(&part), 1, "nothing is reported");
        let count = wire::PartitionCount { done: 1, spawned: 1, ..Default::default() };
        job.counts.insert(2, count);
        assert_eq!(job.tasks_in(&part), 2);
    }

    #[test]
    fn nothing_is_added_to_a_job_that_ended_while_it_was_open() {
        let openness = Openness::Open as i32;
        let mut job = Job::new(wire::JobState { job: 3, openness, ..Default::default() });
        let mut out = Out::default();
        assert_eq!((job.check_open(), job.admit(1, &mut out)), (Ok(()), Ok(())));
        job.state.ended_ns = 1;
        assert_eq!(job.check_open(), Err(closed_text(3)));
        assert_eq!(job.admit(1, &mut out), Err(closed_text(3)));
        assert_eq!(job.state.partitions.len(), 1);
    }
}
