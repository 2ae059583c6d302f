//! Two ends of a link over a network that loses, repeats and reorders packets.

use super::*;
use dice::Dice;
use proto::wire::JobEnd;

struct End {
    links: Links,
    batches: u64,
    got: Vec<u64>,
}

impl End {
    fn new(me: u32, incarnation: u32) -> Self {
        let links = Links::new(NodeId(me), Incarnation(incarnation));
        Self { links, batches: 0, got: Vec::new() }
    }
    fn take(&mut self, packet: wire::Packet) {
        for body in self.links.receive(packet).bodies {
            let Body::JobEnd(JobEnd { job, .. }) = body else { panic!("only these were sent") };
            self.got.push(job);
        }
    }
    /// One step; the effects of its messages become durable at random.
    fn step(&mut self, now: Time, dice: &mut Dice, air: &mut Vec<wire::Packet>) {
        self.batches += 1;
        self.links.note_batch(self.batches);
        if dice.below(3) == 0 {
            self.links.durable(self.batches);
        }
        self.links.flush(now, || None, |_, packet| air.push(packet));
    }
}

fn message(number: u64) -> Body {
    Body::JobEnd(JobEnd { job: number, ..Default::default() })
}

/// Delivers the packets in transit, with losses, repetitions and in another order.
fn deliver(air: &mut Vec<wire::Packet>, ends: &mut [End; 2], dice: &mut Dice) {
    let count = air.len() as u64;
    for _ in 0..count {
        let at = dice.below(air.len() as u64) as usize;
        let packet = if dice.below(5) == 0 { air[at].clone() } else { air.swap_remove(at) };
        if dice.below(4) != 0 {
            ends[packet.to as usize].take(packet);
        }
        if air.is_empty() {
            break;
        }
    }
}

#[test]
fn every_message_arrives_once_and_in_order() {
    for seed in 0..200 {
        let mut dice = Dice::new(seed);
        let mut ends = [End::new(0, 1), End::new(1, 1)];
        let mut air = Vec::new();
        let mut now = Time(0);
        for round in 0..400 {
            if round < 100 {
                ends[0].links.send(NodeId(1), message(round));
            }
            now = now + Span::from_millis(100);
            for end in &mut ends {
                end.step(now, &mut dice, &mut air);
            }
            deliver(&mut air, &mut ends, &mut dice);
        }
        assert_eq!(ends[1].got, (0..100).collect::<Vec<_>>(), "seed {seed}");
        assert_eq!(ends[0].got, [] as [u64; 0]);
    }
}

#[test]
fn undurable_messages_go_to_the_next_incarnation() {
    for seed in 0..200 {
        let mut dice = Dice::new(seed);
        let mut ends = [End::new(0, 1), End::new(1, 1)];
        let (mut air, mut now) = (Vec::new(), Time(0));
        let mut durable_before = Vec::new();
        for round in 0..600 {
            if round < 100 {
                ends[0].links.send(NodeId(1), message(round));
            }
            if round == 60 {
                // The receiver dies; it may keep exactly the messages that it had acknowledged.
                let link = &ends[1].links.links.get(&NodeId(0));
                let acked = link.map_or(0, |link| link.ack);
                durable_before = ends[1].got[..acked as usize].to_vec();
                ends[1] = End::new(1, 2);
                ends[1].links.announce(NodeId(0));
            }
            now = now + Span::from_millis(100);
            for end in &mut ends {
                end.step(now, &mut dice, &mut air);
            }
            deliver(&mut air, &mut ends, &mut dice);
        }
        let mut all = durable_before;
        all.extend(&ends[1].got);
        all.sort_unstable();
        all.dedup();
        assert_eq!(all, (0..100).collect::<Vec<_>>(), "seed {seed}: something was lost");
        let mut sorted = ends[1].got.clone();
        sorted.sort_unstable();
        assert_eq!(sorted, ends[1].got, "seed {seed}: order within a session");
    }
}

