//! Clients that have their jobs forgotten.

use proto::limits::HISTORY_JOBS_AGE_FACTOR;
use proto::{Span, Time};
use scheduler::UNLIMITED_AGE;

use super::{Ask, Stage};
use crate::checkers::Verdict;
use crate::faults::event_queue::{ExternalClient, SimEvent};
use crate::faults::world::World;
use crate::state::expected::SubmissionStage;

impl World {
    /// This client's job has ended, and is to be forgotten later.
    pub(super) fn forgets_later(&mut self, index: usize) {
        if self.clients.jobs[index].plan.forgets {
            let after = self.dice.span(Span::ZERO, Span::from_secs(2));
            self.schedule(self.now + after, SimEvent::Wake { who: ExternalClient::Job(index) });
        }
    }

    /// The next request of an ended client: it has its job forgotten, or queries it once more.
    pub(super) fn look_back(&mut self, index: usize) {
        let plan = &mut self.clients.jobs[index].plan;
        if std::mem::take(&mut plan.forgets) {
            self.tell(|| format!("client {index} has its job forgotten"));
            self.truth(index).may_be_forgotten = true;
            self.ask(index, Ask::Forget);
            if self.dice.chance(self.clients.jobs[index].plan.repeats_permille) {
                self.ask(index, Ask::Forget);
            }
        } else {
            self.ask(index, Ask::Query);
        }
    }

    /// The home confirmed it: answers to later requests may not contain the job.
    pub(super) fn forgotten(&mut self, index: usize) {
        let next = self.clients.next_request;
        let client = &mut self.clients.jobs[index];
        client.forgotten_before.get_or_insert(next);
        self.truth(index).is_forgotten = true;
    }

    /// True if the job may be forgotten, or if retention may have removed the requested records.
    pub(super) fn is_of_the_past(&mut self, index: usize, ask: &Ask) -> bool {
        let is_aged = self.options.tuning.history_age != UNLIMITED_AGE;
        let now = self.now;
        let truth = self.truth(index);
        if is_aged && matches!(ask, Ask::Retry(_)) {
            truth.promise = SubmissionStage::Ended; // The job stays in the previous round.
            let client = &mut self.clients.jobs[index];
            (client.stage, client.ended) = (Stage::Ended, Some(now));
            return true;
        }
        if truth.may_be_forgotten {
            return true;
        }
        // Its record stays longer than those of its tasks.
        let is_ended = truth.promise == SubmissionStage::Ended;
        let Some(started) = self.clients.jobs[index].started.filter(|_| is_ended) else {
            return false;
        };
        let factor = if matches!(ask, Ask::CancelTasks(_)) { 1 } else { HISTORY_JOBS_AGE_FACTOR };
        let (age, skew) = (self.options.tuning.history_age, self.options.skew_max);
        may_be_removed(started, age, factor, skew, now)
    }

    pub(super) fn is_asked_after(&self, index: usize, id: u64) -> bool {
        self.clients.jobs[index].forgotten_before.is_some_and(|before| id >= before)
    }

    /// Checks that no machine has anything of a forgotten job after `FORGOTTEN_BOUND`.
    pub(crate) fn must_be_forgotten(&mut self) -> Verdict {
        use crate::checkers::past;
        let left = |world: &Self| past::remains(&world.jobs, &world.machines);
        if self.run_until(self.now + FORGOTTEN_BOUND, |world| left(world).is_none()) {
            return Ok(());
        }
        left(self).map_or(Ok(()), |what| Err(past::stays(&what)))
    }
}

/// True if retention may have removed records of a job that started then. The home's clock may be
/// ahead.
fn may_be_removed(started: Time, age: Span, factor: u64, skew: Span, now: Time) -> bool {
    let age = age.0.saturating_mul(factor).saturating_sub(2 * skew.0);
    now.0 >= started.0.saturating_add(age)
}

/// Includes the time for a node that was down: it learns of this after its restart, and writes
/// once.
const FORGOTTEN_BOUND: Span = Span::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_gone_when_it_is_old_enough_and_not_before() {
        let (started, age, skew) = (Time(5), Span(100), Span(2));
        assert!(!may_be_removed(started, age, 1, skew, Time(100)));
        assert!(may_be_removed(started, age, 1, skew, Time(101)));
        assert!(!may_be_removed(started, age, 10, skew, Time(1_000)));
        assert!(!may_be_removed(started, UNLIMITED_AGE, 1, skew, Time(u64::MAX - 1)));
    }
}
