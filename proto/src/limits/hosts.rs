//! Bounds of clusters on several hosts.

use crate::time::Span;

/// Addresses that a node tells of itself.
pub const ADDRESSES_MAX: usize = 8;
/// The next address of a node is tried after this, while the earlier ones have not answered.
pub const NEXT_ADDRESS_AFTER: Span = Span::from_millis(100);
/// Addresses that a process remembers as good.
pub const ADDRESSES_GOOD_MAX: usize = 4096;
/// A process asks the kernel for the addresses of its machine again after this.
pub const OWN_ADDRESSES_CHECK_INTERVAL: Span = Span::from_secs(5);
/// Threads that try the addresses of a node give up after this.
pub const CONNECT_RACE_TIMEOUT: Span = Span::from_secs(30);
pub const HOST_NAME_BYTES_MAX: usize = 64;
/// Where a file system may have no locks, the process that uses a directory writes a beat each time
/// this has passed.
pub const LOCK_HEARTBEAT_INTERVAL: Span = Span::from_secs(2);
/// The writer of a beat of another machine that stands still for this long is gone.
pub const LOCK_HEARTBEAT_TIMEOUT: Span = Span::from_secs(7);
/// Two that begin a beat at the same time: the one whose beat stands after this has the directory.
pub const LOCK_HEARTBEAT_SETTLE_TIME: Span = Span::from_millis(250);
/// How often a process begins a beat again that it wrote too slowly.
pub const LOCK_HEARTBEAT_STARTS_MAX: u32 = 3;
/// By how much the clocks of machines may differ: a failure to start that was written this long
/// before a process began may be of the same launch.
pub const FAILURE_CLOCKS_DIFFER: Span = Span::from_secs(5);
/// Where there are no hard links: the process that has claimed a file's name gives it within this.
pub const CLAIM_TIMEOUT: Span = Span::from_secs(5);
/// A node without records ends when it has heard this long only of maps by which it alone votes.
pub const LOST_MAP_AFTER: Span = Span::from_secs(10);
