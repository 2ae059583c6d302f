//! A client as raw as it gets: the stubs and the secret.

use std::path::Path;

use daemon::rpc::peer_client::PeerClient;
use daemon::{NodeHandle, NodeOptions};
use proto::NodeId;
use tonic::Request;
use tonic::transport::Channel;

/// A small node of `expect` that shares the process with the others.
pub(crate) fn options(dir: &Path, node: u32, expect: u32) -> NodeOptions {
    NodeOptions { slots: 2, partitions: Some(16), ..NodeOptions::new(dir, NodeId(node), expect) }
}

pub(crate) fn secret(dir: &Path) -> String {
    std::fs::read_to_string(dir.join("secret")).expect("a node was started there").trim().to_owned()
}

pub(crate) async fn connect(node: &NodeHandle) -> PeerClient<Channel> {
    PeerClient::connect(format!("http://{}", node.address())).await.expect("it listens")
}

/// A call with what every call must carry.
pub(crate) fn call<T>(secret: &str, body: T) -> Request<T> {
    let mut request = Request::new(body);
    request.metadata_mut().insert("starling-secret", secret.parse().expect("hexadecimal"));
    request.metadata_mut().insert("starling-version", "1".parse().expect("ascii"));
    request
}
