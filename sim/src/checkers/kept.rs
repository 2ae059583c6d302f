//! *Kept*: kept outputs of done tasks exist if they are in files. This holds while fewer machines
//! were lost with their disks than a partition has replicas. It also requires that none of the lost
//! machines had reported too few copies.

use proto::event::End;
use proto::{ObjectId, TaskId};

use super::{Jobs, Verdict, Violation};
use crate::state::machine::Machine;

/// Checks all jobs after their end.
pub(crate) fn on_end(jobs: &Jobs, machines: &[Machine]) -> Verdict {
    for job in jobs.values().filter(|job| job.real_data) {
        for (&local, task) in &job.tasks {
            let Some(commit) = task.current().filter(|commit| commit.end == End::Done) else {
                continue;
            };
            let task_id = TaskId { job: job.job, local };
            for &output in &task.kept {
                let object = ObjectId { task: task_id, attempt: commit.attempt, output };
                let has =
                    |machine: &Machine| machine.may_run() && machine.objects.contains_key(&object);
                if !machines.iter().any(has) {
                    let text = format!("{object:?} was made by {} and is nowhere", commit.node);
                    return Err(Violation::new("kept", text));
                }
            }
        }
    }
    Ok(())
}
