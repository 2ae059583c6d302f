//! Jobs that wait for the ends of other jobs.

use crate::limits::AFTER_JOBS_MAX;
use crate::wire::{self, AfterJob, JobOutcome, JobPhase};

impl wire::JobState {
    /// How the job has ended, for jobs that wait for it.
    #[must_use]
    pub fn outcome(&self) -> JobOutcome {
        if self.forgotten_ns != 0 {
            return JobOutcome::Gone;
        }
        if self.ended_ns == 0 {
            return JobOutcome::NotEnded;
        }
        let left = self.sum.as_ref().map_or(0, |sum| sum.failed + sum.cancelled + sum.skipped);
        match self.phase() {
            JobPhase::JobCancelled => JobOutcome::WasCancelled,
            JobPhase::Finished if left == 0 => JobOutcome::Clean,
            _ => JobOutcome::Failures,
        }
    }

    /// The jobs that have not ended and for which this one waits. Once one of them has ended with
    /// failures, the job waits for none.
    pub fn waits_for(&self) -> impl Iterator<Item = u64> + '_ {
        let waits = self.ended_ns == 0 && self.phase() == JobPhase::Running;
        let waits = waits && self.after.iter().all(|after| !after.is_broken());
        let open = self.after.iter().filter(|after| after.end() == JobOutcome::NotEnded);
        open.filter(move |_| waits).map(|after| after.job)
    }

    /// Whether the tasks of the job may not start yet, because it waits for other jobs.
    #[must_use]
    pub fn is_held_back(&self) -> bool {
        self.waits_for().next().is_some()
    }

    /// Why all tasks of the job are skipped, if they are.
    #[must_use]
    pub fn skipped_text(&self) -> Option<String> {
        let is_set = self.settings.is_some_and(|settings| settings.skipped_for != 0);
        self.after.iter().find(|after| is_set && after.is_broken()).map(AfterJob::text)
    }
}

impl AfterJob {
    /// Whether the job has ended so that a job that waits for it does not start.
    #[must_use]
    pub fn is_broken(&self) -> bool {
        !self.any && !matches!(self.end(), JobOutcome::NotEnded | JobOutcome::Clean)
    }

    /// The end of the job, for people.
    #[must_use]
    pub fn text(&self) -> String {
        let job = self.job;
        match self.end() {
            JobOutcome::NotEnded => format!("job {job} has not ended"),
            JobOutcome::Clean => format!("job {job} ended without failures"),
            JobOutcome::Failures => format!("job {job} ended with failures"),
            JobOutcome::WasCancelled => format!("job {job} was cancelled"),
            JobOutcome::Gone => format!("job {job} is gone"),
        }
    }
}

/// Reads `7`, or `any:7`.
///
/// # Errors
/// The text says what is wrong.
pub fn parse(text: &str) -> Result<AfterJob, String> {
    let number = text.strip_prefix("any:").unwrap_or(text);
    match number.parse() {
        Ok(0) | Err(_) => Err(format!("'{text}' names no job: write its number, or any:NUMBER")),
        Ok(job) => Ok(AfterJob { job, any: number.len() < text.len(), end: 0 }),
    }
}

/// As [`parse`] reads it.
#[must_use]
pub fn text_of(after: &AfterJob) -> String {
    format!("{}{}", if after.any { "any:" } else { "" }, after.job)
}

/// Checks the list of the jobs that a job waits for.
///
/// # Errors
/// The text says what is wrong.
pub fn check(job: u64, after: &[AfterJob]) -> Result<(), String> {
    if after.len() > AFTER_JOBS_MAX {
        return Err(format!("a job waits for at most {AFTER_JOBS_MAX} other jobs"));
    }
    for (at, one) in after.iter().enumerate() {
        if one.job == job || one.job == 0 {
            return Err(format!("job {job} cannot wait for job {}", one.job));
        }
        if after[..at].iter().any(|earlier| earlier.job == one.job) {
            return Err(format!("job {job} names job {} twice to wait for", one.job));
        }
        if one.end() != JobOutcome::NotEnded {
            return Err(format!("job {job} names an end of job {}", one.job));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(job: u64, any: bool, end: JobOutcome) -> AfterJob {
        AfterJob { job, any, end: end as i32 }
    }

    #[test]
    fn a_job_waits_until_all_have_ended_or_one_has_failed() {
        let (open, clean, bad) = (JobOutcome::NotEnded, JobOutcome::Clean, JobOutcome::Failures);
        let waits = |list: Vec<AfterJob>| {
            let mut state = wire::JobState { after: list, ..Default::default() };
            state.set_phase(JobPhase::Running);
            state.waits_for().collect::<Vec<_>>()
        };
        assert_eq!(waits(vec![after(1, false, open), after(2, false, clean)]), [1]);
        assert_eq!(waits(vec![after(1, false, open), after(2, false, bad)]), []);
        assert_eq!(waits(vec![after(1, false, open), after(2, true, bad)]), [1]);
        assert_eq!(waits(vec![after(1, false, clean), after(2, true, bad)]), []);
    }

    #[test]
    fn an_outcome_is_clean_only_if_all_tasks_are_done() {
        let mut state = wire::JobState { job: 1, ..Default::default() };
        state.set_phase(JobPhase::Finished);
        assert_eq!(state.outcome(), JobOutcome::NotEnded);
        state.ended_ns = 1;
        state.sum = Some(wire::PartitionCount { done: 3, ..Default::default() });
        assert_eq!(state.outcome(), JobOutcome::Clean);
        state.sum = Some(wire::PartitionCount { done: 3, cancelled: 1, ..Default::default() });
        assert_eq!(state.outcome(), JobOutcome::Failures);
        state.set_phase(JobPhase::JobCancelled);
        assert_eq!(state.outcome(), JobOutcome::WasCancelled);
        state.forgotten_ns = 1;
        assert_eq!(state.outcome(), JobOutcome::Gone);
    }

    #[test]
    fn texts_name_a_job_and_how_it_must_end() {
        for text in ["7", "any:7"] {
            assert_eq!(parse(text).as_ref().map(text_of).as_deref(), Ok(text));
        }
        for wrong in ["", "0", "any:", "all:7", "-1", "7,8", "last"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn wrong_lists_are_refused() {
        let open = |job| after(job, false, JobOutcome::NotEnded);
        assert_eq!(check(5, &[open(1), open(2)]), Ok(()));
        assert!(check(5, &[open(5)]).is_err_and(|text| text.contains("cannot wait")));
        assert!(check(5, &[open(0)]).is_err());
        assert!(check(5, &[open(1), open(1)]).is_err_and(|text| text.contains("twice")));
        let many: Vec<AfterJob> = (6..40).map(open).collect();
        assert!(check(5, &many).is_err_and(|text| text.contains("at most 16")));
        assert!(check(5, &[after(1, false, JobOutcome::Clean)]).is_err());
    }
}
