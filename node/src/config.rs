//! What a node is told when it starts.

use proto::{Incarnation, NodeId, Span, wire};
use scheduler::{Mutant, Policy};

#[derive(Clone, Debug)]
pub struct Config {
    pub node: NodeId,
    /// Bumped, durably, by the shell at each start.
    pub incarnation: Incarnation,
    /// Executing threads ("cores" of the paper).
    pub slots: u32,
    pub policy: Policy,
    /// Assumed between any two nodes by Algorithm 1, bytes per second.
    pub bandwidth_bytes_per_s: f64,
    /// Start and upper bound of the stealing interval.
    pub steal_interval_start: Span,
    pub steal_interval_bound: Span,
    /// The only source of randomness of a node.
    pub seed: u64,
    /// Who is in the cluster and who holds which partition.
    pub map: wire::ClusterMap,
    /// Always `None` outside the simulator.
    pub mutant: Option<Mutant>,
}
