//! The identity of this node, and the connections to other nodes.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::atomic::{self, AtomicBool};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use proto::{Incarnation, NodeId, limits, wire};
use security::Dialer;
use security::dial::TO_NODE;
use tokio::sync::Notify;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::rpc::peer_client::PeerClient;

const VERSION: &str = "starling-version";
/// This text is in every version's answer to a greeting of another version.
pub(crate) const SPEAKS: &str = "speaks version";
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// Waiting uploads fill the windows of their streams; one window more lets other calls proceed.
const CONNECTION_WINDOW_BYTES: u32 =
    (limits::UPLOADS_IN_FLIGHT_MAX as u32 + 1) * STREAM_WINDOW_BYTES;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The failure of a peer's machine is noticed after about three of these.
const KEEPALIVE: Duration = Duration::from_secs(5);

pub(crate) type Client = PeerClient<InterceptedService<Channel, Call>>;

/// Metadata that every call between Starling programs carries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// The intended node, if the caller knows it.
    to: Option<NodeId>,
}

impl Interceptor for Call {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert(VERSION, MetadataValue::from(limits::CALL_VERSION));
        if let Some(node) = self.to {
            request.metadata_mut().insert(TO_NODE, MetadataValue::from(node.0));
        }
        Ok(request)
    }
}

/// Checks that a call has the version of this program.
pub(crate) fn check_version(metadata: &MetadataMap) -> Result<(), Status> {
    match metadata.get(VERSION) {
        Some(version) if *version == MetadataValue::from(limits::CALL_VERSION) => Ok(()),
        _ => Err(Status::failed_precondition(format!(
            "this node speaks version {} only",
            limits::CALL_VERSION
        ))),
    }
}

/// Refuses a call for another node. It came by an address that both machines have.
pub(crate) fn check_target(metadata: &MetadataMap, own: NodeId) -> Result<(), Status> {
    match metadata.get(TO_NODE) {
        Some(node) if *node != MetadataValue::from(own.0) => {
            let meant = node.to_str().unwrap_or("?");
            let text = format!("node n{} answers at the address of n{meant}", own.0);
            Err(Status::failed_precondition(text))
        }
        _ => Ok(()),
    }
}

/// Checks that a node of that version may be in one cluster with this one.
pub(crate) fn check_peer_version(theirs: u32) -> Result<(), String> {
    let ours = limits::PEER_VERSION;
    match theirs.cmp(&ours) {
        Ordering::Equal => Ok(()),
        order => {
            let older = if order == Ordering::Less { "the peer" } else { "this node" };
            Err(format!(
                "the peer {SPEAKS} {theirs}, this node {ours}: stop the nodes of the older program \
                 ({older}), and start them with the newer one"
            ))
        }
    }
}

/// The identity of this node.
#[derive(Debug)]
pub(crate) struct Identity {
    pub(crate) cluster: u64,
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    /// Greater than any node's number.
    pub(crate) nodes: u32,
    /// The content of its address file, for nodes that cannot read the file.
    pub(crate) address: String,
    pub(crate) slots: u32,
    /// Its resources in the form of the map.
    pub(crate) offer: Vec<u8>,
    pub(crate) launch: String,
    /// The address of its data port.
    pub(crate) data_address: String,
    /// The name of its machine.
    pub(crate) host: String,
    /// True if it was part of a complete cluster, in this incarnation or before.
    pub(crate) formed: AtomicBool,
}

impl Identity {
    pub(crate) fn hello(&self, probe: bool) -> wire::LinkFrame {
        let hello = wire::Hello {
            version: limits::PEER_VERSION,
            cluster: self.cluster,
            node: self.node.0,
            incarnation: self.incarnation.0,
            probe,
            address: self.address.clone(),
            pid: std::process::id(),
            slots: self.slots,
            offer: self.offer.clone(),
            launch: self.launch.clone(),
            data_address: self.data_address.clone(),
            host: self.host.clone(),
            formed: self.formed.load(atomic::Ordering::Relaxed),
        };
        wire::LinkFrame { body: Some(wire::link_frame::Body::Hello(hello)) }
    }

    pub(crate) fn set_formed(&self) {
        self.formed.store(true, atomic::Ordering::Relaxed);
    }

    /// Checks that the first frame of a stream comes from another node of this cluster.
    pub(crate) fn check(&self, frame: Option<wire::LinkFrame>) -> Result<wire::Hello, String> {
        let Some(wire::link_frame::Body::Hello(hello)) = frame.and_then(|it| it.body) else {
            return Err("the first frame of a link must be a greeting".to_owned());
        };
        check_peer_version(hello.version)?;
        if hello.cluster != self.cluster {
            let (theirs, ours) = (hello.cluster, self.cluster);
            return Err(format!("the peer belongs to cluster {theirs:016x}, not to {ours:016x}"));
        }
        if hello.node >= self.nodes || hello.node == self.node.0 {
            return Err(format!("the peer cannot be node {} of this cluster", hello.node));
        }
        if hello.incarnation == 0 {
            return Err(format!("node {} has no incarnation", hello.node));
        }
        Ok(hello)
    }
}

/// The other nodes that this one knows, with their knocks.
#[derive(Debug)]
pub(crate) struct PeerTable(Mutex<BTreeMap<NodeId, PeerState>>);

#[derive(Clone, Debug, Default)]
struct PeerState {
    /// Notified when the node starts or moves and must be dialled.
    request_dial: Arc<Notify>,
    has_left: bool,
    /// True if the map shows it as down.
    is_down: bool,
}

