//! The bounds of this crate.

use proto::Span;

/// The maximum number of tasks in one request to release outputs.
pub(crate) const RELEASED_TASKS_MAX: usize = 10_000;
/// A client sends a chunk of an open job when it has about this number of bytes, this number of
/// tasks or of kinds of tasks, or after this time.
pub(crate) const OPEN_CHUNK_BYTES: usize = 256 << 10;
pub(crate) const OPEN_CHUNK_SPECS_MAX: usize = 32;
pub(crate) const OPEN_CHUNK_TASKS: usize = 256;
pub(crate) const OPEN_CHUNK_PAUSE: Span = Span::from_millis(1);
/// The maximum number of tasks of one handle that are not stored yet, where the client waits.
pub(crate) const OPEN_UNSENT_MAX: usize = 16_384;
/// The ids that a handle reserves at once.
pub(crate) const RESERVED_TASKS: u64 = 1 << 26;
pub(crate) const RESERVED_CHUNKS: u32 = 1 << 20;
