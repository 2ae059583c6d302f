//! The number of losses that a cluster survives, from its map and from the reports of its nodes.

use std::collections::BTreeSet;

use proto::wire;

use super::{is_fit, is_fully_replicated, is_serving, losses_survived, wanted_copies};

/// One node's report about itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Said {
    pub node: u32,
    pub incarnation: u32,
    /// The epoch of the map that the node has. The rest of the report refers to that map.
    pub map_epoch: u64,
    /// The number of results and uploads on this node that have fewer replicas than they should.
    pub lacking: u64,
}

/// True if all partitions, results and uploads have all their replicas, and no learner is being
/// filled. `said` contains the reports of the nodes that answer. The map may not yet show that a
/// node has just failed. A node with an older map has not counted its results by the newest one.
#[must_use]
pub fn has_all_copies(map: &wire::ClusterMap, said: &[Said]) -> bool {
    let is_there = |member: &wire::Member| {
        said.iter().any(|it| it.node == member.node && it.incarnation == member.incarnation)
    };
    let mut serving = map.members.iter().filter(|member| is_serving(map, member.node));
    // A running node that is not in the map yet will change the wanted voters when it is.
    let is_known = |it: &Said| is_serving(map, it.node);
    let lacks_nothing = |it: &Said| it.lacking == 0 && it.map_epoch >= map.epoch;
    is_fully_replicated(map)
        && said.iter().all(|it| is_known(it) && lacks_nothing(it))
        && map.partitions.iter().all(|entry| entry.learners.is_empty())
        && serving.all(is_there)
}

/// How many nodes, in any combination, can be lost at once with their disks. Results may
/// temporarily have fewer replicas than partitions, because leaving and slow nodes receive no new
/// ones.
#[must_use]
pub fn losses_survived_by(map: &wire::ClusterMap, said: &[Said]) -> usize {
    let fit = map.members.iter().filter(|member| is_fit(map, member.node)).count();
    let of_results = fit.min(wanted_copies(map) as usize).saturating_sub(1);
    if has_all_copies(map, said) { losses_survived(map).min(of_results) } else { 0 }
}

/// The partitions that wait for nodes which are down.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Awaited {
    /// The number of partitions of which no serving node has all acknowledged writes.
    pub partitions: usize,
    /// The nodes that have them. For each partition one of its nodes is enough.
    pub nodes: BTreeSet<u32>,
}

/// Computes this from the map, in which a missing node is down.
#[must_use]
pub fn awaited(map: &wire::ClusterMap) -> Awaited {
    let mut awaited = Awaited::default();
    for entry in map.partitions.iter().filter(|entry| !entry.active && !entry.lost) {
        let holders = || entry.replicas.iter().chain(&entry.former).copied();
        if !holders().any(|node| is_serving(map, node)) {
            awaited.partitions += 1;
            awaited.nodes.extend(holders());
        }
    }
    awaited
}
