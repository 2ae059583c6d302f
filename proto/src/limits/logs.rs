//! Bounds of the captured output of tasks.

/// The default limit on the captured output of a task.
pub const CAPTURED_TASK_BYTES_DEFAULT: u64 = 1 << 30;
