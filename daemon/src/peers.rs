//! Who this node is to others, and how to reach and believe them.

use std::net::SocketAddr;
use std::time::Duration;

use proto::{Incarnation, NodeId, limits, wire};
use tonic::metadata::{Ascii, MetadataMap, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::rpc::peer_client::PeerClient;

const SECRET: &str = "starling-secret";
const VERSION: &str = "starling-version";
/// Characters of a secret.
pub(crate) const SECRET_BYTES: usize = 64;
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// Uploads that wait for their turn fill their streams' windows; the others get on all the same.
const CONNECTION_WINDOW_BYTES: u32 =
    (limits::UPLOADS_IN_FLIGHT_MAX as u32 + 1) * STREAM_WINDOW_BYTES;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A peer's machine that vanishes without a word is noticed after about three of these.
const KEEPALIVE: Duration = Duration::from_secs(5);

pub(crate) type Client = PeerClient<InterceptedService<Channel, Credentials>>;

/// What every call carries, and what every call is asked for.
#[derive(Clone, Debug)]
pub(crate) struct Credentials {
    secret: MetadataValue<Ascii>,
    version: MetadataValue<Ascii>,
}

impl Credentials {
    pub(crate) fn new(secret: &str) -> Self {
        let mut secret: MetadataValue<Ascii> =
            secret.parse().expect("a secret was checked to be hexadecimal");
        secret.set_sensitive(true);
        Self { secret, version: MetadataValue::from(limits::FORMAT_VERSION) }
    }

    /// For connections that are not calls.
    pub(crate) fn secret_bytes(&self) -> [u8; SECRET_BYTES] {
        let mut bytes = [0; SECRET_BYTES];
        let secret = self.secret.as_bytes();
        let count = secret.len().min(SECRET_BYTES);
        bytes[..count].copy_from_slice(&secret[..count]);
        bytes
    }
    pub(crate) fn is_secret(&self, given: &[u8]) -> bool {
        equal_in_constant_time(given, self.secret.as_bytes())
    }

    /// Whether a call may be served.
    pub(crate) fn check(&self, metadata: &MetadataMap) -> Result<(), Status> {
        let given = metadata.get(SECRET).map_or(&[][..], |value| value.as_bytes());
        if !equal_in_constant_time(given, self.secret.as_bytes()) {
            return Err(Status::unauthenticated("the secret is missing or not this instance's"));
        }
        match metadata.get(VERSION) {
            Some(version) if version == self.version => Ok(()),
            _ => Err(Status::failed_precondition(format!(
                "this node speaks version {} only",
                limits::FORMAT_VERSION
            ))),
        }
    }
}

impl Interceptor for Credentials {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let metadata = request.metadata_mut();
        metadata.insert(SECRET, self.secret.clone());
        metadata.insert(VERSION, self.version.clone());
        Ok(request)
    }
}

/// Takes as long for the first wrong byte as for the last.
fn equal_in_constant_time(a: &[u8], b: &[u8]) -> bool {
    let differences = a.iter().zip(b).fold(0, |sum, (x, y)| sum | (x ^ y));
    a.len() == b.len() && std::hint::black_box(differences) == 0
}

/// This node, as it presents itself.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) cluster: u64,
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) nodes: u32,
    pub(crate) credentials: Credentials,
    /// What its address file says, for those who cannot read it.
    pub(crate) address: String,
    pub(crate) slots: u32,
    pub(crate) launch: String,
    /// Where it gives out objects.
    pub(crate) data_address: String,
}

impl Identity {
    pub(crate) fn greeting(&self, probe: bool) -> wire::LinkFrame {
        let greeting = wire::Greeting {
            version: limits::FORMAT_VERSION,
            cluster: self.cluster,
            node: self.node.0,
            incarnation: self.incarnation.0,
            probe,
            address: self.address.clone(),
            pid: std::process::id(),
            slots: self.slots,
            launch: self.launch.clone(),
            data_address: self.data_address.clone(),
        };
        wire::LinkFrame { body: Some(wire::link_frame::Body::Greeting(greeting)) }
    }

