//! The rights of roles: every call of the protocol's descriptor, by every kind of certificate.
//!
//! The tables here repeat the rules deliberately. A call of the protocol without a row fails, and
//! so does a rule that changed without its row.

#![expect(clippy::unwrap_used, reason = "helpers of tests, too")]

#[path = "access_control/connection_limits.rs"]
mod connection_limits;
#[path = "access_control/data.rs"]
mod data;
#[path = "access_control/kv.rs"]
mod kv;
mod support;
#[path = "access_control/unauthenticated.rs"]
mod unauthenticated;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use daemon::{NodeHandle, start};
use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorSet};
use proto::wire;
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use security::{Authority, Bundle, Dialer, Keyring, Role, Validity};
use support::{call, channel, connect, dialer, options};
use tokio_stream::StreamExt;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request, Status};

/// The least role of each call.
const CALLS: &[(&str, Role)] = &[
    ("/starling.v1.Peer/Link", Role::Node),
    ("/starling.v1.Peer/Session", Role::Observer),
    ("/starling.v1.Peer/Fetch", Role::Observer),
    ("/starling.v1.Peer/Events", Role::Observer),
    ("/starling.v1.Peer/Streams", Role::Observer),
    ("/starling.v1.Peer/Stop", Role::Client),
    ("/starling.v1.Peer/Put", Role::Client),
    ("/starling.v1.Peer/Bring", Role::Client),
    ("/starling.v1.Peer/Keep", Role::Node),
    ("/starling.v1.Peer/Rsh", Role::Node),
    ("/starling.v1.Kv/Insert", Role::Client),
    ("/starling.v1.Kv/Lookup", Role::Observer),
    ("/starling.v1.Kv/Remove", Role::Client),
    ("/starling.v1.Kv/Append", Role::Client),
    ("/starling.v1.Kv/Cas", Role::Client),
    ("/starling.v1.Kv/Batch", Role::Client),
    ("/starling.v1.Kv/Watch", Role::Observer),
    ("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", Role::Observer),
    ("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", Role::Observer),
];

/// The least role of each request of a session.
const REQUESTS: &[(&str, Role)] = &[
    ("submit", Role::Client),
    ("commit", Role::Client),
    ("job", Role::Observer),
    ("watch_job", Role::Observer),
    ("jobs", Role::Observer),
    ("tasks", Role::Observer),
    ("explain", Role::Observer),
    ("cancel", Role::Client),
    ("retry", Role::Client),
    ("forget", Role::Client),
    // A batch of reads; `an_observer_may_not_write` has the others.
    ("kv", Role::Observer),
    ("watch_key", Role::Observer),
    ("node", Role::Observer),
    ("map", Role::Observer),
    ("kv_many", Role::Observer),
    ("tune", Role::Client),
    ("propose", Role::Client),
    // Empty; `an_observer_may_not_change_open_jobs` has the others.
    ("open", Role::Observer),
    ("watch_ends", Role::Observer),
    ("set_variable", Role::Client),
];

fn descriptors() -> FileDescriptorSet {
    FileDescriptorSet::decode(daemon::DESCRIPTORS).expect("the build has made it")
}

/// A codec that passes bytes unchanged.
#[derive(Clone, Copy)]
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Vec<u8>;
    type Encoder = Self;
    type Decoder = Self;
    fn encoder(&mut self) -> Self {
        Self
    }
    fn decoder(&mut self) -> Self {
        Self
    }
}
impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;
    fn encode(&mut self, item: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        use bytes::BufMut;
        to.put_slice(&item);
        Ok(())
    }
}
impl Decoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;
    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Vec<u8>>, Status> {
        use bytes::Buf;
        Ok(Some(from.copy_to_bytes(from.remaining()).to_vec()))
    }
}

/// The result of a call with an empty message and without the version metadata. An authorized call
/// is refused for the missing version, and changes nothing.
async fn attempt(node: &NodeHandle, dialer: &Dialer, path: &str) -> Result<(), Status> {
    let address = node.address().to_string();
    let connected = dialer.connect(&address, |endpoint| endpoint).await;
    let mut grpc = tonic::client::Grpc::new(connected.map_err(Status::unavailable)?);
    grpc.ready().await.map_err(|error| Status::unavailable(error.to_string()))?;
    let request = Request::new(tokio_stream::once(Vec::new()));
    let path = PathAndQuery::try_from(path).expect("a path");
    let mut answers = grpc.streaming(request, path, Raw).await?.into_inner();
    answers.message().await.map(|_| ())
}

