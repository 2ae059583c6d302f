//! Jobs that are forgotten or thinned: their homes tell every member, which drops what it has of
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
    /// The home of a job has it forgotten, or thinned. The answer leaves when that is durable here,
    /// and when the shell has removed what it has.
    pub(crate) fn on_forget(&mut self, ask: &wire::PartAsk, out: &mut Out) {
        let job = JobId(ask.job);
        self.parts.forget(job);
        self.parked.forget_job(job);
        self.forget_data(job, false, out);
        if ask.results {
            self.forget_results(job);
        }
        // What is kept is found by its task's record.
        let keeps = ask.stage() == PartStage::Thin && self.ledger.has_results(job);
        if keeps {
            self.ledger.keep_no_more(job, out);
        } else {
            self.ledger.forget_job(job, out);
        }
        // An earlier removal may end after more of the job has come.
        self.parts.erasures += 1;
        let number = self.parts.erasures;
        out.erased.push((job, number));
        if self.homes.map_epoch() < ask.map_epoch || self.homes.is_to_serve_more() {
            // It may become home of a partition that has records of the job yet.
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

    /// The shell has nothing of a job any more, on the disk neither.
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

    /// The map has changed, or this node serves more: what was asked before may be confirmed now.
    pub(crate) fn confirm_forgotten(&mut self, out: &mut Out) {
        for ask in std::mem::take(&mut self.parts.unconfirmed).into_values() {
            self.on_forget(&ask, out);
        }
    }

    /// How much history this node is to keep, and how old.
    #[must_use]
    pub fn history(&self) -> (u64, Span) {
        (self.options.tuning.history_bytes, self.options.tuning.history_age)
    }

    /// Events before this are of jobs whose summaries are written, as far as this node knows. After
    /// a start, and where it is to serve more than it does, it does not know which jobs are open.
    #[must_use]
    pub fn history_floor(&self, now: Time) -> Time {
        if self.homes.is_to_serve_more()
            || now.since(self.parts.has_been_there_since()) < HISTORY_START_PATIENCE
        {
            return Time::ZERO;
        }
        let live = self.ledger.live_jobs().map(|(_, job)| match job.visible {
            // The clock of its submitter may be ahead; so much of it had come here by then.
            true => job.submitted.min(job.touched),
            false => job.touched,
        });
        let open = live.chain(self.parts.open(now)).chain(self.jobs.oldest_open());
        retention::floor(open, now, HISTORY_CLOCKS_DIFFER)
    }
}
