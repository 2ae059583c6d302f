/*!
A reliable, ordered channel to each peer over packets that may be lost, repeated and late.

Messages are numbered within a session, which is a pair of incarnations. An acknowledgement says
that all effects of a message are durable at the receiver; until then the sender keeps the message.
When the peer returns as a new incarnation, messages that still have a meaning are numbered again
and sent again; those for the old incarnation are dropped. Nothing reliable leaves before the peer's
incarnation is known: otherwise two incarnations could both accept the same packet.
*/

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use crate::link::limits::{
    FRAGMENT_BYTES, LINK_WINDOW_MESSAGES, LOAD_INTERVAL, PACKET_MESSAGES_MAX, RETRANSMIT_AFTER,
    RETRANSMIT_AFTER_MAX,
};
use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use prost::Message as _;
use proto::limits::PACKET_BYTES_MAX;
use proto::marks::{Mark, mark};
use proto::wire::message::Body;
use proto::{Incarnation, NodeId, Span, Time, wire};

/// The additional delay per peer that a node queries at the same time, since answers are handled
/// one by one.
const RETRANSMIT_PER_PEER: Span = Span::from_micros(50);

/// A message that waits for its acknowledgement.
#[derive(Debug)]
struct Queued {
    bytes: Bytes,
    survives_restart: bool,
}

#[derive(Debug)]
struct Link {
    /// 0: not known yet.
    peer_incarnation: u32,
    queue: VecDeque<Queued>,
    /// Sequence number of `queue[0]`.
    base: u64,
    /// How many of `queue` have been sent since the last retransmission.
    sent: usize,
    best_effort: Vec<wire::Message>,
    /// The next sequence number expected from the peer.
    expected: u64,
    ahead: BTreeMap<u64, Bytes>,
    /// The fragments of a large message so far, and the last sequence number before them. All
    /// fragments are acknowledged together, or a restart would keep half a message.
    partial: Vec<u8>,
    whole: u64,
    /// A message about replicas could not be decoded: nothing is accepted after it.
    is_garbled: bool,
    /// Accepted messages with effects that are not durable yet: (batch, last sequence number).
    undurable: VecDeque<(u64, u64)>,
    ack: u64,
    ack_sent: u64,
    /// The last message that was returned to the peer, and the number up to which the peer has seen
    /// our messages. Until the peer has seen the returned message, nothing is acknowledged.
    /// Otherwise a crash of this node would lose a message that neither side keeps.
    given_back: u64,
    seen: u64,
    /// The peer must learn that a message which it returned has arrived.
    tells_seen: bool,
    /// A packet is owed even without content: the peer must learn the incarnation, or repeats
    /// messages because an acknowledgement was lost.
    greet: bool,
    /// This incarnation is announced to the peer until the peer answers.
    announces: bool,
    timer: Option<Time>,
    patience: Span,
    /// When this node's load may be reported to the peer again.
    load_at: Time,
}

impl Link {
    fn new() -> Self {
        Self {
            peer_incarnation: 0,
            queue: VecDeque::new(),
            base: 1,
            sent: 0,
            best_effort: Vec::new(),
            expected: 1,
            ahead: BTreeMap::new(),
            partial: Vec::new(),
            whole: 0,
            is_garbled: false,
            undurable: VecDeque::new(),
            ack: 0,
            ack_sent: 0,
            given_back: 0,
            seen: 0,
            tells_seen: false,
            greet: false,
            announces: false,
            timer: None,
            patience: RETRANSMIT_AFTER,
            load_at: Time(0),
        }
    }

    /// A new session with a new incarnation of the peer.
    fn restart(&mut self, incarnation: u32) {
        self.queue.retain(|queued| queued.survives_restart);
        let fresh = Self::new();
        let queue = std::mem::take(&mut self.queue);
        *self = Self { peer_incarnation: incarnation, queue, ..fresh };
    }

    /// Whether there is no session, or one without any reliable message and with nothing in
    /// transit. Then only the peer's incarnation must be kept.
    fn is_bare(&self) -> bool {
        self.queue.is_empty()
            && (self.base, self.expected, self.ack, self.whole) == (1, 1, 0, 0)
            && self.best_effort.is_empty()
            && self.ahead.is_empty()
            && self.partial.is_empty()
            && self.undurable.is_empty()
            && !self.greet
            && self.timer.is_none()
    }

