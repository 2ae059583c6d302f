//! *Order*: no task runs before its job is committed, and none before all its parents are.

use proto::work::Launch;

use super::{Verdict, Violation};
use crate::state::expected::{ExpectedJob, SubmissionStage};

const NAME: &str = "order";

/// A power cut may undo a parent's commit after its credit has arrived. So it suffices that the
/// parent's end was committed once.
pub(crate) fn on_launch(job: &ExpectedJob, launch: &Launch) -> Verdict {
    let task = launch.task;
    if job.promise == SubmissionStage::Staged {
        return Err(Violation::new(NAME, format!("{task} runs before its job was committed")));
    }
    let truth = &job.tasks[&task.local];
    for (slot, edge) in truth.slots.iter().enumerate() {
        let parent = edge.expect("every slot is filled").parent;
        if !job.tasks[&parent].ever_done() {
            let text = format!(
                "{task} attempt {} runs before its parent {parent} (slot {slot}) was committed",
                launch.attempt
            );
            return Err(Violation::new(NAME, text));
        }
    }
    Ok(())
}
