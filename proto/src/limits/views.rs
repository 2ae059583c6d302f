//! Bounds of views and of run records.

/// The number of buckets of a series. Beyond it neighbouring buckets merge and the width doubles.
pub const VIEW_BUCKETS_MAX: usize = 512;
/// The number of separate nodes, and of pairs of nodes between which data moved. Beyond it
/// neighbours share a sum.
pub const VIEW_NODES_MAX: usize = 256;
pub const VIEW_LINKS_MAX: usize = 4096;
/// The number of separate kinds of tasks in a view; further ones are added together.
pub const VIEW_KINDS_MAX: usize = 64;
/// The number of separate groups of alike failures; further ones are added together.
pub const VIEW_FAILURES_MAX: usize = 1024;
/// The number of examples and of nodes that a group of alike failures names.
pub const VIEW_EXAMPLES_MAX: usize = 3;
/// The length of the common text of alike failures, in characters.
pub const VIEW_FAILURE_CHARS_MAX: usize = 200;
/// The number of attempts of a kind that a view has one by one: the longest.
pub const VIEW_SLOWEST_MAX: usize = 32;
/// The number of attempts or tasks in one section of a run record.
pub const RECORD_BLOCK_ROWS: usize = 1 << 16;
/// The number of attempts or tasks in a run record.
pub const RECORD_ROWS_MAX: usize = 1 << 25;
/// The size of a section of a run record, before compression.
pub const RECORD_SECTION_BYTES_MAX: usize = 64 << 20;
/// The number of sections of a run record.
pub const RECORD_SECTIONS_MAX: usize = 4096;
/// The latest time and the longest attempt in a run record, in microseconds: 142 years.
pub const RECORD_TIME_MAX_US: u64 = 1 << 52;
/// The number of kinds in a run record.
pub const RECORD_KINDS_MAX: usize = 1024;
/// The number of records of runs that stay; older ones are removed.
pub const RECORDS_KEPT: usize = 20;
