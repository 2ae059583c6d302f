//! Kinds of jobs and of nodes that only some seeds draw: jobs that spawn tasks, gangs, variables,
//! limits of running tasks, waits for other jobs, pauses, commands with a signal, and nodes with
//! other offers.

pub(crate) mod after_jobs;
pub(crate) mod gangs;
pub(crate) mod node_offers;
pub(crate) mod notices;
pub(crate) mod pauses;
pub(crate) mod silence;
pub(crate) mod spawning;
pub(crate) mod throttles;
pub(crate) mod variables;

use proto::work::Launch;

use crate::checkers::Verdict;
use crate::faults::world::World;

impl World {
    /// Checks a start by the limits of its job.
    pub(crate) fn check_launch(&self, launch: &Launch) -> Verdict {
        self.check_throttle(launch)?;
        self.check_after_jobs(launch)
    }
}
