//! The nodes: their state, changes of their tuning, and their membership.

use std::sync::Arc;
use std::time::Duration;

use proto::NodeId;
use proto::wire::{self, request, response};

use crate::{Client, ClientError};

/// The timeout of a proposed change at one node.
const PROPOSE_TIMEOUT: Duration = Duration::from_secs(2);

fn state_of(
    node: NodeId,
    answer: Result<Option<response::Body>, ClientError>,
) -> Result<wire::NodeState, ClientError> {
    match answer? {
        Some(response::Body::Node(state)) => Ok(state),
        _ => Err(ClientError::Protocol { node: node.0, what: "no node state" }),
    }
}

impl Client {
    /// One node's own state; the node has `request_timeout` to answer.
    pub(crate) async fn node_record(
        &self,
        node: NodeId,
        request_timeout: Duration,
    ) -> Result<wire::NodeState, ClientError> {
        let body = request::Body::Node(wire::NodeQuery::default());
        state_of(node, self.ask_once(node, body, request_timeout).await)
    }

    /// The state of every node, or the reason for those that do not answer.
    pub(crate) async fn node_records(
        &self,
        request_timeout: Duration,
    ) -> Vec<(NodeId, Result<wire::NodeState, ClientError>)> {
        let answers =
            self.ask_all(request::Body::Node(wire::NodeQuery::default()), request_timeout).await;
        answers.into_iter().map(|(node, answer)| (node, state_of(node, answer))).collect()
    }

    /// As [`Self::node_records`], with the demand of each node.
    pub(crate) async fn demand_records(
        &self,
        request_timeout: Duration,
    ) -> Vec<(NodeId, Result<wire::NodeState, ClientError>)> {
        let body = request::Body::Node(wire::NodeQuery { demand: true });
        let answers = self.ask_all(body, request_timeout).await;
        answers.into_iter().map(|(node, answer)| (node, state_of(node, answer))).collect()
    }

    /// The newest map that the voters return within `request_timeout`.
    pub(crate) async fn newest_map(&self, request_timeout: Duration) -> Arc<wire::ClusterMap> {
        let mut asked = tokio::task::JoinSet::new();
        let map = self.map();
        for node in map.voters.iter().copied().map(NodeId) {
            let client = self.clone();
            let body = request::Body::Map(wire::MapQuery {});
            asked.spawn(async move { client.ask_once(node, body, request_timeout).await });
        }
        // Each majority has a voter with all committed changes.
        let mut missing = map.voters.len() / 2 + 1;
        while missing > 0
            && let Some(answer) = asked.join_next().await
        {
            if let Ok(Ok(Some(response::Body::Map(map)))) = answer {
                self.learn(map);
                missing -= 1;
            }
        }
        self.map()
    }

    /// Proposes a change of the map: a node joins, leaves or is removed. The map shows when that
    /// has happened.
    pub(crate) async fn propose(&self, body: wire::map_command::Body) -> Result<(), ClientError> {
        let command = wire::MapCommand { body: Some(body) };
        let mut last = None;
        for node in self.likely() {
            let body = request::Body::Propose(command.clone());
            match self.ask_once(node, body, PROPOSE_TIMEOUT).await {
                Err(error @ ClientError::ClusterUnreachable(_)) => last = Some(error),
                answer => return answer.map(drop),
            }
        }
        let none = || ClientError::ClusterUnreachable("no node answers".to_owned());
        Err(last.unwrap_or_else(none))
    }

    /// Changes the tuning of one node; absent fields stay as they are.
    pub(crate) async fn tune(
        &self,
        node: NodeId,
        change: &wire::Tuning,
        request_timeout: Duration,
    ) -> Result<(), ClientError> {
        self.ask_once(node, request::Body::Tune(change.clone()), request_timeout).await.map(drop)
    }
}
