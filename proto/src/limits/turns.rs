//! Tasks that spawn tasks.

use super::CHUNK_TASKS_MAX;

/// The largest state of a turn.
pub const TURN_STATE_BYTES_MAX: usize = 64 << 10;
/// The maximum number of tasks that one turn spawns, and of tasks that it awaits.
pub const TURN_SPAWNS_MAX: usize = CHUNK_TASKS_MAX;
pub const TURN_AWAITS_MAX: usize = 4096;
/// The largest encoded turn.
pub const TURN_BYTES_MAX: usize = 4 << 20;
/// The maximum number of named children of one task, and the longest name.
pub const CHILD_KEYS_MAX: usize = 4096;
pub const CHILD_KEY_BYTES_MAX: usize = 256;
/// The default maximum number of tasks in a job, with those that tasks spawn.
pub const JOB_TASKS_MAX_DEFAULT: u64 = 100_000_000;
