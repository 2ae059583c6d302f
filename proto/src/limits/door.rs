//! Bounds of a node's door: the local socket by which running commands reach their node.

use crate::time::Span;

/// The length of a socket's path, with the zero byte at its end, that the kernel accepts.
pub const SOCKET_PATH_BYTES_MAX: usize = 108;
/// The length of the secret of an attempt.
pub const DOOR_TOKEN_BYTES: usize = 16;
/// The size of one frame. It is checked before memory is taken.
pub const DOOR_FRAME_BYTES_MAX: usize = 1 << 20;
/// The size of an answer: one verdict for each awaited task.
pub const DOOR_ANSWER_BYTES_MAX: usize = 64 << 20;
/// The maximum number of open connections; further ones are refused.
pub const DOOR_CONNECTIONS_MAX: usize = 4096;
/// The maximum number of frames that are read at the same time; further ones wait.
pub const DOOR_READS_MAX: usize = 64;
/// A connection that sends no complete frame within this time is closed.
pub const DOOR_FRAME_TIMEOUT: Span = Span::from_secs(5);
/// A connection without a request is closed after this time.
pub const DOOR_IDLE_TIMEOUT: Span = Span::from_secs(60);
/// The maximum number of commands that wait without a slot on one node. It leaves connections to
/// commands that run.
pub const WAITING_COMMANDS_MAX: usize = 2048;
/// A node ends an attempt this long after its waiting command has gone, if it has not ended by
/// itself.
pub const ABANDONED_WAIT_GRACE: Span = Span::from_millis(500);
const _: () = assert!(WAITING_COMMANDS_MAX < DOOR_CONNECTIONS_MAX);
