//! What a node is told when it starts.

use std::sync::Arc;

use proto::{Incarnation, NodeId, wire};
use scheduler::{Mutant, Tuning};

#[derive(Clone, Debug)]
pub struct Config {
    pub node: NodeId,
    /// Bumped, durably, by the shell at each start.
    pub incarnation: Incarnation,
    /// Executing threads ("cores" of the paper).
    pub slots: u32,
    /// Drawn when the node's store was made: another one has none of what the map says it has.
    pub store: u64,
    /// How it decides, until it is told otherwise.
    pub tuning: Tuning,
    /// The only source of randomness of a node.
    pub seed: u64,
    /// Who is in the cluster and who holds which partition; nodes of one process share it.
    pub map: Arc<wire::ClusterMap>,
    /// Always `None` outside the simulator.
    pub mutant: Option<Mutant>,
}
