//! Nodes for tests: the members, and the homes of partitions.

use proto::{Incarnation, NodeId, PartitionId, wire};

use crate::{Homes, Options, Scheduler, Tuning};

/// A member with one slot, in its first incarnation.
pub(crate) fn member(node: u32) -> wire::Member {
    wire::Member { node, slots: 1, incarnation: 1, ..Default::default() }
}

/// The map as node `me` sees it, with the home of each partition. Jobs are homed in partition 0.
pub(crate) fn homes(me: u32, members: Vec<wire::Member>, homes_of: &[u32]) -> Homes {
    homes_since(1, me, members, homes_of)
}

/// As [`homes`], with all homes since this epoch.
pub(crate) fn homes_since(
    epoch: u64,
    me: u32,
    members: Vec<wire::Member>,
    homes_of: &[u32],
) -> Homes {
    let configurations: Vec<Vec<u32>> = homes_of.iter().map(|&node| vec![node]).collect();
    homes_of_configurations(epoch, me, members, configurations)
}

/// A map of this number of nodes, with the replicas of each partition, its home first.
pub(crate) fn homes_with_copies(me: u32, nodes: u32, configurations: &[&[u32]]) -> Homes {
    let members = (0..nodes).map(member).collect();
    let configurations = configurations.iter().map(|nodes| nodes.to_vec()).collect();
    homes_of_configurations(1, me, members, configurations)
}

fn homes_of_configurations(
    epoch: u64,
    me: u32,
    members: Vec<wire::Member>,
    configurations: Vec<Vec<u32>>,
) -> Homes {
    let entry =
        |replicas| wire::PartitionEntry { epoch, replicas, active: true, ..Default::default() };
    let partitions = configurations.into_iter().map(entry).collect();
    let map = wire::ClusterMap { copies: 2, members, partitions, ..Default::default() };
    Homes::new(NodeId(me), &map.into(), |_, _| PartitionId(0))
}

pub(crate) fn scheduler(me: u32, slots: u32, tuning: Tuning, homes: Homes) -> Scheduler {
    let (me, incarnation) = (NodeId(me), Incarnation(1));
    let former = (Incarnation(0), wire::LifeEnd::LifeDied);
    Scheduler::new(
        Options {
            me,
            incarnation,
            slots,
            offer: None,
            end: None,
            tuning,
            seed: 1,
            former,
            mutant: None,
        },
        homes,
    )
}
