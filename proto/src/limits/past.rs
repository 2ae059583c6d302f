//! Of what is kept of ended jobs.

use crate::Span;

/// How long the home of an ended job waits for what the nodes did for it.
pub const JOB_PARTS_TIMEOUT: Span = Span::from_secs(10);
/// Nodes that are told apart in a summary; those that did least are told together.
pub const PARTS_KEPT_MAX: usize = 64;
/// Buckets of the busy time in a summary.
pub const BUSY_KEPT_MAX: usize = 64;
/// Jobs of which a node counts what it does, or did until their homes have stored it.
pub const TALLIES_MAX: usize = 4096;
/// How long what is counted of a job of whose beginning a node has not heard keeps events.
pub const TALLY_UNSTARTED_MAX: Span = Span::from_secs(3_600);
/// In a larger cluster nodes are not told of the beginning of a job: of what they do as a whole
/// nothing is known then.
pub const JOB_STARTS_NODES_MAX: usize = 1024;
/// Events and records of ended jobs that a node keeps unless told otherwise.
pub const HISTORY_BYTES_DEFAULT: u64 = 2 << 30;
/// Of that, what records of tasks and jobs may take, and records of jobs alone; the rest is events.
pub const HISTORY_RECORDS_SHARE: u64 = 2;
pub const HISTORY_JOBS_SHARE: u64 = 8;
/// The record of a job stays this many times as long as events and records of its tasks.
pub const HISTORY_JOBS_AGE_FACTOR: u64 = 10;
/// What the records of a task are taken to be, on the disk and in memory; of a job; and of a part
/// of one.
pub const HISTORY_TASK_BYTES: u64 = 160;
pub const HISTORY_JOB_BYTES: u64 = 1024;
pub const HISTORY_PART_BYTES: u64 = 96;
/// Between two looks at how much history there is; and jobs that one look removes at most.
pub const HISTORY_LOOK_INTERVAL: Span = Span::from_secs(5);
pub const HISTORY_JOBS_PER_LOOK: usize = 50;
/// Between two looks where there is more than one look removes, and between two portions of demands
/// to forget.
pub const HISTORY_MORE_INTERVAL: Span = Span::from_millis(100);
/// Forgotten jobs of which one portion tells members again.
pub const FORGOTTEN_PER_BATCH: usize = 50;
/// Clocks of nodes and clients differ by less: so much older than the oldest open job an event is
/// of none.
pub const HISTORY_CLOCKS_DIFFER: Span = Span::from_secs(10);
/// So long after its start a node takes each event for one of an open job: it may not have heard
/// yet which jobs are open.
pub const HISTORY_START_GRACE: Span = Span::from_secs(60);
/// Events of open jobs stay until all of them take this many times what they may.
pub const HISTORY_OPEN_FACTOR: u64 = 2;
/// Between two measurements of what a node has used: jobs that are shorter share them.
pub const MEASURE_INTERVAL: Span = Span::from_millis(100);
