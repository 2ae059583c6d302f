//! The policies: where a ready task goes, in which order tasks run, and which durations and
//! bandwidths are assumed.

mod algorithm1;
mod duration_models;
mod earliest_finish;
mod estimates;
#[cfg(test)]
mod example_tests;
mod limits;
mod priority;
mod queue_monitor;
mod rules;
mod tuning;

pub use algorithm1::{Assumptions, Decision, Located, decide};
pub use duration_models::Lengths;
pub(crate) use earliest_finish::Loads;
pub use earliest_finish::{Candidate, earliest};
pub(crate) use estimates::Estimates;
pub(crate) use priority::{RANK_FIRST, SPAWNED_RANKS, of_user, rank};
pub use proto::Policy;
pub(crate) use queue_monitor::Monitor;
pub use queue_monitor::{Adaptive, excess};
pub(crate) use rules::Rules;
pub use tuning::{Order, Tuning, TuningError, UNLIMITED_AGE, UNLIMITED_BYTES};

use proto::{NodeId, Span, Time};

use crate::scheduler::Options;

/// What this node has measured, for the policies.
#[derive(Debug)]
pub(crate) struct PolicyState {
    estimates: Estimates,
    monitor: Monitor,
    loads: Loads,
}

impl PolicyState {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            estimates: Estimates::default(),
            monitor: Monitor::new(&options.tuning),
            loads: Loads::default(),
        }
    }

    pub(crate) fn estimates(&self) -> &Estimates {
        &self.estimates
    }
    /// A task of this kind has ended well.
    pub(crate) fn note_length(&mut self, kind: &str, length: Span) {
        self.estimates.completed(kind, length);
    }
    /// An object came from a node.
    pub(crate) fn note_transfer(&mut self, from: NodeId, bytes: u64, took: Span) {
        self.estimates.transferred(from, bytes, took);
    }
    /// A task has come to a queue of this node.
    pub(crate) fn note_placed(&mut self, input_bytes: u64, cpus: u32) {
        self.estimates.placed(input_bytes, cpus);
    }
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.monitor.deadline()
    }
    /// The recent rate at which tasks end here.
    pub(crate) fn tasks_per_s(&self, now: Time) -> f64 {
        let mut throughput = self.monitor.throughput;
        throughput.per_s(now).unwrap_or(0.0)
    }

    /// A task of this length was sent to a node.
    pub(crate) fn note_sent(&mut self, now: Time, to: NodeId, slots: u32, length: Span) {
        self.loads.sent(now, to, slots, length);
    }
    pub(crate) fn forget_peer(&mut self, peer: NodeId) {
        self.loads.forget(peer);
    }
}

#[cfg(test)]
impl PolicyState {
    pub(crate) fn wait_max(&self) -> Span {
        self.monitor.wait_max
    }
    pub(crate) fn pretend_wait_max(&mut self, wait_max: Span) {
        self.monitor.wait_max = wait_max;
    }
}
