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
pub use door::*;
pub use hosts::*;
pub use logs::*;
pub use mail::*;
pub use past::*;
pub use shell::*;
pub use turns::*;
pub use variables::*;
pub use versions::*;

// The map.
/// The number of partitions is a power of two, fixed when the cluster is made.
pub const PARTITIONS_MAX: u32 = 1 << 23;
pub const NODES_MAX: u32 = 1 << 20;
pub const SLOTS_MAX: u32 = 1 << 16;
/// The maximum number of replicas of a partition.
pub const COPIES_MAX: u32 = 5;
/// How often a process may set damaged records aside and restart with the records of other nodes.
pub const STORE_REPLACEMENTS_MAX: u32 = 3;

// The group that agrees on the map.
/// A follower without messages starts an election after this time, or up to twice as long.
pub const GROUP_ELECTION_AFTER: Span = Span::from_secs(1);

// Failure detection.
/// Each node probes one other node per period.
pub const PROBE_PERIOD: Span = Span::from_secs(1);
/// A suspect that sends nothing for this long is declared failed; less if its connection broke.
pub const SUSPECT_FOR: Span = Span::from_secs(3);
/// The longest time for which a node that flaps must be up before the map shows it as up.
pub const FLAP_WAIT_MAX: Span = Span::from_secs(16);

// Frames.
/// The largest message that a node decodes, in bytes. It is checked before memory is allocated.
pub const FRAME_BYTES_MAX: usize = 16 << 20;
/// Bytes of an object in one piece of a transfer.
pub const PIECE_BYTES: usize = 1 << 20;
/// A packet accepts no further message once it has this many bytes.
pub const PACKET_BYTES_MAX: usize = 2 << 20;
/// The maximum size of a message between nodes. Those larger than a packet are sent in fragments.
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
/// with its disk. Nodes that reported no space are asked again after the same delay, which doubles.
pub const COPY_RETURN_TIMEOUT: Span = Span::from_secs(10);

const _: () = assert!(CHUNK_BYTES_MAX < FRAME_BYTES_MAX);
const _: () = assert!(VALUE_BYTES_MAX < FRAME_BYTES_MAX);
const _: () = assert!(VALUE_BYTES_MAX <= KV_REPLY_BYTES_MAX);
const _: () = assert!(KV_REPLY_BYTES_MAX < FRAME_BYTES_MAX);
const _: () = assert!(PIECE_BYTES < FRAME_BYTES_MAX);
const _: () = assert!(STEAL_INTERVAL_START.0 < STEAL_INTERVAL_BOUND.0);
