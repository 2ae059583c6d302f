//! How many nodes may fail permanently at once, and whether all replicas are there.

use std::time::Duration;

use client::{Client, ClientError};
use kvs::membership::{Said, has_all_copies, losses_survived_by};
use proto::NodeId;
use proto::wire::NodeState;

/// The time after which a silent node counts as down.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// The answers of the nodes of a cluster.
pub type States = [(NodeId, Result<NodeState, ClientError>)];

/// The statements of the nodes about themselves, without nodes that do not answer.
pub fn said(states: &States) -> Vec<Said> {
    let said = |(node, state): &(NodeId, Result<NodeState, ClientError>)| {
        let state = state.as_ref().ok()?;
        let member = state.member.as_ref().filter(|member| member.pid > 0)?;
        Some(Said {
            node: node.0,
            incarnation: member.incarnation,
            map_epoch: state.map_epoch,
            lacking: state.lacking_copies,
        })
    };
    states.iter().filter_map(said).collect()
}

/// True if every partition is served and has all its replicas, so do results and uploads, and
/// enough nodes vote. With one replica: every node answers.
pub async fn is_fully_replicated(client: &Client) -> bool {
    let map = client.raw().newest_map(PATIENCE).await;
    let states = client.raw().node_states(PATIENCE).await;
    match map.copies > 1 {
        true => has_all_copies(&map, &said(&states)),
        false => states.iter().all(|(_, state)| state.is_ok()),
    }
}

/// The number of nodes, any of them, that may now fail permanently at once.
pub async fn losses_survived(client: &Client) -> usize {
    let map = client.raw().newest_map(PATIENCE).await;
    let states = client.raw().node_states(PATIENCE).await;
    match map.copies > 1 {
        true => losses_survived_by(&map, &said(&states)),
        false => 0,
    }
}
