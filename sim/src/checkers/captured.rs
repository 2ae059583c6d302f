//! *Captured*: the record of a done task contains the number of bytes that its counted attempt has
//! printed. Restarts and later homes do not change it. `job output` needs it to report missing
//! output.

use proto::TaskId;
use proto::work::Captured;

use super::{Jobs, Verdict, Violation};
use crate::state::machine::{Machine, printed_by};

/// Checks all tasks after all jobs have ended.
pub(crate) fn on_end(jobs: &Jobs, machines: &[Machine]) -> Verdict {
    for job in jobs.values() {
        for (&local, truth) in &job.tasks {
            let task = TaskId { job: job.job, local };
            for node in machines.iter().filter_map(|machine| machine.node.as_ref()) {
                let Some((attempt, recorded)) = node.captured(task) else { continue };
                let printed = match truth.finished.get(&attempt) {
                    Some(true) => printed_by(attempt),
                    _ => Captured::default(), // A failed attempt, or one without a process.
                };
                if recorded != printed {
                    let text = format!(
                        "attempt {attempt} of {task} has printed {printed:?}, and its record says \
                         {recorded:?}"
                    );
                    return Err(Violation::new("captured", text));
                }
            }
        }
    }
    Ok(())
}