/// Only a packet that names its incarnation proves to the peer that both have lived together.
#[test]
fn a_restarted_peer_is_named_once() {
    for (names, incarnation, has_link) in [
        (true, 2, false),
        (true, 2, true),
        (true, 1, false),
        (true, 1, true),
        (false, 2, false),
        (false, 2, true),
    ] {
        let mut links = Links::new(NodeId(0), Incarnation(3));
        if names {
            links.name_restarted();
        }
        let from_peer = wire::Packet {
            from: 1,
            from_incarnation: incarnation,
            to_incarnation: 3,
            ..Default::default()
        };
        if has_link {
            links.link(NodeId(1));
        }
        for expected in [usize::from(names && incarnation > 1), 0] {
            links.receive(from_peer.clone());
            let mut named = Vec::new();
            links.flush(Time(0), || None, |_, packet| named.push(packet.to_incarnation));
            assert_eq!(named, vec![incarnation; expected], "{names} {incarnation} {has_link}");
        }
    }
}

#[test]
fn messages_for_the_old_incarnation_are_dropped_with_it() {
    let mut ends = [End::new(0, 1), End::new(1, 1)];
    let hello = |from: u32, incarnation| wire::Packet {
        from,
        to: 0,
        from_incarnation: incarnation,
        to_incarnation: 1,
        ..Default::default()
    };
    ends[0].take(hello(1, 1));
    ends[0].links.send(NodeId(1), Body::Push(wire::Push::default()));
    ends[0].links.send(NodeId(1), message(7));
    ends[0].take(hello(1, 2));
    let mut sent = Vec::new();
    ends[0].links.flush(Time(0), || None, |_, packet| sent.extend(packet.reliable));
    assert_eq!(sent.len(), 1, "the push is gone, the report stays");
}

#[test]
fn packets_of_other_incarnations_are_not_taken() {
    let mut end = End::new(0, 3);
    let packet = |from_incarnation, to_incarnation| wire::Packet {
        from: 1,
        to: 0,
        from_incarnation,
        to_incarnation,
        first_seq: 1,
        reliable: vec![wire::Message { body: Some(message(1)) }.encode_to_vec().into()],
        ..Default::default()
    };
    end.take(packet(5, 2)); // To an earlier incarnation of this node.
    end.take(packet(4, 3)); // From an earlier incarnation of the peer.
    end.take(packet(5, 0)); // To any incarnation.
    assert!(end.got.is_empty());
    end.take(packet(5, 3));
    assert_eq!(end.got, [1]);
}

#[test]
fn a_link_without_messages_falls_silent() {
    let mut ends = [End::new(0, 1), End::new(1, 1)];
    ends[0].links.send(NodeId(1), message(1));
    let (mut air, mut dice, mut now) = (Vec::new(), Dice::new(1), Time(0));
    let mut packets = 0;
    for _ in 0..1000 {
        now = now + Span::from_millis(50);
        for end in &mut ends {
            end.step(now, &mut dice, &mut air);
        }
        packets += air.len();
        for packet in air.drain(..) {
            ends[packet.to as usize].take(packet);
        }
    }
    assert!(packets < 10, "{packets} packets for one message");
    assert!(ends.iter().all(|end| end.links.deadline().is_none_or(|at| at < now)));
}

fn probe(from: u32, incarnation: u32) -> wire::Packet {
    let body =
        Some(Body::StealProbe(wire::StealProbe { probe: 1, ahead: false, free: Vec::new() }));
    wire::Packet {
        from,
        to: 0,
        from_incarnation: incarnation,
        to_incarnation: 1,
        first_seq: 1,
        best_effort: vec![wire::Message { body }],
        ..Default::default()
    }
}

#[test]
fn few_sessionless_peers_are_kept_and_none_is_confused() {
    use proto::limits::PEERS_KEPT_MAX;
    let mut links = Links::new(NodeId(0), Incarnation(1));
    let many = PEERS_KEPT_MAX as u32 * 3;
    let mut forgotten = Vec::new();
    for peer in 1..=many {
        // One of them has restarted: its earlier incarnation may still be heard.
        let incarnation = if peer == 5 { 2 } else { 1 };
        let received = links.receive(probe(peer, incarnation));
        assert_eq!(received.incarnation, Some(Incarnation(incarnation)), "met for the first time");
        assert_eq!(received.bodies.len(), 1);
        links.send_best_effort(NodeId(peer), Body::StealLoad(wire::StealLoad::default()));
        links.flush(
            Time(u64::from(peer)),
            || None,
            |_, packet| {
                assert_eq!(
                    packet.to_incarnation, incarnation,
                    "the incarnation of the sender is known"
                );
            },
        );
        forgotten.extend(links.take_forgotten());
    }
    assert!(links.links.is_empty(), "nothing reliable was said");
    // The restarted peer is kept beside them.
    assert_eq!(many as usize - forgotten.len(), PEERS_KEPT_MAX + 1);
    assert!(!forgotten.contains(&NodeId(5)));
    assert!(links.receive(probe(5, 1)).bodies.is_empty(), "its past is not listened to");
    assert_eq!(links.receive(probe(many, 1)).incarnation, None, "the last one is remembered");
    assert_eq!(links.receive(probe(1, 1)).incarnation, Some(Incarnation(1)), "the first is not");
    assert_eq!(links.deadline(), None, "no answer is awaited to best-effort messages");
}

