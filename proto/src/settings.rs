//! Settings of a job.

use crate::limits::JOB_TASKS_MAX_DEFAULT;
use crate::wire;

impl wire::JobSettings {
    /// The maximum number of tasks, with those that tasks spawn.
    #[must_use]
    pub fn tasks_max(&self) -> u64 {
        match self.max_tasks {
            0 => JOB_TASKS_MAX_DEFAULT,
            limit => limit,
        }
    }
}
