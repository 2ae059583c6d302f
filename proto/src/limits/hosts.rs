//! Bounds of clusters on several hosts.

use crate::time::Span;

/// The maximum number of addresses that a node publishes.
pub const ADDRESSES_MAX: usize = 8;
/// Threads that connect to the addresses of a node give up after this.
pub const CONNECT_RACE_TIMEOUT: Span = Span::from_secs(30);
pub const HOST_NAME_BYTES_MAX: usize = 64;
