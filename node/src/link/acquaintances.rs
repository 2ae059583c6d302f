//! Peers with whom there is no session: only loose messages were exchanged, such as the probes of
//! thieves. In a large cluster a node meets most others so, and remembers few of them.

use std::collections::VecDeque;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use proto::limits::PEERS_KEPT_MAX;
use proto::{NodeId, Time};

use super::Link;

/// A first incarnation: to forget that a peer had it is harmless, as no packet can be older.
const FIRST_INCARNATION: u32 = 1;

#[derive(Clone, Copy, Debug)]
struct Acquaintance {
    incarnation: u32,
    load_at: Time,
}

#[derive(Debug, Default)]
pub(super) struct Acquaintances {
    /// Never iterated: their order means nothing.
    known: HashMap<NodeId, Acquaintance, FixedState>,
    /// In the order in which they were met.
    met: VecDeque<NodeId>,
}

impl Acquaintances {
    /// A link to this peer, which knows what is known.
    pub(super) fn link(&self, peer: NodeId) -> Link {
        let fresh = Link::new();
        match self.known.get(&peer) {
            Some(known) => {
                Link { peer_incarnation: known.incarnation, load_at: known.load_at, ..fresh }
            }
            None => fresh,
        }
    }

    pub(super) fn add(&mut self, peer: NodeId, link: &Link) {
        let known = Acquaintance { incarnation: link.peer_incarnation, load_at: link.load_at };
        if self.known.insert(peer, known).is_none() {
            self.met.push_back(peer);
        }
    }

    /// Lets those go that were met first, if there are too many. Who has restarted is kept: packets
    /// of the earlier incarnation may still be about.
    pub(super) fn forget(&mut self) -> Vec<NodeId> {
        let mut forgotten = Vec::new();
        for _ in PEERS_KEPT_MAX..self.met.len() {
            let Some(peer) = self.met.pop_front() else { break };
            let restarted = |known: &Acquaintance| known.incarnation > FIRST_INCARNATION;
            if self.known.get(&peer).is_some_and(restarted) {
                self.met.push_back(peer);
            } else {
                self.known.remove(&peer);
                forgotten.push(peer);
            }
        }
        forgotten
    }
}
