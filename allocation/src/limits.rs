//! The limits of allocations. Times are in milliseconds.

/// A lease is valid for this long after it was taken or renewed.
pub const LEASE_MS: u64 = 30_000;
/// An owner renews its lease after this time.
pub const LEASE_RENEWED_MS: u64 = 10_000;
/// An owner lists its batch jobs at most once in this time.
pub const LISTED_EVERY_MS: u64 = 30_000;
/// As [`LISTED_EVERY_MS`], while batch jobs run and none is waited for.
pub const RUNNING_LISTED_EVERY_MS: u64 = 300_000;
/// A listing shows submissions that are at least this old.
pub const LISTED_AFTER_MS: u64 = 2_000;
/// An owner submits at most once in this time.
pub const SUBMITTED_EVERY_MS: u64 = 5_000;
/// The batch system may have forgotten a batch job that ended this long ago.
pub const MEMORY_MS: u64 = 300_000;
/// The pauses of a queue after its first failure, its second one, and so on. The last one repeats.
pub const PAUSES_MS: [u64; 5] = [0, 60_000, 900_000, 1_800_000, 3_600_000];

/// The queues of a cluster.
pub const QUEUES_MAX: usize = 16;
/// The allocations of one queue that are not over.
pub const OPEN_MAX: usize = 256;
/// The ended allocations of one queue that are kept for its report.
pub const KEPT_MAX: u64 = 64;
/// The characters of a queue's name.
pub const NAME_LENGTH_MAX: usize = 32;
/// The further arguments of a queue, for the batch system or for nodes.
pub const ARGUMENTS_MAX: usize = 64;
/// The bytes of one text of a queue.
pub const TEXT_BYTES_MAX: usize = 8 << 10;
/// The nodes of one queue.
pub const NODES_MAX: u32 = 10_000;
/// The shortest time limit of an allocation, in seconds: batch systems count in minutes.
pub const TIME_LIMIT_S_MIN: u64 = 60;
/// The longest time limit of an allocation, in seconds.
pub const TIME_LIMIT_S_MAX: u64 = 366 * 24 * 3600;
/// The tasks of one class that are counted on one node.
pub const TASKS_PER_NODE_MAX: u64 = 1024;
/// The lines that explain a plan of one queue.
pub const LINES_MAX: usize = 32;
/// The rows of one listing.
pub const ROWS_MAX: usize = 10_000;
