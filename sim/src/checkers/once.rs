//! *Once*: the end of a task is committed exactly once. A later attempt may only replace a commit
//! that a power cut undid, or one with an input from such a commit. Only an attempt that an
//! executor finished is committed as done.

use proto::event::{End, RetryReason};
use proto::{Attempt, NodeId, TaskId, Time};

use super::{Jobs, Verdict, Violation, known, progress, rounds};
use crate::state::expected::Commit;

const NAME: &str = "once";

pub(crate) fn on_committed(
    jobs: &mut Jobs,
    now: Time,
    task: TaskId,
    attempt: Attempt,
    end: End,
    node: NodeId,
) -> Verdict {
    stays_done(jobs, task, attempt, end)?;
    let truth = known(jobs, NAME, task)?;
    if std::mem::take(&mut truth.reopened) {
        for commit in truth.commits.iter_mut().filter(|commit| !commit.undone) {
            (commit.undone, commit.made_again_by) = (true, Some(attempt));
        }
    }
    if let Some(old) = truth.current() {
        let text = format!(
            "{task} was committed twice: {:?} by attempt {} on {}, then {end:?} by attempt \
             {attempt} on {node}",
            old.end, old.attempt, old.node
        );
        return Err(Violation::new(NAME, text));
    }
    if end == End::Done && truth.finished.get(&attempt) != Some(&true) {
        let text = format!("{task} is done by attempt {attempt}, which has finished nowhere");
        return Err(Violation::new(NAME, text));
    }
    let new = Commit { attempt, end, node, undone: false, made_again_by: None, at: now };
    truth.commits.push(new);
    Ok(())
}

/// A task that was done and runs again for its lost outputs stays done, whatever becomes of that
/// run. Only one that has read other bytes than those that count may end otherwise.
fn stays_done(jobs: &mut Jobs, task: TaskId, attempt: Attempt, end: End) -> Verdict {
    let truth = known(jobs, NAME, task)?;
    let Some(old) = truth.current().filter(|old| old.end == End::Done) else { return Ok(()) };
    if end == End::Done || !truth.reopened {
        return Ok(());
    }
    let job = &jobs[&task.job];
    let differs = progress::has_ancestor(job, &job.tasks[&task.local], |_, it| it.differs);
    if differs {
        return Ok(());
    }
    let text = format!(
        "{task} was done by attempt {}, ran again for its lost outputs, and is {end:?} by attempt \
         {attempt}",
        old.attempt
    );
    Err(Violation::new(NAME, text))
}

/// The home starts a further attempt. The task must be uncommitted, or must have read an output
/// that a power cut undid.
pub(crate) fn on_replaced(jobs: &mut Jobs, task: TaskId, why: RetryReason) -> Verdict {
    let truth = known(jobs, NAME, task)?;
    let Some(commit) = truth.current() else { return Ok(()) };
    if why == RetryReason::Round {
        return rounds::on_retried(truth, task, commit);
    }
    if matches!(why, RetryReason::Rebuilt | RetryReason::Recalled) || truth.reopened {
        // The scheduler's own tests check that no other task is rebuilt.
        truth.reopened = true;
        return Ok(());
    }
    let parents: Vec<_> = truth.slots.iter().flatten().map(|slot| slot.parent).collect();
    let job = &jobs[&task.job];
    let lost = |parent| job.tasks[parent].commits.iter().any(|commit| commit.undone);
    if !parents.iter().any(lost) {
        let text = format!("{task} gets a new attempt after {} was committed", commit.attempt);
        return Err(Violation::new(NAME, text));
    }
    undo(jobs, task, commit.attempt);
    Ok(())
}

pub(crate) fn undo(jobs: &mut Jobs, task: TaskId, attempt: Attempt) {
    let Some(job) = jobs.get_mut(&task.job) else { return };
    let Some(truth) = job.tasks.get_mut(&task.local) else { return };
    for commit in &mut truth.commits {
        if commit.attempt == attempt {
            // Nothing restores it: the replacement of the commit was undone itself.
            (commit.undone, commit.made_again_by) = (true, None);
            truth.failed_by_crashes &= commit.end != End::Failed;
        } else if commit.made_again_by == Some(attempt) {
            (commit.undone, commit.made_again_by) = (false, None);
            truth.reopened = true;
        }
    }
}
