//! *Progress*: after the faults, every accepted job ends, and each task ends as its graph requires.

use std::collections::BTreeSet;

use proto::event::End;
use proto::wire::NodeState;
use proto::{LocalId, NodeId, Span};

use super::{Verdict, Violation, removal};
use crate::state::expected::{
    Commit, ExpectedJob, ExpectedTask, KIND_FAILING, KIND_FLAKY, KIND_MENDED, KIND_POISON,
    KIND_SPAWNING, Slot, SubmissionStage,
};

const NAME: &str = "progress";

/// The job has not ended in time: reports the tasks that block it.
pub(crate) fn stalled(job: &ExpectedJob, context: &str) -> Violation {
    let open = job.tasks.iter().filter(|(_, task)| task.current().is_none()).count();
    let mut chain = Vec::new();
    let mut at = first_blocked(job);
    while let Some((local, task)) = at {
        chain.push(format!(
            "{local} ({} launches, {} commits)",
            task.launched.len(),
            task.commits.len()
        ));
        if chain.len() == 6 {
            break;
        }
        at = None;
        for (&other, waiting) in &job.tasks {
            let parents = waiting.slots.iter().flatten();
            if waiting.current().is_none() && parents.into_iter().any(|slot| slot.parent == local) {
                at = Some((other, waiting));
                break;
            }
        }
    }
    let text = format!(
        "{}: {open} of {} tasks have not ended after the bound; blocked: {}; {context}",
        job.job,
        job.tasks.len(),
        if chain.is_empty() { "the end of the job".to_string() } else { chain.join(" <- ") }
    );
    Violation::new(NAME, text)
}

/// The node does not leave, although others have space for its data.
pub(crate) fn stays(node: NodeId, bound: Span, state: &NodeState) -> Violation {
    let text = format!(
        "{node} was to leave, and after {bound:?} it is still there, with {} outputs to hand over, \
         {} tasks running, {} ready; no node has refused them lately",
        state.leaving_objects,
        state.running,
        state.ready_local + state.ready_shared
    );
    Violation::new(NAME, text)
}

/// An open task with only ended parents.
fn first_blocked(job: &ExpectedJob) -> Option<(LocalId, &ExpectedTask)> {
    let ended = |local: &LocalId| job.tasks[local].current().is_some();
    job.tasks
        .iter()
        .find(|(_, task)| {
            let parents = task.slots.iter().flatten();
            task.current().is_none() && parents.into_iter().all(|slot| ended(&slot.parent))
        })
        .map(|(&local, task)| (local, task))
}

/// Every task of an ended job ended as its kind and its parents require.
pub(crate) fn on_end(job: &ExpectedJob) -> Verdict {
    if job.cancelled || job.is_skipped() || job.promise != SubmissionStage::Ended {
        return Ok(());
    }
    let removed = removal::below(job, &job.named);
    for (&local, task) in job.tasks.iter().filter(|(local, _)| !removed.contains(local)) {
        let end = task.current().expect("conservation was checked").end;
        let all_done = task.slots.iter().flatten().all(|slot| {
            let parent = &job.tasks[&slot.parent];
            parent.current().is_some_and(|commit| commit.end == End::Done)
        });
        // A parent that a power cut undid may end otherwise the second time, after its child has
        // ended.
        let undone = |commit: &Commit| commit.undone;
        let lost = |slot: &Slot| job.tasks[&slot.parent].commits.iter().any(undone);
        if !all_done && task.slots.iter().flatten().any(lost) {
            continue;
        }
        // Its parent was made again in a later round and failed, because it or one of its ancestors
        // made other bytes. A reader that was done before stays done.
        let stays_done = !all_done
            && job.announced_round() > 0
            && has_been_done(task)
            && has_ancestor(job, task, |_, ancestor| ancestor.differs);
        let stays = has_been_done(task);
        let may_lack = || may_lack_inputs(job, task);
        let right = match (all_done, task.kind.as_str()) {
            (false, _) if stays_done => matches!(end, End::Done | End::Skipped),
            (false, _) => end == End::Skipped || end == End::Failed && may_lack(),
            (true, KIND_FAILING) => end == End::Failed,
            (true, KIND_MENDED) if job.announced_round() == 0 => end == End::Failed,
            (true, KIND_FLAKY) => matches!(end, End::Done | End::Failed),
            (true, KIND_POISON) => end == End::Failed,
            // It was done, and ran again without a result: its earlier end counts.
            (true, _) if task.failed_by_crashes && stays => {
                matches!(end, End::Done | End::Failed)
            }
            (true, _) if task.failed_by_crashes => end == End::Failed,
            // Its readers of an earlier round stay done, and those that have committed turns. If
            // the rebuilt task makes other bytes, tasks that wait for its lost outputs fail.
            (true, _) if stays && task.differs && is_used(job, local) => {
                matches!(end, End::Done | End::Failed)
            }
            (true, _) => end == End::Done || end == End::Failed && may_lack(),
        };
        if !right {
            let text = format!(
                "{}: {local} ended {end:?}, but it is {} and its parents are {}",
                job.job,
                task.kind,
                if all_done { "all done" } else { "not all done" }
            );
            return Err(Violation::new(NAME, text));
        }
    }
    Ok(())
}

