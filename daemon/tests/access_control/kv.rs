//! The service `Kv` for a plain gRPC client, at every node of three; and the reflection service.

use crate::support::{channel, dialer, options};
use daemon::rpc::kv_client::KvClient;
use daemon::{NodeHandle, start_all};
use prost::Message as _;
use prost_types::{FileDescriptorProto, MethodDescriptorProto};
use proto::wire::{self, KvKind, KvStatus};
use security::Role;
use tonic::Code;
use tonic::transport::Channel;

async fn clients(nodes: &[NodeHandle], dir: &std::path::Path) -> Vec<KvClient<Channel>> {
    let dialer = dialer(dir, Role::Client);
    let mut clients = Vec::new();
    for node in nodes {
        clients.push(KvClient::new(channel(node, &dialer).await));
    }
    clients
}

fn key(key: &str) -> wire::KvKey {
    wire::KvKey { key: key.to_owned().into(), number: None }
}
fn pair(key: &str, value: &str) -> wire::KvPair {
    wire::KvPair { key: key.to_owned().into(), value: value.to_owned().into(), number: None }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn any_node_answers_for_any_key() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = tokio::task::block_in_place(|| start_all(&options(dir.path(), 0, 3))).unwrap();
    let mut clients = clients(&nodes, dir.path()).await;
    for number in 0..12 {
        let name = format!("bird-{number}");
        let [writer, reader] = [number % 3, (number + 1) % 3];
        let absent = clients[reader].lookup(key(&name)).await.unwrap().into_inner();
        assert_eq!(absent.status(), KvStatus::Absent);
        let first = clients[writer].insert(pair(&name, "star")).await.unwrap().into_inner();
        let second = clients[writer].append(pair(&name, "ling")).await.unwrap().into_inner();
        assert!(second.version > first.version);
        let found = clients[reader].lookup(key(&name)).await.unwrap().into_inner();
        assert_eq!((&found.value[..], found.version), (&b"starling"[..], second.version));
        let swap = |expected: &'static str| wire::KvSwap {
            key: name.clone().into(),
            value: "jay".into(),
            expected: expected.into(),
            expect_absent: false,
            number: None,
        };
        let conflict = clients[reader].cas(swap("finch")).await.unwrap().into_inner();
        assert_eq!(conflict.status(), KvStatus::Conflict);
        let swapped = clients[reader].cas(swap("starling")).await.unwrap().into_inner();
        assert_eq!(swapped.status(), KvStatus::Ok);
        let removed = clients[writer].remove(key(&name)).await.unwrap().into_inner();
        assert_eq!(removed.status(), KvStatus::Ok);
        let removed = clients[reader].remove(key(&name)).await.unwrap().into_inner();
        assert_eq!(removed.status(), KvStatus::Absent);
    }
    let empty = clients[0].insert(pair("", "x")).await.unwrap_err();
    assert_eq!(empty.code(), Code::InvalidArgument, "{empty}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_numbered_call_happens_once_at_whatever_node() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = tokio::task::block_in_place(|| start_all(&options(dir.path(), 0, 3))).unwrap();
    let mut clients = clients(&nodes, dir.path()).await;
    let append = |client, sequence| wire::KvPair {
        number: Some(wire::KvNumber { client, sequence, ticket: 0 }),
        ..pair("bird", &format!("{client}.{sequence};"))
    };
    let mut versions = Vec::new();
    for client in &mut clients {
        versions.push(client.append(append(7, 1)).await.unwrap().into_inner().version);
    }
    assert_eq!(versions, [versions[0]; 3]);
    // The partition has forgotten this number by now.
    let last = 1 + proto::limits::KV_NUMBERS_MAX as u64;
    for sequence in 2..=last {
        clients[0].append(append(7, sequence)).await.unwrap();
    }
    let late = clients[1].append(append(7, 1)).await.unwrap_err();
    assert_eq!(late.code(), Code::Unknown, "{late}");
    assert_eq!(late.metadata().get("starling-ticket").unwrap(), "0");
    // An unknown client, at a partition that has forgotten clients.
    for client in 100..=100 + proto::limits::KV_NUMBERED_CLIENTS_MAX as u64 {
        clients[0]
            .remove(wire::KvKey { number: append(client, 1).number, ..key("bird") })
            .await
            .ok();
    }
    let unknown = clients[2].append(append(9, 1)).await.unwrap_err();
    let ticket = unknown.metadata().get("starling-ticket").unwrap().to_str().unwrap();
    let number = wire::KvNumber { client: 9, sequence: 2, ticket: ticket.parse().unwrap() };
    let known = wire::KvPair { number: Some(number), ..pair("bird", "new;") };
    clients[2].append(known).await.unwrap();
    let found = clients[1].lookup(key("bird")).await.unwrap().into_inner();
    assert_eq!(found.value, "new;");
    // An answer that is too long to keep: the call must not be repeated under another number.
    let long = "x".repeat(2 * proto::limits::KV_ANSWER_KEPT_BYTES);
    let operation = |kind: KvKind, value: &str| wire::KvOp {
        kind: kind.into(),
        key: "bird".into(),
        value: value.to_owned().into(),
        ..Default::default()
    };
    let ops = vec![operation(KvKind::Append, &long), operation(KvKind::Lookup, "")];
    let number = Some(wire::KvNumber { client: 9, sequence: 3, ticket: number.ticket });
    let both = wire::KvOps { ops, number };
    clients[0].batch(both.clone()).await.unwrap();
    let again = clients[1].batch(both).await.unwrap_err();
    assert_eq!(again.code(), Code::Unknown, "{again}");
    assert!(again.metadata().get("starling-ticket").is_none(), "{again}");
    let unnumbered = wire::KvPair { number: Some(wire::KvNumber::default()), ..pair("bird", "x") };
    let refused = clients[0].insert(unnumbered).await.unwrap_err();
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn batches_and_watches() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = tokio::task::block_in_place(|| start_all(&options(dir.path(), 0, 3))).unwrap();
    let mut clients = clients(&nodes, dir.path()).await;
    let follow = wire::KvFollow { key: "k7".into(), after_version: 0 };
    let mut changes = clients[1].watch(follow).await.unwrap().into_inner();
    let op = |kind: KvKind, number: usize| wire::KvOp {
        kind: kind.into(),
        key: format!("k{number}").into(),
        value: format!("v{number}").into(),
        ..Default::default()
    };
    let all =
        |kind| wire::KvOps { ops: (0..100).map(|number| op(kind, number)).collect(), number: None };
    let inserted = clients[0].batch(all(KvKind::Insert)).await.unwrap().into_inner().results;
    assert_eq!(inserted.len(), 100);
    let found = clients[2].batch(all(KvKind::Lookup)).await.unwrap().into_inner().results;
    for (number, result) in found.iter().enumerate() {
        assert_eq!(result.value, format!("v{number}"));
    }
    let seen = changes.message().await.unwrap().unwrap();
    assert_eq!((&seen.value[..], seen.version), (&b"v7"[..], found[7].version));
    clients[2].remove(key("k7")).await.unwrap();
    let gone = changes.message().await.unwrap().unwrap();
    assert_eq!(gone.status(), KvStatus::Absent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_observer_reads_and_a_node_reports_its_partitions() {
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
    use tonic_reflection::pb::v1::{ServerReflectionRequest, ServerReflectionResponse};
    let dir = tempfile::tempdir().unwrap();
    let nodes = tokio::task::block_in_place(|| start_all(&options(dir.path(), 0, 1))).unwrap();
    let observer = channel(&nodes[0], &dialer(dir.path(), Role::Observer)).await;
    let mut kv = KvClient::new(observer.clone());
    assert_eq!(kv.lookup(key("k")).await.unwrap().into_inner().status(), KvStatus::Absent);
    assert_eq!(kv.insert(pair("k", "v")).await.unwrap_err().code(), Code::PermissionDenied);

    // As grpcurl does it: list the services, then get the file of a name.
    let mut reflection = ServerReflectionClient::new(observer);
    let mut ask = async |question: MessageRequest| {
        let ask = ServerReflectionRequest { message_request: Some(question), ..Default::default() };
        let answers = reflection.server_reflection_info(tokio_stream::once(ask)).await.unwrap();
        answers.into_inner().message().await
    };
    let answer = ask(MessageRequest::ListServices(String::new())).await.unwrap();
    let Some(ServerReflectionResponse {
        message_response: Some(MessageResponse::ListServicesResponse(services)),
        ..
    }) = answer
    else {
        panic!("{answer:?}")
    };
    let names: Vec<String> = services.service.into_iter().map(|it| it.name).collect();
    assert!(names.contains(&"starling.v1.Kv".to_owned()), "{names:?}");

    let mut files = Vec::new();
    for symbol in KV_SYMBOLS {
        let symbol = format!("starling.v1.{symbol}");
        let answer = ask(MessageRequest::FileContainingSymbol(symbol.clone())).await.unwrap();
        let Some(ServerReflectionResponse {
            message_response: Some(MessageResponse::FileDescriptorResponse(found)),
            ..
        }) = answer
        else {
            panic!("{symbol}: {answer:?}")
        };
        let [file] = &found.file_descriptor_proto[..] else { panic!("{symbol}: one file has it") };
        files.push(FileDescriptorProto::decode(&file[..]).unwrap());
    }
    // The file imports no other, and describes a call completely.
    let file = &files[0];
    assert!(files.iter().all(|other| other == file && other.dependency.is_empty()));
    let service = file.service.iter().find(|it| it.name() == "Kv").unwrap();
    for method in &service.method {
        for kind in [method.input_type(), method.output_type()] {
            let name = kind.strip_prefix(".starling.v1.").unwrap();
            assert!(file.message_type.iter().any(|it| it.name() == name), "{kind}");
            assert!(KV_SYMBOLS.contains(&name), "{kind} is not asked for here");
        }
    }
    let names: Vec<&str> = service.method.iter().map(MethodDescriptorProto::name).collect();
    assert_eq!(names, ["Insert", "Lookup", "Remove", "Append", "Cas", "Batch", "Watch"]);
    let unknown = ask(MessageRequest::FileContainingSymbol("starling.v1.No".to_owned())).await;
    assert_eq!(unknown.unwrap_err().code(), Code::NotFound);
}

/// The service, one of its calls, and every message that it takes or returns.
const KV_SYMBOLS: [&str; 9] =
    ["Kv", "Kv.Insert", "KvKey", "KvPair", "KvSwap", "KvFollow", "KvOps", "KvResult", "KvResults"];

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_slow_reader_gets_the_newest_change() {
    const CHANGES: u64 = 60;
    let dir = tempfile::tempdir().unwrap();
    let nodes = tokio::task::block_in_place(|| start_all(&options(dir.path(), 0, 1))).unwrap();
    let mut kv = clients(&nodes, dir.path()).await.remove(0);
    let follow = wire::KvFollow { key: "slow".into(), after_version: 0 };
    let mut changes = kv.watch(follow).await.unwrap().into_inner();
    let mut last = 0;
    for number in 0..CHANGES {
        // More than the windows of the stream hold.
        let value = vec![number as u8; 200_000].into();
        let pair = wire::KvPair { key: "slow".into(), value, number: None };
        last = kv.insert(pair).await.unwrap().into_inner().version;
    }
    let mut heard = 0;
    while changes.message().await.unwrap().unwrap().version != last {
        heard += 1;
        assert!(heard < CHANGES / 2, "the node keeps changes that no client reads");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_watch_that_ended_makes_room() {
    let dir = tempfile::tempdir().unwrap();
    let nodes = tokio::task::block_in_place(|| start_all(&options(dir.path(), 0, 1))).unwrap();
    let mut kv = clients(&nodes, dir.path()).await.remove(0);
    kv.insert(pair("k", "v")).await.unwrap();
    for number in 0..=proto::limits::WATCHERS_MAX {
        let follow = wire::KvFollow { key: "k".into(), after_version: 0 };
        let mut changes = kv.watch(follow).await.unwrap().into_inner();
        let change = changes.message().await;
        assert_eq!(change.unwrap().unwrap().value, "v", "watch {number}");
    }
}
