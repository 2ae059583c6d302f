//! Commands about the replicas of a partition: create, activate, hand over and drop. Each command
//! names the epoch of the partition in which it was decided.

use proto::wire;

use super::is_serving;
use super::mutant::{Mutant, is};

fn entry(map: &wire::ClusterMap, partition: u32, epoch: u64) -> Option<&wire::PartitionEntry> {
    let counts = |entry: &&wire::PartitionEntry| entry.epoch == epoch || is(Mutant::StaleEpoch);
    map.partitions.get(partition as usize).filter(counts)
}

fn entry_mut(map: &mut wire::ClusterMap, partition: u32) -> &mut wire::PartitionEntry {
    &mut map.partitions[partition as usize]
}

fn may_activate(
    map: &wire::ClusterMap,
    activated: &wire::Activated,
    of: &wire::PartitionEpoch,
) -> bool {
    let Some(entry) = entry(map, of.partition, of.epoch) else { return false };
    let is_open = !entry.active || !entry.former.is_empty();
    entry.replicas[0] == activated.node && is_open && !entry.lost
}

/// Valid if it activates or registers at least one of its partitions.
pub(super) fn activated_holds(map: &wire::ClusterMap, activated: &wire::Activated) -> bool {
    let member = super::member(map, proto::NodeId(activated.node));
    let is_current = member.is_some_and(|member| {
        is_serving(map, activated.node) && member.incarnation == activated.incarnation
    });
    is_current && activated.partitions.iter().any(|of| may_activate(map, activated, of))
}

/// Partitions of the command that may not activate stay unchanged.
pub(super) fn activated(map: &mut wire::ClusterMap, activated: &wire::Activated) {
    for of in &activated.partitions {
        if may_activate(map, activated, of) {
            let entry = entry_mut(map, of.partition);
            entry.active = true;
            entry.former.clear();
        }
    }
}

/// Valid only for the incarnation of the learner that caught up.
pub(super) fn caught_up_holds(map: &wire::ClusterMap, caught_up: &wire::CaughtUp) -> bool {
    let Some(entry) = entry(map, caught_up.partition, caught_up.epoch) else { return false };
    let member = super::member(map, proto::NodeId(caught_up.learner));
    entry.active
        && entry.learners.contains(&caught_up.learner)
        && is_serving(map, caught_up.learner)
        && member.is_some_and(|member| member.incarnation == caught_up.incarnation)
}

pub(super) fn caught_up(map: &mut wire::ClusterMap, caught_up: &wire::CaughtUp) {
    let entry = entry_mut(map, caught_up.partition);
    entry.learners.retain(|&node| node != caught_up.learner);
    entry.former.retain(|&node| node != caught_up.learner);
    entry.replicas.push(caught_up.learner);
    entry.epoch += 1;
}

pub(super) fn add_learner_holds(map: &wire::ClusterMap, add: &wire::AddLearner) -> bool {
    entry(map, add.partition, add.epoch).is_some_and(|entry| {
        is_serving(map, add.node)
            && !entry.lost
            && !entry.replicas.contains(&add.node)
            && !entry.learners.contains(&add.node)
    })
}

/// Neither the configuration nor the epoch changes.
pub(super) fn add_learner(map: &mut wire::ClusterMap, add: &wire::AddLearner) {
    let entry = entry_mut(map, add.partition);
    entry.learners.push(add.node);
    entry.goes = add.replaces;
}

pub(super) fn hand_over_holds(map: &wire::ClusterMap, handover: &wire::Handover) -> bool {
    entry(map, handover.partition, handover.epoch).is_some_and(|entry| {
        entry.active && entry.replicas[1..].contains(&handover.to) && is_serving(map, handover.to)
    })
}

/// The configuration keeps its members. The new primary is to activate.
pub(super) fn hand_over(map: &mut wire::ClusterMap, handover: &wire::Handover) {
    let entry = entry_mut(map, handover.partition);
    entry.replicas.retain(|&node| node != handover.to);
    entry.replicas.insert(0, handover.to);
    entry.epoch += u64::from(!is(Mutant::SameEpoch));
    entry.active = false;
}

/// A learner may be dropped at any time, a member only while the primary is active.
pub(super) fn drop_replica_holds(map: &wire::ClusterMap, drop: &wire::DropReplica) -> bool {
    entry(map, drop.partition, drop.epoch).is_some_and(|entry| {
        let is_backup = entry.active && entry.replicas[1..].contains(&drop.node);
        is_backup || entry.learners.contains(&drop.node)
    })
}

/// The epoch grows for a learner too. A report that it has caught up may still be in transit after
/// its replica was deleted.
pub(super) fn drop_replica(map: &mut wire::ClusterMap, drop: &wire::DropReplica) {
    let entry = entry_mut(map, drop.partition);
    entry.learners.retain(|&node| node != drop.node);
    entry.replicas.retain(|&node| node != drop.node);
    entry.epoch += 1;
}
