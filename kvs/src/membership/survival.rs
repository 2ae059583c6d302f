//! What may be said of the losses that a cluster survives, by its map and by what its nodes say.

use proto::wire;

use super::{is_fully_replicated, is_serving, losses_survived};

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

/// How many nodes, whichever, may be lost at once with all they have, by now.
#[must_use]
pub fn losses_survived_by(map: &wire::ClusterMap, said: &[Said]) -> usize {
    if has_all_copies(map, said) { losses_survived(map) } else { 0 }
}
