//! Nodes for tests: who is there, and who is home of what.

use proto::{Incarnation, NodeId, PartitionId, wire};

use crate::{Homes, Options, Scheduler, Tuning};

/// One with a slot, in its first life.
pub(crate) fn member(node: u32) -> wire::Member {
    wire::Member { node, slots: 1, incarnation: 1, ..Default::default() }
}

/// As node `me` sees it: the home of each partition. Jobs have theirs in partition 0.
pub(crate) fn homes(me: u32, members: Vec<wire::Member>, homes_of: &[u32]) -> Homes {
    homes_since(1, me, members, homes_of)
}

/// Each became home with this epoch.
pub(crate) fn homes_since(
    epoch: u64,
    me: u32,
    members: Vec<wire::Member>,
    homes_of: &[u32],
) -> Homes {
    let entry = |&node: &u32| wire::PartitionEntry {
        epoch,
        replicas: vec![node],
        active: true,
        ..Default::default()
    };
    let partitions = homes_of.iter().map(entry).collect();
    let map = wire::ClusterMap { copies: 2, members, partitions, ..Default::default() };
    Homes::new(NodeId(me), &map.into(), |_, _| PartitionId(0))
}

pub(crate) fn scheduler(me: u32, slots: u32, tuning: Tuning, homes: Homes) -> Scheduler {
    let (me, incarnation) = (NodeId(me), Incarnation(1));
    Scheduler::new(Options { me, incarnation, slots, tuning, seed: 1, mutant: None }, homes)
}
