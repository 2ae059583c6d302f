//! A minimal client: the stubs and a key.

use std::path::Path;

use daemon::rpc::peer_client::PeerClient;
use daemon::{NodeHandle, NodeOptions};
use proto::NodeId;
use security::{Dialer, Keyring, Role};
use tonic::Request;
use tonic::transport::Channel;

/// A small node of `expect` that shares the process with the others.
pub(crate) fn options(dir: &Path, node: u32, expect: u32) -> NodeOptions {
    NodeOptions { slots: 2, partitions: Some(16), ..NodeOptions::new(dir, NodeId(node), expect) }
}

/// The dialer of a role.
pub(crate) fn dialer(dir: &Path, role: Role) -> Dialer {
    let bundle = Keyring::of_instance(dir).read(role).expect("a node was started there");
    Dialer::new(&bundle).expect("the keys are good")
}

/// Connects as another node would.
pub(crate) async fn connect(node: &NodeHandle, dir: &Path) -> PeerClient<Channel> {
    PeerClient::new(channel(node, &dialer(dir, Role::Node)).await)
}

pub(crate) async fn channel(node: &NodeHandle, dialer: &Dialer) -> Channel {
    let address = node.address().to_string();
    dialer.connect(&address, |endpoint| endpoint).await.expect("it listens")
}

/// A call with the required metadata.
pub(crate) fn call<T>(body: T) -> Request<T> {
    let mut request = Request::new(body);
    request.metadata_mut().insert("starling-version", "1".parse().expect("ascii"));
    request
}
