//! Tasks that spawn tasks.

use super::CHUNK_TASKS_MAX;
use crate::Span;

/// The largest state of a turn.
pub const TURN_STATE_BYTES_MAX: usize = 64 << 10;
/// The maximum number of tasks that one turn spawns, and of tasks that it awaits.
pub const TURN_SPAWNS_MAX: usize = CHUNK_TASKS_MAX;
pub const TURN_AWAITS_MAX: usize = 4096;
/// Turns of one step share a chunk while it has at most this number of task descriptions.
pub const SHARED_CHUNK_SPECS_MAX: usize = 64;
/// The largest encoded turn.
pub const TURN_BYTES_MAX: usize = 4 << 20;
/// The maximum number of named children of one task, and the longest name.
pub const CHILD_KEYS_MAX: usize = 4096;
pub const CHILD_KEY_BYTES_MAX: usize = 256;
/// The maximum number of ranges of children of one task.
pub const CHILD_RANGES_MAX: usize = 1 << 16;
/// The default maximum number of tasks in a job, with those that tasks spawn.
pub const JOB_TASKS_MAX_DEFAULT: u64 = 100_000_000;
/// An error about too many tasks names at most this number of ancestors.
pub const SPAWN_CHAIN_NAMED_MAX: usize = 8;
/// Children that an explanation names, and tasks that are searched for the children of a done task.
pub const CHILDREN_NAMED_MAX: usize = 16;
pub const CHILDREN_SCAN_MAX: usize = 1 << 16;
/// A holder repeats an unanswered turn after this time, and a home an unanswered query for awaited
/// tasks.
pub const TURN_AGAIN: Span = Span::from_secs(1);
pub const AWAIT_AGAIN: Span = Span::from_secs(5);
/// Each repetition waits twice as long as the one before it, up to this.
pub const REPEAT_MAX: Span = Span::from_secs(60);
