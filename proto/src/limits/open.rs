//! Open jobs.

use crate::Span;

/// A part asks the job's home again for weight after this time.
pub const JOIN_REPEAT: Span = Span::from_secs(1);
/// A home sends late edges to the homes of their parents again after this time.
pub const LATE_EDGES_AGAIN: Span = Span::from_secs(1);
/// Each repetition of these two waits twice as long, up to this number of doublings.
pub const REPEAT_DOUBLINGS_MAX: u32 = 6;
/// The maximum number of chunks, and of messages about edges, that wait in a part for its weight.
pub const JOIN_CHUNKS_WAITING_MAX: usize = 256;
/// The maximum number of ends in one answer.
pub const ENDS_PER_ANSWER_MAX: usize = 1_000;
/// The maximum bytes of small values of calls that one part keeps in memory for the clients of its
/// job; and the same again of error texts. Further ones are not kept.
pub const INLINE_HELD_BYTES_MAX: usize = 64 << 20;
/// The maximum size of one such value, or of an exception.
pub const INLINE_BYTES_MAX: usize = 4 << 10;
/// The maximum number of tasks in one request to release outputs.
pub const RELEASED_TASKS_MAX: usize = 10_000;
/// A client sends a chunk of an open job when it has this number of tasks, or after this time.
pub const OPEN_CHUNK_TASKS: usize = 256;
pub const OPEN_CHUNK_PAUSE: Span = Span::from_millis(1);
/// The maximum number of tasks of one handle that are not stored yet, where the client waits.
pub const OPEN_UNSENT_MAX: usize = 16_384;
/// The maximum number of output names in an explanation of a task.
pub const OUTPUT_FILES_SHOWN_MAX: usize = 1_000;
/// The ids that a handle reserves at once.
pub const RESERVED_TASKS: u64 = 1 << 26;
pub const RESERVED_CHUNKS: u32 = 1 << 20;
