//! What may be said of the losses that a cluster survives, by its map and by what its nodes say.

use std::collections::BTreeSet;

use proto::wire;

use super::{is_fit, is_fully_replicated, is_serving, losses_survived, wanted_copies};

/// What one node says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Said {
    pub node: u32,
    pub incarnation: u32,
    /// Of the map that it knows: what it says next holds by that one.
    pub map_epoch: u64,
    /// Results and uploads that lie there and on fewer other nodes than they should.
    pub lacking: u64,
}

/// Every partition is served and has all its copies, none of which is still being filled; and so
/// do results and uploads. `said` has the nodes that answer: the map may not know yet of one that
/// has just died, and a node that does not know this map yet has not counted by it.
#[must_use]
pub fn has_all_copies(map: &wire::ClusterMap, said: &[Said]) -> bool {
    let is_there = |member: &wire::Member| {
        said.iter().any(|it| it.node == member.node && it.incarnation == member.incarnation)
    };
    let mut serving = map.members.iter().filter(|member| is_serving(map, member.node));
    // One that is there and not yet in the map changes which nodes vote as soon as it is.
    let is_known = |it: &Said| is_serving(map, it.node);
    let lacks_nothing = |it: &Said| it.lacking == 0 && it.map_epoch >= map.epoch;
    is_fully_replicated(map)
        && said.iter().all(|it| is_known(it) && lacks_nothing(it))
        && map.partitions.iter().all(|entry| entry.learners.is_empty())
        && serving.all(is_there)
}

/// How many nodes, whichever, may be lost at once with all they have, by now. Partitions may have
/// more copies than results for a while: on nodes that leave, or are slow, nothing new is put.
#[must_use]
pub fn losses_survived_by(map: &wire::ClusterMap, said: &[Said]) -> usize {
    let fit = map.members.iter().filter(|member| is_fit(map, member.node)).count();
    let of_results = fit.min(wanted_copies(map) as usize).saturating_sub(1);
    if has_all_copies(map, said) { losses_survived(map).min(of_results) } else { 0 }
}

/// What waits for nodes that are not there.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Awaited {
    /// Partitions of which no node that is there has all that was acknowledged.
    pub partitions: usize,
    /// The nodes that have it. Of each partition one is enough.
    pub nodes: BTreeSet<u32>,
}

/// By the map, in which a node that does not come is down.
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
