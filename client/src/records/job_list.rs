//! The list of a cluster's jobs, and of the homes that did not list theirs.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use kvs::membership::never_came;
use proto::wire::{self, request, response};
use proto::{JobId, NodeId};
use tokio::time::Instant;

use crate::{Client, ClientError};

/// The timeout of one round of requests.
const ROUND_TIMEOUT: Duration = Duration::from_secs(5);
/// The timeout of a request for the map.
const MAP_TIMEOUT: Duration = Duration::from_secs(2);
/// The pause between two rounds.
const ROUND_PAUSE: Duration = Duration::from_millis(200);

/// The jobs of a cluster.
#[derive(Clone, Debug, Default)]
pub struct JobRecordList {
    /// By id.
    pub states: Vec<wire::JobState>,
    /// Homes that have not listed their jobs; these jobs are missing in `states`.
    pub missing: Vec<NodeId>,
    /// Nodes that answered nothing, where jobs are missing.
    pub away: Vec<NodeId>,
}

/// The answers of one round.
struct Round {
    states: Vec<wire::JobState>,
    missing: Vec<NodeId>,
    away: Vec<NodeId>,
}

impl Client {
    /// Every job of the cluster, by id. If a home does not serve its partitions yet or does not
    /// answer, the request is repeated until it does or `request_timeout` is over.
    ///
    /// # Errors
    /// No node answers at all.
    pub(crate) async fn job_records(
        &self,
        request_timeout: Duration,
    ) -> Result<JobRecordList, ClientError> {
        let deadline = Instant::now() + request_timeout;
        let mut states: BTreeMap<JobId, wire::JobState> = BTreeMap::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let round = self.round_of_jobs(ROUND_TIMEOUT.min(left.max(MAP_TIMEOUT))).await;
            let is_over = Instant::now() + ROUND_PAUSE > deadline;
            match round {
                Ok(Round { states: told, missing, away }) => {
                    states.extend(told.into_iter().map(|state| (JobId(state.job), state)));
                    if missing.is_empty() {
                        let states = states.into_values().collect();
                        return Ok(JobRecordList { states, ..JobRecordList::default() });
                    }
                    if is_over {
                        return Ok(JobRecordList {
                            states: states.into_values().collect(),
                            missing,
                            away,
                        });
                    }
                }
                Err(error) if is_over => return Err(error),
                Err(_) => {}
            }
            tokio::time::sleep(ROUND_PAUSE).await;
        }
    }

    /// Asks each node for the jobs that it is home of. Which partitions that covers follows from
    /// the map before and after the answers.
    async fn round_of_jobs(&self, request_timeout: Duration) -> Result<Round, ClientError> {
        let before = self.newest_map(MAP_TIMEOUT).await;
        // A node that has just started may answer before the map has its new incarnation.
        let lives =
            self.ask_all(request::Body::Node(wire::NodeQuery::default()), request_timeout).await;
        let lives: BTreeMap<NodeId, u32> = lives
            .into_iter()
            .filter_map(|(node, answer)| match answer {
                Ok(Some(response::Body::Node(state))) => Some((node, state.member?.incarnation)),
                _ => None,
            })
            .collect();
        let silent = |node: &NodeId| !lives.contains_key(node) && !never_came(&before, *node);
        let away: Vec<NodeId> = self.nodes().into_iter().filter(silent).collect();
        let (mut states, mut told) = (Vec::new(), BTreeSet::new());
        for (node, answer) in
            self.ask_all(request::Body::Jobs(wire::JobsQuery {}), request_timeout).await
        {
            match answer {
                Ok(Some(response::Body::Jobs(jobs))) => {
                    states.extend(jobs.jobs);
                    told.insert(node);
                }
                Ok(_) => {
                    return Err(ClientError::Protocol { node: node.0, what: "no list of jobs" });
                }
                // A node without a majority answers for itself alone.
                Err(_) => {}
            }
        }
        if lives.is_empty() && told.is_empty() {
            let names: Vec<String> = away.iter().map(ToString::to_string).collect();
            let text = format!("no node answers (asked: {})", names.join(", "));
            return Err(ClientError::ClusterUnreachable(text));
        }
        let after = self.newest_map(MAP_TIMEOUT).await;
        told.retain(|node| lives.get(node).copied() == Some(incarnation(&after, *node)));
        let missing = silent_homes(&before, &after, &told);
        Ok(Round { states, missing, away })
    }
}

fn incarnation(map: &wire::ClusterMap, node: NodeId) -> u32 {
    let member = map.members.iter().find(|member| member.node == node.0);
    member.map_or(0, |member| member.incarnation)
}

/// The homes of partitions without a complete list of jobs: the home did not answer or does not
/// serve yet, or the partition moved meanwhile.
fn silent_homes(
    before: &Arc<wire::ClusterMap>,
    after: &Arc<wire::ClusterMap>,
    told: &BTreeSet<NodeId>,
) -> Vec<NodeId> {
    let homes = before.partitions.iter().zip(&after.partitions).filter_map(|(then, now)| {
        let home = NodeId(*now.replicas.first()?);
        let is_told = then.epoch == now.epoch && then.active && now.active && told.contains(&home);
        (!is_told && !now.lost).then_some(home)
    });
    homes.collect::<BTreeSet<_>>().into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(partitions: &[(u64, u32, bool)]) -> Arc<wire::ClusterMap> {
        let partitions = partitions.iter().map(|&(epoch, home, active)| wire::PartitionEntry {
            epoch,
            replicas: vec![home],
            active,
            ..Default::default()
        });
        Arc::new(wire::ClusterMap { partitions: partitions.collect(), ..Default::default() })
    }

    #[test]
    fn homes_that_are_silent_not_active_or_moved_are_missing() {
        let told = BTreeSet::from([NodeId(0), NodeId(1)]);
        let calm = map(&[(1, 0, true), (1, 1, true)]);
        assert_eq!(silent_homes(&calm, &calm, &told), []);
        let silent = map(&[(1, 0, true), (1, 2, true)]);
        assert_eq!(silent_homes(&silent, &silent, &told), [NodeId(2)]);
        let starts = map(&[(1, 0, true), (2, 1, false)]);
        assert_eq!(silent_homes(&calm, &starts, &told), [NodeId(1)]);
        let moved = map(&[(2, 1, true), (1, 1, true)]);
        assert_eq!(silent_homes(&calm, &moved, &told), [NodeId(1)]);
    }
}
