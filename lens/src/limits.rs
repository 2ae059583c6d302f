//! The bounds of this crate.

/// The number of examples and of nodes that a group of alike failures names.
pub(crate) const VIEW_EXAMPLES_MAX: usize = 3;
/// The number of attempts or tasks in one section of a run record.
pub(crate) const RECORD_BLOCK_ROWS: usize = 1 << 16;
/// The size of a section of a run record, before compression.
pub(crate) const RECORD_SECTION_BYTES_MAX: usize = 64 << 20;
/// The latest time and the longest attempt in a run record, in microseconds: 142 years.
pub(crate) const RECORD_TIME_MAX_US: u64 = 1 << 52;