    fn take_ack(&mut self, ack: u64) {
        let last_sent = self.base + self.sent as u64;
        let acked = ack.saturating_add(1).min(last_sent).saturating_sub(self.base);
        if acked > 0 {
            self.queue.drain(..acked as usize);
            self.base += acked;
            self.sent -= acked as usize;
            self.patience = RETRANSMIT_AFTER;
            self.timer = None;
        }
        if self.queue.is_empty() {
            self.queue = VecDeque::new(); // Most links are idle most of the time.
        }
    }
}

mod datagram;
mod limits;
mod receiving;
mod sessionless_peers;

use datagram::Datagram;
use receiving::{join, take_messages};
use sessionless_peers::SessionlessPeers;

/// The contents of a packet.
#[derive(Debug, Default)]
pub(crate) struct Received {
    /// Set if this is the first packet of the peer, or the peer has restarted.
    pub(crate) incarnation: Option<Incarnation>,
    /// The peer had another incarnation before.
    pub(crate) restarted: bool,
    pub(crate) bodies: Vec<Body>,
    /// The following messages could not be decoded, and must not be skipped.
    pub(crate) is_garbled: bool,
    pub(crate) load: Option<wire::Load>,
}

#[derive(Debug)]
pub(crate) struct Links {
    me: NodeId,
    incarnation: u32,
    links: HashMap<NodeId, Box<Link>, FixedState>,
    sessionless_peers: SessionlessPeers,
    /// Messages of this step to peers without a link.
    datagrams: Vec<Datagram>,
    /// The peers that are gone, each with the last incarnation that is gone.
    shut: BTreeMap<NodeId, u32>,
    /// Links with packets to send, and links that wait for a batch to become durable.
    touched: BTreeSet<NodeId>,
    undurable: BTreeSet<NodeId>,
    /// The first batch that any of these waits for, and whether some wait for something else.
    undurable_from: u64,
    withholds: bool,
    timers: BTreeSet<(Time, NodeId)>,
    pub(crate) messages: u64,
    /// These links carry only replicas of partitions.
    copies: bool,
    names_restarted: bool,
    ack_before_durable: bool,
    ignore_incarnation: bool,
}

impl Links {
    pub(crate) fn new(me: NodeId, incarnation: Incarnation) -> Self {
        Self {
            me,
            incarnation: incarnation.0,
            links: HashMap::with_hasher(FixedState::with_seed(0)),
            sessionless_peers: SessionlessPeers::default(),
            datagrams: Vec::new(),
            shut: BTreeMap::new(),
            touched: BTreeSet::new(),
            undurable: BTreeSet::new(),
            undurable_from: u64::MAX,
            withholds: false,
            timers: BTreeSet::new(),
            messages: 0,
            copies: false,
            names_restarted: false,
            ack_before_durable: false,
            ignore_incarnation: false,
        }
    }
    /// Separate links for replicas of partitions.
    pub(crate) fn for_replicas(me: NodeId, incarnation: Incarnation) -> Self {
        Self { copies: true, ..Self::new(me, incarnation) }
    }
    /// A peer that has restarted receives a packet that names its incarnation as soon as this node
    /// knows that incarnation. Only such a packet proves to the peer that both have lived together.
    pub(crate) fn name_restarted(&mut self) {
        self.names_restarted = true;
    }
    pub(crate) fn break_on_purpose(&mut self, mutant: Option<crate::Mutant>) {
        self.ack_before_durable = mutant == Some(crate::Mutant::AckBeforeDurable);
        self.ignore_incarnation = mutant == Some(crate::Mutant::IgnoreIncarnation);
    }

    fn link(&mut self, peer: NodeId) -> &mut Link {
        assert_ne!(peer, self.me, "a node has no link to itself");
        self.links.entry(peer).or_insert_with(|| Box::new(self.sessionless_peers.link(peer)))
    }

    /// Removes a link without a session; the little that must be kept of the peer stays.
    fn put_away(&mut self, peer: NodeId) {
        if self.links.get(&peer).is_some_and(|link| link.is_bare())
            && let Some(link) = self.links.remove(&peer)
        {
            self.sessionless_peers.add(peer, &link);
        }
    }

