//! The part of the holder: queues of ready tasks, staged inputs, slots, attempts that run, and the
//! counts and reports of their ends.

pub(crate) mod admission;
pub(crate) mod classes;
pub(crate) mod execution;
pub(crate) mod job_cleanup;
pub(crate) mod job_tallies;
pub(crate) mod matching;
pub(crate) mod no_space;
mod push;
pub(crate) mod queues;
pub(crate) mod ready_queue;
pub(crate) mod recent_completions;
pub(crate) mod remote_tasks;
mod requeue;
pub(crate) mod slots;
pub(crate) mod staging;
pub(crate) mod start_permission;
pub(crate) mod task;
pub(crate) mod turns;
