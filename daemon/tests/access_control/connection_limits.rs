//! How many callers a node serves: clients do not keep nodes out, and no more come in than may.

use std::path::Path;
use std::time::Duration;

use crate::support::{dialer, options};
use daemon::rpc::kv_client::KvClient;
use daemon::{ConnectionLimits, NodeHandle, NodeOptions, start};
use proto::wire;
use security::Role;
use tonic::transport::Channel;

/// Who is not served by then waits in vain.
const PATIENCE: Duration = Duration::from_millis(700);

fn node(dir: &Path, connection_limits: ConnectionLimits) -> NodeHandle {
    let node = start(NodeOptions { connection_limits, ..options(dir, 0, 1) }).unwrap();
    tokio::task::block_in_place(|| node.wait_ready()).unwrap();
    node
}

/// Connects and calls. `None`: it was not served.
async fn served(node: &NodeHandle, dir: &Path, role: Role) -> Option<KvClient<Channel>> {
    let (address, dialer) = (node.address().to_string(), dialer(dir, role));
    let call = async {
        let channel = dialer.connect(&address, |endpoint| endpoint).await.ok()?;
        let mut client = KvClient::new(channel);
        client.lookup(wire::KvKey { key: "k".into(), number: None }).await.ok()?;
        Some(client)
    };
    tokio::time::timeout(PATIENCE, call).await.ok()?
}

/// Until there is room again.
async fn served_in_the_end(node: &NodeHandle, dir: &Path, role: Role) -> KvClient<Channel> {
    loop {
        if let Some(client) = served(node, dir, role).await {
            return client;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn clients_leave_connections_for_nodes() {
    let dir = tempfile::tempdir().unwrap();
    let node =
        node(dir.path(), ConnectionLimits { client_connections: 2, ..ConnectionLimits::default() });
    let first = served_in_the_end(&node, dir.path(), Role::Client).await;
    let second = served_in_the_end(&node, dir.path(), Role::Observer).await;
    for role in [Role::Client, Role::Observer] {
        assert!(served(&node, dir.path(), role).await.is_none(), "a third guest, {role}");
    }
    let log = std::fs::read_to_string(dir.path().join("nodes/0/state/log")).unwrap();
    assert!(log.contains("connection limit reached for a "), "{log}");
    let others = [
        served_in_the_end(&node, dir.path(), Role::Node).await,
        served_in_the_end(&node, dir.path(), Role::Node).await,
        served_in_the_end(&node, dir.path(), Role::Node).await,
    ];
    drop(first);
    served_in_the_end(&node, dir.path(), Role::Client).await;
    drop((second, others));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn connections_are_served_up_to_the_limit() {
    let dir = tempfile::tempdir().unwrap();
    // The fourth is the node's own: its service of keys asks as any client does.
    let node = node(dir.path(), ConnectionLimits { connections: 4, ..ConnectionLimits::default() });
    let mut all = Vec::new();
    for _ in 0..3 {
        all.push(served_in_the_end(&node, dir.path(), Role::Node).await);
    }
    assert!(served(&node, dir.path(), Role::Node).await.is_none(), "a fourth");
    // It waits in its turn, which comes when another goes.
    drop(all.pop());
    all.push(served_in_the_end(&node, dir.path(), Role::Node).await);
    assert!(!node.is_finished());
}
