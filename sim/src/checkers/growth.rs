//! *Growth*: while the cluster reports that it survives `f` arbitrary losses, kept outputs of done
//! tasks are on at least `f + 1` machines. An output that no machine has is exempt if it may have
//! been lost with a disk when the nodes did not report that.
//!
//! Checker *copies* and the faults that remove whole machines cover partitions.
//! `must_say_that_it_has_grown` checks that a grown cluster finally reports its copies.

use proto::event::End;
use proto::{ObjectId, TaskId};

use super::{Jobs, Verdict, Violation};
use crate::state::machine::Machine;

/// `survived`: the number of survivable losses that the nodes report. `may_be_gone`: a lost disk
/// may have held the only copy.
pub(crate) fn on_reported(
    jobs: &Jobs,
    machines: &[Machine],
    survived: usize,
    may_be_gone: bool,
) -> Verdict {
    if survived == 0 {
        return Ok(());
    }
    for job in jobs.values().filter(|job| job.real_data) {
        for (&local, task) in &job.tasks {
            let done = |end: &End| *end == End::Done;
            let Some(commit) = task.current().filter(|commit| done(&commit.end)) else { continue };
            let task_id = TaskId { job: job.job, local };
            for &output in &task.kept {
                let object = ObjectId { task: task_id, attempt: commit.attempt, output };
                let has =
                    |machine: &&Machine| machine.may_run() && machine.objects.contains_key(&object);
                let holders = machines.iter().filter(has).count();
                let is_known_gone = may_be_gone && holders == 0;
                if holders <= survived && !is_known_gone {
                    let text = format!(
                        "the nodes say that they survive {survived} losses, and {object:?} lies on \
                         {holders} of them"
                    );
                    return Err(Violation::new("growth", text));
                }
            }
        }
    }
    Ok(())
}
