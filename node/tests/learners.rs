//! A node that is to get a copy is not forgotten by the primary.

use std::sync::Arc;

use node::{Config, Effect, Input, Node};
use prost::Message as _;
use proto::wire::message::Body;
use proto::{Incarnation, NodeId, Time, wire};
use scheduler::Tuning;

const ME: u32 = 0;

/// Epochs under which the node asks `peer` about its copy of a partition.
fn asked(node: &mut Node, now: Time, peer: u32, partition: u32) -> Vec<u64> {
    let mut effects = Vec::new();
    node.flush(now, &mut effects);
    let packets = effects.into_iter().filter_map(|effect| match effect {
        Effect::Send { to, packet } if to == NodeId(peer) => Some(packet),
        _ => None,
    });
    let messages = packets.flat_map(|packet| packet.reliable);
    let bodies = messages.map(|bytes| wire::Message::decode(bytes).expect("nodes encode").body);
    let asks = bodies.flat_map(|body| match body {
        Some(Body::CopyAsks(asks)) => asks.asks,
        _ => Vec::new(),
    });
    asks.filter(|ask| ask.partition == partition).map(|ask| ask.epoch).collect()
}

/// The answer to a question of an earlier epoch is passed over. Before the question was repeated
/// such a learner waited for ever, with whatever its old copy had.
#[test]
fn a_learner_is_asked_again_when_the_epoch_has_changed() {
    let mut map = kvs::make_replicated_map(7, 3, 8, 2);
    let mine = map.partitions.iter().position(|entry| entry.replicas[0] == ME);
    let mine = mine.expect("eight partitions on three nodes");
    let replicas = &map.partitions[mine].replicas;
    let learner = (0..3).find(|node| !replicas.contains(node)).expect("two copies on three nodes");
    let config = Config {
        node: NodeId(ME),
        incarnation: Incarnation(1),
        slots: 1,
        store: 1,
        tuning: Tuning::default(),
        seed: 7,
        map: Arc::new(map.clone()),
        mutant: None,
    };
    let now = Time(1_000_000_000);
    let mut node = Node::recover(config, std::iter::empty(), now).expect("nothing is damaged");

    let greeting = wire::Packet {
        from: learner,
        to: ME,
        from_incarnation: 1,
        to_incarnation: 1,
        copies: true,
        ..Default::default()
    };
    node.handle(now, Input::Packet(Box::new(greeting)));
    map.epoch += 1;
    map.partitions[mine].learners.push(learner);
    node.handle(now, Input::MapCommitted { map: Box::new(map.clone()) });
    let first = map.partitions[mine].epoch;
    assert_eq!(asked(&mut node, now, learner, mine as u32), [first]);

    // The backup leaves while the answer is on its way.
    map.epoch += 1;
    map.partitions[mine].epoch += 1;
    map.partitions[mine].replicas.truncate(1);
    node.handle(now, Input::MapCommitted { map: Box::new(map) });
    let again = asked(&mut node, now, learner, mine as u32);
    assert!(again.contains(&(first + 1)), "asked under {again:?}");
}
