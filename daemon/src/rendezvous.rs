/*!
How the nodes of a new cluster find each other: each writes where it listens into the instance
directory and looks for the files of the others until all are there or the deadline passes.

A file proves nothing (an earlier launch may have left it behind), so each one found is greeted:
only a node that answers with this cluster's id, its own number and the incarnation in the file
counts.
*/

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::{NodeId, wire};
use security::Dialer;
use tokio_stream::StreamExt;

use crate::error::StartError;
use crate::links;
use crate::peers;
use crate::service::Shared;

const LOOK_AFTER: Duration = Duration::from_millis(2);
const LOOK_AFTER_MAX: Duration = Duration::from_millis(200);
/// Missing nodes that an error names; the others are counted.
const NAMED_MAX: usize = 8;
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Returns when all nodes of the cluster have answered.
pub(crate) async fn wait_for_all(
    shared: &Arc<Shared>,
    launch: &str,
    deadline: Duration,
) -> Result<(), StartError> {
    let start = Instant::now();
    let mut wait = LOOK_AFTER;
    let mut missing: BTreeMap<NodeId, String> =
        others(shared).map(|node| (node, "has not said where it listens".to_owned())).collect();
    loop {
        let nodes: Vec<NodeId> = missing.keys().copied().collect();
        let count = nodes.len();
        for node in nodes {
            match look(shared, node, launch).await {
                Ok(()) => _ = missing.remove(&node),
                Err(seen) => _ = missing.insert(node, seen),
            }
        }
        if missing.is_empty() {
            return Ok(());
        }
        if start.elapsed() >= deadline {
            return Err(too_few(shared, &missing, deadline));
        }
        // Where some have come, more are coming.
        wait = if missing.len() < count { LOOK_AFTER } else { (2 * wait).min(LOOK_AFTER_MAX) };
        tokio::time::sleep(wait.min(deadline.saturating_sub(start.elapsed()))).await;
    }
}

/// Tells the lower nodes of a running cluster that this one is back: they dial it.
pub(crate) async fn knock(shared: Arc<Shared>) {
    for node in others(&shared).filter(|&it| it < shared.identity.node) {
        if let Some(file) = shared.addresses.read(node) {
            // A node that is down needs no knock: it dials when it comes up.
            let _ = links::probe(&shared, &file.address).await;
        }
    }
}

fn others(shared: &Shared) -> impl Iterator<Item = NodeId> {
    let (nodes, own) = (shared.identity.nodes, shared.identity.node);
    (0..nodes).map(NodeId).filter(move |&node| node != own)
}

async fn look(shared: &Shared, node: NodeId, launch: &str) -> Result<(), String> {
    let Some(file) = shared.addresses.read(node) else {
        return Err("has not said where it listens".to_owned());
    };
    if file.launch != launch {
        return Err(format!("left the address {} in an earlier launch", file.address));
    }
    let greeting = links::probe(shared, &file.address)
        .await
        .map_err(|reason| format!("does not answer at {}: {reason}", file.address))?;
    if (greeting.node, greeting.incarnation) != (node.0, file.incarnation) {
        return Err(format!("is not the one that answers at {}", file.address));
    }
    Ok(())
}

fn too_few(shared: &Shared, missing: &BTreeMap<NodeId, String>, deadline: Duration) -> StartError {
    let mut named: Vec<String> = missing
        .iter()
        .take(NAMED_MAX)
        .map(|(node, seen)| format!("node {} {seen}", node.0))
        .collect();
    if missing.len() > NAMED_MAX {
        named.push(format!("and {} more", missing.len() - NAMED_MAX));
    }
    let expected = shared.identity.nodes;
    StartError::Missing {
        present: expected - missing.len() as u32,
        expected,
        waited_s: deadline.as_secs(),
        missing: named.join("; "),
    }
}

/// Asks a node that runs for the cluster's map, on a thread and a runtime of its own.
pub(crate) fn ask_map(address: &str, dialer: &Dialer) -> Result<wire::ClusterMap, StartError> {
    let failed = |reason: String| StartError::Join { address: address.to_owned(), reason };
    let ask = || -> Result<wire::ClusterMap, String> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|e| e.to_string())?;
        runtime.block_on(async {
            tokio::time::timeout(JOIN_TIMEOUT, map_of(address, dialer))
                .await
                .map_err(|_| "no answer in time".to_owned())?
        })
    };
    std::thread::scope(|scope| scope.spawn(ask).join())
        .unwrap_or_else(|_| Err("asking it failed".to_owned()))
        .map_err(failed)
}

async fn map_of(address: &str, dialer: &Dialer) -> Result<wire::ClusterMap, String> {
    let mut client = peers::connect(address, dialer).await?;
    let body = Some(wire::request::Body::Map(wire::MapQuery {}));
    let requests = wire::Requests { requests: vec![wire::Request { id: 1, body }] };
    // The stream stays open until the answer is here: its end would mean that nobody waits.
    let outgoing = tokio_stream::once(requests).chain(tokio_stream::pending());
    let said = |status: tonic::Status| security::dial::explain(&status);
    let mut incoming = client.session(outgoing).await.map_err(said)?.into_inner();
    while let Some(responses) = incoming.message().await.map_err(said)? {
        for response in responses.responses {
            if let Some(wire::response::Body::Map(map)) = response.body {
                return Ok(map);
            }
        }
    }
    Err("it closed the session".to_owned())
}

/// What is heard from a map of where its members listen.
pub(crate) fn addresses(map: &wire::ClusterMap) -> impl Iterator<Item = &wire::Member> {
    map.members.iter().filter(|member| !member.address.is_empty())
}
