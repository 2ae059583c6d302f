//! The bounds that several crates share, or that the wire and the records have. Each other bound is
//! beside the code that keeps it: in its file, or in the `limits.rs` of its folder or crate.

use crate::time::Span;

mod door;
mod hosts;
mod logs;
mod mail;
mod past;
mod shell;
mod turns;
mod variables;
mod versions;
mod views;
pub use door::*;
pub use hosts::*;
pub use logs::*;
pub use mail::*;
pub use past::*;
pub use shell::*;
pub use turns::*;
pub use variables::*;
pub use versions::*;
pub use views::*;

// The map.
/// The number of partitions is a power of two, fixed when the cluster is made.
pub const PARTITIONS_DEFAULT: u32 = 1 << 12;
pub const PARTITIONS_MAX: u32 = 1 << 23;
/// The minimum number of partitions for each expected node.
pub const PARTITIONS_PER_NODE_MIN: u32 = 8;
pub const NODES_MAX: u32 = 1 << 20;
pub const SLOTS_MAX: u32 = 1 << 16;
/// The maximum number of replicas of a partition.
pub const COPIES_MAX: u32 = 5;
/// How often a process may set damaged records aside and restart with the records of other nodes.
pub const STORE_REPLACEMENTS_MAX: u32 = 3;

// The group that agrees on the map.
pub const GROUP_HEARTBEAT: Span = Span::from_millis(250);
/// A follower without messages starts an election after this time, or up to twice as long.
pub const GROUP_ELECTION_AFTER: Span = Span::from_secs(1);

// Failure detection.
/// Each node probes one other node per period. Without an answer within the timeout it asks
/// `PROBE_HELPERS` other nodes to probe that node.
pub const PROBE_PERIOD: Span = Span::from_secs(1);
pub const PROBE_HELPERS: usize = 3;
/// A suspect that sends nothing for this long is declared failed; less if its connection broke.
pub const SUSPECT_FOR: Span = Span::from_secs(3);
/// Flapping: incarnations shorter than `FLAP_UPTIME_SHORT` count when they end, within
/// `FLAP_WINDOW`. After `FLAP_DEATHS_FREE` of them a node must be up for `FLAP_WAIT_MIN` before the
/// map shows it as up. The wait doubles with each further one up to `FLAP_WAIT_MAX`. This maximum
/// exceeds `FLAP_UPTIME_SHORT`; otherwise a node could flap forever.
pub const FLAP_UPTIME_SHORT: Span = Span::from_secs(10);
pub const FLAP_WINDOW: Span = Span::from_secs(600);
pub const FLAP_DEATHS_FREE: usize = 3;
pub const FLAP_WAIT_MIN: Span = Span::from_secs(1);
pub const FLAP_WAIT_MAX: Span = Span::from_secs(16);
const _: () = assert!(FLAP_WAIT_MAX.0 > FLAP_UPTIME_SHORT.0);

// Frames.
/// The largest message that a node decodes, in bytes. It is checked before memory is allocated.
pub const FRAME_BYTES_MAX: usize = 16 << 20;
/// Bytes of an object in one piece of a transfer.
pub const PIECE_BYTES: usize = 1 << 20;
/// A packet accepts no further message once it has this many bytes.
pub const PACKET_BYTES_MAX: usize = 2 << 20;
/// Larger messages between nodes are sent in fragments of this size, up to the maximum.
pub const FRAGMENT_BYTES: usize = 2 << 20;
pub const MESSAGE_BYTES_MAX: usize = 1 << 30;
/// A command fails after this number of crashes. From `CRASHES_ALONE_MIN` crashes on, no other task
/// runs beside it.
pub const CRASHES_MAX: u8 = 3;
pub const CRASHES_ALONE_MIN: u8 = CRASHES_MAX - 1;
/// The largest crash limit that a task may set, and the value for no limit.
pub const CRASH_LIMIT_MAX: u32 = 1000;
pub const CRASHES_UNLIMITED: u32 = u32::MAX;
/// The number of remembered earlier incarnations of one node.
pub const INCARNATIONS_KEPT_MAX: usize = 4;
/// The number of remembered peers without a session, with which only best-effort messages were
/// exchanged.
pub const PEERS_KEPT_MAX: usize = 16;

