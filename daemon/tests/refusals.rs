//! Starts that must fail, and their errors; frames that must not harm a running node.

mod support;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use daemon::{NodeError, NodeOptions, StartError, start, start_all};
use proto::{limits, wire};
use security::KeyError;
use support::{call, connect, options};
use tokio_stream::StreamExt;

#[test]
fn a_node_without_keys_stays_on_this_machine() {
    let dir = tempfile::tempdir().unwrap();
    let insecure = |node| NodeOptions { insecure: true, ..options(dir.path(), node, 2) };
    let listen = "192.0.2.1:0".parse().unwrap();
    let error = start(NodeOptions { listen, ..insecure(0) }).unwrap_err();
    assert!(matches!(error, StartError::NotLoopback { .. }), "{error}");
    assert!(error.to_string().contains("192.0.2.1:0") && !error.hint().is_empty());
    let listen = "auto".parse().unwrap();
    let error = start(NodeOptions { listen, ..insecure(0) }).unwrap_err();
    assert!(matches!(error, StartError::AutoInsecure), "{error}");
    assert!(error.to_string().contains("--insecure") && error.hint().contains("127.0.0.1:0"));
    let join = Some("192.0.2.1:7000".to_owned());
    let error = start(NodeOptions { join, ..insecure(0) }).unwrap_err();
    assert!(matches!(error, StartError::JoinNotLoopback { .. }), "{error}");
    assert!(error.to_string().contains("192.0.2.1:7000") && !error.hint().is_empty());
    let listen = "0.0.0.0:0".parse().unwrap();
    let error = start(NodeOptions { listen, ..options(dir.path(), 0, 1) }).unwrap_err();
    assert!(matches!(error, StartError::NoAddress { .. }), "{error}");
    assert!(error.hint().contains("--listen auto"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was left behind");
}

#[test]
fn an_instance_stays_as_secure_as_it_was_made() {
    for made in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let options = |insecure| NodeOptions { insecure, ..options(dir.path(), 0, 1) };
        drop(start(options(made)).unwrap());
        assert_eq!(dir.path().join("keys").exists(), !made);
        let error = start(options(!made)).unwrap_err();
        assert!(matches!(error, StartError::Security { .. }), "{error}");
        assert!(!error.hint().is_empty());
        drop(start(options(made)).unwrap());
    }
}

#[test]
fn a_state_directory_has_one_node() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(options(dir.path(), 0, 1)).unwrap();
    let error = start(options(dir.path(), 0, 1)).unwrap_err();
    assert!(matches!(error, StartError::InUse { .. }), "{error}");
    node.wait_ready().unwrap();
    node.request_stop();
    node.join().unwrap();
    // The refused start took no incarnation.
    let node = start(options(dir.path(), 0, 1)).unwrap();
    assert_eq!(node.incarnation().0, 2);
}

#[test]
fn a_taken_port_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = taken.local_addr().unwrap();
    let error =
        start(NodeOptions { listen: listen.into(), ..options(dir.path(), 0, 1) }).unwrap_err();
    assert!(matches!(error, StartError::Listen { .. }), "{error}");
    assert!(error.to_string().contains(&listen.to_string()));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was left behind");
}

#[test]
fn newer_state_and_open_keys_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    drop(start(options(dir.path(), 0, 1)).unwrap());
    let format = dir.path().join("nodes/0/state/format");
    fs::write(&format, "3\n").unwrap();
    let error = start(options(dir.path(), 0, 1)).unwrap_err();
    assert!(matches!(error, StartError::NewerFormat { .. }), "{error}");
    fs::write(&format, "1\n").unwrap();
    let key = dir.path().join("keys/node.pem");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o640)).unwrap();
    let error = start(options(dir.path(), 0, 1)).unwrap_err();
    assert!(matches!(error, StartError::Keys(KeyError::Mode { mode: 0o640, .. })), "{error}");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    let error = start(options(dir.path(), 0, 2)).unwrap_err();
    assert!(matches!(error, StartError::OtherCluster { .. }), "{error}");
}

#[test]
fn a_late_start_failure_is_reported() {
    let dir = tempfile::tempdir().unwrap();
    drop(start(options(dir.path(), 0, 1)).unwrap());
    // The event files of the next incarnations are directories.
    for incarnation in 2..4 {
        let name = format!("nodes/0/state/events/events-{incarnation:010}-000000.log");
        fs::create_dir(dir.path().join(name)).unwrap();
    }
    let node = start(options(dir.path(), 0, 1)).unwrap();
    let error = node.wait_ready().unwrap_err();
    assert!(matches!(error, StartError::Stopped), "{error}");
    let error = node.join().unwrap_err();
    assert!(matches!(error, NodeError::EventLog { .. }), "{error}");
    let error = start_all(&options(dir.path(), 0, 1)).unwrap_err();
    assert!(error.to_string().contains("event log"), "{error}");
}

#[test]
fn the_missing_are_named_when_the_deadline_passes() {
    let dir = tempfile::tempdir().unwrap();
    let short =
        |node| NodeOptions { deadline: Duration::from_millis(300), ..options(dir.path(), node, 4) };
    // Node 3 left a file behind in an earlier incarnation; no process answers there.
    fs::create_dir_all(dir.path().join("nodes/3")).unwrap();
    let stale =
        r#"{"format":1,"node":3,"incarnation":1,"address":"127.0.0.1:1","pid":1,"slots":1}"#;
    fs::write(dir.path().join("nodes/3/address.json"), stale).unwrap();
    let nodes = [start(short(0)).unwrap(), start(short(1)).unwrap()];
    for node in nodes {
        let error = node.wait_ready().unwrap_err();
        let StartError::Missing { present, expected, ref missing, .. } = error else {
            panic!("{error}");
        };
        assert!(present <= 2 && expected == 4, "{error}");
        assert!(missing.contains("node 2 has not said"), "{error}");
        assert!(missing.contains("node 3 does not answer at 127.0.0.1:1"), "{error}");
        node.join().unwrap();
    }
    assert!(!dir.path().join("nodes/0/address.json").exists());
}