    /// Whether the first frame of a stream comes from another node of this cluster.
    pub(crate) fn check(&self, frame: Option<wire::LinkFrame>) -> Result<wire::Greeting, String> {
        let Some(wire::link_frame::Body::Greeting(greeting)) = frame.and_then(|it| it.body) else {
            return Err("the first frame of a link must be a greeting".to_owned());
        };
        if greeting.version != limits::FORMAT_VERSION {
            let (theirs, ours) = (greeting.version, limits::FORMAT_VERSION);
            return Err(format!("the peer speaks version {theirs}, this node {ours}"));
        }
        if greeting.cluster != self.cluster {
            let (theirs, ours) = (greeting.cluster, self.cluster);
            return Err(format!("the peer belongs to cluster {theirs:016x}, not to {ours:016x}"));
        }
        if greeting.node >= self.nodes || greeting.node == self.node.0 {
            return Err(format!("the peer cannot be node {} of this cluster", greeting.node));
        }
        if greeting.incarnation == 0 {
            return Err(format!("node {} has no incarnation", greeting.node));
        }
        Ok(greeting)
    }
}

/// Whether what goes to the address stays on this machine.
pub(crate) fn is_local(address: SocketAddr) -> bool {
    address.ip().to_canonical().is_loopback()
}

/// A connection of its own; the calls carry the credentials, so it must stay on this machine as
/// long as it is not encrypted.
pub(crate) async fn connect(address: &str, credentials: &Credentials) -> Result<Client, String> {
    if !address.parse().is_ok_and(is_local) {
        return Err(format!("'{address}' is not on this machine: connections are not encrypted"));
    }
    let endpoint = Endpoint::from_shared(format!("http://{address}"))
        .map_err(|e| format!("'{address}' is no address: {e}"))?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
        .http2_keep_alive_interval(KEEPALIVE)
        .keep_alive_timeout(2 * KEEPALIVE);
    let channel = endpoint.connect().await.map_err(|e| whole_text(&e))?;
    Ok(PeerClient::with_interceptor(channel, credentials.clone())
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

/// An error and its causes in one line: `transport error` alone says nothing.
fn whole_text(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
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
            credentials: Credentials::new(&"ab".repeat(32)),
            address: "127.0.0.1:7".to_owned(),
            slots: 2,
            launch: String::new(),
            data_address: String::new(),
        }
    }

    #[test]
    fn only_nodes_of_this_cluster_are_believed() {
        let me = identity();
        let other = Identity { node: NodeId(2), ..identity() };
        let greeting = me.check(Some(other.greeting(false))).unwrap();
        assert_eq!((greeting.node, greeting.incarnation), (2, 3));
        assert!(me.check(None).is_err());
        assert!(me.check(Some(wire::LinkFrame { body: None })).is_err());
        let wrong = [
            Identity { cluster: 8, ..other.clone() },
            Identity { node: NodeId(4), ..other.clone() },
            Identity { incarnation: Incarnation(0), ..other.clone() },
            me.clone(),
        ];
        for identity in wrong {
            assert!(me.check(Some(identity.greeting(false))).is_err(), "{identity:?}");
        }
        let newer = wire::Greeting { version: 2, ..greeting };
        let frame = wire::LinkFrame { body: Some(wire::link_frame::Body::Greeting(newer)) };
        assert!(me.check(Some(frame)).unwrap_err().contains("version 2"));
    }

    #[tokio::test]
    async fn the_secret_stays_on_this_machine() {
        let ours = identity().credentials;
        for address in ["192.0.2.1:7", "[2001:db8::1]:7", "host.example:7", "127.0.0.1"] {
            let error = connect(address, &ours).await.unwrap_err();
            assert!(error.contains("not encrypted"), "{error}");
        }
        for address in ["127.0.0.1:7", "127.9.9.9:7", "[::1]:7", "[::ffff:127.0.0.1]:7"] {
            assert!(is_local(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn calls_need_the_secret_and_the_version() {
        let ours = identity().credentials;
        let mut request = Request::new(());
        assert!(ours.check(request.metadata()).is_err());
        request = ours.clone().call(request).unwrap();
        ours.check(request.metadata()).unwrap();
        let theirs = Credentials::new(&"cd".repeat(32));
        assert!(theirs.check(request.metadata()).is_err());
        request.metadata_mut().insert(VERSION, MetadataValue::from(2));
        assert_eq!(
            ours.check(request.metadata()).unwrap_err().code(),
            tonic::Code::FailedPrecondition
        );
    }
}
