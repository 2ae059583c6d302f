//! *Quiesce*: when the end of a job is announced, all its tasks have ended: also the spawned ones,
//! and those that were added while it ran.

use super::{Verdict, Violation};
use crate::state::expected::ExpectedJob;

/// A client receives the end of the job.
pub(crate) fn on_end(job: &ExpectedJob) -> Verdict {
    let mut later = job.tasks.iter().filter(|(_, task)| task.spawned || job.is_open);
    match later.find(|(_, task)| task.current().is_none()) {
        Some((local, _)) => {
            let text = format!("{} has ended, but its task {local} has not", job.job);
            Err(Violation::new("quiesce", text))
        }
        None => Ok(()),
    }
}
