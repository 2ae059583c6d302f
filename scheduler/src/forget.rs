//! Jobs that are forgotten or thinned: their homes tell every member, which drops what it has of
//! them.

use proto::limits::{HISTORY_CLOCKS_DIFFER, HISTORY_START_GRACE};
use proto::wire::TallyStage;
use proto::wire::message::Body;
use proto::{JobId, Span, Time, wire};

use crate::job_tallies::PendingErasure;
use crate::jobs::retention;
use crate::output::Out;
use crate::{Mutant, Scheduler};

impl Scheduler {
    /// The home of a job has it forgotten, or thinned. The answer leaves when that is durable here,
    /// and when the shell has removed what it has.
    pub(crate) fn on_forget(&mut self, ask: &wire::TallyQuery, out: &mut Out) {
        let job = JobId(ask.job);
        self.job_tallies.forget(job);
        self.undelivered.forget_job(job);
        self.forget_data(job, false, out);
        if ask.results {
            self.forget_results(job);
        }
        // What is kept is found by its task's record.
        let keeps = ask.stage() == TallyStage::Thin && self.ledger.has_results(job);
        if keeps {
            self.ledger.keep_no_more(job, out);
        } else {
            self.ledger.forget_job(job, out);
        }
        // An earlier removal may end after more of the job has come.
        self.job_tallies.erasures += 1;
        let number = self.job_tallies.erasures;
        out.erased.push((job, number));
        if self.homes.map_epoch() < ask.map_epoch || self.homes.is_to_serve_more() {
            // It may become home of a partition that has records of the job yet.
            self.job_tallies.erasing.remove(&job);
            self.job_tallies.unconfirmed.insert(job, *ask);
            return;
        }
        if self.options.mutant == Some(Mutant::ConfirmedBeforeErased) {
            self.report_forgotten(ask, keeps, out);
        } else {
            self.job_tallies.erasing.insert(job, PendingErasure { ask: *ask, keeps, number });
        }
    }

    /// The shell has nothing of a job any more, on the disk neither.
    pub fn on_erased(&mut self, job: JobId, number: u64, out: &mut Out) {
        if self.job_tallies.erasing.get(&job).is_some_and(|erasing| erasing.number == number)
            && let Some(PendingErasure { ask, keeps, .. }) = self.job_tallies.erasing.remove(&job)
        {
            self.report_forgotten(&ask, keeps, out);
        }
    }

    fn report_forgotten(&self, ask: &wire::TallyQuery, keeps: bool, out: &mut Out) {
        let job = JobId(ask.job);
        let part = wire::NodeTally { node: self.options.me.0, ..Default::default() };
        let (part, round, map_epoch) = (Some(Box::new(part)), ask.round, ask.map_epoch);
        let report =
            wire::TallyReport { job: ask.job, round, part, forgotten: true, map_epoch, keeps };
        out.reliable.push((self.homes.job_home(job), Body::TallyReport(report)));
    }

    /// The map has changed, or this node serves more: what was asked before may be confirmed now.
    pub(crate) fn confirm_forgotten(&mut self, out: &mut Out) {
        for ask in std::mem::take(&mut self.job_tallies.unconfirmed).into_values() {
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
            || now.since(self.job_tallies.started_at()) < HISTORY_START_GRACE
        {
            return Time::ZERO;
        }
        let live = self.ledger.live_jobs().map(|(_, job)| match job.visible {
            // The clock of its submitter may be ahead; so much of it had come here by then.
            true => job.submitted.min(job.touched),
            false => job.touched,
        });
        let open = live.chain(self.job_tallies.open(now)).chain(self.jobs.oldest_open());
        retention::floor(open, now, HISTORY_CLOCKS_DIFFER)
    }
}
