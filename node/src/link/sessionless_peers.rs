//! Peers without a session: only best-effort messages were exchanged with them, such as the probes
//! of thieves. In a large cluster a node meets most others this way, and remembers few of them.

use std::collections::VecDeque;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use proto::limits::PEERS_KEPT_MAX;
use proto::{NodeId, Time};

use super::Link;

/// A first incarnation: to forget that a peer had it is harmless, as no packet can be older.
pub(super) const FIRST_INCARNATION: u32 = 1;

/// The data that is kept of a peer; the default for one that was never met.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct SessionlessPeer {
    /// 0: not known yet.
    pub(super) incarnation: u32,
    /// When this node's load may be reported to the peer again.
    pub(super) load_at: Time,
}

/// A peer that was met, with its data: small, since every node has many.
#[derive(Clone, Copy, Debug)]
struct RecentPeer {
    peer: NodeId,
    incarnation: u32,
    load_at: Time,
}
const _: () = assert!(size_of::<RecentPeer>() <= 16);

/// Never iterated: the order has no meaning.
type Restarted = HashMap<NodeId, SessionlessPeer, FixedState>;

#[derive(Debug, Default)]
pub(super) struct SessionlessPeers {
    /// The peers met last, in the order of meeting; few enough for a linear search.
    recent: VecDeque<RecentPeer>,
    /// Restarted peers are kept: packets of their earlier incarnations may still arrive.
    restarted: Option<Box<Restarted>>,
    forgotten: Vec<NodeId>,
}

impl SessionlessPeers {
    /// A new link to this peer, with the data that is kept.
    pub(super) fn link(&self, peer: NodeId) -> Link {
        let SessionlessPeer { incarnation, load_at } = self.get(peer);
        Link { peer_incarnation: incarnation, load_at, ..Link::new() }
    }

    pub(super) fn add(&mut self, peer: NodeId, link: &Link) {
        let (incarnation, load_at) = (link.peer_incarnation, link.load_at);
        self.put(peer, SessionlessPeer { incarnation, load_at });
    }

    fn place(&self, peer: NodeId) -> Option<usize> {
        self.recent.iter().position(|met| met.peer == peer)
    }

    pub(super) fn get(&self, peer: NodeId) -> SessionlessPeer {
        let known = |met: &RecentPeer| SessionlessPeer {
            incarnation: met.incarnation,
            load_at: met.load_at,
        };
        let recent = self.recent.iter().find(|met| met.peer == peer).map(known);
        let restarted = || self.restarted.as_ref()?.get(&peer).copied();
        recent.or_else(restarted).unwrap_or_default()
    }

    /// Drops the peer that was met first, if there are too many.
    pub(super) fn put(&mut self, peer: NodeId, known: SessionlessPeer) {
        let met = RecentPeer { peer, incarnation: known.incarnation, load_at: known.load_at };
        if known.incarnation > FIRST_INCARNATION {
            if let Some(at) = self.place(peer) {
                self.recent.remove(at);
            }
            let none = || Box::new(Restarted::with_hasher(FixedState::with_seed(0)));
            self.restarted.get_or_insert_with(none).insert(peer, known);
        } else if let Some(at) = self.place(peer) {
            self.recent[at] = met;
        } else {
            if self.recent.len() == PEERS_KEPT_MAX {
                self.forgotten.extend(self.recent.pop_front().map(|oldest| oldest.peer));
            }
            self.recent.push_back(met);
        }
    }

    /// The peers that were dropped since the last call.
    pub(super) fn take_forgotten(&mut self) -> Vec<NodeId> {
        std::mem::take(&mut self.forgotten)
    }

    /// Whether anything is remembered of the peer.
    pub(super) fn knows(&self, peer: NodeId) -> bool {
        let restarted = || self.restarted.as_ref().is_some_and(|all| all.contains_key(&peer));
        self.place(peer).is_some() || restarted()
    }
}
