//! Nodes in this process, and a client for them.

use std::path::Path;

use daemon::{NodeHandle, NodeOptions};
use proto::NodeId;
use starling_client::Client;

pub(crate) fn start(dir: &Path, nodes: u32) -> Vec<NodeHandle> {
    let base = NodeOptions { slots: 2, ..NodeOptions::new(dir, NodeId(0), nodes) };
    daemon::start_all(&base).expect("the nodes start")
}

pub(crate) fn stop(nodes: Vec<NodeHandle>) {
    nodes.iter().for_each(NodeHandle::request_stop);
    for node in nodes {
        node.join().expect("the node stops well");
    }
}

/// Nodes, a client for them, and the guard of their directory.
pub(crate) async fn cluster(nodes: u32) -> (tempfile::TempDir, Vec<NodeHandle>, Client) {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let handles = start(dir.path(), nodes);
    let client = Client::connect(dir.path()).await.expect("the node accepts connections");
    (dir, handles, client)
}
