//! *Bound*: a node never runs more than its slots, and no job is faster than its lower bound.

use std::collections::BTreeMap;

use proto::work::Launch;
use proto::{Attempt, NodeId, Span, TaskId};

use super::{Verdict, Violation};
use crate::state::expected::ExpectedJob;
use crate::state::machine::{Running, cpus_of};

const NAME: &str = "bound";

pub(crate) fn on_launch(
    launch: &Launch,
    node: NodeId,
    slots: u32,
    running: &BTreeMap<(TaskId, Attempt), Running>,
) -> Verdict {
    if slots == 0 {
        let text = format!("{} runs on {node}, which is a keeper", launch.task);
        return Err(Violation::new(NAME, text));
    }
    let takes_slots = cpus_of(launch) > 0;
    if takes_slots && launch.slot >= slots {
        let text = format!("{} runs in slot {} of {node}'s {slots}", launch.task, launch.slot);
        return Err(Violation::new(NAME, text));
    }
    let mut busy = cpus_of(launch);
    for ((task, attempt), other) in running {
        if (*task, *attempt) == (launch.task, launch.attempt) {
            let text = format!("{task} attempt {attempt} is launched twice on {node}");
            return Err(Violation::new(NAME, text));
        }
        // A wide task names only its first slot; the others are counted.
        if takes_slots && other.cpus > 0 && other.slot == launch.slot {
            let text = format!("{} and {task} share slot {} of {node}", launch.task, other.slot);
            return Err(Violation::new(NAME, text));
        }
        busy += other.cpus;
    }
    if busy > slots {
        let text = format!("{} makes {busy} slots busy on {node}, which has {slots}", launch.task);
        return Err(Violation::new(NAME, text));
    }
    Ok(())
}

/// `makespan` is the time from the start of the submission to the client's knowledge of the end.
pub(crate) fn on_end(job: &ExpectedJob, makespan: Span, slots: u64) -> Verdict {
    if job.told.as_ref().is_none_or(|state| state.sum.as_ref().is_none_or(|sum| sum.skipped > 0))
        || job.cancelled
        || !job.named.is_empty()
        || job.tasks.values().any(|task| task.failed_by_crashes)
    {
        return Ok(());
    }
    let lower = job.critical_path().0.max(job.work().0 / slots.max(1));
    if makespan.0 < lower {
        let text = format!(
            "{}: ended after {makespan:?}, below the true lower bound {:?}",
            job.job,
            Span(lower)
        );
        return Err(Violation::new(NAME, text));
    }
    Ok(())
}
