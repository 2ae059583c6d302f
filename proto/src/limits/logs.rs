//! Bounds of event logs, and of the captured output of tasks.

use crate::Span;

pub const EVENT_SEGMENT_BYTES: u64 = 64 << 20;
/// The minimum number of segments in a log with a small bound.
pub const EVENT_SEGMENTS_MIN: u64 = 8;
/// The bytes of events gathered in memory before they are written, and the maximum delay.
pub const EVENT_BLOCK_BYTES: usize = 64 << 10;
pub const EVENT_FLUSH_AFTER: Span = Span::from_millis(100);
pub const STREAM_SEGMENT_BYTES: u64 = 256 << 20;
/// Bytes of captured output in one record; longer output becomes several.
pub const STREAM_RECORD_BYTES_MAX: usize = 1 << 20;
/// The default limit on the captured output of a task, and the share of a node's store for all of
/// it.
pub const CAPTURED_TASK_BYTES_DEFAULT: u64 = 1 << 30;
pub const CAPTURED_STORE_PERCENT: u64 = 25;
/// Copies of captured output on other nodes: the interval between transfers, and the delay after a
/// failure. `CAPTURED_COPY_CHECK_INTERVAL` is the interval of searches for nodes while nothing is
/// printed. `CAPTURED_COPY_TIMEOUT` is the timeout of an answer.
pub const CAPTURED_COPY_GAP: Span = Span::from_millis(250);
pub const CAPTURED_COPY_RETRY: Span = Span::from_secs(2);
pub const CAPTURED_COPY_CHECK_INTERVAL: Span = Span::from_secs(10);
pub const CAPTURED_COPY_TIMEOUT: Span = Span::from_secs(5);
/// The maximum captured output of one running command in memory before it is written to the output
/// pack.
pub const STREAM_HELD_BYTES_MAX: usize = 64 << 10;
/// The maximum time that captured output of a running command is in memory.
pub const STREAM_HELD_TIME: Span = Span::from_secs(1);