    /// Peers that count as new at their next packet.
    pub(crate) fn take_forgotten(&mut self) -> Vec<NodeId> {
        let mut forgotten = self.sessionless_peers.take_forgotten();
        forgotten
            .retain(|&peer| !self.links.contains_key(&peer) && !self.sessionless_peers.knows(peer));
        forgotten
    }

    /// Whether a peer that has come with this incarnation is to receive a packet that names it.
    fn must_name(&self, incarnation: u32) -> bool {
        self.names_restarted && incarnation > sessionless_peers::FIRST_INCARNATION
    }

    /// The incarnation of a peer, 0 for an unknown one.
    pub(crate) fn incarnation_of(&self, peer: NodeId) -> u32 {
        let link = self.links.get(&peer).map(|link| link.peer_incarnation);
        link.unwrap_or_else(|| self.sessionless_peers.get(peer).incarnation)
    }

    /// Announces this incarnation to a peer until the peer answers.
    pub(crate) fn announce(&mut self, peer: NodeId) {
        let link = self.link(peer);
        link.greet = true;
        link.announces = link.peer_incarnation == 0;
        self.touched.insert(peer);
    }

    /// The peer is gone up to this incarnation: nothing is sent to it before a packet of a later
    /// one arrives.
    pub(crate) fn shut(&mut self, peer: NodeId, gone: Incarnation) {
        if self.incarnation_of(peer) <= gone.0 {
            self.shut.insert(peer, gone.0);
        }
    }
    /// The peer is back. Its greeting to this node may have been lost.
    pub(crate) fn reopen(&mut self, peer: NodeId) {
        if self.shut.remove(&peer).is_some() {
            self.announce(peer);
        }
    }
    pub(crate) fn is_shut(&self, peer: NodeId) -> bool {
        self.shut.contains_key(&peer)
    }

    /// Queues a message until the peer has made it durable. Returns its number in this session.
    pub(crate) fn send(&mut self, peer: NodeId, body: Body) -> u64 {
        let traits = scheduler::traits(&body);
        let (survives_restart, gives_back) = (traits.survives_restart, traits.gives_back);
        let bytes = Bytes::from(wire::Message { body: Some(body) }.encode_to_vec());
        let link = self.link(peer);
        let queue = &mut link.queue;
        if bytes.len() <= FRAGMENT_BYTES {
            queue.push_back(Queued { bytes, survives_restart });
        } else {
            let fragments = fragments(&bytes);
            queue.extend(fragments.map(|bytes| Queued { bytes, survives_restart }));
        }
        let last = link.base + link.queue.len() as u64 - 1;
        if gives_back {
            link.given_back = last;
        }
        self.touched.insert(peer);
        last
    }
    /// The number up to which the peer has acknowledged all messages.
    pub(crate) fn acknowledged(&self, peer: NodeId) -> u64 {
        self.links.get(&peer).map_or(0, |link| link.base - 1)
    }
    /// Sends a message once; it may be lost, and is dropped if the peer is gone.
    pub(crate) fn send_best_effort(&mut self, peer: NodeId, body: Body) {
        assert_ne!(peer, self.me, "a node has no link to itself");
        if self.is_shut(peer) {
            return;
        }
        let message = wire::Message { body: Some(body) };
        if self.has_no_session(peer) {
            return self.datagrams.push(Datagram { peer, message: Some(message) });
        }
        let best_effort = &mut self.link(peer).best_effort;
        best_effort.reserve_exact(1); // There is seldom a second one.
        best_effort.push(message);
        self.touched.insert(peer);
    }

    /// The peer has failed. Returns the messages that it has not acknowledged, in order, if they
    /// have a meaning for other nodes.
    pub(crate) fn give_back(&mut self, peer: NodeId) -> Vec<Body> {
        let link = self.link(peer);
        let incarnation = link.peer_incarnation;
        let queue = std::mem::take(&mut link.queue);
        link.restart(incarnation);
        let (mut bodies, mut partial) = (Vec::new(), Vec::new());
        for queued in queue.into_iter().filter(|queued| queued.survives_restart) {
            let message = wire::Message::decode(queued.bytes).unwrap_or_default();
            bodies.extend(match message.body {
                Some(Body::Fragment(fragment)) => join(&mut partial, fragment).flatten(),
                other => other,
            });
        }
        bodies
    }

