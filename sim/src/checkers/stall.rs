//! *Stall*: the nodes themselves never find a job that gets no further, unless one does not; and
//! then they name what blocks it.

use proto::event::Stall;
use proto::{NodeId, Span, TaskId};

use super::{Jobs, Verdict, Violation};

const NAME: &str = "stall";

/// What a home of a job said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stalled {
    pub task: TaskId,
    pub stall: Stall,
    pub home: NodeId,
    pub holder: NodeId,
}

/// Nobody expects a stall here. Whether the nodes name the right task is part of what is said.
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

/// The task has not ended, and all that it waits for has.
fn blocks(jobs: &Jobs, task: TaskId) -> bool {
    let Some(job) = jobs.get(&task.job) else { return false };
    let Some(truth) = job.tasks.get(&task.local) else { return false };
    let ended = |parent: &proto::LocalId| job.tasks[parent].current().is_some();
    truth.current().is_none() && truth.slots.iter().flatten().all(|slot| ended(&slot.parent))
}
