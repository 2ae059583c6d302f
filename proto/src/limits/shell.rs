//! Bounds of the shell of a node: links, disks, transfers, and what strangers may cost.

use crate::time::Span;

/// Threads that read and write files beside the loop, at a time: what has none waits.
pub const FILE_THREADS_MAX: usize = 64;
/// Inputs handled in one step, and steps without a write while no-ops answer themselves.
pub const STEP_INPUTS_MAX: usize = 256;
/// Bytes of requests and packets that one step handles, and up to how many inputs are not weighed:
/// what a step writes fits into one message to each replica.
pub const STEP_INPUT_BYTES: usize = 256 << 20;
pub const STEP_INPUTS_UNWEIGHED: usize = 32;
/// While a step has left this many inputs to the next one, no further frames are taken in.
pub const INPUTS_DEFERRED_MAX: usize = 4 * STEP_INPUTS_MAX;
pub const STEP_GENERATIONS_MAX: usize = 64;
/// Bytes of writes after which a step goes to the log whatever else it could still do.
pub const STEP_WRITE_BYTES: usize = 1 << 20;
/// Frames of peers and clients that wait for the loop; beyond it their streams are not read.
pub const INBOX_FRAMES_MAX: usize = 256;
/// Packets that wait for one peer's stream; more are dropped, the link sends them again.
pub const LINK_QUEUE_PACKETS: usize = 1024;
/// Answers a client may leave unread before it is cut off.
pub const CLIENT_QUEUE_BYTES_MAX: usize = 64 << 20;
/// A frame of answers is closed when it has this many bytes.
pub const RESPONSES_BYTES: usize = 1 << 20;
/// From the end of one sync of the log to the start of the next while no client waits for it here
/// or at the node whose copies are synced, at least.
pub const SYNC_GAP: Span = Span::from_millis(5);
/// The same while nothing that the node has to say waits for a sync.
pub const SYNC_GAP_IDLE: Span = Span::from_millis(20);
/// A node reads all of its records so often, to find damage where nobody else reads; and at least
/// so far apart, if it is told how often.
pub const SCRUB_INTERVAL: Span = Span::from_secs(86_400);
pub const SCRUB_INTERVAL_MIN: Span = Span::from_secs(1);
/// That reads no more than so many bytes a second, in pieces of this size, and rests at least so
/// many times as long as a piece took.
pub const SCRUB_BYTES_PER_S: u64 = 8 << 20;
pub const SCRUB_PIECE_BYTES: usize = 1 << 20;
pub const SCRUB_REST_FACTOR: u32 = 3;
/// What it finds damaged is looked at again after this, and counts when it still is.
pub const SCRUB_RECHECK_AFTER: Span = Span::from_secs(1);
/// How long a node waits for the state directory of a predecessor that is just dying.
pub const STATE_LOCK_TIMEOUT: Span = Span::from_secs(1);
pub const GREETING_TIMEOUT: Span = Span::from_secs(5);
pub const REDIAL_AFTER: Span = Span::from_millis(50);
pub const REDIAL_AFTER_MAX: Span = Span::from_secs(2);
/// Of the room on the file system of a node: soft and hard mark of its store by default.
pub const STORE_SOFT_PERCENT: u64 = 90;
pub const STORE_HARD_PERCENT: u64 = 95;
/// Objects leave so much of a file system to records and logs, of a small one this share.
pub const DISK_RESERVE_BYTES: u64 = 32 << 20;
pub const DISK_RESERVE_SHARE: u64 = 16;
/// Objects that one node brings from others at a time; the rest wait.
pub const FETCHES_IN_FLIGHT_MAX: usize = 32;
/// A fetch from a node that cannot be reached is given up after this; the core asks again, there or
/// elsewhere.
pub const FETCH_RETRY_FOR: Span = Span::from_secs(5);
/// Objects up to here ride in frames of a link.
pub const SMALL_OBJECT_BYTES: u64 = 64 << 10;
/// Copies of such stay in memory, so many bytes of them on a node; further ones become files.
pub const COPIES_IN_MEMORY_BYTES_MAX: u64 = 64 << 20;
/// Small objects in one frame, and their bytes.
pub const SMALL_OBJECTS_PER_FRAME_MAX: usize = 256;
pub const SMALL_OBJECTS_FRAME_BYTES: usize = 1 << 20;
/// Small objects that were asked for and have not come by then are fetched the other way.
pub const SMALL_OBJECT_TIMEOUT: Span = Span::from_secs(5);
/// Data connections that one node opens to another.
pub const DATA_CONNECTIONS_PER_NODE_MAX: usize = 4;
/// Data connections that a node serves.
pub const DATA_CONNECTIONS_MAX: usize = 512;
// Doors.
/// A connection that has not shown a certificate by then is cut.
pub const HANDSHAKE_TIMEOUT: Span = Span::from_secs(5);
/// Connections of one listener that have not shown a certificate yet; for a further one the oldest
/// is cut once it has had a while. Each costs the buffers of one handshake, well under a mebibyte.
pub const UNAUTHENTICATED_CONNECTIONS_MAX: usize = 128;
pub const UNAUTHENTICATED_GRACE: Span = Span::from_millis(500);
pub const UNAUTHENTICATED_BYTES_MAX: usize = 1 << 20;
/// Connections for calls that one node serves.
pub const CONNECTIONS_MAX: usize = 4096;
/// Of these, those of clients and observers: they must not keep the nodes from each other.
pub const CLIENT_CONNECTIONS_MAX: usize = 3072;
/// A node looks so often whether its certificate is to be made anew.
pub const KEYS_CHECK_INTERVAL: Span = Span::from_secs(86_400);
/// Tokens that nobody has used yet, and how long one holds at most.
pub const TOKENS_MAX: usize = 64;
pub const TOKEN_LIFETIME_MAX: Span = Span::from_secs(86_400);
/// What is handed over for a token.
pub const JOIN_KEYS_BYTES_MAX: usize = 16 << 10;
/// Objects asked for at once on one data connection, and their bytes (one of any size is fine).
pub const DATA_BATCH_OBJECTS: usize = 16;
pub const DATA_BATCH_BYTES: u64 = 4 << 20;
/// Inputs up to this size may be copied for each task, so that it may write to them; user files up
/// to the second size are copied once to a node; larger ones are linked and compared.
pub const PRIVATE_INPUT_BYTES_MAX: u64 = 64 << 10;
pub const COPIED_INPUT_BYTES_MAX: u64 = 64 << 20;
/// Files in a directory of the user that are compared after a task that reads it.
pub const GUARDED_ENTRIES_MAX: usize = 4096;
/// Files in a directory or pattern that is one output, and how deep they may lie.
pub const ARCHIVE_ENTRIES_MAX: usize = 1_000_000;
pub const ARCHIVE_DEPTH_MAX: usize = 256;
/// Copies of files that tasks want staged, unless told otherwise.
pub const STAGED_BYTES_DEFAULT: u64 = 6 << 30;
/// Files of submitters that come in at a time; further ones wait.
pub const UPLOADS_IN_FLIGHT_MAX: usize = 8;
/// Who has nothing of a job but files of its submitter asks when none has come for so long whether
/// there is such a job: longer than a client needs to upload the rest elsewhere, and to commit.
pub const UPLOADS_QUERIED_AFTER: Span = Span::from_secs(24 * 3600);
/// It asks about so many jobs in a step.
pub const UPLOADS_QUERIED_MAX: usize = 64;
/// Who lacks such a file asks all others for it, again after this, and for so long: those that are
/// dead by the map, which may be on their way back, and those that are not and do not answer.
pub const UPLOAD_SEARCH_PAUSE: Span = Span::from_millis(200);
pub const UPLOAD_SEARCH_DOWN_TIMEOUT: Span = Span::from_secs(60);
pub const UPLOAD_SEARCH_TIMEOUT: Span = Span::from_secs(600);
/// So many files are looked for at a time, and so many nodes asked for each.
pub const UPLOAD_SEARCHES_MAX: usize = 8;
pub const UPLOAD_SEARCH_NODES_MAX: usize = 8;
/// The others are waited for anew when one that has it breaks off, so often.
pub const UPLOAD_SEARCH_RESTARTS_MAX: u32 = 8;
/// Of a socket or a file into memory and out of it again.
pub const DATA_BUFFER_BYTES: usize = 256 << 10;
/// Objects from here on are read from the socket by one thread and written by another.
pub const DATA_PIPELINE_BYTES: u64 = 8 << 20;
/// A data connection on which nothing moves in the middle of an object is given up after this.
pub const DATA_STALL_TIMEOUT: Span = Span::from_secs(20);
/// A data connection that nobody uses is closed after this.
pub const DATA_IDLE_TIMEOUT: Span = Span::from_secs(60);
