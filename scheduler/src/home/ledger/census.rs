//! Counts the records of a home, for checkers that look for lost tasks.

use proto::{JobId, LocalId, TaskId, wire};

use super::records::{Cell, End, State};
use super::{Job, Ledger};
use crate::home::task_inventory::{Believed, JobCount};

impl Ledger {
    /// The tasks of every live job at this home, by state.
    pub(crate) fn job_counts(&self) -> Vec<JobCount> {
        self.live_jobs().map(|(job_id, job)| count(job_id, job)).collect()
    }

    /// The number of waiting tasks according to their records, to compare with the counter.
    pub(crate) fn waiting_by_records(&self) -> u64 {
        let cells = self.jobs.values().flat_map(|job| job.parts.values());
        let waiting = |part: &super::Part| {
            part.indices().filter(|&index| part.state(index) == Some(State::Waiting)).count()
        };
        cells.map(|part| waiting(part) as u64).sum()
    }

    /// Ready tasks with their holders according to this home's records. A task with an end that
    /// waits for a recall has no holder.
    pub(crate) fn believed(&self) -> Vec<Believed> {
        let mut all = Vec::new();
        // The tasks of a cancelled job are about to end; no node needs to hold them.
        for (job_id, job) in self.live_jobs().filter(|(_, job)| !job.cancelled) {
            for (partition, part) in job.parts.iter() {
                for index in part.indices() {
                    let cell = part.segment(index).and_then(|segment| segment.cell(index));
                    let task = TaskId { job: job_id, local: LocalId::new(partition, index) };
                    let runs = |cell: &&Cell| {
                        cell.state == State::Ready && !self.recalls.waits(task, cell.attempt)
                    };
                    if let Some(cell) = cell.filter(runs) {
                        all.push(Believed {
                            task,
                            attempt: cell.attempt,
                            holder: cell.holder,
                            incarnation: cell.holder_incarnation,
                        });
                    }
                }
            }
        }
        all
    }
}

fn count(job_id: JobId, job: &Job) -> JobCount {
    let mut counted = JobCount { job: job_id, visible: job.visible, ..JobCount::default() };
    let mut told = wire::PartitionCount::default();
    for part in job.parts.values() {
        counted.tasks += part.tasks;
        told.done += part.count.done;
        told.failed += part.count.failed;
        told.cancelled += part.count.cancelled;
        told.skipped += part.count.skipped;
        for index in part.indices() {
            match part.state(index) {
                None => {}
                Some(State::Waiting) => counted.waiting += 1,
                Some(State::Ready) => counted.ready += 1,
                Some(State::Ended(End::Done)) => counted.done += 1,
                Some(State::Ended(End::Failed)) => counted.failed += 1,
                Some(State::Ended(End::Cancelled)) => counted.cancelled += 1,
                Some(State::Ended(End::Skipped)) => counted.skipped += 1,
            }
        }
    }
    counted.told = [told.done, told.failed, told.cancelled, told.skipped];
    counted.open = job.open;
    counted
}
