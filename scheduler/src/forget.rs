//! Jobs that are forgotten: their homes tell every member, which drops what it has of them.

use proto::wire::message::Body;
use proto::{JobId, wire};

use crate::Scheduler;
use crate::out::Out;

impl Scheduler {
    /// The home of a job has it forgotten. The answer leaves when that is durable here.
    pub(crate) fn on_forget(&mut self, ask: &wire::PartAsk, out: &mut Out) {
        let job = JobId(ask.job);
        self.parts.forget(job);
        self.forget_data(job, false, out);
        if ask.results {
            self.forget_results(job);
        }
        self.ledger.forget_job(job, out);
        out.erased.push(job);
        let part = Some(wire::Part { node: self.options.me.0, ..Default::default() });
        let tell = wire::PartTell { job: ask.job, round: ask.round, part, forgotten: true };
        out.reliable.push((self.homes.job_home(job), Body::PartTell(tell)));
    }
}
