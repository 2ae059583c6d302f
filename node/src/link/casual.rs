//! Best-effort messages to peers without a session. Nothing is numbered or acknowledged, so only
//! the incarnations of the peers are kept. In a large cluster this is most of the traffic.

use proto::limits::LOAD_INTERVAL;
use proto::{Incarnation, NodeId, Time, wire};

use super::acquaintances::Acquaintance;
use super::{Links, Received};

/// A best-effort message for a peer without a link. `None`: a greeting is owed.
#[derive(Debug)]
pub(super) struct Casual {
    pub(super) peer: NodeId,
    pub(super) message: Option<wire::Message>,
}

/// The messages of a step, sorted by peer.
pub(super) type Said = std::iter::Peekable<std::vec::IntoIter<Casual>>;

impl Links {
    /// Whether there is no session with this peer, and the peer is not shut out.
    pub(super) fn is_stranger(&self, peer: NodeId) -> bool {
        !self.links.contains_key(&peer) && !self.shut.contains_key(&peer)
    }

    /// Handles a packet without reliable messages, from a peer without a session.
    pub(super) fn receive_casually(&mut self, packet: wire::Packet) -> Received {
        let peer = NodeId(packet.from);
        let mut received = Received::default();
        let known = self.acquaintances.get(peer);
        if packet.from_incarnation < known.incarnation && !self.ignore_incarnation {
            return received;
        }
        if packet.from_incarnation > known.incarnation {
            received.incarnation = Some(Incarnation(packet.from_incarnation));
            received.restarted = known.incarnation != 0;
            // A restarted peer has not got this node's load yet.
            let load_at = if received.restarted { Time(0) } else { known.load_at };
            let incarnation = packet.from_incarnation;
            self.acquaintances.put(peer, Acquaintance { incarnation, load_at });
        }
        if packet.to_incarnation != self.incarnation && !self.ignore_incarnation {
            // The peer must learn this incarnation.
            self.casual.push(Casual { peer, message: None });
            if packet.to_incarnation != 0 {
                return received;
            }
        }
        received.load = packet.load;
        received.bodies = packet.loose.into_iter().filter_map(|message| message.body).collect();
        received
    }

    /// Sorts the messages by peer. Some peers have got a link since; their messages move to the
    /// link.
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

    /// Sends the messages for peers before `before`, one packet each.
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
