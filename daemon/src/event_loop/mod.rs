//! The loop that owns a node: its inputs, its batches, their sync, its counters.

pub(crate) mod background;
mod event_log_lines;
pub(crate) mod group_commit;
pub(crate) mod inbox;
mod map_change;
pub(crate) mod run_loop;
pub(crate) mod stats;
mod step_batch;
mod turns;
