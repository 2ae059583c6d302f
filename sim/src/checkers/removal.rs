//! *Removal*: cancelled tasks and their descendants end and never run again once the client got the
//! answer. No other task is cancelled.

use std::collections::{BTreeMap, BTreeSet};

use proto::event::End;
use proto::{LocalId, Span, TaskId, Time, wire};

use super::{Verdict, Violation};
use crate::state::expected::{Commit, ExpectedJob};

const NAME: &str = "removal";
/// The longest time until a holder knows of a cancellation, without faults.
const HEARD_WITHIN: Span = Span::from_secs(15);

/// The answer to a cancellation of named tasks: each must have ended, durably. `of_the_past`: the
/// records of tasks of the job may have been removed. They are removed by partition, so the home
/// may know some of the tasks and not others.
pub(crate) fn on_answered(
    job: &ExpectedJob,
    named: &[LocalId],
    answer: &wire::Cancelled,
    of_the_past: bool,
) -> Verdict {
    let open = named.iter().find(|local| job.tasks[local].current().is_none());
    if let Some(local) = open {
        let text = format!("{}: {local} is told as cancelled, but has not ended", job.job);
        return Err(Violation::new(NAME, text));
    }
    let all = answer.cancelled + answer.ended + answer.unknown.len() as u64;
    let unknown: BTreeSet<LocalId> = answer.unknown.iter().map(|&local| LocalId(local)).collect();
    let is_gone = |local: &LocalId| of_the_past && named.contains(local);
    let counts_once = unknown.len() == answer.unknown.len();
    if all != named.len() as u64 || !counts_once || !unknown.iter().all(is_gone) {
        let text =
            format!("{}: {} tasks were named, the answer is {answer:?}", job.job, named.len());
        return Err(Violation::new(NAME, text));
    }
    Ok(())
}

/// A home that knows of the job's cancellation commits no task as done or failed.
pub(crate) fn on_committed(task: TaskId, end: End, home_heard: bool) -> Verdict {
    if home_heard && matches!(end, End::Done | End::Failed) {
        let text = format!("{task} ends as {end:?} at a home that knows its cancellation");
        return Err(Violation::new(NAME, text));
    }
    Ok(())
}

/// The facts that can make a launch wrong.
pub(crate) struct Launched {
    pub task: TaskId,
    /// It starts on its home.
    pub at_home: bool,
    /// The home knows that the whole job is cancelled.
    pub home_heard: bool,
    /// The launching node was ordered to drop the attempt.
    pub dismissed: bool,
    /// The end of the faults, and the current time.
    pub healed: Time,
    pub now: Time,
}

pub(crate) fn on_launch(job: &ExpectedJob, launched: &Launched) -> Verdict {
    let wrong = |what: &str| Err(Violation::new(NAME, format!("{} {what}", launched.task)));
    if launched.dismissed {
        return wrong("starts where its attempt was dismissed");
    }
    if launched.at_home && launched.home_heard {
        return wrong("starts at its home, which knows that its job is cancelled");
    }
    let Some(commit) = job.tasks[&launched.task.local].current() else { return Ok(()) };
    if commit.end != End::Cancelled {
        return Ok(());
    }
    if launched.at_home {
        return wrong("starts at its home, which has cancelled it");
    }
    if launched.now > commit.at.max(launched.healed) + HEARD_WITHIN {
        return wrong("starts although it was cancelled long ago");
    }
    Ok(())
}

/// In an ended job, all descendants of a cancelled task are cancelled, and no other task is.
pub(crate) fn on_end(job: &ExpectedJob) -> Verdict {
    let below = below(job, &job.named);
    for (&local, task) in &job.tasks {
        let Some(commit) = task.current() else { continue };
        if commit.end == End::Cancelled && !job.cancelled && !below.contains(&local) {
            let text = format!("{}: {local} is cancelled, and no client asked for it", job.job);
            return Err(Violation::new(NAME, text));
        }
        let ran = matches!(commit.end, End::Done | End::Failed);
        let parents = || task.slots.iter().flatten().map(|slot| &job.tasks[&slot.parent]);
        // A parent may have ended otherwise before a power cut.
        let lost = |commit: &Commit| commit.undone;
        let cancelled = |end: Option<Commit>| end.is_some_and(|c| c.end == End::Cancelled);
        let gone = parents().any(|p| cancelled(p.current()) && !p.commits.iter().any(lost));
        if ran && gone {
            let text =
                format!("{}: {local} ended {:?} below a cancelled task", job.job, commit.end);
            return Err(Violation::new(NAME, text));
        }
    }
    Ok(())
}

/// These tasks and all their descendants.
pub(crate) fn below(job: &ExpectedJob, roots: &BTreeSet<LocalId>) -> BTreeSet<LocalId> {
    let mut found = BTreeSet::new();
    if roots.is_empty() {
        return found;
    }
    let mut children: BTreeMap<LocalId, Vec<LocalId>> = BTreeMap::new();
    for (&local, task) in &job.tasks {
        for slot in task.slots.iter().flatten() {
            children.entry(slot.parent).or_default().push(local);
        }
    }
    let mut open: Vec<LocalId> = roots.iter().copied().collect();
    while let Some(local) = open.pop() {
        if found.insert(local) {
            open.extend(children.get(&local).into_iter().flatten());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use proto::{Attempt, JobId, NodeId, PartitionId};

    use super::*;
    use crate::state::expected::ExpectedTask;

    /// A job with two tasks that have ended.
    fn job() -> ExpectedJob {
        let mut job = ExpectedJob::new(JobId(1), &[], false);
        let commit = Commit {
            attempt: Attempt(1),
            end: End::Cancelled,
            node: NodeId(0),
            undone: false,
            made_again_by: None,
            at: Time(1),
        };
        for local in named() {
            let task = ExpectedTask { commits: vec![commit], ..ExpectedTask::default() };
            job.tasks.insert(local, task);
        }
        job
    }

    fn named() -> [LocalId; 2] {
        [1, 2].map(|partition| LocalId::new(PartitionId(partition), 0))
    }

    fn answer(ended: u64, unknown: &[LocalId]) -> wire::Cancelled {
        let unknown = unknown.iter().map(|local| local.0).collect();
        wire::Cancelled { cancelled: 0, ended, unknown }
    }

    #[test]
    fn a_home_knows_each_task_of_a_job_that_no_client_has_forgotten() {
        let [first, second] = named();
        let verdict = |answer: wire::Cancelled| on_answered(&job(), &named(), &answer, false);
        assert!(verdict(answer(2, &[])).is_ok());
        assert!(verdict(answer(1, &[second])).is_err());
        assert!(verdict(answer(0, &[first, second])).is_err());
        assert!(verdict(answer(1, &[])).is_err());
    }

    #[test]
    fn a_home_may_lack_one_partition_of_a_job_of_the_past() {
        let [_, second] = named();
        let verdict = |answer: wire::Cancelled| on_answered(&job(), &named(), &answer, true);
        assert!(verdict(answer(1, &[second])).is_ok());
        assert!(verdict(answer(2, &[second])).is_err(), "one task is counted twice");
        assert!(verdict(answer(0, &[second, second])).is_err(), "one task is named twice");
        let other = LocalId::new(PartitionId(3), 0);
        assert!(verdict(answer(1, &[other])).is_err(), "no client has named it");
        let mut open = job();
        open.tasks.insert(second, ExpectedTask::default());
        let lost = on_answered(&open, &named(), &answer(1, &[second]), true);
        assert!(lost.is_err(), "a task that has not ended is not of the past");
    }
}
