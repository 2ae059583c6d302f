//! Bounds of clusters on several hosts.

/// The maximum number of addresses that a node publishes.
pub const ADDRESSES_MAX: usize = 8;
