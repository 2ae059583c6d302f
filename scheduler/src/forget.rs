//! Jobs that are forgotten or thinned: their homes tell every member, which drops what it has of
//! them.

use proto::limits::HISTORY_CLOCKS_DIFFER;
use proto::wire::PartStage;
use proto::wire::message::Body;
use proto::{JobId, Span, Time, wire};

use crate::Scheduler;
use crate::jobs::retention;
use crate::out::Out;

impl Scheduler {
    /// The home of a job has it forgotten, or thinned. The answer leaves when that is durable here.
    pub(crate) fn on_forget(&mut self, ask: &wire::PartAsk, out: &mut Out) {
        let job = JobId(ask.job);
        self.parts.forget(job);
        self.forget_data(job, false, out);
        if ask.results {
            self.forget_results(job);
        }
        // What is kept is found by its task's record.
        if ask.stage() == PartStage::Thin && self.ledger.has_results(job) {
            self.ledger.keep_no_more(job, out);
        } else {
            self.ledger.forget_job(job, out);
        }
        out.erased.push(job);
        if self.homes.map_epoch() < ask.map_epoch || self.homes.is_to_serve_more() {
            // It may become home of a partition that has records of the job yet.
            if !self.parts.unconfirmed.contains(ask) {
                self.parts.unconfirmed.push(*ask);
            }
            return;
        }
        let part = wire::Part { node: self.options.me.0, ..Default::default() };
        let part = Some(Box::new(part));
        let tell = wire::PartTell { job: ask.job, round: ask.round, part, forgotten: true };
        out.reliable.push((self.homes.job_home(job), Body::PartTell(tell)));
    }

    /// The map has changed, or this node serves more: what was asked before may be confirmed now.
    pub(crate) fn confirm_forgotten(&mut self, out: &mut Out) {
        for ask in std::mem::take(&mut self.parts.unconfirmed) {
            self.on_forget(&ask, out);
        }
    }

    /// How much history this node is to keep, and how old.
    #[must_use]
    pub fn history(&self) -> (u64, Span) {
        (self.options.tuning.history_bytes, self.options.tuning.history_age)
    }

    /// Events before this are of jobs whose summaries are written, as far as this node knows.
    #[must_use]
    pub fn history_floor(&self, now: Time) -> Time {
        let live = self.ledger.live_jobs().map(|(_, job)| match job.visible {
            true => job.submitted,
            false => job.touched,
        });
        let open = live.chain(self.parts.open(now)).chain(self.jobs.oldest_open());
        retention::floor(open, now, HISTORY_CLOCKS_DIFFER)
    }
}
