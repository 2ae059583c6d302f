//! The configuration of a node at its start.

use std::sync::Arc;

use proto::{Incarnation, NodeId, Span, wire};
use scheduler::Tuning;

use crate::Mutant;

#[derive(Clone, Debug)]
pub struct Config {
    pub node: NodeId,
    /// Incremented, durably, by the shell at each start.
    pub incarnation: Incarnation,
    /// Executing threads ("cores" of the paper).
    pub slots: u32,
    /// The resources of the node, with as many cpus as slots; `None`: cpus alone.
    pub offer: Option<Arc<resources::Offer>>,
    /// When the node ends, if that is known.
    pub end: Option<resources::EndOfLife>,
    /// When the node leaves by itself.
    pub departs: Departs,
    /// Drawn when the node's store was made, not 0. A store with another number has none of the
    /// data that the map expects.
    pub store: u64,
    /// The scheduler's settings, until an operator changes them.
    pub tuning: Tuning,
    /// The only source of randomness of a node.
    pub seed: u64,
    /// The members and the placement of partitions; nodes of one process share it. Where homes
    /// move: the first map of the cluster, or any map if the node joined later.
    pub map: Arc<wire::ClusterMap>,
    /// Always `None` outside the simulator.
    pub mutant: Option<Mutant>,
    /// The node's address for other nodes, and its process; not used where homes do not move.
    pub address: String,
    pub data_address: String,
    /// The name of the node's machine, for people.
    pub host: String,
    pub pid: u32,
    /// The node joined later: `map` is not the first map of the cluster.
    pub late: bool,
    /// The previous incarnation of this node, and how it ended as far as the node knows.
    pub former: (Incarnation, wire::LifeEnd),
}

impl Config {
    /// The first incarnation of a node with one slot, no address and an empty store with number 1.
    #[must_use]
    pub fn new(node: NodeId, map: Arc<wire::ClusterMap>) -> Self {
        Self {
            node,
            incarnation: Incarnation::FIRST,
            slots: 1,
            offer: None,
            end: None,
            departs: Departs::default(),
            store: 1,
            tuning: Tuning::default(),
            seed: 0,
            map,
            mutant: None,
            address: String::new(),
            data_address: String::new(),
            host: String::new(),
            pid: 0,
            late: false,
            former: (Incarnation(0), wire::LifeEnd::LifeDied),
        }
    }

    /// The offer as the map has it.
    #[must_use]
    pub fn offer_bytes(&self) -> Vec<u8> {
        offer_bytes(self.offer.as_deref(), self.slots, self.end)
    }
}

/// When a node leaves its cluster by itself.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Departs {
    /// Before its known end, if other nodes live longer.
    pub before_end: bool,
    /// After this time without work, if other nodes stay.
    pub idle: Option<Span>,
}

/// The offer of a node as the map has it; empty: cpus alone, without a known end.
#[must_use]
pub fn offer_bytes(
    offer: Option<&resources::Offer>,
    slots: u32,
    end: Option<resources::EndOfLife>,
) -> Vec<u8> {
    let totals = match (offer, end) {
        (None, None) => return Vec::new(),
        (Some(offer), _) => resources::Totals::from(offer),
        (None, Some(_)) => resources::Totals::cpus(slots),
    };
    totals.with_end(end).encode()
}

/// The part of the configuration that a node needs after its start.
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
