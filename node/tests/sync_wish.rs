//! How urgent the next sync is while a client waits for an answer.

use std::sync::Arc;

use node::{Config, Input, Node, SyncWish};
use proto::wire::request::Body;
use proto::{ClientId, Incarnation, NodeId, Time, wire};

const NOW: Time = Time(1_000_000_000_000);
const PARTITION: u32 = 3;

/// Handles a request of a client. Nothing is synced meanwhile.
fn ask(node: &mut Node, id: u64, body: Body) {
    let request = Box::new(wire::Request { id, body: Some(body) });
    node.handle(NOW, Input::Request { client: ClientId(1), request });
    node.flush(NOW, &mut Vec::new());
}

#[test]
fn a_sync_waits_for_no_gap_while_a_client_waits_and_there_is_no_other_work() {
    let map = Arc::new(kvs::make_map(7, 1, 8));
    let config =
        Config { incarnation: Incarnation(1), slots: 1, seed: 1, ..Config::new(NodeId(0), map) };
    let mut node = Node::recover(config, [].into_iter(), NOW).expect("an empty store");
    node.flush(NOW, &mut Vec::new());
    assert_eq!(node.sync_wish(), SyncWish::None);
    let spec = wire::Spec {
        cpus: 1,
        body: Some(wire::spec::Body::Sleep(wire::Sleep::default())),
        ..Default::default()
    };
    let task = || wire::Task { duration_ns: 1_000_000, ..Default::default() };
    let chunk = wire::Chunk {
        job: 7,
        partition: PARTITION,
        specs: vec![spec],
        tasks: vec![task(), task()],
        ..Default::default()
    };
    ask(&mut node, 1, Body::Submit(chunk));
    assert_eq!(node.sync_wish(), SyncWish::Now, "the tasks are not visible yet");
    let total = wire::PartitionTotal { partition: PARTITION, chunks: 1, tasks: 2 };
    let partitions = vec![total];
    let commit = wire::JobCommit { job: 7, submitted_ns: NOW.0, partitions, ..Default::default() };
    ask(&mut node, 2, Body::Commit(commit));
    assert_eq!(node.sync_wish(), SyncWish::Soon, "tasks are queued here");
}
