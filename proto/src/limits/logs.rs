//! Bounds of event logs, and of the captured output of tasks.

/// The bytes of events gathered in memory before they are written.
pub const EVENT_BLOCK_BYTES: usize = 64 << 10;
/// The default limit on the captured output of a task, and the share of a node's store for all of
/// it.
pub const CAPTURED_TASK_BYTES_DEFAULT: u64 = 1 << 30;
pub const CAPTURED_STORE_PERCENT: u64 = 25;
