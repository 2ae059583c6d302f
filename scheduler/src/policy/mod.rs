//! The policies: where a ready task goes, in which order tasks run, and which durations and
//! bandwidths are assumed.

mod algorithm1;
mod duration_models;
mod earliest_finish;
mod estimates;
#[cfg(test)]
mod example_tests;
mod priority;
mod queue_monitor;
mod rules;
mod tuning;

pub use algorithm1::{Assumptions, Decision, Located, decide};
pub use duration_models::Lengths;
pub(crate) use earliest_finish::Loads;
pub use earliest_finish::{Candidate, earliest};
pub(crate) use estimates::Estimates;
pub(crate) use priority::{SPAWNED_RANKS, rank};
pub use proto::Policy;
pub(crate) use queue_monitor::Monitor;
pub use queue_monitor::{Adaptive, excess};
pub(crate) use rules::Rules;
pub use tuning::{Order, Tuning, TuningError, UNLIMITED_AGE, UNLIMITED_BYTES};

use crate::scheduler::Options;

/// What this node has measured, for the policies.
#[derive(Debug)]
pub(crate) struct PolicyState {
    pub(crate) estimates: Estimates,
    pub(crate) monitor: Monitor,
    pub(crate) loads: Loads,
}

impl PolicyState {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            estimates: Estimates::default(),
            monitor: Monitor::new(&options.tuning),
            loads: Loads::default(),
        }
    }
}