/// Certificates of nodes that must be refused everywhere.
fn strange_bundles(keyring: &Keyring) -> Vec<(&'static str, Bundle)> {
    let ours = keyring.authority().unwrap();
    let of_pem = |pem: &str| Bundle::from_pem(pem).unwrap();
    let other = Authority::make().unwrap();
    let lasting = Validity::starting_now(Duration::from_secs(3600));
    let over = Validity { from_s: 1_000_000_000, until_s: 1_000_003_600 };
    let not_yet = Validity { from_s: lasting.until_s + 3600, until_s: lasting.until_s + 7200 };
    // Signed by the other authority, but it trusts ours: the node has to refuse it.
    let foreign = other.issue(Role::Node, lasting).unwrap();
    let foreign = foreign.replace(&other.certificate_pem(), &ours.certificate_pem());
    vec![
        ("another authority", of_pem(&foreign)),
        ("expired", of_pem(&ours.issue(Role::Node, over).unwrap())),
        ("not valid yet", of_pem(&ours.issue(Role::Node, not_yet).unwrap())),
    ]
}

/// Trusts our authority, and presents no certificate.
fn bare_config(keyring: &Keyring, purpose: &[u8]) -> rustls::ClientConfig {
    let ours = keyring.authority().unwrap();
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(ours.certificate_pem().as_bytes()).unwrap();
    roots.add(root).unwrap();
    let ring = Arc::new(rustls::crypto::ring::default_provider());
    let mut bare = rustls::ClientConfig::builder_with_provider(ring)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    bare.alpn_protocols = vec![purpose.to_vec()];
    bare
}