    /// Whether all reliable messages to peers that are not gone have been acknowledged.
    pub(crate) fn owe_nothing(&self) -> bool {
        self.links.iter().all(|(&peer, link)| link.queue.is_empty() || self.is_shut(peer))
    }

    /// A fresh transport: packets in transit may be lost.
    pub(crate) fn reconnected(&mut self, peer: NodeId) {
        let link = self.link(peer);
        link.sent = 0;
        link.greet |= link.peer_incarnation == 0 && !link.queue.is_empty();
        self.touched.insert(peer);
    }

    pub(crate) fn receive(&mut self, packet: wire::Packet) -> Received {
        let (me, ignore) = (self.incarnation, self.ignore_incarnation);
        let (copies, names) = (self.copies, self.must_name(packet.from_incarnation));
        let peer = NodeId(packet.from);
        let mut received = Received::default();
        if packet.to != self.me.0 || peer == self.me || packet.from_incarnation == 0 {
            return received;
        }
        if packet.reliable.is_empty() && self.has_no_session(peer) {
            return self.receive_datagram(packet);
        }
        self.touched.insert(peer);
        if self.shut.get(&peer).is_some_and(|&gone| gone < packet.from_incarnation) {
            self.shut.remove(&peer);
        }
        let link = self.link(peer);
        if packet.from_incarnation < link.peer_incarnation && !ignore {
            return received;
        }
        if packet.from_incarnation > link.peer_incarnation {
            received.incarnation = Some(Incarnation(packet.from_incarnation));
            link.announces = false;
            if link.peer_incarnation == 0 {
                link.peer_incarnation = packet.from_incarnation;
            } else {
                received.restarted = true;
                link.restart(packet.from_incarnation);
            }
            link.greet |= names;
        }
        let for_me = packet.to_incarnation == me || ignore;
        if !for_me {
            link.greet = true;
            if packet.to_incarnation != 0 {
                return received;
            }
        } else {
            link.take_ack(packet.ack);
            link.seen = link.seen.max(packet.seen).max(packet.ack);
            take_messages(link, packet.first_seq, packet.reliable, copies, &mut received.bodies);
            received.is_garbled = link.is_garbled;
        }
        received.load = packet.load;
        received.bodies.extend(packet.best_effort.into_iter().filter_map(|message| message.body));
        received
    }

    /// Ends a step: the effects of all messages so far are durable once batch `seq` is.
    pub(crate) fn note_batch(&mut self, seq: u64) {
        for &peer in &self.touched {
            let link = self.links.get_mut(&peer).expect("touched links exist");
            let taken = link.whole;
            let noted = link.undurable.back().map_or(link.ack, |&(_, last)| last);
            if taken > noted {
                link.undurable.push_back((seq, taken));
                self.undurable.insert(peer);
                self.undurable_from = self.undurable_from.min(seq);
            }
        }
    }

