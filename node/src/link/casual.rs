//! Small talk with peers with whom there is no session. Nothing is numbered or acknowledged, so
//! there is nothing to keep but who they are: in a large cluster that is nearly all there is to
//! say.

use proto::limits::LOAD_INTERVAL;
use proto::{Incarnation, NodeId, Time, wire};

use super::acquaintances::Acquaintance;
use super::{Links, Received};

/// Something loose for a peer without a link; without a message, a greeting that is owed.
#[derive(Debug)]
pub(super) struct Casual {
    pub(super) peer: NodeId,
    pub(super) message: Option<wire::Message>,
}

/// What is said, by peer.
pub(super) type Said = std::iter::Peekable<std::vec::IntoIter<Casual>>;

impl Links {
    /// There is no session with this peer, and nothing that speaks against talking to it.
    pub(super) fn is_stranger(&self, peer: NodeId) -> bool {
        !self.links.contains_key(&peer) && !self.shut.contains_key(&peer)
    }

    /// A packet without anything reliable, of a stranger.
    pub(super) fn receive_casually(&mut self, packet: wire::Packet) -> Received {
        let peer = NodeId(packet.from);
        let mut received = Received::default();
        let known = self.acquaintances.get(peer);
        let mut greets = false;
        if packet.from_incarnation < known.incarnation && !self.ignore_incarnation {
            return received;
        }
        if packet.from_incarnation > known.incarnation {
            received.incarnation = Some(Incarnation(packet.from_incarnation));
            received.restarted = known.incarnation != 0;
            // Who has restarted was not told of this node's load yet.
            let load_at = if received.restarted { Time(0) } else { known.load_at };
            let incarnation = packet.from_incarnation;
            self.acquaintances.put(peer, Acquaintance { incarnation, load_at });
            greets = self.must_name(incarnation);
        }
        // A peer that names another incarnation must learn this one.
        let is_for_me = packet.to_incarnation == self.incarnation || self.ignore_incarnation;
        if greets || !is_for_me {
            self.casual.push(Casual { peer, message: None });
        }
        if !is_for_me && packet.to_incarnation != 0 {
            return received;
        }
        received.load = packet.load;
        received.bodies = packet.loose.into_iter().filter_map(|message| message.body).collect();
        received
    }

    /// Puts what was said in order. Some were strangers only until something else was said.
    pub(super) fn join_casual(&mut self) {
        if self.casual.is_empty() {
            return;
        }
        let mut said = std::mem::take(&mut self.casual);
        if !said.iter().all(|casual| self.is_stranger(casual.peer)) {
            let (strangers, others): (Vec<_>, Vec<_>) =
                said.into_iter().partition(|casual| self.is_stranger(casual.peer));
            for Casual { peer, message } in others {
                let Some(link) = self.links.get_mut(&peer) else { continue }; // Shut out meanwhile.
                link.greet |= message.is_none();
                link.loose.extend(message);
                self.touched.insert(peer);
            }
            said = strangers;
        }
        said.sort_by_key(|casual| casual.peer);
        self.casual = said;
    }

    /// Sends what is for peers up to this one, a packet each.
    pub(super) fn flush_casual(
        &mut self,
        now: Time,
        before: Option<NodeId>,
        said: &mut Said,
        load: &impl Fn() -> Option<wire::Load>,
        emit: &mut impl FnMut(NodeId, wire::Packet),
    ) {
        let is_due = |casual: &Casual| before.is_none_or(|before| casual.peer < before);
        while let Some(Casual { peer, message }) = said.next_if(is_due) {
            let mut loose: Vec<wire::Message> = Vec::new();
            loose.reserve_exact(1);
            loose.extend(message);
            while let Some(more) = said.next_if(|more| more.peer == peer) {
                loose.extend(more.message);
            }
            self.messages += loose.len() as u64;
            let known = self.acquaintances.get(peer);
            let told_load = if known.load_at <= now { load() } else { None };
            if told_load.is_some() {
                let known = Acquaintance { load_at: now + LOAD_INTERVAL, ..known };
                self.acquaintances.put(peer, known);
            }
            let packet = wire::Packet {
                from: self.me.0,
                to: peer.0,
                from_incarnation: self.incarnation,
                to_incarnation: known.incarnation,
                first_seq: 1,
                loose,
                load: told_load,
                copies: self.copies,
                ..Default::default()
            };
            emit(peer, packet);
        }
    }
}
