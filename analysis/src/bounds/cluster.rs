//! The cluster model of the lower bounds: no real cluster may be faster.

use proto::Span;

/// A cluster of identical nodes.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Cluster {
    pub nodes: u32,
    /// Of each node.
    pub slots: u32,
    pub network: Network,
}

/// The minimum cost of moving an object to another node.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Network {
    /// Nothing, or unknown.
    Free,
    /// Each transfer takes this time by itself; any number run in parallel.
    Flat { bytes_per_s: f64, latency: Span },
    /// As `Flat`, and all bytes into a node, and all out of it, share a link of this bandwidth.
    /// Objects below [`proto::limits::SMALL_OBJECT_BYTES`] are sent in messages and do not use the
    /// link.
    Shared { bytes_per_s: f64, latency: Span },
}

impl Cluster {
    /// # Panics
    /// When there are no nodes or they have no slots.
    #[must_use]
    pub fn new(nodes: u32, slots: u32, network: Network) -> Self {
        assert!(nodes > 0 && slots > 0, "a graph needs at least one slot to run");
        Self { nodes, slots, network }
    }

    /// The slots of all nodes.
    #[must_use]
    pub fn total_slots(&self) -> u32 {
        self.nodes.saturating_mul(self.slots)
    }

    /// True if data on another node can delay a task.
    pub(super) fn moves_cost(&self) -> bool {
        self.nodes > 1 && self.network.cost(1 << 40) > 0
    }
}

impl Network {
    /// From the request until the last byte arrives, in nanoseconds, rounded down; 0 for no bytes.
    pub(super) fn cost(&self, bytes: u64) -> u64 {
        match *self {
            Self::Flat { bytes_per_s, latency } | Self::Shared { bytes_per_s, latency }
                if bytes > 0 =>
            {
                latency.0.saturating_add(wire_ns(bytes, bytes_per_s))
            }
            _ => 0,
        }
    }

    /// How long these bytes keep a node's link busy, in nanoseconds, rounded down.
    pub(super) fn link_ns(&self, bytes: u64) -> u64 {
        match *self {
            Self::Shared { bytes_per_s, .. } => wire_ns(bytes, bytes_per_s),
            Self::Free | Self::Flat { .. } => 0,
        }
    }

    pub(super) fn latency_ns(&self) -> u64 {
        match *self {
            Self::Free => 0,
            Self::Flat { latency, .. } | Self::Shared { latency, .. } => latency.0,
        }
    }
}

/// A bandwidth that is not positive is unknown, and costs nothing.
fn wire_ns(bytes: u64, bytes_per_s: f64) -> u64 {
    if bytes_per_s > 0.0 { (bytes as f64 * 1e9 / bytes_per_s) as u64 } else { 0 }
}
