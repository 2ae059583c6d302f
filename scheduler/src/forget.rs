//! Jobs that are forgotten or thinned: the job's home asks every member to remove what it has of
//! them.

use proto::limits::{HISTORY_CLOCKS_DIFFER, HISTORY_START_PATIENCE};
use proto::wire::PartStage;
use proto::wire::message::Body;
use proto::{JobId, Span, Time, wire};

use crate::jobs::retention;
use crate::out::Out;
use crate::parts::Erasing;
use crate::{Mutant, Scheduler};

impl Scheduler {
    /// The job's home asks this node to forget or thin a job. The answer is sent when the removal
    /// is durable here and the shell has removed its files.
    pub(crate) fn on_forget(&mut self, ask: &wire::PartAsk, out: &mut Out) {
        let job = JobId(ask.job);
        self.parts.forget(job);
        self.parked.forget_job(job);
        self.forget_data(job, false, out);
        if ask.results {
            self.forget_results(job);
        }
        // A kept output is found by its task's record.
        let keeps = ask.stage() == PartStage::Thin && self.ledger.has_results(job);
        if keeps {
            self.ledger.keep_no_more(job, out);
        } else {
            self.ledger.forget_job(job, out);
        }
        // An earlier removal may end after more of the job has arrived.
        self.parts.erasures += 1;
        let number = self.parts.erasures;
        out.erased.push((job, number));
        if self.homes.map_epoch() < ask.map_epoch || self.homes.is_to_serve_more() {
            // This node may still become home of a partition that has records of the job.
            self.parts.erasing.remove(&job);
            self.parts.unconfirmed.insert(job, *ask);
            return;
        }
        if self.options.mutant == Some(Mutant::ConfirmedBeforeErased) {
            self.tell_forgotten(ask, keeps, out);
        } else {
            self.parts.erasing.insert(job, Erasing { ask: *ask, keeps, number });
        }
    }

    /// The shell has removed everything of a job, from the disk too.
    pub fn on_erased(&mut self, job: JobId, number: u64, out: &mut Out) {
        if self.parts.erasing.get(&job).is_some_and(|erasing| erasing.number == number)
            && let Some(Erasing { ask, keeps, .. }) = self.parts.erasing.remove(&job)
        {
            self.tell_forgotten(&ask, keeps, out);
        }
    }

    fn tell_forgotten(&self, ask: &wire::PartAsk, keeps: bool, out: &mut Out) {
        let job = JobId(ask.job);
        let part = wire::Part { node: self.options.me.0, ..Default::default() };
        let (part, round, map_epoch) = (Some(Box::new(part)), ask.round, ask.map_epoch);
        let tell = wire::PartTell { job: ask.job, round, part, forgotten: true, map_epoch, keeps };
        out.reliable.push((self.homes.job_home(job), Body::PartTell(tell)));
    }

    /// The map has changed, or this node serves more partitions. Requests that had to wait for this
    /// may be confirmed now.
    pub(crate) fn confirm_forgotten(&mut self, out: &mut Out) {
        for ask in std::mem::take(&mut self.parts.unconfirmed).into_values() {
            self.on_forget(&ask, out);
        }
    }

    /// The limits of this node's history: bytes and age.
    #[must_use]
    pub fn history(&self) -> (u64, Span) {
        (self.options.tuning.history_bytes, self.options.tuning.history_age)
    }

    /// Events before this time belong to jobs with stored summaries, as far as this node knows.
    /// After a start, and while it has partitions to load, it does not know which jobs are open.
    #[must_use]
    pub fn history_floor(&self, now: Time) -> Time {
        if self.homes.is_to_serve_more()
            || now.since(self.parts.has_been_there_since()) < HISTORY_START_PATIENCE
        {
            return Time::ZERO;
        }
        let live = self.ledger.live_jobs().map(|(_, job)| match job.visible {
            // The submitter's clock may be ahead; the time of arrival here is the upper limit.
            true => job.submitted.min(job.touched),
            false => job.touched,
        });
        let open = live.chain(self.parts.open(now)).chain(self.jobs.oldest_open());
        retention::floor(open, now, HISTORY_CLOCKS_DIFFER)
    }
}
