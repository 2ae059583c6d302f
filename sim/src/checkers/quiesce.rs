//! *Quiesce*: when the end of a job is announced, all its tasks have ended, also the spawned ones.

use super::{Verdict, Violation};
use crate::faults::expected::ExpectedJob;

/// A client receives the end of the job.
pub(crate) fn on_end(job: &ExpectedJob) -> Verdict {
    let mut spawned = job.tasks.iter().filter(|(_, task)| task.spawned);
    match spawned.find(|(_, task)| task.current().is_none()) {
        Some((local, _)) => {
            let text = format!("{} has ended, but its spawned task {local} has not", job.job);
            Err(Violation::new("quiesce", text))
        }
        None => Ok(()),
    }
}
