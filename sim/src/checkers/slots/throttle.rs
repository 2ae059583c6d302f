//! *Throttle*: of a job with a limit no more tasks run at once.
//!
//! An attempt that its home counts as dead may still run on a node that is cut off, so seeds with
//! faults are not judged. Neither do tasks that were cancelled count: their nodes may not know yet.
//! An attempt that gives its slot back runs no more: it waits for the answer to its turn.

use std::collections::BTreeSet;

use proto::TaskId;

use crate::checkers::{Verdict, Violation};
use crate::state::expected::ExpectedJob;

/// `running`: the tasks of the job that run on any node, with the one that starts.
pub(crate) fn on_launch(job: &ExpectedJob, running: impl Iterator<Item = TaskId>) -> Verdict {
    let Some(at_most) = job.at_most else { return Ok(()) };
    let counts = |task: &TaskId| {
        job.tasks.get(&task.local).is_none_or(|expected| expected.current().is_none())
    };
    let running: BTreeSet<TaskId> = running.filter(counts).collect();
    match running.len() <= at_most as usize {
        true => Ok(()),
        false => {
            let text = format!("{}: {} tasks run, of {at_most}", job.job, running.len());
            Err(Violation::new("throttle", text))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::{JobId, LocalId, PartitionId};

    #[test]
    fn one_task_too_many_is_found() {
        let mut job = ExpectedJob::new(JobId(1), &[], false);
        let task = |index| TaskId { job: JobId(1), local: LocalId::new(PartitionId(0), index) };
        assert_eq!(on_launch(&job, (0..9).map(task)), Ok(()));
        job.at_most = Some(2);
        assert_eq!(on_launch(&job, [0, 1, 1].map(task).into_iter()), Ok(()));
        assert!(on_launch(&job, (0..3).map(task)).is_err());
    }
}
