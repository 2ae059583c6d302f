//! Jobs that are forgotten or thinned: the job's home asks every member to remove what it has of
//! them.

use proto::wire::TallyStage;
use proto::wire::message::Body;
use proto::{JobId, Span, Time, wire};

use crate::holder::jobs::job_tallies::PendingErasure;
use crate::home::jobs::retention;
use crate::output::Out;
use crate::{Mutant, Scheduler};

/// The bound on clock differences between nodes and clients. An event this much older than the
/// oldest open job belongs to no open job.
const HISTORY_CLOCKS_DIFFER: Span = Span::from_secs(10);
/// For this long after its start a node treats every event as one of an open job, because it may
/// not know all open jobs.
const HISTORY_START_GRACE: Span = Span::from_secs(60);

impl Scheduler {
    /// The job's home asks this node to forget or thin a job. The answer is sent when the removal
    /// is durable here and the shell has removed its files.
    pub(crate) fn on_forget(&mut self, ask: &wire::TallyQuery, out: &mut Out) {
        let job = JobId(ask.job);
        self.holder.job_tallies.forget(job);
        self.routing.forget_job(job);
        self.forget_data(job, false, out);
        if ask.results {
            self.forget_results(job);
        }
        // A kept output is found by its task's record.
        let keeps = ask.stage() == TallyStage::Thin && self.home.ledger.has_results(job);
        if keeps {
            self.home.ledger.keep_no_more(job, out);
        } else {
            self.home.ledger.forget_job(job, out);
        }
        // An earlier removal may end after more of the job has arrived.
        let number = self.holder.job_tallies.next_erasure();
        out.erased.push((job, number));
        if self.routing.homes().map_epoch() < ask.map_epoch
            || self.routing.homes().is_to_serve_more()
        {
            // This node may still become home of a partition that has records of the job.
            self.holder.job_tallies.defer_confirmation(*ask);
            return;
        }
        if self.options.mutant == Some(Mutant::ConfirmedBeforeErased) {
            self.report_forgotten(ask, keeps, out);
        } else {
            self.holder.job_tallies.await_erasure(PendingErasure { ask: *ask, keeps, number });
        }
    }

    /// The shell has removed everything of a job, from the disk too.
    pub fn on_erased(&mut self, job: JobId, number: u64, out: &mut Out) {
        if let Some(erased) = self.holder.job_tallies.erased(job, number) {
            let PendingErasure { ask, keeps, .. } = erased;
            self.report_forgotten(&ask, keeps, out);
        }
    }

    fn report_forgotten(&self, ask: &wire::TallyQuery, keeps: bool, out: &mut Out) {
        let job = JobId(ask.job);
        let part = wire::NodeTally { node: self.options.me.0, ..Default::default() };
        let (part, round, map_epoch) = (Some(Box::new(part)), ask.round, ask.map_epoch);
        let report =
            wire::TallyReport { job: ask.job, round, part, forgotten: true, map_epoch, keeps };
        out.reliable.push((self.routing.homes().job_home(job), Body::TallyReport(report)));
    }

    /// The map has changed, or this node serves more partitions. Requests that had to wait for this
    /// may be confirmed now.
    pub(crate) fn confirm_forgotten(&mut self, out: &mut Out) {
        for ask in self.holder.job_tallies.take_unconfirmed() {
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
        if self.routing.homes().is_to_serve_more()
            || now.since(self.holder.job_tallies().started_at()) < HISTORY_START_GRACE
        {
            return Time::ZERO;
        }
        let live = self.home.ledger.live_jobs().map(|(_, job)| job.earliest());
        let open =
            live.chain(self.holder.job_tallies().open(now)).chain(self.home.jobs.oldest_open());
        retention::floor(open, now, HISTORY_CLOCKS_DIFFER)
    }
}
