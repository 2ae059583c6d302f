//! Bounds of the history of ended jobs.

use crate::Span;

/// How long the home of an ended job waits for the tallies of the nodes.
pub const JOB_PARTS_TIMEOUT: Span = Span::from_secs(10);
/// The number of nodes with separate figures in a summary. The nodes that did least are added
/// together.
pub const PARTS_KEPT_MAX: usize = 64;
/// The number of buckets of busy time in a summary.
pub const BUSY_KEPT_MAX: usize = 64;
/// The number of jobs with a tally on one node, until their homes have stored the summary.
pub const TALLIES_MAX: usize = 4096;
/// How long a tally keeps events if the node has not received the beginning of its job.
pub const TALLY_UNSTARTED_MAX: Span = Span::from_secs(3_600);
/// In a larger cluster nodes are not informed of a job's beginning, so figures of whole nodes are
/// missing from its summary.
pub const JOB_STARTS_NODES_MAX: usize = 1024;
/// The default size of events and records of ended jobs on a node.
pub const HISTORY_BYTES_DEFAULT: u64 = 2 << 30;
/// The shares of that for records of tasks and jobs, and for records of jobs alone. The rest is for
/// events.
pub const HISTORY_RECORDS_SHARE: u64 = 2;
pub const HISTORY_JOBS_SHARE: u64 = 8;
/// The record of a job stays this many times as long as its events and task records.
pub const HISTORY_JOBS_AGE_FACTOR: u64 = 10;
/// The assumed sizes, on disk and in memory, of the record of a task, of a job, and of a part of a
/// summary.
pub const HISTORY_TASK_BYTES: u64 = 160;
pub const HISTORY_JOB_BYTES: u64 = 1024;
pub const HISTORY_PART_BYTES: u64 = 96;
/// The interval of retention, and the maximum number of jobs that one pass removes.
pub const HISTORY_LOOK_INTERVAL: Span = Span::from_secs(5);
pub const HISTORY_JOBS_PER_LOOK: usize = 50;
/// The interval if more jobs remain to be removed, and between two portions of requests to forget
/// jobs.
pub const HISTORY_MORE_INTERVAL: Span = Span::from_millis(100);
/// The number of forgotten jobs in one portion of repeated requests.
pub const FORGOTTEN_PER_BATCH: usize = 50;
/// The bound on clock differences between nodes and clients. An event this much older than the
/// oldest open job belongs to no open job.
pub const HISTORY_CLOCKS_DIFFER: Span = Span::from_secs(10);
/// For this long after its start a node treats every event as one of an open job, because it may
/// not know all open jobs.
pub const HISTORY_START_GRACE: Span = Span::from_secs(60);
/// Events of open jobs stay until they exceed the bound by this factor.
pub const HISTORY_OPEN_FACTOR: u64 = 2;
/// The minimum interval of a node's resource measurements; shorter jobs share a measurement.
pub const MEASURE_INTERVAL: Span = Span::from_millis(100);