#[test]
fn garbage_on_the_socket_does_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(options(dir.path(), 0, 1)).unwrap();
    node.wait_ready().unwrap();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec();
    let long_frame = [&preface[..], &[0xff; 9], &[0x55; 4096]].concat();
    let noise: Vec<u8> =
        (0..65_536u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for garbage in [b"GET / HTTP/1.1\r\n\r\n".to_vec(), noise, long_frame, preface] {
        let mut stream = TcpStream::connect(node.address()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        // The node may close the connection during the write.
        let _ = stream.write_all(&garbage);
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
    }
    assert!(!node.is_finished());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let mut client = connect(&node, dir.path()).await;
        client.stop(call(wire::StopRequest::default())).await.unwrap();
    });
    node.join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn calls_of_another_version_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(options(dir.path(), 0, 1)).unwrap();
    let mut client = connect(&node, dir.path()).await;
    let code = |result: Result<tonic::Response<wire::StopReply>, tonic::Status>| {
        result.unwrap_err().code()
    };
    let stop = wire::StopRequest::default();
    let bare = tonic::Request::new(stop);
    assert_eq!(code(client.stop(bare).await), tonic::Code::FailedPrecondition);
    let mut newer = call(stop);
    newer.metadata_mut().insert("starling-version", "2".parse().unwrap());
    assert_eq!(code(client.stop(newer).await), tonic::Code::FailedPrecondition);
    assert!(!node.is_finished());
    let log = fs::read_to_string(dir.path().join("nodes/0/state/log")).unwrap();
    assert!(log.contains("refused a call"), "{log}");
    client.stop(call(stop)).await.unwrap();
    node.join().unwrap();
}

/// It sends no version, which means the first one.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_node_of_an_earlier_version_is_not_taken_in() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(options(dir.path(), 0, 1)).unwrap();
    tokio::task::block_in_place(|| node.wait_ready()).unwrap();
    let mut client = connect(&node, dir.path()).await;
    let join = wire::MemberJoin { store: 5, ..Default::default() };
    let command = wire::MapCommand { body: Some(wire::map_command::Body::Join(join)) };
    let body = Some(wire::request::Body::Propose(command));
    let ask = wire::Request { id: 1, body: Some(wire::request::Body::Map(wire::MapQuery {})) };
    let requests = wire::Requests { requests: vec![wire::Request { id: 2, body }, ask] };
    let outgoing = tokio_stream::once(requests).chain(tokio_stream::pending());
    let mut session = client.session(call(outgoing)).await.unwrap().into_inner();
    let mut answers = Vec::new();
    while answers.len() < 2 {
        answers.extend(session.message().await.unwrap().unwrap().responses);
    }
    let error = answers.iter().find_map(|answer| answer.error.clone()).unwrap();
    let text = format!("the peer speaks version 1, this node {}", limits::PEER_VERSION);
    assert!(error.text.contains(&text), "{error:?}");
    // A node of a later version learns this one's version before it asks to join.
    let map = answers.iter().find_map(|answer| match &answer.body {
        Some(wire::response::Body::Map(map)) => Some(map),
        _ => None,
    });
    assert_eq!(map.unwrap().speaks, limits::PEER_VERSION);
    client.stop(call(wire::StopRequest::default())).await.unwrap();
    node.join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn wrong_greetings_and_overlong_frames_end_only_their_stream() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(options(dir.path(), 0, 1)).unwrap();
    tokio::task::block_in_place(|| node.wait_ready()).unwrap();
    let mut client = connect(&node, dir.path()).await.max_encoding_message_size(usize::MAX);
    let frame = |body| wire::LinkFrame { body: Some(body) };
    let hello = wire::Hello { version: 9, ..Default::default() };
    let packet = wire::Packet::default();
    for first in [
        frame(wire::link_frame::Body::Hello(hello)),
        frame(wire::link_frame::Body::Packet(packet)),
        wire::LinkFrame { body: None },
    ] {
        let outgoing = tokio_stream::once(first.clone()).chain(tokio_stream::pending());
        let status = client.link(call(outgoing)).await.unwrap_err();
        assert_eq!(status.code(), tonic::Code::FailedPrecondition, "{status}");
        if matches!(first.body, Some(wire::link_frame::Body::Hello(_))) {
            let ours = limits::PEER_VERSION;
            let text = format!("the peer speaks version 9, this node {ours}: stop the nodes of");
            assert!(status.message().contains(&text), "{status}");
        }
    }
    let body = Some(wire::request::Body::Kv(wire::KvBatch {
        ops: vec![wire::KvOp { value: vec![1; 17 << 20].into(), ..Default::default() }],
        ..Default::default()
    }));
    let long = wire::Requests { requests: vec![wire::Request { id: 1, body }] };
    let outgoing = tokio_stream::once(long).chain(tokio_stream::pending());
    let ended = match client.session(call(outgoing)).await {
        Ok(response) => response.into_inner().message().await.map(|frame| frame.is_none()),
        Err(status) => Err(status),
    };
    assert!(ended.is_err() || ended.unwrap(), "no answer to what is too long");
    assert!(!node.is_finished());
    client.stop(call(wire::StopRequest::default())).await.unwrap();
    node.join().unwrap();
}
