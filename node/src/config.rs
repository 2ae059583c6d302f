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
    /// Drawn when the node's store was made, not 0: another one has none of what the map says it
    /// has.
    pub store: u64,
    /// How it decides, until it is told otherwise.
    pub tuning: Tuning,
    /// The only source of randomness of a node.
    pub seed: u64,
    /// Who is in the cluster and who holds which partition; nodes of one process share it. Where
    /// homes move: the first map of the cluster, or any one if the node came later.
    pub map: Arc<wire::ClusterMap>,
    /// Always `None` outside the simulator.
    pub mutant: Option<Mutant>,
    /// Where others reach it, and its process; of no use where homes do not move.
    pub address: String,
    pub data_address: String,
    /// The name of its machine, for people.
    pub host: String,
    pub pid: u32,
    /// It was not among the first nodes of the cluster: `map` is not the first map.
    pub late: bool,
    /// The last life of this node before this one, and how it ended as far as it knows.
    pub former: (Incarnation, wire::LifeEnd),
}

/// What of it a node needs for as long as it lives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Own {
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) slots: u32,
    pub(crate) mutant: Option<Mutant>,
}

impl From<&Config> for Own {
    fn from(config: &Config) -> Self {
        let Config { node, incarnation, slots, mutant, .. } = *config;
        Self { node, incarnation, slots, mutant }
    }
}
