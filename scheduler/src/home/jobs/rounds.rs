//! Rounds of jobs at their homes: an ended job continues with its tasks that are not done.

use proto::limits::{NAME_BYTES_MAX, ROUNDS_MAX};
use proto::marks::{Mark, mark};
use proto::{JobId, Time, wire};

use super::{Job, Jobs};
use crate::output::Out;
use crate::routing::partition_owners::Homes;

/// The maximum number of tasks that one retry may name.
const RETRY_TASKS_MAX: usize = 4096;

impl Jobs {
    /// Opens the next round of an ended job; a repeated request is a no-op. `None`: there is no
    /// such job here. An error gives the reason of the refusal.
    pub(crate) fn retry(
        &mut self,
        now: Time,
        retry: &wire::JobRetry,
        homes: &Homes,
        out: &mut Out,
    ) -> Option<Result<wire::JobState, String>> {
        let job_id = JobId(retry.job);
        let job = self.jobs.get_mut(&job_id)?;
        if let Err(text) = job.may_retry(retry) {
            return Some(Err(text));
        }
        if job.round() != retry.round {
            job.open_round(now, retry);
            job.begin_parts(homes, out);
            out.facts.jobs.insert(job_id, job.state.clone());
            job.notify_homes(homes, out);
            self.stall_rounds.get_or_insert_default().is_due = true;
            mark(Mark::JobRetried);
        }
        self.jobs.get(&job_id).map(|job| Ok(job.client_state()))
    }

    /// The newest round of a job, or an earlier one: `past_round` is one more than its number. An
    /// error: there is no such round.
    pub(crate) fn state(&self, query: wire::JobQuery) -> Option<Result<wire::JobState, String>> {
        let job = self.jobs.get(&JobId(query.job))?;
        let Some(past) = query.past_round.checked_sub(1).filter(|&past| past != job.round()) else {
            return Some(Ok(job.client_state()));
        };
        let known =
            || format!("job {} has no round {past}: its last is {}", query.job, job.round());
        Some(job.past_state(past).ok_or_else(known))
    }
}

impl Job {
    pub(super) fn round(&self) -> u32 {
        self.state.round()
    }

    /// Tasks that have ended and are not done.
    pub(super) fn left(&self) -> u64 {
        self.state.sum.as_ref().map_or(0, |sum| sum.failed + sum.cancelled + sum.skipped)
    }

    fn may_retry(&self, retry: &wire::JobRetry) -> Result<(), String> {
        let (job, round) = (self.state.job, self.round());
        if self.is_forgotten() {
            return Err(self.forgotten_text());
        }
        if self.is_of_open_job() {
            return Err(format!("job {job} was open: it is not retried; hint: open another job"));
        }
        if let Some(text) = self.state.thinned_text() {
            return Err(format!("{text}: submit it again"));
        }
        if retry.locals.len() > RETRY_TASKS_MAX || retry.by.len() > NAME_BYTES_MAX {
            return Err(format!("at most {RETRY_TASKS_MAX} tasks may be named to be run again"));
        }
        let state = &self.state;
        let is_same = retry.locals == state.retried && retry.by == state.opened_by;
        if retry.round == round && round > 0 && is_same {
            return Ok(());
        }
        if self.state.ended_ns == 0 {
            return Err(format!("job {job} has not ended: only an ended job can be retried"));
        }
        if retry.round != round + 1 {
            return Err(format!("job {job} is in round {round}: the next is not {}", retry.round));
        }
        if let Some(text) = self.state.incomplete_text() {
            return Err(format!("{text}: submit it again"));
        }
        if self.left() == 0 {
            return Err(format!("job {job} has nothing to retry: all its tasks are done"));
        }
        if self.state.rounds.len() >= ROUNDS_MAX {
            return Err(format!("job {job} had {ROUNDS_MAX} rounds: submit it again"));
        }
        Ok(())
    }

    fn open_round(&mut self, now: Time, retry: &wire::JobRetry) {
        let state = &mut self.state;
        let past = wire::Round {
            phase: state.phase,
            sum: state.sum.replace(wire::PartitionCount::default()),
            ended_ns: std::mem::take(&mut state.ended_ns),
            cancelled_by: std::mem::take(&mut state.cancelled_by),
            retried: std::mem::replace(&mut state.retried, retry.locals.clone()),
            opened_ns: std::mem::replace(&mut state.opened_ns, now.0),
            opened_by: std::mem::replace(&mut state.opened_by, retry.by.clone()),
            summary: state.summary.take(),
            members: std::mem::take(&mut state.members),
        };
        state.rounds.push(past);
        state.set_phase(wire::JobPhase::Running);
        let settings = state.settings.get_or_insert_default();
        (settings.round, settings.skipped_for) = (retry.round, 0);
        self.counts.clear();
        self.removed_at.clear();
        self.stall_detector.moved(now);
    }

    fn past_state(&self, round: u32) -> Option<wire::JobState> {
        let past = self.state.rounds.get(round as usize)?.clone();
        let settings = self.state.settings.unwrap_or_default();
        Some(wire::JobState {
            phase: past.phase,
            total: self.state.total + past.sum.as_ref().map_or(0, |sum| sum.spawned),
            sum: past.sum,
            ended_ns: past.ended_ns,
            cancelled_by: past.cancelled_by,
            retried: past.retried,
            opened_ns: past.opened_ns,
            opened_by: past.opened_by,
            summary: past.summary,
            settings: Some(wire::JobSettings { round, ..settings }),
            rounds: Vec::new(),
            members: Vec::new(),
            stall: None,
            ..self.state.clone()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A round of it would never have all tasks: no record has the missing ones.
    #[test]
    fn a_job_that_was_not_submitted_whole_is_not_retried_and_the_reason_is_told() {
        let mut state = wire::JobState { job: 3, total: 5, ended_ns: 1, ..Default::default() };
        state.set_phase(wire::JobPhase::Lost);
        let lost = "1 of 2 chunks of partition 7 are here".to_owned();
        state.sum =
            Some(wire::PartitionCount { done: 2, cancelled: 1, lost, ..Default::default() });
        let mut job = Job::new(state);
        let retry = wire::JobRetry { job: 3, round: 1, ..Default::default() };
        let refused = job.may_retry(&retry).unwrap_err();
        assert!(refused.contains("(1 of 2 chunks of partition 7 are here)"), "{refused}");
        assert!(refused.ends_with("submit it again"), "{refused}");
        job.state.set_phase(wire::JobPhase::Finished);
        job.may_retry(&retry).unwrap();
    }

    /// A round would credit children of tasks that were never added.
    #[test]
    fn a_job_that_was_open_is_not_retried() {
        let mut state = wire::JobState { job: 3, total: 5, ended_ns: 1, ..Default::default() };
        state.set_phase(wire::JobPhase::Finished);
        state.sum = Some(wire::PartitionCount { done: 4, failed: 1, ..Default::default() });
        let mut job = Job::new(state);
        let retry = wire::JobRetry { job: 3, round: 1, ..Default::default() };
        job.may_retry(&retry).unwrap();
        job.state.set_openness(wire::Openness::Closing);
        let refused = job.may_retry(&retry).unwrap_err();
        assert!(refused.starts_with("job 3 was open"), "{refused}");
    }
}