    /// Batches up to `seq` are durable.
    pub(crate) fn durable(&mut self, seq: u64) {
        let eager = self.ack_before_durable;
        if seq < self.undurable_from && !self.withholds && !eager {
            return;
        }
        let (links, touched) = (&mut self.links, &mut self.touched);
        let (mut from, mut withholds) = (u64::MAX, false);
        self.undurable.retain(|peer| {
            // A link that was removed had nothing to acknowledge any more.
            let Some(link) = links.get_mut(peer) else { return false };
            if link.given_back > link.seen {
                withholds = true;
                return true;
            }
            while let Some(&(batch, last)) = link.undurable.front()
                && (batch <= seq || eager)
            {
                link.ack = last;
                link.undurable.pop_front();
                touched.insert(*peer);
            }
            from = from.min(link.undurable.front().map_or(u64::MAX, |&(batch, _)| batch));
            !link.undurable.is_empty()
        });
        (self.undurable_from, self.withholds) = (from, withholds);
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// Emits the packets of this step. Each peer gets this node's load once per `LOAD_INTERVAL`.
    pub(crate) fn flush(
        &mut self,
        now: Time,
        load: impl Fn() -> Option<wire::Load>,
        mut emit: impl FnMut(NodeId, wire::Packet),
    ) {
        while let Some(&(at, peer)) = self.timers.first()
            && at <= now
        {
            self.timers.pop_first();
            let Some(link) = self.links.get_mut(&peer).filter(|link| link.timer == Some(at)) else {
                continue; // An acknowledgement has moved it since.
            };
            mark(Mark::SentAgain);
            link.timer = None;
            link.sent = 0;
            link.greet |= link.peer_incarnation == 0;
            link.patience = link.patience.doubled().min(RETRANSMIT_AFTER_MAX);
            self.touched.insert(peer);
        }
        self.join_datagrams();
        let mut said = std::mem::take(&mut self.datagrams).into_iter().peekable();
        let mut packets = Vec::new();
        let asked = (self.touched.len() + self.timers.len()) as u64;
        let crowd = Span(RETRANSMIT_PER_PEER.0 * asked);
        for peer in std::mem::take(&mut self.touched) {
            self.flush_datagrams(now, Some(peer), &mut said, &load, &mut emit);
            packets.clear();
            if self.is_shut(peer) {
                self.link(peer).timer = None;
                continue;
            }
            let (me, incarnation, copies) = (self.me, self.incarnation, self.copies);
            let link = self.link(peer);
            let timer_before = link.timer;
            // An unknown peer is greeted first, whatever is queued for it.
            link.greet |=
                link.peer_incarnation == 0 && !link.queue.is_empty() && link.timer.is_none();
            write_packets(link, me, peer, incarnation, copies, &mut packets);
            if let Some(packet) = packets.first_mut()
                && link.load_at <= now
                && let Some(load) = load()
            {
                packet.load = Some(load);
                link.load_at = now + LOAD_INTERVAL;
            }
            // A peer that got only best-effort messages need not answer.
            let awaits = !link.queue.is_empty() || link.announces;
            link.timer = match (awaits, link.timer) {
                (false, _) => None,
                (true, Some(at)) => Some(at),
                (true, None) => Some(now + link.patience + crowd),
            };
            let timer = link.timer;
            if timer != timer_before {
                // The set may still contain an earlier time. It has no effect when reached.
                self.timers.extend(timer.map(|at| (at, peer)));
            }
            for packet in packets.drain(..) {
                self.messages += (packet.reliable.len() + packet.best_effort.len()) as u64;
                emit(peer, packet);
            }
            self.put_away(peer);
        }
        self.flush_datagrams(now, None, &mut said, &load, &mut emit);
    }
}

fn fragments(bytes: &Bytes) -> impl Iterator<Item = Bytes> {
    let starts = (0..bytes.len()).step_by(FRAGMENT_BYTES);
    starts.map(|start| {
        let end = bytes.len().min(start + FRAGMENT_BYTES);
        let fragment = wire::Fragment { data: bytes.slice(start..end), last: end == bytes.len() };
        wire::Message { body: Some(Body::Fragment(fragment)) }.encode_to_vec().into()
    })
}

fn write_packets(
    link: &mut Link,
    me: NodeId,
    peer: NodeId,
    incarnation: u32,
    copies: bool,
    packets: &mut Vec<wire::Packet>,
) {
    let known = link.peer_incarnation != 0;
    loop {
        let end = link.queue.len().min(LINK_WINDOW_MESSAGES);
        let mut reliable = Vec::new();
        let first_seq = link.base + link.sent as u64;
        let mut size_bytes = 0;
        while known
            && link.sent < end
            && reliable.len() < PACKET_MESSAGES_MAX
            && size_bytes < PACKET_BYTES_MAX
        {
            let bytes = link.queue[link.sent].bytes.clone();
            size_bytes += bytes.len();
            reliable.push(bytes);
            link.sent += 1;
        }
        let acknowledges = known && link.ack > link.ack_sent;
        if reliable.is_empty() && link.best_effort.is_empty() && !acknowledges && !link.greet {
            return;
        }
        link.ack_sent = link.ack;
        link.greet = false;
        let seen = if std::mem::take(&mut link.tells_seen) { link.expected - 1 } else { 0 };
        packets.push(wire::Packet {
            from: me.0,
            to: peer.0,
            from_incarnation: incarnation,
            to_incarnation: link.peer_incarnation,
            first_seq,
            ack: link.ack,
            reliable,
            best_effort: std::mem::take(&mut link.best_effort),
            load: None,
            seen,
            copies,
            membership: Vec::new(),
        });
    }
}

#[cfg(test)]
mod tests;
