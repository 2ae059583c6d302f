//! The facts of a scrape, from the answers of nodes.

use std::collections::BTreeMap;

use client::ClientError;
use proto::NodeId;
use proto::wire::{ClusterMap, JobState, NodeState};
use web::metrics::Facts;

use crate::views::jobs::state_word;

/// Every word is there, so that no series appears later than its first event.
const STATES: [&str; 6] = ["staged", "running", "finished", "failed", "cancelled", "lost"];

/// The facts; without `jobs` if the list of jobs is not complete.
pub(super) fn facts(
    map: &ClusterMap,
    states: Vec<(NodeId, Result<NodeState, ClientError>)>,
    jobs: Option<&[JobState]>,
) -> Facts {
    let numbers = |jobs: &[JobState]| {
        let mut of_state: BTreeMap<&str, u64> = BTreeMap::new();
        jobs.iter().for_each(|job| *of_state.entry(state_word(job)).or_default() += 1);
        STATES.map(|word| (word, of_state.get(word).copied().unwrap_or(0))).to_vec()
    };
    Facts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        nodes: states.into_iter().map(|(node, state)| (node.0, state.ok())).collect(),
        map: map.clone(),
        jobs: jobs.map(numbers).unwrap_or_default(),
    }
}
