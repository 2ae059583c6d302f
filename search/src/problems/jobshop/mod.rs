//! The job shop: each job visits all machines in its own order, a machine has one job at a time,
//! and the last job should end as early as possible.
//!
//! The search decides for pairs of jobs which one is first on a machine. Decisions follow from
//! others by heads, tails and edge finding; the bound is Jackson's preemptive schedule of each
//! machine.
//! Witness: the start of each operation, job by job, in the order of its operations.

mod machine;
mod orders;
mod parse;
mod problem;
mod start;
#[cfg(test)]
mod tests;

pub use parse::{DURATION_MAX, JOBS_MAX, MACHINES_MAX, parse};
pub use problem::{JobShop, JobShopChildren, JobShopNode};

/// A step of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Operation {
    pub machine: usize,
    pub duration: i64,
}

/// Jobs with their operations. Each job visits each machine once.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Instance {
    pub(crate) machines: usize,
    pub(crate) jobs: Vec<Vec<Operation>>,
}

impl Instance {
    #[must_use]
    pub fn machines(&self) -> usize {
        self.machines
    }

    /// The operations of each job, in order.
    #[must_use]
    pub fn jobs(&self) -> &[Vec<Operation>] {
        &self.jobs
    }

    /// The number by which an operation is known: its machine and its job.
    pub(crate) fn index(&self, machine: usize, job: usize) -> usize {
        machine * self.jobs.len() + job
    }

    /// By the number of an operation: its duration.
    pub(crate) fn durations(&self) -> Vec<i64> {
        let mut durations = vec![0; self.machines * self.jobs.len()];
        for (job, operations) in self.jobs.iter().enumerate() {
            for operation in operations {
                durations[self.index(operation.machine, job)] = operation.duration;
            }
        }
        durations
    }

    /// The starts in the order of the witness.
    pub(crate) fn witness(&self, starts: &[i64]) -> Vec<i64> {
        let jobs = self.jobs.iter().enumerate();
        jobs.flat_map(|(job, operations)| {
            operations.iter().map(move |operation| starts[self.index(operation.machine, job)])
        })
        .collect()
    }
}
