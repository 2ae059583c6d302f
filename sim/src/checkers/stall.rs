//! *Stall*: nodes report a job as stalled only if it is, and then they name the blocking task.

use proto::event::Stall;
use proto::{NodeId, Span, TaskId};

use super::{Jobs, Verdict, Violation};

const NAME: &str = "stall";

/// The report of a job's home.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stalled {
    pub task: TaskId,
    pub stall: Stall,
    pub home: NodeId,
    pub holder: NodeId,
}

/// A stall is reported where none is expected. The message contains whether the named task blocks
/// the job.
pub(crate) fn on_stalled(jobs: &Jobs, said: &Stalled, quiet: Span) -> Verdict {
    let right = if blocks(jobs, said.task) { "it blocks the job" } else { "it does not block it" };
    let text = format!(
        "{} is said to stall its job for {quiet:?}, at home {}, holder {}: {}; in truth {right}",
        said.task,
        said.home,
        said.holder,
        said.stall.text()
    );
    Err(Violation::new(NAME, text))
}

/// True if the task has not ended and all its parents have.
fn blocks(jobs: &Jobs, task: TaskId) -> bool {
    let Some(job) = jobs.get(&task.job) else { return false };
    let Some(truth) = job.tasks.get(&task.local) else { return false };
    let ended = |parent: &proto::LocalId| job.tasks[parent].current().is_some();
    truth.current().is_none() && truth.slots.iter().flatten().all(|slot| ended(&slot.parent))
}
