//! The owners of partitions, the receivers of messages, and the conditions that a step must meet
//! before it sends one.

pub(crate) mod partition_owners;
mod route;
pub(crate) mod traits;
pub(crate) mod undelivered;

use proto::{Incarnation, NodeId};

use crate::routing::partition_owners::Homes;
use crate::routing::undelivered::Undelivered;

type FixedState = foldhash::fast::FixedState;
/// Never iterated: the order has no meaning.
pub(crate) type Peers = hashbrown::HashMap<NodeId, Incarnation, FixedState>;

/// What this node knows of the others.
#[derive(Debug)]
pub(crate) struct Routing {
    pub(crate) homes: Homes,
    /// The latest incarnation known of each peer.
    pub(crate) peers: Peers,
    /// Messages for homes that move.
    pub(crate) undelivered: Undelivered,
}

impl Routing {
    pub(crate) fn new(homes: Homes) -> Self {
        let peers = Peers::with_hasher(FixedState::with_seed(0));
        Self { homes, peers, undelivered: Undelivered::default() }
    }
}
