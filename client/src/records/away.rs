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

/// The nodes that do not answer.
#[derive(PartialEq, Eq, Debug)]
struct Away {
    /// A clause that names them.
    text: String,
    lacks_majority: bool,
}

impl Client {
    /// Names the nodes that are away in an error of a request to a home.
    pub(crate) async fn name_away(&self, error: ClientError) -> ClientError {
        match error {
            ClientError::ClusterUnreachable(text) if !text.contains(DISTRUST) => {
                let text = match self.away().await {
                    // The node that was asked may be there: it is not to blame.
                    Some(Away { text: away, lacks_majority: true }) => away,
                    Some(Away { text: away, .. }) => format!("{away}; {text}"),
                    None => text,
                };
                ClientError::ClusterUnreachable(text)
            }
            ClientError::Busy { node, text } => {
                let away = self.away().await;
                let text = away.map_or_else(|| text.clone(), |it| format!("{text}; {}", it.text));
                ClientError::Busy { node, text }
            }
            error => error,
        }
    }

    /// `None`: all nodes answer.
    async fn away(&self) -> Option<Away> {
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

fn told(away: &[NodeId], voters: &[u32]) -> Option<Away> {
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
    let text = match lacks_majority {
        true => format!("{named}, and without a majority of the voters no home serves"),
        false => named,
    };
    Some(Away { text, lacks_majority })
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
        let text = |away: &[u32], voters: &[u32]| told(away, voters).unwrap().text;
        assert_eq!(told(&[], &[0, 1, 2]), None);
        assert_eq!(text(&[1], &[0, 1, 2]), "n1 does not answer");
        assert_eq!(text(&[1], &[0]), "n1 does not answer");
        for (away, voters, is_lost) in
            [(&[1][..], &[0, 1, 2][..], false), (&[0, 2], &[0, 1, 2], true), (&[0], &[0], true)]
        {
            assert_eq!(told(away, voters).unwrap().lacks_majority, is_lost);
        }
        assert_eq!(
            text(&[0, 2], &[0, 1, 2]),
            "n0 and n2 do not answer, and without a majority of the voters no home serves"
        );
        assert_eq!(text(&[3, 4, 5], &[0, 1, 2]), "n3, n4 and n5 do not answer");
        let many: Vec<u32> = (0..10).collect();
        assert!(text(&many, &[]).ends_with("n7 and 2 more do not answer"));
    }
}
