//! Of event logs, and of what tasks print.

use crate::Span;

pub const EVENT_SEGMENT_BYTES: u64 = 64 << 20;
/// Segments of a log with a small bound, at least.
pub const EVENT_SEGMENTS_MIN: u64 = 8;
/// Events gathered in memory before they are written, and how long at most.
pub const EVENT_BLOCK_BYTES: usize = 64 << 10;
pub const EVENT_FLUSH_AFTER: Span = Span::from_millis(100);
pub const STREAM_SEGMENT_BYTES: u64 = 256 << 20;
/// Bytes of captured output in one record; longer output becomes several.
pub const STREAM_RECORD_BYTES_MAX: usize = 1 << 20;
/// What a task may print unless told otherwise, and the share of a node's store for all of it.
pub const CAPTURED_TASK_BYTES_DEFAULT: u64 = 1 << 30;
pub const CAPTURED_STORE_PERCENT: u64 = 25;
/// Its copies on other nodes: from one sending to the next; until a failed one is tried again; how
/// often nodes are looked for when nothing is printed; and how long an answer may take.
pub const CAPTURED_COPY_GAP: Span = Span::from_millis(250);
pub const CAPTURED_COPY_RETRY: Span = Span::from_secs(2);
pub const CAPTURED_COPY_CHECK_INTERVAL: Span = Span::from_secs(10);
pub const CAPTURED_COPY_TIMEOUT: Span = Span::from_secs(5);
/// Captured output of one running command that is held back before it goes to the pack.
pub const STREAM_HELD_BYTES_MAX: usize = 64 << 10;
