//! Best-effort messages to peers without a session. Nothing is numbered or acknowledged, so only
//! the incarnations of the peers are kept. In a large cluster this is most of the traffic.

use proto::{Incarnation, NodeId, Time, wire};

use super::limits::LOAD_INTERVAL;
use super::sessionless_peers::SessionlessPeer;
use super::{Links, Received};

/// A best-effort message for a peer without a link. `None`: a greeting is owed.
#[derive(Debug)]
pub(super) struct Datagram {
    pub(super) peer: NodeId,
    pub(super) message: Option<wire::Message>,
}

/// The messages of a step, sorted by peer.
pub(super) type DatagramsByPeer = std::iter::Peekable<std::vec::IntoIter<Datagram>>;

impl Links {
    /// Whether there is no session with this peer, and the peer is not shut out.
    pub(super) fn has_no_session(&self, peer: NodeId) -> bool {
        !self.links.contains_key(&peer) && !self.shut.contains_key(&peer)
    }

    /// Handles a packet without reliable messages, from a peer without a session.
    pub(super) fn receive_datagram(&mut self, packet: wire::Packet) -> Received {
        let peer = NodeId(packet.from);
        let mut received = Received::default();
        let known = self.sessionless_peers.get(peer);
        let mut greets = false;
        if packet.from_incarnation < known.incarnation && !self.ignore_incarnation {
            return received;
        }
        if packet.from_incarnation > known.incarnation {
            received.incarnation = Some(Incarnation(packet.from_incarnation));
            received.restarted = known.incarnation != 0;
            // A restarted peer has not got this node's load yet.
            let load_at = if received.restarted { Time(0) } else { known.load_at };
            let incarnation = packet.from_incarnation;
            self.sessionless_peers.put(peer, SessionlessPeer { incarnation, load_at });
            greets = self.must_name(incarnation);
        }
        // A peer that names another incarnation must learn this one.
        let is_for_me = packet.to_incarnation == self.incarnation || self.ignore_incarnation;
        if greets || !is_for_me {
            self.datagrams.push(Datagram { peer, message: None });
        }
        if !is_for_me && packet.to_incarnation != 0 {
            return received;
        }
        received.load = packet.load;
        received.bodies =
            packet.best_effort.into_iter().filter_map(|message| message.body).collect();
        received
    }

    /// Sorts the messages by peer. Some peers have got a link since; their messages move to the
    /// link.
    pub(super) fn join_datagrams(&mut self) {
        if self.datagrams.is_empty() {
            return;
        }
        let mut said = std::mem::take(&mut self.datagrams);
        if !said.iter().all(|datagram| self.has_no_session(datagram.peer)) {
            let (strangers, others): (Vec<_>, Vec<_>) =
                said.into_iter().partition(|datagram| self.has_no_session(datagram.peer));
            for Datagram { peer, message } in others {
                let Some(link) = self.links.get_mut(&peer) else { continue }; // Shut out meanwhile.
                link.greet |= message.is_none();
                link.best_effort.extend(message);
                self.touched.insert(peer);
            }
            said = strangers;
        }
        said.sort_by_key(|datagram| datagram.peer);
        self.datagrams = said;
    }

    /// Sends the messages for peers before `before`, one packet each.
    pub(super) fn flush_datagrams(
        &mut self,
        now: Time,
        before: Option<NodeId>,
        said: &mut DatagramsByPeer,
        load: &impl Fn() -> Option<wire::Load>,
        emit: &mut impl FnMut(NodeId, wire::Packet),
    ) {
        let is_due = |datagram: &Datagram| before.is_none_or(|before| datagram.peer < before);
        while let Some(Datagram { peer, message }) = said.next_if(is_due) {
            let mut best_effort: Vec<wire::Message> = Vec::new();
            best_effort.reserve_exact(1);
            best_effort.extend(message);
            while let Some(more) = said.next_if(|more| more.peer == peer) {
                best_effort.extend(more.message);
            }
            self.messages += best_effort.len() as u64;
            let known = self.sessionless_peers.get(peer);
            let told_load = if known.load_at <= now { load() } else { None };
            if told_load.is_some() {
                let known = SessionlessPeer { load_at: now + LOAD_INTERVAL, ..known };
                self.sessionless_peers.put(peer, known);
            }
            let packet = wire::Packet {
                from: self.me.0,
                to: peer.0,
                from_incarnation: self.incarnation,
                to_incarnation: known.incarnation,
                first_seq: 1,
                best_effort,
                load: told_load,
                copies: self.copies,
                ..Default::default()
            };
            emit(peer, packet);
        }
    }
}
