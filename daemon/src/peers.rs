//! Who this node is to others, and how to reach and believe them.

use std::time::Duration;

use proto::{Incarnation, NodeId, limits, wire};
use security::Dialer;
use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};

use crate::rpc::peer_client::PeerClient;

const VERSION: &str = "starling-version";
const STREAM_WINDOW_BYTES: u32 = 1 << 20;
/// Uploads that wait for their turn fill their streams' windows; the others get on all the same.
const CONNECTION_WINDOW_BYTES: u32 =
    (limits::UPLOADS_IN_FLIGHT_MAX as u32 + 1) * STREAM_WINDOW_BYTES;
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A peer's machine that vanishes without a word is noticed after about three of these.
const KEEPALIVE: Duration = Duration::from_secs(5);

pub(crate) type Client = PeerClient<InterceptedService<Channel, SpeaksVersion>>;

/// What every call between programs of ours carries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpeaksVersion;

impl Interceptor for SpeaksVersion {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        request.metadata_mut().insert(VERSION, MetadataValue::from(limits::FORMAT_VERSION));
        Ok(request)
    }
}

/// Whether a call may be served.
pub(crate) fn check_version(metadata: &MetadataMap) -> Result<(), Status> {
    match metadata.get(VERSION) {
        Some(version) if *version == MetadataValue::from(limits::FORMAT_VERSION) => Ok(()),
        _ => Err(Status::failed_precondition(format!(
            "this node speaks version {} only",
            limits::FORMAT_VERSION
        ))),
    }
}

/// This node, as it presents itself.
#[derive(Clone, Debug)]
pub(crate) struct Identity {
    pub(crate) cluster: u64,
    pub(crate) node: NodeId,
    pub(crate) incarnation: Incarnation,
    pub(crate) nodes: u32,
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

/// A connection of its own.
pub(crate) async fn connect(address: &str, dialer: &Dialer) -> Result<Client, String> {
    let settings = |endpoint: Endpoint| {
        endpoint
            .connect_timeout(CONNECT_TIMEOUT)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .http2_keep_alive_interval(KEEPALIVE)
            .keep_alive_timeout(2 * KEEPALIVE)
    };
    let channel = dialer.connect(address, settings).await?;
    Ok(PeerClient::with_interceptor(channel, SpeaksVersion)
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

    #[test]
    fn calls_need_the_version() {
        let mut request = Request::new(());
        assert!(check_version(request.metadata()).is_err());
        request = SpeaksVersion.call(request).unwrap();
        check_version(request.metadata()).unwrap();
        request.metadata_mut().insert(VERSION, MetadataValue::from(2));
        let refused = check_version(request.metadata()).unwrap_err();
        assert_eq!(refused.code(), tonic::Code::FailedPrecondition);
    }
}
