//! Bounds of the history of ended jobs.

use crate::Span;

/// How long the home of an ended job waits for the tallies of the nodes.
pub const JOB_PARTS_TIMEOUT: Span = Span::from_secs(10);
/// The records of tasks and jobs may fill one part in this many of that. The rest is for events.
pub const HISTORY_RECORDS_SHARE: u64 = 2;
/// The record of a job stays this many times as long as its events and task records.
pub const HISTORY_JOBS_AGE_FACTOR: u64 = 10;
/// The interval of retention.
pub const HISTORY_LOOK_INTERVAL: Span = Span::from_secs(5);
