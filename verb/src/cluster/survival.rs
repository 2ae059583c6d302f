//! How many nodes may fail permanently at once, and whether all replicas are there.

use std::time::Duration;

use client::{Client, ClientError};
use kvs::membership::{Said, has_all_copies, losses_survived_by};
use proto::NodeId;
use proto::wire::{self, NodeState};

/// The time after which a silent node counts as down.
pub const PATIENCE: Duration = Duration::from_secs(2);

/// The answers of the nodes of a cluster.
pub type States = [(NodeId, Result<NodeState, ClientError>)];

/// The statements of the nodes about themselves, without nodes that do not answer.
fn said(states: &States) -> Vec<Said> {
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

/// The failures that a cluster survives now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Survival {
    /// Every partition is served and has all its replicas, so do results and uploads, and enough
    /// nodes vote. With one replica: every node answers.
    pub is_fully_replicated: bool,
    /// The number of nodes, any of them, that may fail permanently at once.
    pub losses: usize,
}

/// The survival of a cluster by its map and the answers of its nodes.
pub fn survival(map: &wire::ClusterMap, states: &States) -> Survival {
    if map.copies <= 1 {
        let is_fully_replicated = states.iter().all(|(_, state)| state.is_ok());
        return Survival { is_fully_replicated, losses: 0 };
    }
    let said = said(states);
    Survival {
        is_fully_replicated: has_all_copies(map, &said),
        losses: losses_survived_by(map, &said),
    }
}

async fn look(client: &Client) -> Survival {
    let map = client.raw().newest_map(PATIENCE).await;
    let states = client.raw().node_states(PATIENCE).await;
    survival(&map, &states)
}

/// See [`Survival::is_fully_replicated`].
pub async fn is_fully_replicated(client: &Client) -> bool {
    look(client).await.is_fully_replicated
}

/// See [`Survival::losses`].
pub async fn losses_survived(client: &Client) -> usize {
    look(client).await.losses
}
