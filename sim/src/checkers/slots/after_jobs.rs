//! *After*: no task of a job starts before the jobs that it waits for have ended without failures.
//! If one has not, all tasks are skipped; otherwise none is skipped for that.
//!
//! A job may wait for one that is not committed yet, or was forgotten: then it is skipped as well.

use proto::event::End;

use crate::checkers::{Verdict, Violation};
use crate::state::expected::{ExpectedJob, SubmissionStage};

const NAME: &str = "after";

/// `others`: the jobs that this one waits for.
pub(crate) fn on_launch<'j>(
    job: &ExpectedJob,
    round: u32,
    mut others: impl Iterator<Item = &'j ExpectedJob>,
) -> Verdict {
    // A retried job waits no more.
    let early = others.find(|other| !is_all_done(other)).filter(|_| round == 0);
    match early {
        None => Ok(()),
        Some(other) => {
            let text = format!("{} starts, but not all tasks of {} are done", job.job, other.job);
            Err(Violation::new(NAME, text))
        }
    }
}

/// The end of the first round.
pub(crate) fn on_end<'j>(
    job: &ExpectedJob,
    mut others: impl Iterator<Item = &'j ExpectedJob>,
) -> Verdict {
    if !job.is_skipped() {
        return Ok(());
    }
    if job.tasks.values().any(|task| !task.launched.is_empty()) {
        let text = format!("{} is skipped as a whole, and a task of it was started", job.job);
        return Err(Violation::new(NAME, text));
    }
    if job.knows_after && others.all(has_surely_ended_well) {
        let text = format!("{} is skipped, but all jobs that it waits for ended well", job.job);
        return Err(Violation::new(NAME, text));
    }
    Ok(())
}

/// Whether the home of the job has acknowledged its commit.
pub(crate) fn is_surely_known(job: &ExpectedJob) -> bool {
    matches!(job.promise, SubmissionStage::Accepted | SubmissionStage::Ended)
}

fn is_all_done(job: &ExpectedJob) -> bool {
    job.tasks.values().all(|task| task.ever_done())
}

fn has_surely_ended_well(job: &ExpectedJob) -> bool {
    let ends = job.tasks.values().flat_map(|task| &task.commits);
    let is_clean = ends.into_iter().all(|commit| commit.end == End::Done);
    // The end of its first round counts, whatever its retry has done since.
    let is_retried = job.tasks.values().any(|task| task.was_retried);
    let may_go = job.cancelled || job.may_be_forgotten || job.is_forgotten || job.abandoned;
    is_all_done(job) && is_clean && !is_retried && !may_go && job.announced_round() == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::expected::Commit;
    use proto::{Attempt, JobId, NodeId, Time, wire};

    fn job(number: u64) -> ExpectedJob {
        let task = wire::Task::default();
        let specs = vec![wire::Spec::default()];
        let chunk = wire::Chunk { job: number, specs, tasks: vec![task], ..Default::default() };
        ExpectedJob::new(JobId(number), &[chunk], false)
    }

    #[test]
    fn a_job_that_starts_early_is_found() {
        let (first, second) = (job(1), job(2));
        assert_eq!(on_launch(&second, 0, [].into_iter()), Ok(()));
        assert!(on_launch(&second, 0, [&first].into_iter()).is_err());
        assert_eq!(on_launch(&second, 1, [&first].into_iter()), Ok(()));
    }

    #[test]
    fn a_job_that_is_skipped_without_reason_is_found() {
        let mut first = job(1);
        first.tasks.clear();
        let mut second = job(2);
        assert_eq!(on_end(&second, [&first].into_iter()), Ok(()));
        let settings = wire::JobSettings { skipped_for: 1, ..Default::default() };
        let state = wire::JobState { settings: Some(settings), ..Default::default() };
        second.told = Some(state);
        assert_eq!(on_end(&second, [&first].into_iter()), Ok(()));
        second.knows_after = true;
        assert!(on_end(&second, [&first].into_iter()).is_err());
        first.cancelled = true;
        assert_eq!(on_end(&second, [&first].into_iter()), Ok(()));
    }

    #[test]
    fn a_job_may_be_skipped_for_the_first_round_of_one_that_was_retried() {
        let (mut first, mut second) = (job(1), job(2));
        let settings = wire::JobSettings { skipped_for: 1, ..Default::default() };
        second.told = Some(wire::JobState { settings: Some(settings), ..Default::default() });
        second.knows_after = true;
        let is_found = |first: &ExpectedJob| on_end(&second, [first].into_iter()).is_err();
        let (attempt, end, node, at) = (Attempt(1), End::Done, NodeId(0), Time(0));
        let done = Commit { attempt, end, node, undone: false, made_again_by: None, at };
        for task in first.tasks.values_mut() {
            task.commits.push(done);
        }
        assert!(is_found(&first));
        for task in first.tasks.values_mut() {
            task.retried();
            task.commits.push(done);
        }
        assert!(!is_found(&first));
    }
}
