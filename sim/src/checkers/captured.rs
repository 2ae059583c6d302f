//! *Captured*: the record of a task that is done says how much its attempt that counted has
//! printed. Restarts and later homes do not change it. By it `job output` knows what is missing.

use proto::TaskId;
use proto::work::Captured;

use super::{Jobs, Verdict, Violation};
use crate::machine::{Machine, printed_by};

/// When all jobs have ended.
pub(crate) fn on_end(jobs: &Jobs, machines: &[Machine]) -> Verdict {
    for job in jobs.values() {
        for (&local, truth) in &job.tasks {
            let task = TaskId { job: job.job, local };
            for node in machines.iter().filter_map(|machine| machine.node.as_ref()) {
                let Some((attempt, recorded)) = node.captured(task) else { continue };
                let printed = match truth.finished.get(&attempt) {
                    Some(true) => printed_by(attempt),
                    _ => Captured::default(), // Its node has answered it itself.
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
