//! The owners of partitions, the receivers of messages, and the conditions that a step must meet
//! before it sends one.

pub(crate) mod partition_owners;
mod route;
pub(crate) mod traits;
pub(crate) mod undelivered;

use proto::{Incarnation, JobId, NodeId, PartitionId};

use crate::routing::partition_owners::Homes;
use crate::routing::undelivered::Undelivered;

type FixedState = foldhash::fast::FixedState;
/// Never iterated: the order has no meaning.
type Peers = hashbrown::HashMap<NodeId, Incarnation, FixedState>;

/// What this node knows of the others.
#[derive(Debug)]
pub(crate) struct Routing {
    homes: Homes,
    /// The latest incarnation known of each peer.
    peers: Peers,
    /// Messages for homes that move.
    undelivered: Undelivered,
}

impl Routing {
    pub(crate) fn new(homes: Homes) -> Self {
        let peers = Peers::with_hasher(FixedState::with_seed(0));
        Self { homes, peers, undelivered: Undelivered::default() }
    }

    pub(crate) fn homes(&self) -> &Homes {
        &self.homes
    }
    #[cfg(test)]
    pub(crate) fn replace_homes(&mut self, homes: Homes) -> Homes {
        std::mem::replace(&mut self.homes, homes)
    }
    /// Installs a newer map and returns the older one.
    pub(crate) fn succeed(&mut self, homes: Homes) -> Homes {
        let older = self.homes.succeed(homes);
        self.peers.iter().for_each(|(&peer, &life)| self.homes.note_incarnation(peer, life));
        older
    }
    pub(crate) fn serve(&mut self, partition: PartitionId, term: u32) {
        self.homes.serve(partition, term);
    }
    pub(crate) fn give_up(&mut self, partition: PartitionId) {
        self.homes.give_up(partition);
    }

    /// The latest incarnation from which this node has had a message.
    pub(crate) fn last_incarnation_of(&self, peer: NodeId) -> Option<Incarnation> {
        self.peers.get(&peer).copied()
    }
    /// Returns the incarnation known before.
    pub(crate) fn note_incarnation(
        &mut self,
        peer: NodeId,
        incarnation: Incarnation,
    ) -> Option<Incarnation> {
        let before = self.peers.insert(peer, incarnation);
        self.homes.note_incarnation(peer, incarnation);
        before
    }
    pub(crate) fn forget_peer(&mut self, peer: NodeId) {
        self.peers.remove(&peer);
    }

    pub(crate) fn undelivered(&self) -> &Undelivered {
        &self.undelivered
    }
    pub(crate) fn forget_job(&mut self, job: JobId) {
        self.undelivered.forget_job(job);
    }
    pub(crate) fn served_here(&mut self, partition: PartitionId) {
        self.undelivered.served_here(partition);
    }
    pub(crate) fn map_changed(&mut self) {
        self.undelivered.map_changed();
    }
}
