//! The nodes that are away, for the error of a request to a home.
//!
//! If a majority of nodes is away, the homes that are there do not serve. The node that was asked
//! is then not the one that is missing.

use std::time::Duration;

use kvs::membership::never_came;
use proto::NodeId;
use proto::wire::{self, request};
use tokio::task::JoinSet;

use crate::error::DISTRUST;
use crate::{Client, ClientError};

/// The time in which a node has to show that it is there.
const LIFE_TIMEOUT: Duration = Duration::from_secs(1);
/// Of larger clusters only the first nodes are asked.
const ASKED_MAX: usize = 256;
/// Nodes that an error names; others are counted.
const NAMED_MAX: usize = 8;
const NO_MAJORITY: &str = ", and without a majority of the voters no home serves";

impl Client {
    /// Names the nodes that are away in an error of a request to a home.
    pub(crate) async fn name_away(&self, error: ClientError) -> ClientError {
        match error {
            ClientError::ClusterUnreachable(text) if !text.contains(DISTRUST) => {
                let text = match self.away_text().await {
                    // The node that was asked may be there: it is not to blame.
                    Some(away) if away.ends_with(NO_MAJORITY) => away,
                    Some(away) => format!("{away}; {text}"),
                    None => text,
                };
                ClientError::ClusterUnreachable(text)
            }
            ClientError::Busy { node, text } => {
                let away = self.away_text().await;
                let text = away.map_or_else(|| text.clone(), |away| format!("{text}; {away}"));
                ClientError::Busy { node, text }
            }
            error => error,
        }
    }

    /// `None`: all nodes answer.
    async fn away_text(&self) -> Option<String> {
        let map = self.map();
        let mut asked = JoinSet::new();
        for node in self.nodes().into_iter().filter(|node| !never_came(&map, *node)).take(ASKED_MAX)
        {
            let client = self.clone();
            asked.spawn(async move {
                let body = request::Body::Map(wire::MapQuery {});
                let answer = client.ask_once(node, body, LIFE_TIMEOUT).await;
                // Any answer is a sign of life.
                (node, matches!(answer, Err(ClientError::ClusterUnreachable(_))))
            });
        }
        let asked = asked.join_all().await;
        let mut away: Vec<NodeId> =
            asked.into_iter().filter(|(_, is_away)| *is_away).map(|(node, _)| node).collect();
        away.sort_unstable();
        told(&away, &map.voters)
    }
}

fn told(away: &[NodeId], voters: &[u32]) -> Option<String> {
    let (last, first) = away.split_last()?;
    let names = |nodes: &[NodeId]| nodes.iter().map(ToString::to_string).collect::<Vec<_>>();
    let named = match (first.len(), away.len()) {
        (0, _) => format!("{last} does not answer"),
        (_, all) if all > NAMED_MAX => {
            let some = names(&away[..NAMED_MAX]).join(", ");
            format!("{some} and {} more do not answer", all - NAMED_MAX)
        }
        _ => format!("{} and {last} do not answer", names(first).join(", ")),
    };
    let away_voters = voters.iter().filter(|&&voter| away.contains(&NodeId(voter))).count();
    let lacks_majority = away_voters > 0 && 2 * away_voters >= voters.len();
    Some(match lacks_majority {
        true => format!("{named}{NO_MAJORITY}"),
        false => named,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nodes_that_are_away_are_named() {
        let told = |away: &[u32], voters: &[u32]| {
            let away: Vec<NodeId> = away.iter().map(|&node| NodeId(node)).collect();
            told(&away, voters)
        };
        assert_eq!(told(&[], &[0, 1, 2]), None);
        assert_eq!(told(&[1], &[0, 1, 2]).unwrap(), "n1 does not answer");
        assert_eq!(told(&[1], &[0]).unwrap(), "n1 does not answer");
        assert!(told(&[0], &[0]).unwrap().ends_with(NO_MAJORITY));
        assert_eq!(
            told(&[0, 2], &[0, 1, 2]).unwrap(),
            "n0 and n2 do not answer, and without a majority of the voters no home serves"
        );
        assert_eq!(told(&[3, 4, 5], &[0, 1, 2]).unwrap(), "n3, n4 and n5 do not answer");
        let many: Vec<u32> = (0..10).collect();
        assert!(told(&many, &[]).unwrap().ends_with("n7 and 2 more do not answer"));
    }
}
