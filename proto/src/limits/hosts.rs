//! Bounds of clusters on several hosts.

use crate::time::Span;

/// The maximum number of addresses that a node publishes.
pub const ADDRESSES_MAX: usize = 8;
/// The next address of a node is tried after this delay, while earlier ones have not answered.
pub const NEXT_ADDRESS_AFTER: Span = Span::from_millis(100);
/// The number of good addresses that a process remembers.
pub const ADDRESSES_GOOD_MAX: usize = 4096;
/// A process asks the kernel for the addresses of its machine at this interval.
pub const OWN_ADDRESSES_CHECK_INTERVAL: Span = Span::from_secs(5);
/// Threads that connect to the addresses of a node give up after this.
pub const CONNECT_RACE_TIMEOUT: Span = Span::from_secs(30);
pub const HOST_NAME_BYTES_MAX: usize = 64;
/// The interval at which a process writes a heartbeat into its directory, for file systems that may
/// have no locks.
pub const LOCK_HEARTBEAT_INTERVAL: Span = Span::from_secs(2);
/// A process on another machine has ended if its heartbeat does not change for this long.
pub const LOCK_HEARTBEAT_TIMEOUT: Span = Span::from_secs(7);
/// If two processes begin heartbeats at the same time, the one that remains after this has the
/// directory.
pub const LOCK_HEARTBEAT_SETTLE_TIME: Span = Span::from_millis(250);
/// How often a process restarts a heartbeat that it wrote too slowly.
pub const LOCK_HEARTBEAT_STARTS_MAX: u32 = 3;
/// The assumed clock difference between machines. A start failure written this long before a
/// process began may belong to the same launch.
pub const FAILURE_CLOCKS_DIFFER: Span = Span::from_secs(5);
/// On file systems without hard links, a process that has claimed a file name writes the file
/// within this time.
pub const CLAIM_TIMEOUT: Span = Span::from_secs(5);
/// A node without records ends if for this long it has received only maps in which it is the only
/// voter.
pub const LOST_MAP_AFTER: Span = Span::from_secs(10);