// Submission.
/// The maximum number of nodes of a gang.
pub const GANG_NODES_MAX: u32 = 1024;
pub const CHUNK_TASKS_MAX: usize = 4096;
/// The maximum size of one `Children` or `Parents` list in a chunk; longer lists span several
/// chunks.
pub const CHUNK_EDGES_MAX: usize = 32_768;
pub const CHUNK_BYTES_MAX: usize = 4 << 20;
/// The maximum number of unacknowledged chunks of a client per node.
pub const CHUNKS_IN_FLIGHT_MAX: usize = 16;
/// Staged chunks of a job without messages from its client are dropped after this.
pub const STAGED_JOB_TTL: Span = Span::from_secs(600);
pub const NAME_BYTES_MAX: usize = 1024;

// Credits, hand-over, stealing.
/// The number of nodes that a thief probes first is at most this. It halves with each failure, down
/// to the minimum.
pub const STEAL_NEIGHBOURS_MAX: usize = 32;
pub const STEAL_NEIGHBOURS_MIN: usize = 4;
/// A node sends its load to a peer at most this often. A received load counts for `LOAD_KEPT`.
pub const LOAD_INTERVAL: Span = Span::from_millis(10);
pub const LOAD_KEPT: Span = Span::from_secs(10);
pub const STEAL_INTERVAL_START: Span = Span::from_millis(1);
/// The steal interval above which a thief becomes dormant until a hint arrives (the paper's
/// schedulers stop).
pub const STEAL_INTERVAL_BOUND: Span = Span::from_millis(1024);

// Reports and watchers.
/// The maximum number of tasks in one cancel request.
pub const CANCEL_TASKS_MAX: usize = 4096;
pub const STDERR_TAIL_BYTES: usize = 2048;
pub const ERROR_BYTES_MAX: usize = 4096;
/// The maximum number of jobs that a job waits for.
pub const AFTER_JOBS_MAX: usize = 16;
/// The maximum number of rounds of a job.
pub const ROUNDS_MAX: usize = 1000;
pub const TASKS_PER_ANSWER_MAX: usize = 4096;
/// The maximum number of output sizes in a task's state.
pub const TASK_SIZES_REPORTED_MAX: usize = 64;
/// The maximum number of checksums of outputs in one answer about a task.
pub const OUTPUT_SUMS_PER_ANSWER_MAX: usize = 4096;
pub const WATCHERS_MAX: usize = 4096;

/// A node logs at this interval which of its partitions have waited this long for activation.
pub const ACTIVATION_LATE: Span = Span::from_secs(10);

// The key-value store.
pub const KEY_BYTES_MAX: usize = 64 << 10;
pub const VALUE_BYTES_MAX: usize = 8 << 20;
pub const KV_OPS_MAX: usize = 65_536;
/// The number of clients of one partition with remembered batches, and of batches for each.
pub const KV_NUMBERED_CLIENTS_MAX: usize = 128;
pub const KV_NUMBERS_MAX: usize = 16;
/// An answer of a numbered batch above this size is not kept; the store remembers only the number.
pub const KV_ANSWER_KEPT_BYTES: usize = 4 << 10;
/// Bytes of all values in one batch's answer; the rest of a frame is for keys and framing.
pub const KV_REPLY_BYTES_MAX: usize = 12 << 20;

// Execution.
pub const OBJECT_BYTES_MAX_DEFAULT: u64 = 1 << 40;
/// Between SIGTERM and SIGKILL of a command that is to end.
pub const KILL_GRACE: Span = Span::from_secs(2);

// Objects in the core.
/// Grace period before a lost copy of an output is made elsewhere, in case the failed node returns
/// with its disk. Nodes that reported no space are asked again after the same delay, doubled at
/// most `COPY_DOUBLINGS_MAX` times.
pub const COPY_RETURN_TIMEOUT: Span = Span::from_secs(10);
pub const COPY_DOUBLINGS_MAX: u32 = 6;

const _: () = assert!(PARTITIONS_DEFAULT.is_power_of_two());
const _: () = assert!(PARTITIONS_DEFAULT <= PARTITIONS_MAX);
const _: () = assert!(CHUNK_BYTES_MAX < FRAME_BYTES_MAX);
const _: () = assert!(VALUE_BYTES_MAX < FRAME_BYTES_MAX);
const _: () = assert!(PACKET_BYTES_MAX + FRAGMENT_BYTES < FRAME_BYTES_MAX);
const _: () = assert!(VALUE_BYTES_MAX <= KV_REPLY_BYTES_MAX);
const _: () = assert!(KV_REPLY_BYTES_MAX < FRAME_BYTES_MAX);
const _: () = assert!(PIECE_BYTES < FRAME_BYTES_MAX);
const _: () = assert!(STEAL_INTERVAL_START.0 < STEAL_INTERVAL_BOUND.0);
