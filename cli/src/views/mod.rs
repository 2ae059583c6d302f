//! What verbs show of jobs and tasks, and how they wait for them.

pub(crate) mod alike;
pub(crate) mod job_info;
pub(crate) mod jobs;
pub(crate) mod kept;
mod pace;
pub(crate) mod progress;
pub(crate) mod reports;
pub(crate) mod submission;
pub(crate) mod task_rows;
pub(crate) mod variables;
pub(crate) mod waiting;