impl PeerTable {
    pub(crate) fn new(nodes: impl Iterator<Item = NodeId>) -> Self {
        Self(Mutex::new(nodes.map(|node| (node, PeerState::default())).collect()))
    }

    fn with<T>(&self, look: impl FnOnce(&mut BTreeMap<NodeId, PeerState>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The nodes that have not left the cluster.
    pub(crate) fn all(&self) -> Vec<NodeId> {
        self.with(|it| it.iter().filter(|(_, it)| !it.has_left).map(|(node, _)| *node).collect())
    }
    pub(crate) fn higher(&self, than: NodeId) -> impl Iterator<Item = NodeId> {
        self.all().into_iter().filter(move |&node| node > than)
    }

    /// Returns true if the node was unknown.
    pub(crate) fn add(&self, node: NodeId) -> bool {
        self.with(|it| it.insert(node, it.get(&node).cloned().unwrap_or_default()).is_none())
    }
    pub(crate) fn leave(&self, node: NodeId) {
        self.with(|it| it.entry(node).or_default().has_left = true);
        self.request_dial(node);
    }
    pub(crate) fn has_left(&self, node: NodeId) -> bool {
        self.with(|it| it.get(&node).is_some_and(|it| it.has_left))
    }

    pub(crate) fn set_down(&self, node: NodeId, is_down: bool) {
        self.with(|it| it.entry(node).or_default().is_down = is_down);
    }
    pub(crate) fn is_down(&self, node: NodeId) -> bool {
        self.with(|it| it.get(&node).is_some_and(|it| it.is_down))
    }

    pub(crate) fn request_dial(&self, node: NodeId) {
        self.with(|it| it.get(&node).inspect(|other| other.request_dial.notify_one()).is_some());
    }
    /// The notification for each knock of a node.
    pub(crate) fn dial_requests(&self, node: NodeId) -> Arc<Notify> {
        self.with(|it| Arc::clone(&it.entry(node).or_default().request_dial))
    }
}

/// Opens a separate connection to a node; `None`: to any node that answers there.
pub(crate) async fn connect(
    to: Option<NodeId>,
    address: &str,
    dialer: &Dialer,
) -> Result<Client, String> {
    let settings = |endpoint: Endpoint| {
        endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(2 * KEEPALIVE)
    };
    let channel = dialer.connect(address, settings).await?;
    Ok(PeerClient::with_interceptor(channel, Call { to })
        .max_decoding_message_size(limits::FRAME_BYTES_MAX)
        .max_encoding_message_size(limits::FRAME_BYTES_MAX))
}

/// The same settings on the serving side.
pub(crate) fn server() -> tonic::transport::Server {
    tonic::transport::Server::builder()
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_keepalive_interval(Some(KEEPALIVE))
        .http2_keepalive_timeout(Some(2 * KEEPALIVE))
        .http2_max_header_list_size(16 << 10)
        .max_concurrent_streams(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            cluster: 7,
            node: NodeId(1),
            incarnation: Incarnation(3),
            nodes: 4,
            address: "127.0.0.1:7".to_owned(),
            slots: 2,
            offer: Vec::new(),
            launch: String::new(),
            data_address: String::new(),
            host: String::new(),
            formed: AtomicBool::new(false),
        }
    }

    #[test]
    fn only_nodes_of_this_cluster_are_believed() {
        let me = identity();
        let other = Identity { node: NodeId(2), ..identity() };
        let hello = me.check(Some(other.hello(false))).unwrap();
        assert_eq!((hello.node, hello.incarnation), (2, 3));
        assert!(me.check(None).is_err());
        assert!(me.check(Some(wire::LinkFrame { body: None })).is_err());
        let wrong = [
            Identity { cluster: 8, node: NodeId(2), ..identity() },
            Identity { node: NodeId(4), ..identity() },
            Identity { incarnation: Incarnation(0), node: NodeId(2), ..identity() },
            identity(),
        ];
        for identity in wrong {
            assert!(me.check(Some(identity.hello(false))).is_err(), "{identity:?}");
        }
        let (older, newer) = (limits::PEER_VERSION - 1, limits::PEER_VERSION + 1);
        for (version, which) in [(older, "(the peer)"), (newer, "(this node)")] {
            let hello = wire::Hello { version, ..hello.clone() };
            let frame = wire::LinkFrame { body: Some(wire::link_frame::Body::Hello(hello)) };
            let refused = me.check(Some(frame)).unwrap_err();
            let said = format!("the peer speaks version {version}, this node {}", older + 1);
            assert!(refused.contains(&said) && refused.contains(which), "{refused}");
        }
    }

    #[test]
    fn calls_need_the_version() {
        let mut request = Request::new(());
        assert!(check_version(request.metadata()).is_err());
        request = Call { to: None }.call(request).unwrap();
        check_version(request.metadata()).unwrap();
        check_target(request.metadata(), NodeId(1)).unwrap();
        request.metadata_mut().insert(VERSION, MetadataValue::from(2));
        let refused = check_version(request.metadata()).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    }

    #[test]
    fn a_call_that_is_meant_for_another_node_is_refused() {
        let request = Call { to: Some(NodeId(1)) }.call(Request::new(())).unwrap();
        check_target(request.metadata(), NodeId(1)).unwrap();
        let refused = check_target(request.metadata(), NodeId(11)).unwrap_err();
        assert_eq!(refused.message(), "node n11 answers at the address of n1");
    }
}
