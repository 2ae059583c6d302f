//! The primary does not forget a node that is to get a replica.

use std::sync::Arc;

use node::{Config, Effect, Input, Node};
use prost::Message as _;
use proto::wire::membership_message::Body::MapUpdate;
use proto::wire::message::Body;
use proto::{NodeId, Time, wire};

const ME: u32 = 0;

fn start(map: &wire::ClusterMap, now: Time) -> Node {
    let config = Config { seed: 7, ..Config::new(NodeId(ME), Arc::new(map.clone())) };
    Node::recover(config, std::iter::empty(), now).expect("nothing is damaged")
}

/// The epochs under which the node asks `peer` about its replica of a partition.
fn asked(node: &mut Node, now: Time, peer: u32, partition: u32) -> Vec<u64> {
    let mut effects = Vec::new();
    node.flush(now, &mut effects);
    let packets = effects.into_iter().filter_map(|effect| match effect {
        Effect::Send { to, packet } if to == NodeId(peer) => Some(packet),
        _ => None,
    });
    let messages = packets.flat_map(|packet| packet.reliable);
    let bodies = messages.map(|bytes| wire::Message::decode(bytes).expect("nodes encode").body);
    let queries = bodies.flat_map(|body| match body {
        Some(Body::ReplicaQueries(queries)) => queries.queries,
        _ => Vec::new(),
    });
    queries.filter(|query| query.partition == partition).map(|query| query.epoch).collect()
}

/// A peer sends the map.
fn update(node: &mut Node, now: Time, peer: u32, map: &wire::ClusterMap) {
    let update = wire::MapUpdate { map: Some(map.clone()), ..Default::default() };
    let message = wire::MembershipMessage {
        map_epoch: map.epoch,
        body: Some(MapUpdate(update)),
        ..Default::default()
    };
    let packet = wire::Packet {
        from: peer,
        to: ME,
        from_incarnation: 1,
        membership: vec![message],
        ..Default::default()
    };
    node.handle(now, Input::Packet(Box::new(packet)));
}

/// The answer to a question of an earlier epoch is ignored, so the question must be repeated.
/// Otherwise such a learner would wait without end, with whatever its old replica had.
#[test]
fn a_learner_is_asked_again_when_the_epoch_has_changed() {
    let mut map = kvs::make_replicated_map(7, 3, 8, 2);
    let mine = map.partitions.iter().position(|entry| entry.replicas[0] == ME);
    let mine = mine.expect("eight partitions on three nodes");
    let replicas = &map.partitions[mine].replicas;
    let learner = (0..3).find(|node| !replicas.contains(node)).expect("two copies on three nodes");
    let now = Time(1_000_000_000);
    let mut node = start(&map, now);

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
    map.members[ME as usize].incarnation = 1;
    map.members[ME as usize].store = 1;
    map.partitions[mine].learners.push(learner);
    update(&mut node, now, learner, &map);
    let first = map.partitions[mine].epoch;
    assert_eq!(asked(&mut node, now, learner, mine as u32), [first]);

    // The backup leaves while the answer is in transit.
    map.epoch += 1;
    map.partitions[mine].epoch += 1;
    map.partitions[mine].replicas.truncate(1);
    update(&mut node, now, learner, &map);
    let again = asked(&mut node, now, learner, mine as u32);
    assert!(again.contains(&(first + 1)), "asked under {again:?}");
}

/// The last batch, and whether the node reports the position of a replica.
fn answers(node: &mut Node, now: Time) -> (u64, bool) {
    let mut effects = Vec::new();
    node.flush(now, &mut effects);
    let (mut batch, mut answered) = (0, false);
    for effect in effects {
        match effect {
            Effect::Persist(written) => batch = written.seq,
            Effect::Send { packet, .. } => {
                let bodies = packet.reliable.into_iter();
                let mut bodies =
                    bodies.map(|bytes| wire::Message::decode(bytes).expect("nodes encode").body);
                answered |= bodies.any(|body| matches!(body, Some(Body::ReplicaAnswers(_))));
            }
            _ => {}
        }
    }
    (batch, answered)
}

/// The primary may count the replica at once, and writes that are not synced may be lost a moment
/// later.
#[test]
fn where_a_copy_stands_is_said_when_that_is_synced() {
    let map = kvs::make_replicated_map(7, 3, 8, 2);
    let partition = map.partitions.iter().position(|entry| entry.replicas[0] != ME);
    let partition = partition.expect("eight partitions on three nodes");
    let peer = map.partitions[partition].replicas[0];
    let partition = partition as u32;
    let now = Time(1_000_000_000);
    let mut node = start(&map, now);
    answers(&mut node, now);

    let snapshot_chunk = wire::SnapshotChunk::First as i32;
    let change = wire::Change { partition, epoch: 1, snapshot_chunk, ..Default::default() };
    let replicate = wire::Replicate { number: 1, changes: vec![change], client_waits: false };
    let kind = wire::ReplicaQueryKind::Position as i32;
    let query =
        wire::ReplicaQuery { partition, epoch: 1, kind, map_epoch: 1, ..Default::default() };
    let queries = wire::ReplicaQueries { queries: vec![query] };
    let encode = |body| wire::Message { body: Some(body) }.encode_to_vec().into();
    let packet = wire::Packet {
        from: peer,
        to: ME,
        from_incarnation: 1,
        to_incarnation: 1,
        first_seq: 1,
        reliable: vec![encode(Body::Replicate(replicate)), encode(Body::ReplicaQueries(queries))],
        copies: true,
        ..Default::default()
    };
    node.handle(now, Input::Packet(Box::new(packet)));
    let (batch, answered) = answers(&mut node, now);
    assert!(batch > 0, "the copy starts again from the beginning");
    assert!(!answered, "nothing is synced yet");
    node.handle(now, Input::Persisted { seq: batch });
    assert!(answers(&mut node, now).1);
}
