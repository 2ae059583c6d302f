//! Bounds of a node's shell: links, disks, transfers, and unauthenticated connections.

use crate::time::Span;

/// The maximum number of threads that read and write files beside the loop; further operations
/// wait.
pub const FILE_THREADS_MAX: usize = 64;
/// The maximum number of inputs handled in one step.
pub const STEP_INPUTS_MAX: usize = 256;
/// The maximum number of rounds of a step without writes, in which no-ops end.
pub const STEP_GENERATIONS_MAX: usize = 64;
/// Bytes of writes after which a step ends and goes to the log.
pub const STEP_WRITE_BYTES: usize = 1 << 20;
/// The minimum pause between two syncs of the log while no client waits, neither here nor at a
/// primary of a replica.
pub const SYNC_GAP: Span = Span::from_millis(5);
/// The interval at which a node reads all of its records to find damage in rarely read ones.
pub const SCRUB_INTERVAL: Span = Span::from_secs(86_400);
pub const GREETING_TIMEOUT: Span = Span::from_secs(5);
pub const REDIAL_AFTER: Span = Span::from_millis(50);
pub const REDIAL_AFTER_MAX: Span = Span::from_secs(2);
/// The default soft and hard marks of a node's store, as shares of the space on its file system.
pub const STORE_SOFT_PERCENT: u64 = 90;
pub const STORE_HARD_PERCENT: u64 = 95;
/// The maximum number of simultaneous fetches of one node; further ones wait.
pub const FETCHES_IN_FLIGHT_MAX: usize = 32;
/// Objects up to this size are sent in frames of a link.
pub const SMALL_OBJECT_BYTES: u64 = 64 << 10;
/// The maximum number of data connections that one node opens to another.
pub const DATA_CONNECTIONS_PER_NODE_MAX: usize = 4;
// Connections of clients and nodes.
/// A connection without a client certificate after this time is closed.
pub const HANDSHAKE_TIMEOUT: Span = Span::from_secs(5);
/// The maximum number of unauthenticated connections of one listener. Each takes the buffers of one
/// handshake, well under 1 MiB.
pub const UNAUTHENTICATED_CONNECTIONS_MAX: usize = 128;
/// The maximum number of simultaneous uploads; further ones wait.
pub const UPLOADS_IN_FLIGHT_MAX: usize = 8;
/// The size of the buffer between a socket and a file.
pub const DATA_BUFFER_BYTES: usize = 256 << 10;
