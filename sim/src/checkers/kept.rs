//! *Kept*: what a workflow keeps of tasks that are done is there, as long as fewer machines were
//! lost, with all they had, than there are copies of a partition, and no process ended that had
//! said that others lack copies of it: the next one does not know.

use proto::event::End;
use proto::{ObjectId, TaskId};

use super::{Jobs, Verdict, Violation};
use crate::machine::Machine;

/// When all jobs have ended.
pub(crate) fn on_end(jobs: &Jobs, machines: &[Machine]) -> Verdict {
    for job in jobs.values() {
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
