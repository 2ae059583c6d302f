//! *Durable*: statements to clients remain true. Accepted jobs are known. Ended jobs stay ended
//! with the same counts, and the ends of their tasks stay committed.

use proto::event::End;
use proto::{Attempt, JobId, TaskId, wire};

use super::{Jobs, Verdict, Violation, quiesce};
use crate::state::expected::{ExpectedJob, SubmissionStage};

const NAME: &str = "durable";

/// A power cut undoes the commit of a task.
pub(crate) fn on_task_undone(jobs: &Jobs, task: TaskId, attempt: Attempt) -> Verdict {
    let job = &jobs[&task.job];
    if job.promise == SubmissionStage::Ended {
        let text = format!(
            "{task}: its client was told that the job ended, but attempt {attempt} was not synced"
        );
        return Err(Violation::new(NAME, text));
    }
    Ok(())
}

/// A power cut undoes the record of a job's end.
pub(crate) fn on_end_undone(jobs: &Jobs, job: JobId) -> Verdict {
    match jobs.get(&job) {
        Some(truth) if truth.promise == SubmissionStage::Ended => {
            let text = format!("{job}: its client was told the end before it was synced");
            Err(Violation::new(NAME, text))
        }
        _ => Ok(()),
    }
}

/// True if all tasks have ended, also for a cancelled job.
pub(crate) fn is_over(state: &wire::JobState) -> bool {
    state.ended_ns != 0
}

/// A client receives the state of a job.
pub(crate) fn on_reported(job: &mut ExpectedJob, state: &wire::JobState) -> Verdict {
    let id = job.job;
    if state.phase == wire::JobPhase::Lost as i32 {
        return Err(Violation::new(NAME, format!("{id}: an accepted job is reported as lost")));
    }
    if let Some(before) = &job.told {
        let same = before.phase == state.phase && counts(before) == counts(state);
        if !same {
            let text = format!(
                "{id}: told as ended with {:?}, later with {:?} (done, failed, cancelled, \
                 skipped; phases {} and {})",
                counts(before),
                counts(state),
                before.phase,
                state.phase
            );
            return Err(Violation::new(NAME, text));
        }
        return Ok(());
    }
    if !is_over(state) {
        return Ok(());
    }
    quiesce::on_end(job)?;
    agrees(job, state)?;
    job.promise = SubmissionStage::Ended;
    job.told = Some(state.clone());
    Ok(())
}

/// Done, failed, cancelled, skipped.
fn counts(state: &wire::JobState) -> [u64; 4] {
    let sum = state.sum.clone().unwrap_or_default();
    [sum.done, sum.failed, sum.cancelled, sum.skipped]
}

/// The reported counts must be those of the commits.
fn agrees(job: &ExpectedJob, state: &wire::JobState) -> Verdict {
    let mut real = [0u64; 4];
    for (local, task) in &job.tasks {
        let Some(commit) = task.current() else {
            let text = format!("{}: told as ended, but {local} is not committed", job.job);
            return Err(Violation::new(NAME, text));
        };
        let place = match commit.end {
            End::Done => 0,
            End::Failed => 1,
            End::Cancelled => 2,
            End::Skipped => 3,
        };
        real[place] += 1;
    }
    let told = counts(state);
    if told != real || state.total != job.tasks.len() as u64 {
        let text = format!(
            "{}: told {told:?} of {}, committed were {real:?} of {} (done, failed, cancelled, \
             skipped)",
            job.job,
            state.total,
            job.tasks.len()
        );
        return Err(Violation::new(NAME, text));
    }
    Ok(())
}

/// The home of an accepted job does not know it.
pub(crate) fn on_unknown(job: &ExpectedJob) -> Verdict {
    if matches!(job.promise, SubmissionStage::Accepted | SubmissionStage::Ended) {
        let text = format!("{}: was {:?}, and its home knows nothing of it", job.job, job.promise);
        return Err(Violation::new(NAME, text));
    }
    Ok(())
}
