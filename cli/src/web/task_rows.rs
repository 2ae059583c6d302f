//! The answers about one task, and about the store.

use kvs::membership::is_serving;
use proto::wire::{ClusterMap, TaskState};
use serde::Serialize;

use crate::cluster::node::NodeList;
use crate::cluster::task::Explained;

/// A task, with its explanation.
#[derive(Serialize)]
pub(super) struct TaskPage {
    schema: u32,
    #[serde(flatten)]
    explained: Explained,
    stdout_bytes: u64,
    stderr_bytes: u64,
    /// Actual sizes; absent if there are many outputs.
    output_sizes: Vec<u64>,
    /// Nodes without an answer: events of the task may be missing.
    missing_nodes: Vec<u32>,
}

impl TaskPage {
    pub(super) fn new(explained: Explained, state: &TaskState, missing_nodes: Vec<u32>) -> Self {
        Self {
            schema: 1,
            explained,
            stdout_bytes: state.stdout_bytes,
            stderr_bytes: state.stderr_bytes,
            output_sizes: state.output_sizes.clone(),
            missing_nodes,
        }
    }
}

/// The end of a captured output.
#[derive(Default, Serialize)]
pub(super) struct OutputPage {
    pub(super) text: String,
    /// The bytes that were found; the text has the last of them.
    pub(super) bytes: u64,
    /// The bytes that the task wrote, by its home; 0 while it runs.
    pub(super) written: u64,
    /// The node that has it.
    pub(super) node: Option<u32>,
    pub(super) damaged: bool,
    /// Some node that may have it does not answer.
    pub(super) is_away: bool,
}

/// The partitions.
#[derive(Serialize)]
pub(super) struct StoreRows {
    schema: u32,
    map_epoch: u64,
    /// Replicas of each partition in force, and wanted.
    copies: u32,
    wanted: u32,
    voters: Vec<u32>,
    fully_replicated: bool,
    losses_survived: usize,
    waits_for: Vec<u32>,
    /// The primary of each partition; -1: none.
    homes: Vec<i64>,
    /// A letter for each partition: `f`ull, `l`ess replicas than wanted, `m`oving, `w`aiting for
    /// its primary, or lo`s`t.
    states: String,
}

impl StoreRows {
    pub(super) fn of(map: &ClusterMap, list: &NodeList) -> Self {
        let wanted = if map.wanted == 0 { map.copies } else { map.wanted };
        let state = |entry: &proto::wire::PartitionEntry| {
            let is_there = |node: &&u32| map.copies == 1 || is_serving(map, **node);
            let replicas = entry.replicas.iter().filter(is_there).count();
            match () {
                () if entry.lost => 's',
                () if !entry.active => 'w',
                () if !entry.learners.is_empty() => 'm',
                () if replicas < map.copies as usize => 'l',
                () => 'f',
            }
        };
        Self {
            schema: 1,
            map_epoch: map.epoch,
            copies: map.copies,
            wanted,
            voters: map.voters.clone(),
            fully_replicated: list.fully_replicated,
            losses_survived: list.losses_survived,
            waits_for: list.waits_for.clone(),
            homes: map
                .partitions
                .iter()
                .map(|entry| entry.replicas.first().map_or(-1, |&node| i64::from(node)))
                .collect(),
            states: map.partitions.iter().map(state).collect(),
        }
    }
}
