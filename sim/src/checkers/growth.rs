//! *Growth*: as long as the cluster says that it survives the loss of some nodes, whichever, what a
//! workflow keeps of tasks that are done lies on one machine more than may be lost. What may have
//! gone with a disk while the nodes did not say so is left out where no machine has it. (That
//! partitions do, *copies* demands, and the faults that take whole machines.) That a cluster which
//! has got nodes enough says so at last, `must_say_that_it_has_grown` demands.

use proto::event::End;
use proto::{ObjectId, TaskId};

use super::{Jobs, Verdict, Violation};
use crate::machine::Machine;

/// `survived`: how many losses the nodes say that they survive; `may_be_gone`: a disk went with
/// what no other may have had.
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