/// Callers that must be refused.
fn unauthenticated_callers(keyring: &Keyring) -> Vec<(&'static str, Dialer)> {
    let bare = bare_config(keyring, security::tls::GRPC);
    let mut unauthenticated_callers = vec![
        ("no encryption", Dialer::insecure()),
        ("no certificate", Dialer::with_config(Arc::new(bare))),
    ];
    let bundles = strange_bundles(keyring).into_iter();
    unauthenticated_callers
        .extend(bundles.map(|(name, bundle)| (name, Dialer::new(&bundle).unwrap())));
    unauthenticated_callers
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_call_has_its_least_role() {
    let mut in_protocol = Vec::new();
    for file in descriptors().file {
        for service in &file.service {
            let service_name = format!("{}.{}", file.package(), service.name());
            let calls = service.method.iter();
            in_protocol.extend(calls.map(|call| format!("/{service_name}/{}", call.name())));
        }
    }
    assert!(in_protocol.len() >= 15, "{in_protocol:?}");
    // Served beside the protocol's own services.
    let reflection = CALLS.iter().map(|(path, _)| *path).filter(|it| it.starts_with("/grpc."));
    in_protocol.extend(reflection.map(str::to_owned));
    let table: BTreeMap<&str, Role> = CALLS.iter().copied().collect();
    let dir = tempfile::tempdir().unwrap();
    let node = start(options(dir.path(), 0, 1)).unwrap();
    tokio::task::block_in_place(|| node.wait_ready()).unwrap();
    let keyring = Keyring::of_instance(dir.path());
    let unauthenticated_callers = unauthenticated_callers(&keyring);
    for path in &in_protocol {
        let least = table.get(path.as_str());
        let least = *least.unwrap_or_else(|| panic!("{path} has no row in the table"));
        assert_eq!(daemon::authorization::least_role(path), Some(least), "{path}");
        for (name, stranger) in &unauthenticated_callers {
            let status = attempt(&node, stranger, path).await.unwrap_err();
            // Errors of the transport: the call did not reach the node's services.
            let of_transport = [Code::Unavailable, Code::Unknown, Code::Internal, Code::Cancelled];
            let refused = of_transport.contains(&status.code());
            assert!(refused, "{path} by {name}: {status:?}");
        }
        for role in Role::ALL {
            let status = attempt(&node, &dialer(dir.path(), role), path).await;
            let code = status.as_ref().err().map(Status::code);
            let let_in = !matches!(
                code,
                Some(Code::PermissionDenied | Code::Unauthenticated | Code::Unavailable)
            );
            assert_eq!(let_in, role >= least, "{path} by {role}: {status:?}");
        }
    }
    let unknown = attempt(&node, &dialer(dir.path(), Role::Node), "/starling.v1.Peer/New").await;
    assert_eq!(unknown.unwrap_err().code(), Code::PermissionDenied);
    assert!(!node.is_finished());
    let log = std::fs::read_to_string(dir.path().join("nodes/0/state/log")).unwrap();
    assert!(log.contains("refused a connection"), "{log}");
    let mut known = connect(&node, dir.path()).await;
    known.stop(call(wire::StopRequest::default())).await.unwrap();
    node.join().unwrap();
}

/// The requests of a session, by name and number, from the protocol.
fn request_fields() -> Vec<(String, i32)> {
    let files = descriptors();
    let messages = files.file.iter().flat_map(|file| &file.message_type);
    let request: &DescriptorProto =
        messages.into_iter().find(|it| it.name() == "Request").expect("it is in the protocol");
    let body = request.field.iter().filter(|field| field.oneof_index.is_some());
    body.map(|field| (field.name().to_owned(), field.number())).collect()
}

/// True if a session refuses a request. A request for the map, which all roles may send, follows
/// it.
async fn is_refused(node: &NodeHandle, dialer: &Dialer, request: wire::Request) -> bool {
    let mut client = daemon::rpc::peer_client::PeerClient::new(channel(node, dialer).await);
    let body = Some(wire::request::Body::Map(wire::MapQuery {}));
    let requests = vec![wire::Request { id: 7, ..request }, wire::Request { id: 8, body }];
    let outgoing = tokio_stream::once(wire::Requests { requests }).chain(tokio_stream::pending());
    let mut answers = client.session(call(outgoing)).await.unwrap().into_inner();
    let mut refused = false;
    loop {
        for response in answers.message().await.unwrap().unwrap().responses {
            match response.id {
                8 => return refused,
                _ => refused |= response.error.is_some_and(|it| it.text.contains("may not")),
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_request_of_a_session_has_its_least_role() {
    let table: BTreeMap<&str, Role> = REQUESTS.iter().copied().collect();
    let dir = tempfile::tempdir().unwrap();
    let node = start(options(dir.path(), 0, 1)).unwrap();
    tokio::task::block_in_place(|| node.wait_ready()).unwrap();
    for (name, number) in request_fields() {
        let least = table.get(name.as_str());
        let least = *least.unwrap_or_else(|| panic!("request {name} has no row in the table"));
        // An empty message in this field.
        let mut bytes = Vec::new();
        prost::encoding::encode_key(
            number as u32,
            prost::encoding::WireType::LengthDelimited,
            &mut bytes,
        );
        bytes.push(0);
        let request = wire::Request::decode(&bytes[..]).unwrap();
        for role in Role::ALL {
            let refused = is_refused(&node, &dialer(dir.path(), role), request.clone()).await;
            assert_eq!(refused, role < least, "{name} by {role}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_observer_may_not_write() {
    let dir = tempfile::tempdir().unwrap();
    let node = start(options(dir.path(), 0, 1)).unwrap();
    tokio::task::block_in_place(|| node.wait_ready()).unwrap();
    let observer = dialer(dir.path(), Role::Observer);
    use wire::KvKind::{Append, Cas, Insert, Lookup, Remove};
    for kind in [Insert, Lookup, Remove, Append, Cas] {
        let op = |kind: wire::KvKind| wire::KvOp { kind: kind as i32, ..Default::default() };
        let batch =
            wire::KvBatch { partition: 0, epoch: 1, ops: vec![op(Lookup), op(kind)], number: None };
        let many = wire::KvBatches { batches: vec![batch.clone()] };
        for body in [wire::request::Body::Kv(batch), wire::request::Body::KvMany(many)] {
            let request = wire::Request { id: 7, body: Some(body) };
            let refused = is_refused(&node, &observer, request).await;
            assert_eq!(refused, kind != Lookup, "{kind:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn an_observer_may_not_change_open_jobs() {
    use wire::open_request::What;
    let dir = tempfile::tempdir().unwrap();
    let node = start(options(dir.path(), 0, 1)).unwrap();
    tokio::task::block_in_place(|| node.wait_ready()).unwrap();
    let observer = dialer(dir.path(), Role::Observer);
    let all = [
        (What::Reserve(wire::ReserveIds::default()), true),
        (What::Close(wire::CloseJob::default()), true),
        (What::Sign(wire::LifeSign::default()), true),
        (What::Release(wire::ReleaseOutputs::default()), true),
        (What::CountOpen(wire::CountOpen::default()), false),
    ];
    for (what, changes) in all {
        let open = wire::OpenRequest { job: 1, what: Some(what.clone()) };
        let request = wire::Request { id: 7, body: Some(wire::request::Body::Open(open)) };
        assert_eq!(is_refused(&node, &observer, request).await, changes, "{what:?}");
    }
}
