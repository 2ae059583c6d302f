//! Bounds of a node's shell: links, disks, transfers, and unauthenticated connections.

use crate::time::Span;

/// The maximum number of threads that read and write files beside the loop; further operations
/// wait.
pub const FILE_THREADS_MAX: usize = 64;
/// The maximum number of inputs handled in one step.
pub const STEP_INPUTS_MAX: usize = 256;
/// The bytes of requests and packets in one step, and the number of inputs that are not weighed. So
/// the writes of a step fit into one message to each replica.
pub const STEP_INPUT_BYTES: usize = 256 << 20;
pub const STEP_INPUTS_UNWEIGHED: usize = 32;
/// While a step has left this many inputs to the next one, the node reads no further frames.
/// `STEP_GENERATIONS_MAX` bounds the rounds of a step without writes, in which no-ops end.
pub const INPUTS_DEFERRED_MAX: usize = 4 * STEP_INPUTS_MAX;
pub const STEP_GENERATIONS_MAX: usize = 64;
/// Bytes of writes after which a step ends and goes to the log.
pub const STEP_WRITE_BYTES: usize = 1 << 20;
/// The number of frames of peers and clients that wait for the loop. Above it their streams are not
/// read.
pub const INBOX_FRAMES_MAX: usize = 256;
/// Packets in the queue of one peer's stream. Further ones are dropped, and the link sends them
/// again.
pub const LINK_QUEUE_PACKETS: usize = 1024;
/// The size of a client's reply queue above which the node disconnects it.
pub const CLIENT_QUEUE_BYTES_MAX: usize = 64 << 20;
/// A frame of replies is sent when it has this many bytes.
pub const RESPONSES_BYTES: usize = 1 << 20;
/// The minimum pause between two syncs of the log while no client waits, neither here nor at a
/// primary of a replica.
pub const SYNC_GAP: Span = Span::from_millis(5);
/// The same while no message of the node waits for a sync.
pub const SYNC_GAP_IDLE: Span = Span::from_millis(20);
/// The interval at which a node reads all of its records to find damage in rarely read ones, and
/// the smallest interval that a user may set.
pub const SCRUB_INTERVAL: Span = Span::from_secs(86_400);
pub const SCRUB_INTERVAL_MIN: Span = Span::from_secs(1);
/// The scrubber reads at most this many bytes per second, in pieces of this size. It rests at least
/// `SCRUB_REST_FACTOR` times as long as a piece took.
pub const SCRUB_BYTES_PER_S: u64 = 8 << 20;
pub const SCRUB_PIECE_BYTES: usize = 1 << 20;
pub const SCRUB_REST_FACTOR: u32 = 3;
/// A damaged piece is read again after this delay, and counts if it is still damaged.
pub const SCRUB_RECHECK_AFTER: Span = Span::from_secs(1);
/// How long a node waits for the state directory of a predecessor that is just ending.
pub const STATE_LOCK_TIMEOUT: Span = Span::from_secs(1);
pub const GREETING_TIMEOUT: Span = Span::from_secs(5);
pub const REDIAL_AFTER: Span = Span::from_millis(50);
pub const REDIAL_AFTER_MAX: Span = Span::from_secs(2);
/// The default soft and hard marks of a node's store, as shares of the space on its file system.
pub const STORE_SOFT_PERCENT: u64 = 90;
pub const STORE_HARD_PERCENT: u64 = 95;
/// The space of the file system that objects leave to records and logs, and the share on a small
/// one.
pub const DISK_RESERVE_BYTES: u64 = 32 << 20;
pub const DISK_RESERVE_SHARE: u64 = 16;
/// The maximum number of simultaneous fetches of one node; further ones wait.
pub const FETCHES_IN_FLIGHT_MAX: usize = 32;
/// A fetch from an unreachable node fails after this, and the core repeats it there or elsewhere.
pub const FETCH_RETRY_FOR: Span = Span::from_secs(5);
/// Objects up to this size are sent in frames of a link.
pub const SMALL_OBJECT_BYTES: u64 = 64 << 10;
/// The memory for copies of such objects on a node; further ones become files.
pub const COPIES_IN_MEMORY_BYTES_MAX: u64 = 64 << 20;
/// The maximum number of small objects in one frame, and their bytes.
pub const SMALL_OBJECTS_PER_FRAME_MAX: usize = 256;
pub const SMALL_OBJECTS_FRAME_BYTES: usize = 1 << 20;
/// A small object that has not arrived within this time is fetched over a data connection.
pub const SMALL_OBJECT_TIMEOUT: Span = Span::from_secs(5);
/// The maximum number of data connections that one node opens to another.
pub const DATA_CONNECTIONS_PER_NODE_MAX: usize = 4;
/// The maximum number of data connections that a node serves.
pub const DATA_CONNECTIONS_MAX: usize = 512;
// Connections of clients and nodes.
/// A connection without a client certificate after this time is closed.
pub const HANDSHAKE_TIMEOUT: Span = Span::from_secs(5);
/// The maximum number of unauthenticated connections of one listener. For a further one, the oldest
/// that has had `UNAUTHENTICATED_GRACE` is closed. Each takes the buffers of one handshake, well
/// under 1 MiB.
pub const UNAUTHENTICATED_CONNECTIONS_MAX: usize = 128;
pub const UNAUTHENTICATED_GRACE: Span = Span::from_millis(500);
pub const UNAUTHENTICATED_BYTES_MAX: usize = 1 << 20;
/// The maximum number of RPC connections of one node.
pub const CONNECTIONS_MAX: usize = 4096;
/// Of these, the connections of clients and observers, which leave the rest to nodes.
pub const CLIENT_CONNECTIONS_MAX: usize = 3072;
/// The interval at which a node checks whether its certificate must be renewed.
pub const KEYS_CHECK_INTERVAL: Span = Span::from_secs(86_400);
/// The maximum number of unused tokens, and the maximum validity of one.
pub const TOKENS_MAX: usize = 64;
pub const TOKEN_LIFETIME_MAX: Span = Span::from_secs(86_400);
/// The size of the keys that a node returns for a token.
pub const JOIN_KEYS_BYTES_MAX: usize = 16 << 10;
/// The objects requested together on one data connection, and their bytes (a single one may be
/// larger).
pub const DATA_BATCH_OBJECTS: usize = 16;
pub const DATA_BATCH_BYTES: u64 = 4 << 20;
/// Inputs up to the first size may be copied for each task, which may write to them. User files up
/// to the second size are copied once to a node; larger ones are linked and compared.
pub const PRIVATE_INPUT_BYTES_MAX: u64 = 64 << 10;
pub const COPIED_INPUT_BYTES_MAX: u64 = 64 << 20;
/// The number of files in a user's directory that are compared after a task has read it.
pub const GUARDED_ENTRIES_MAX: usize = 4096;
/// The number of files in one output that is a directory or a pattern, and their depth.
pub const ARCHIVE_ENTRIES_MAX: usize = 1_000_000;
pub const ARCHIVE_DEPTH_MAX: usize = 256;
/// The default size of all staged copies of files.
pub const STAGED_BYTES_DEFAULT: u64 = 6 << 30;
/// The maximum number of simultaneous uploads; further ones wait.
pub const UPLOADS_IN_FLIGHT_MAX: usize = 8;
/// A node that has only uploads of a job asks whether the job exists if no upload has arrived for
/// this long. A client needs less time to upload the other files and to commit.
pub const UPLOADS_QUERIED_AFTER: Span = Span::from_secs(24 * 3600);
/// The maximum number of jobs that it asks about in a step.
pub const UPLOADS_QUERIED_MAX: usize = 64;
/// Search for a missing uploaded file. `UPLOAD_SEARCH_PAUSE` separates its rounds.
/// `UPLOAD_SEARCH_DOWN_TIMEOUT` bounds the wait for nodes that are down and may be restarting.
/// `UPLOAD_SEARCH_TIMEOUT` bounds the wait for silent nodes that are up.
pub const UPLOAD_SEARCH_PAUSE: Span = Span::from_millis(200);
pub const UPLOAD_SEARCH_DOWN_TIMEOUT: Span = Span::from_secs(60);
pub const UPLOAD_SEARCH_TIMEOUT: Span = Span::from_secs(600);
/// The maximum number of simultaneous searches, and of nodes queried for each.
pub const UPLOAD_SEARCHES_MAX: usize = 8;
pub const UPLOAD_SEARCH_NODES_MAX: usize = 8;
/// If a node that has the file breaks the transfer off, the waits start again, at most this many
/// times.
pub const UPLOAD_SEARCH_RESTARTS_MAX: u32 = 8;
/// The size of the buffer between a socket and a file.
pub const DATA_BUFFER_BYTES: usize = 256 << 10;
/// Objects of at least this size use one thread to read the socket and another one to write.
pub const DATA_PIPELINE_BYTES: u64 = 8 << 20;
/// A data connection without progress in the middle of an object is closed after this.
pub const DATA_STALL_TIMEOUT: Span = Span::from_secs(20);
/// An unused data connection is closed after this.
pub const DATA_IDLE_TIMEOUT: Span = Span::from_secs(60);
/// No bound on history is smaller: a number without its unit is not one.
pub const HISTORY_BYTES_MIN: u64 = 1 << 20;
