//! Every bound of Starling, named once.

use crate::time::Span;

/// Wire and disk format; a frame or a state directory of another version is refused.
pub const FORMAT_VERSION: u32 = 1;

// The map.
/// Partitions are a power of two, fixed when the cluster is made.
pub const PARTITIONS_DEFAULT: u32 = 1 << 12;
pub const PARTITIONS_MAX: u32 = 1 << 23;
/// At least this many partitions for each expected node.
pub const PARTITIONS_PER_NODE_MIN: u32 = 8;
pub const NODES_MAX: u32 = 1 << 20;
pub const SLOTS_MAX: u32 = 1 << 16;

// Frames.
/// The largest message a node decodes, bytes; checked before memory is taken.
pub const FRAME_BYTES_MAX: usize = 16 << 20;
/// Bytes of an object in one piece of a transfer.
pub const PIECE_BYTES: usize = 1 << 20;
/// Reliable messages one packet may carry, and how many may be unacknowledged on a link.
pub const PACKET_MESSAGES_MAX: usize = 256;
pub const LINK_WINDOW_MESSAGES: usize = 1024;
/// Messages that arrived ahead of a gap and are kept.
pub const LINK_REORDER_MESSAGES_MAX: usize = 1024;
pub const RETRANSMIT_AFTER: Span = Span::from_millis(300);
pub const RETRANSMIT_AFTER_MAX: Span = Span::from_secs(5);

// Submission.
pub const CHUNK_TASKS_MAX: usize = 4096;
/// Entries of one `Children` or `Parents` list in a chunk; longer lists span chunks.
pub const CHUNK_EDGES_MAX: usize = 32_768;
pub const CHUNK_BYTES_MAX: usize = 4 << 20;
/// Chunks a client keeps unanswered per node.
pub const CHUNKS_IN_FLIGHT_MAX: usize = 16;
pub const TASK_SLOTS_MAX: u32 = 1 << 30;
/// Staged chunks of a job whose client went silent are dropped after this.
pub const STAGED_JOB_TTL: Span = Span::from_secs(600);
pub const NAME_BYTES_MAX: usize = 1024;

// Credits, hand-over, stealing.
/// Edges of one `Credit`; a longer fan-out goes out in several, as the link's window allows.
pub const CREDIT_EDGES_MAX: usize = 8192;
/// Tasks of one bundle (a push or a grant).
pub const BUNDLE_TASKS_MAX: usize = 8192;
pub const COMPLETIONS_MAX: usize = 1024;
pub const STEAL_NEIGHBOURS_MAX: usize = 32;
pub const STEAL_INTERVAL_START: Span = Span::from_millis(1);
/// The bound after which a thief goes quiet until a hint wakes it (the paper's schedulers stop).
pub const STEAL_INTERVAL_BOUND: Span = Span::from_millis(1024);
/// Probes and requests that stay unanswered are given up after this.
pub const STEAL_TIMEOUT: Span = Span::from_millis(500);
/// A node with more shared work than slots hints peers, backing off up to the maximum.
pub const HINT_INTERVAL_START: Span = Span::from_millis(2);
pub const HINT_INTERVAL_MAX: Span = Span::from_secs(1);
pub const HINT_PEERS: usize = 2;

// Reports and watchers.
pub const COUNTS_INTERVAL: Span = Span::from_millis(100);
/// A waiting task asks its missing parents' homes this often. Finds nothing in a run without faults.
pub const RECONCILE_INTERVAL: Span = Span::from_secs(10);
pub const RECONCILE_TASKS_MAX: usize = 1024;
pub const FAILURES_KEPT_PER_PARTITION: usize = 4;
pub const FAILURES_KEPT_PER_JOB: usize = 64;
pub const STDERR_TAIL_BYTES: usize = 2048;
pub const ERROR_BYTES_MAX: usize = 4096;
pub const TASKS_PER_ANSWER_MAX: usize = 4096;
pub const WATCHERS_MAX: usize = 4096;

// The key-value store.
pub const KEY_BYTES_MAX: usize = 64 << 10;
pub const VALUE_BYTES_MAX: usize = 8 << 20;
pub const KV_OPS_MAX: usize = 65_536;

// Execution.
/// Tasks whose inputs are being fetched before a slot is taken, per slot.
pub const STAGING_PER_SLOT: usize = 2;
pub const EVENT_SEGMENT_BYTES: u64 = 64 << 20;
pub const STREAM_SEGMENT_BYTES: u64 = 256 << 20;

const _: () = assert!(PARTITIONS_DEFAULT.is_power_of_two());
const _: () = assert!(PARTITIONS_DEFAULT <= PARTITIONS_MAX);
const _: () = assert!(CHUNK_BYTES_MAX < FRAME_BYTES_MAX);
const _: () = assert!(VALUE_BYTES_MAX < FRAME_BYTES_MAX);
const _: () = assert!(PIECE_BYTES < FRAME_BYTES_MAX);
const _: () = assert!(STEAL_INTERVAL_START.0 < STEAL_INTERVAL_BOUND.0);