#[test]
fn a_peer_with_a_session_is_not_forgotten() {
    let mut links = Links::new(NodeId(0), Incarnation(1));
    links.receive(probe(1, 1));
    links.send(NodeId(1), message(7));
    let mut sent = 0;
    links.flush(Time(0), || None, |_, packet| sent += packet.reliable.len());
    assert_eq!(sent, 1);
    for peer in 2..300 {
        links.receive(probe(peer, 1));
        links.flush(Time(1), || None, |_, _| {});
        assert!(!links.take_forgotten().contains(&NodeId(1)));
    }
    links.receive(wire::Packet { ack: 1, best_effort: Vec::new(), ..probe(1, 1) });
    links.send(NodeId(1), message(8));
    let mut first = 0;
    links.flush(Time(2), || None, |_, packet| first = packet.first_seq);
    assert_eq!(first, 2, "the session goes on");
}

/// A backup that gets messages of a primary. `acknowledged`: the last message up to which it has
/// acknowledged all, at the end of a step in which everything was synced.
struct Copy {
    links: Links,
    acknowledged: u64,
}

impl Copy {
    fn new() -> Self {
        Self { links: Links::for_replicas(NodeId(0), Incarnation(1)), acknowledged: 0 }
    }
    fn hears(&mut self, first_seq: u64, reliable: Vec<Bytes>, seen: u64) -> Received {
        let packet =
            wire::Packet { first_seq, reliable, seen, best_effort: Vec::new(), ..probe(1, 1) };
        self.links.receive(packet)
    }
    fn acknowledges(&mut self, batch: u64) -> u64 {
        self.links.note_batch(batch);
        self.links.durable(batch);
        let said = &mut self.acknowledged;
        self.links.flush(Time(batch), || None, |_, packet| *said = packet.ack.max(*said));
        *said
    }
}

fn change() -> Bytes {
    let body = Some(Body::Replicate(wire::Replicate::default()));
    wire::Message { body }.encode_to_vec().into()
}

/// An acknowledgement means that a change is synced.
#[test]
fn nothing_is_acknowledged_before_refusals_are_known() {
    let mut copy = Copy::new();
    copy.hears(1, vec![change()], 0);
    assert_eq!(copy.acknowledges(1), 1);
    copy.hears(2, vec![change(), change()], 0);
    let refused = vec![wire::Refusal { number: 2, partition: 0 }];
    let word = wire::Replicated { refused, ..Default::default() };
    let seq = copy.links.send(NodeId(1), Body::Replicated(word));
    assert_eq!(copy.acknowledges(2), 1);
    copy.hears(4, vec![change()], 0);
    assert_eq!(copy.acknowledges(3), 1, "the word may be lost");
    copy.hears(5, Vec::new(), seq);
    assert_eq!(copy.acknowledges(4), 4);
}

#[test]
fn of_messages_about_replicas_nothing_is_taken_after_one_that_cannot_be_decoded() {
    let mut copy = Copy::new();
    let heard = copy.hears(1, vec![change(), Bytes::from_static(b"\xff"), change()], 0);
    assert_eq!((heard.bodies.len(), heard.is_garbled), (1, true));
    assert_eq!(copy.acknowledges(1), 1);
    let heard = copy.hears(4, vec![change()], 0);
    assert_eq!((heard.bodies.len(), heard.is_garbled), (0, true));
    assert_eq!(copy.acknowledges(2), 1);
}
