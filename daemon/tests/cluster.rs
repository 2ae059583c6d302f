//! Three nodes in one process: they form, answer, stop together, and return.

#[path = "support/session.rs"]
mod session;
mod support;

use std::path::Path;
use std::time::Duration;

use daemon::{NodeHandle, NodeOptions, StartError, start, start_all};
use proto::{NodeId, wire};
use security::{Keyring, Token};
use session::Session;
use support::{call, connect, options};
use wire::request::Body as Ask;
use wire::response::Body as Answer;

async fn map_of(session: &mut Session) -> wire::ClusterMap {
    match session.ask(Ask::Map(wire::MapQuery {})).await.body {
        Some(Answer::Map(map)) => map,
        other => panic!("no map: {other:?}"),
    }
}

/// Waits until this incarnation of the node is up in the map of the session's node.
async fn wait_until_up(session: &mut Session, node: &NodeHandle) {
    // Generous: it only turns a hang into a failure.
    let up = tokio::time::timeout(Duration::from_secs(120), until_up(session, node));
    up.await.expect("the node's link comes up");
}

async fn until_up(session: &mut Session, node: &NodeHandle) {
    loop {
        let member = &map_of(session).await.members[node.node().0 as usize];
        if member.incarnation == node.incarnation().0 && member.phase() == wire::MemberPhase::Up {
            assert_eq!(member.address, node.address().to_string());
            assert!(member.pid > 0 && member.slots == 2);
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn nodes_form_a_cluster_and_end_together() {
    let dir = tempfile::tempdir().unwrap();
    let base = options(dir.path(), 0, 3);
    let nodes = tokio::task::block_in_place(|| start_all(&base)).unwrap();
    for node in &nodes {
        let mut session = Session::open(node, dir.path()).await;
        let answer = session.ask(Ask::Node(wire::NodeQuery::default())).await;
        let Some(Answer::Node(state)) = answer.body else { panic!("{answer:?}") };
        let member = state.member.unwrap();
        assert_eq!((member.node, member.slots), (node.node().0, 2));
        assert_eq!(member.address, node.address().to_string());
        assert_eq!(member.pid, std::process::id());
        assert!(state.cpu_ns > 0 && state.peak_rss_bytes > 0);
        let map = map_of(&mut session).await;
        assert_eq!(map.partitions.len(), 16);
        assert_eq!(map.members.len(), 3);
        for (member, node) in map.members.iter().zip(&nodes) {
            assert_eq!(member.address, node.address().to_string());
        }
    }
    let mut client = connect(&nodes[1], dir.path()).await;
    client.stop(call(wire::StopRequest { all: true, told: false })).await.unwrap();
    for node in nodes {
        node.join().unwrap();
    }
    for node in 0..3 {
        assert!(!dir.path().join(format!("nodes/{node}/address.json")).exists());
    }
}

#[test]
fn launched_nodes_go_on_without_one_that_ends() {
    let dir = tempfile::tempdir().unwrap();
    let launch = "slurm-1.0".to_owned();
    let base = NodeOptions { begin_together: true, launch, ..options(dir.path(), 0, 3) };
    let mut nodes = start_all(&base).unwrap();
    let one = nodes.remove(1);
    one.request_stop();
    one.join().unwrap();
    let listens = |node: u32| dir.path().join(format!("nodes/{node}/address.json")).exists();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!([0, 1, 2].map(listens), [true, false, true]);
    nodes.iter().for_each(NodeHandle::request_stop);
    nodes.into_iter().for_each(|node| node.join().unwrap());
    // The next launch in the same directory waits for all of them again.
    let base = NodeOptions { launch: "slurm-1.1".to_owned(), ..base };
    let short = NodeOptions { deadline: Duration::from_millis(200), ..base.clone() };
    let error = start(short).unwrap().wait_ready().unwrap_err();
    assert!(matches!(error, StartError::Missing { present: 1, .. }), "{error}");
    start_all(&base).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn what_was_answered_survives_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let base = options(dir.path(), 0, 2);
    let mut nodes = tokio::task::block_in_place(|| start_all(&base)).unwrap();
    let key = b"city";
    let partition = kvs::key_partition(key, 16);
    let map = map_of(&mut Session::open(&nodes[0], dir.path()).await).await;
    let home = map.partitions[partition.0 as usize].replicas[0];
    let batch = |kind, value: &'static [u8]| {
        let op = wire::KvOp {
            kind: kind as i32,
            key: key.as_slice().into(),
            value: value.into(),
            ..Default::default()
        };
        Ask::Kv(wire::KvBatch { partition: partition.0, epoch: 1, ops: vec![op], number: None })
    };
    let mut session = Session::open(&nodes[home as usize], dir.path()).await;
    let answer = session.ask(batch(wire::KvKind::Insert, b"Chicago")).await;
    assert!(matches!(answer.body, Some(Answer::Kv(_))), "{answer:?}");
    drop(session);

    let old = nodes.remove(home as usize);
    old.request_stop();
    old.join().unwrap();
    let again = NodeOptions { node: NodeId(home), ..base.clone() };
    let node = start(again).unwrap();
    assert_eq!(node.incarnation().0, 2);
    tokio::task::block_in_place(|| node.wait_ready()).unwrap();
    let mut session = Session::open(&node, dir.path()).await;
    let answer = session.ask(batch(wire::KvKind::Lookup, b"")).await;
    let Some(Answer::Kv(results)) = answer.body else { panic!("{answer:?}") };
    assert_eq!(results.results[0].value.as_ref(), b"Chicago");
    // The other node learns of the return: its map contains the new incarnation.
    let mut other = Session::open(&nodes[0], dir.path()).await;
    wait_until_up(&mut other, &node).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_node_joins_by_an_address_from_a_directory_of_its_own() {
    let (here, there) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let first = tokio::task::block_in_place(|| {
        let nodes = start_all(&options(here.path(), 0, 2)).unwrap();
        let mut nodes = nodes.into_iter();
        let first = nodes.next().unwrap();
        drop(nodes);
        first
    });
    let keyring = Keyring::of_instance(here.path());
    let fingerprint = keyring.authority().unwrap().fingerprint();
    let make = |life_s| keyring.tokens().make(fingerprint, Duration::from_secs(life_s)).unwrap();
    let joining = |dir: &Path, token: Option<Token>| {
        let join = Some(first.address().to_string());
        let options = NodeOptions { join, token, ..options(dir, 1, 2) };
        tokio::task::block_in_place(|| start(options))
    };
    let refused = |token| {
        let stranger = tempfile::tempdir().unwrap();
        joining(stranger.path(), token).unwrap_err().to_string()
    };
    assert!(refused(None).contains("no keys"), "{}", refused(None));
    assert!(refused(Some(make(0))).contains("does not take the token"));
    let good = make(60);
    // A token of another cluster: the joining node does not trust this one, and sends no secret.
    let other = format!("{}{}", &good.to_string()[..64], "a1".repeat(32));
    assert!(refused(Some(other.parse().unwrap())).contains("another cluster"));
    let joined = joining(there.path(), Some(good.clone())).unwrap();
    assert!(refused(Some(good.clone())).contains("does not take the token"), "it is used up");
    tokio::task::block_in_place(|| joined.wait_ready()).unwrap();
    // Each of them has a link to the other, and its map contains the other's address.
    for (node, other) in [(&first, &joined), (&joined, &first)] {
        let mut session = Session::open(node, here.path()).await;
        wait_until_up(&mut session, other).await;
    }
    let cluster = |dir: &Path| std::fs::read(dir.join("cluster.json")).unwrap();
    assert_eq!(cluster(here.path()), cluster(there.path()));
    let wrong =
        NodeOptions { join: Some(first.address().to_string()), ..options(there.path(), 1, 3) };
    let error = tokio::task::block_in_place(|| start(wrong)).unwrap_err();
    assert!(error.to_string().contains("its cluster has 2 nodes"), "{error}");
    // The same command line again: the keys are here, and the token is not needed.
    drop(joined);
    tokio::task::block_in_place(|| joining(there.path(), Some(good)).unwrap().wait_ready())
        .unwrap();
    let outgoing =
        connect(&first, there.path()).await.stop(call(wire::StopRequest::default())).await;
    outgoing.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn events_are_there_when_they_are_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = tokio::task::block_in_place(|| start_all(&options(dir.path(), 0, 1))).unwrap();
    let mut client = connect(&nodes[0], dir.path()).await;
    let request = call(wire::EventsRequest::default());
    let mut pieces = client.events(request).await.unwrap().into_inner();
    let mut bytes = Vec::new();
    while let Some(piece) = pieces.message().await.unwrap() {
        bytes.extend_from_slice(&piece.data);
    }
    let (length, block) = bytes.split_at(4);
    let length = u32::from_le_bytes(length.try_into().unwrap()) as usize;
    let events: Vec<_> = proto::event::Decoder::new(&block[..length]).map(Result::unwrap).collect();
    let started = proto::Event::NodeStarted { node: NodeId(0), incarnation: 1, slots: 2 };
    assert!(events.iter().any(|(_, event)| *event == started), "{events:?}");
    assert!(events[0].0 > proto::Time::ZERO);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_node_that_is_up_is_not_removed_on_demand() {
    let dir = tempfile::tempdir().unwrap();
    let base = NodeOptions { replicas: Some(2), ..options(dir.path(), 0, 2) };
    let nodes = tokio::task::block_in_place(|| start_all(&base)).unwrap();
    let mut session = Session::open(&nodes[0], dir.path()).await;
    let remove = wire::map_command::Body::Remove(wire::MemberRemove { node: 1 });
    let answer = session.ask(Ask::Propose(wire::MapCommand { body: Some(remove) })).await;
    assert!(answer.error.unwrap().text.contains("down or never started"));
    let slow = wire::map_command::Body::SetSlow(wire::SetSlow::default());
    let answer = session.ask(Ask::Propose(wire::MapCommand { body: Some(slow) })).await;
    assert!(answer.error.unwrap().text.contains("join, leave and remove"));
    nodes.iter().for_each(NodeHandle::request_stop);
    for node in nodes {
        node.join().unwrap();
    }
}
