//! The bounds of this crate.

use proto::Span;
use proto::limits::FRAME_BYTES_MAX;
use proto::limits::SMALL_OBJECT_BYTES;

/// The maximum number of simultaneous searches, and of nodes queried for each.
pub(crate) const UPLOAD_SEARCHES_MAX: usize = 8;
pub(crate) const UPLOAD_SEARCH_NODES_MAX: usize = 8;
/// The interval at which a node checks that its state directory is still the one that it has
/// locked.
pub(crate) const STATE_CHECK_INTERVAL: Span = Span::from_secs(1);
const _: () =
    assert!(SMALL_OBJECTS_FRAME_BYTES + SMALL_OBJECT_BYTES as usize <= FRAME_BYTES_MAX / 2);
/// The maximum number of small objects in one frame, and their bytes.
pub(crate) const SMALL_OBJECTS_PER_FRAME_MAX: usize = 256;
pub(crate) const SMALL_OBJECTS_FRAME_BYTES: usize = 1 << 20;
/// A data connection without progress in the middle of an object is closed after this.
pub(crate) const DATA_STALL_TIMEOUT: Span = Span::from_secs(20);
/// The maximum number of open connections; further ones are refused.
pub(crate) const DOOR_CONNECTIONS_MAX: usize = 4096;
/// The maximum number of commands that wait without a slot on one node. It leaves connections to
/// commands that run.
pub(crate) const WAITING_COMMANDS_MAX: usize = 2048;
const _: () = assert!(WAITING_COMMANDS_MAX < DOOR_CONNECTIONS_MAX);
/// The maximum number of commands in the parts of gangs on one node.
pub(crate) const RSH_COMMANDS_MAX: usize = 1024;
/// The pieces of a stream of such a command that wait in this process, and their size.
pub(crate) const RSH_QUEUE_PIECES: usize = 4;
pub(crate) const RSH_PIECE_BYTES: usize = 64 << 10;
/// A process on another machine has ended if its heartbeat does not change for this long.
pub(crate) const LOCK_HEARTBEAT_TIMEOUT: Span = Span::from_secs(7);
/// The number of frames of peers and clients that wait for the loop. Above it their streams are not
/// read.
pub(crate) const INBOX_FRAMES_MAX: usize = 256;
/// The objects requested together on one data connection, and their bytes (a single one may be
/// larger).
pub(crate) const DATA_BATCH_OBJECTS: usize = 16;
pub(crate) const DATA_BATCH_BYTES: u64 = 4 << 20;
