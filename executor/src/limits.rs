//! The bounds of this crate.

use proto::Span;

/// How long a node waits for its own stop before it counts a command as failed. For a command that
/// was not ended by a signal, the maximum is also this share of its running time.
pub(crate) const STOP_WAIT_MAX: Span = Span::from_secs(1);
pub(crate) const STOP_WAIT_SHARE: u32 = 8;
/// Inputs up to the first size may be copied for each task, which may write to them. User files up
/// to the second size are copied once to a node; larger ones are linked and compared.
pub(crate) const PRIVATE_INPUT_BYTES_MAX: u64 = 64 << 10;
pub(crate) const COPIED_INPUT_BYTES_MAX: u64 = 64 << 20;
/// Directories of the user up to the second size, and up to this number of entries, are copied once
/// to a node that cannot mount them.
pub(crate) const COPIED_TREE_ENTRIES_MAX: usize = 16_384;
/// The copies of directories on a node, together. The number of copies of one directory: one that
/// changes often is linked and compared then.
pub(crate) const TREE_COPIES_BYTES_MAX: u64 = 512 << 20;
pub(crate) const TREE_COPIES_ENTRIES_MAX: usize = 256 << 10;
pub(crate) const TREE_COPIES_PER_SOURCE_MAX: usize = 8;
/// The directories for which that number is counted; the count begins again beyond it.
pub(crate) const TREE_SOURCES_MAX: usize = 4096;
/// The copies of directories get at most this share of the room for copied files.
pub(crate) const TREE_COPIES_SHARE: u64 = 8;
/// Bytes of captured output in one record; longer output becomes several.
pub(crate) const STREAM_RECORD_BYTES_MAX: usize = 1 << 20;
/// The maximum captured output of one running command in memory before it is written to the output
/// pack.
pub(crate) const STREAM_HELD_BYTES_MAX: usize = 64 << 10;
/// The maximum size of a result, or of an exception, that travels in the end of its task.
pub(crate) const INLINE_RESULT_BYTES_MAX: usize = 4 << 10;
/// The memory for copies of small objects on a node; further ones become files.
pub(crate) const COPIES_IN_MEMORY_BYTES_MAX: u64 = 64 << 20;