/// Whether the task may fail without a start, because an input was lost and cannot be made again.
pub(crate) fn may_lack_inputs(job: &ExpectedJob, task: &ExpectedTask) -> bool {
    has_ancestor(job, task, |at, it| may_refuse(job, at, it))
}

/// Whether the task may have run again without a result. Then the tasks that wait for its lost
/// outputs fail.
fn may_refuse(job: &ExpectedJob, local: LocalId, task: &ExpectedTask) -> bool {
    let may_fail = task.failed_by_crashes || task.kind == KIND_FLAKY;
    has_been_done(task) && (may_fail || task.differs && is_used(job, local))
}

/// Whether readers of the task may not run again.
fn is_used(job: &ExpectedJob, local: LocalId) -> bool {
    let spawning = |task: &&ExpectedTask| task.kind == KIND_SPAWNING && !task.launched.is_empty();
    job.fetched
        || job.announced_round() > 0
        || job
            .tasks
            .values()
            .filter(spawning)
            .any(|task| has_ancestor(job, task, |it, _| it == local))
}

pub(super) fn has_ancestor(
    job: &ExpectedJob,
    task: &ExpectedTask,
    is_wanted: impl Fn(LocalId, &ExpectedTask) -> bool,
) -> bool {
    let parents = |task: &ExpectedTask| -> Vec<LocalId> {
        task.slots.iter().flatten().map(|slot| slot.parent).collect()
    };
    let (mut open, mut seen) = (parents(task), BTreeSet::new());
    while let Some(local) = open.pop() {
        let ancestor = &job.tasks[&local];
        if is_wanted(local, ancestor) {
            return true;
        }
        if seen.insert(local) {
            open.extend(parents(ancestor));
        }
    }
    false
}

fn has_been_done(task: &ExpectedTask) -> bool {
    task.was_done || task.ever_done()
}

/// A large even bag on one node of a healthy cluster reaches every other node.
pub(crate) fn spread(ran: &[u64], what: &str) -> Verdict {
    match ran.iter().position(|&n| n == 0) {
        Some(idle) => {
            let text = format!("{what}: node {idle} ran nothing; tasks by node: {ran:?}");
            Err(Violation::new(NAME, text))
        }
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use proto::{Attempt, JobId, PartitionId, Time};

    use super::*;
    use crate::state::expected::KIND_PLAIN;

    /// A chain of three tasks in the second round of its job. The first was made again and failed,
    /// so the second is skipped; the third was done in the first round.
    fn chain(first_differs: bool) -> ExpectedJob {
        let mut job = ExpectedJob::new(JobId(1), &[], false);
        job.promise = SubmissionStage::Ended;
        let settings = proto::wire::JobSettings { round: 1, ..Default::default() };
        job.told = Some(proto::wire::JobState { settings: Some(settings), ..Default::default() });
        let local = |index| LocalId::new(PartitionId(0), index);
        for (index, end) in (0..).zip([End::Failed, End::Skipped, End::Done]) {
            let commit = Commit {
                attempt: Attempt(1),
                end,
                node: NodeId(0),
                undone: false,
                made_again_by: None,
                at: Time(1),
            };
            let parent = (index > 0).then(|| Slot { parent: local(index - 1), output: 1 });
            let task = ExpectedTask {
                slots: parent.into_iter().map(Some).collect(),
                kind: KIND_PLAIN.to_owned(),
                commits: vec![commit],
                was_done: true,
                differs: index == 0 && first_differs,
                ..ExpectedTask::default()
            };
            job.tasks.insert(local(index), task);
        }
        job
    }

    #[test]
    fn a_done_reader_stays_done_only_below_a_task_that_made_other_bytes() {
        assert!(on_end(&chain(true)).is_ok());
        assert!(on_end(&chain(false)).is_err());
    }
}
