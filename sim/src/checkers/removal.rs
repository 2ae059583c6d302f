//! *Removal*: what was cancelled, and all that waits for it, ends and does not run any more. A
//! client that was told has been told for good; nothing else goes.

use std::collections::{BTreeMap, BTreeSet};

use proto::event::End;
use proto::{LocalId, Span, TaskId, Time, wire};

use super::{Verdict, Violation};
use crate::expected::{Commit, ExpectedJob};

const NAME: &str = "removal";
/// A holder hears of a cancellation within this time when nothing is broken.
const HEARD_WITHIN: Span = Span::from_secs(15);

/// Tasks were named to be cancelled, and the client is told: each has ended, durably.
pub(crate) fn on_answered(
    job: &ExpectedJob,
    named: &[LocalId],
    answer: &wire::Cancelled,
) -> Verdict {
    let open = named.iter().find(|local| job.tasks[local].current().is_none());
    if let Some(local) = open {
        let text = format!("{}: {local} is told as cancelled, but has not ended", job.job);
        return Err(Violation::new(NAME, text));
    }
    let all = answer.cancelled + answer.ended;
    if all != named.len() as u64 || !answer.unknown.is_empty() {
        let text =
            format!("{}: {} tasks were named, the answer is {answer:?}", job.job, named.len());
        return Err(Violation::new(NAME, text));
    }
    Ok(())
}

/// A home that has heard that the job is cancelled takes nothing of it as done.
pub(crate) fn on_committed(task: TaskId, end: End, home_heard: bool) -> Verdict {
    if home_heard && matches!(end, End::Done | End::Failed) {
        let text = format!("{task} ends as {end:?} at a home that has heard of its cancellation");
        return Err(Violation::new(NAME, text));
    }
    Ok(())
}

/// What makes a launch wrong.
pub(crate) struct Launched {
    pub task: TaskId,
    /// It starts on the node that keeps its record.
    pub at_home: bool,
    /// Its home has heard that the whole job is cancelled.
    pub home_heard: bool,
    /// The node that launches it was told that the attempt is not wanted.
    pub dismissed: bool,
    /// How long the world has been whole, and now.
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

/// An ended job: all that waited for a cancelled task is gone with it, and nothing else is.
pub(crate) fn on_end(job: &ExpectedJob) -> Verdict {
    let below = below(job, &job.named);
    for (&local, task) in &job.tasks {
        let Some(commit) = task.current() else { continue };
        if commit.end == End::Cancelled && !job.cancelled && !below.contains(&local) {
            let text = format!("{}: {local} is cancelled, and nobody asked for it", job.job);
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

/// These tasks and all that depend on them.
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
