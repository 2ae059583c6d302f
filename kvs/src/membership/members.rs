//! Nodes come, go and come back.

use proto::wire::MemberPhase::{self, Down, Joining, Leaving, Removed, Up};
use proto::{NodeId, limits, wire};

use super::mutant::{Mutant, is};
use super::{is_serving, member, member_mut};

fn phase(map: &wire::ClusterMap, node: u32) -> Option<MemberPhase> {
    member(map, NodeId(node)).map(wire::Member::phase)
}

/// A start is news when its incarnation is. A voter that has lost its disk has forgotten its
/// promises: it has to lose its vote first.
pub(super) fn up_holds(map: &wire::ClusterMap, up: &wire::MemberUp) -> bool {
    member(map, NodeId(up.node)).is_some_and(|member| {
        let forgets =
            member.store != 0 && member.store != up.store && map.voters.contains(&up.node);
        up.incarnation > member.incarnation && member.phase() != Removed && !forgets
    })
}

/// What an earlier incarnation held in memory is gone, and of its disk perhaps what was not
/// synced. So where others have a copy the node has to catch up; where it is alone, its disk has
/// all that was acknowledged, and it has to activate. With another store it has nothing at all.
/// Who left a configuration after which none has registered is as good as its members.
pub(super) fn up(map: &mut wire::ClusterMap, up: &wire::MemberUp) {
    let member = member_mut(map, up.node);
    // The first start of a member of the first map: it holds all there is, which is nothing.
    let is_first = member.incarnation == 0 && up.incarnation == 1 && member.phase() != Down;
    let has_other_store = member.store != 0 && member.store != up.store;
    let has_other_store = has_other_store && !is(Mutant::OtherDiskStays);
    member.incarnation = up.incarnation;
    member.store = up.store;
    member.address.clone_from(&up.address);
    member.data_address.clone_from(&up.data_address);
    member.host.clone_from(&up.host);
    member.slots = up.slots;
    member.keeper = up.keeper;
    member.pid = up.pid;
    member.slow = false; // Nobody has measured this life of it.
    if member.phase() != Leaving {
        member.phase = Up as i32;
    }
    if is_first && !has_other_store {
        return;
    }
    let serving = serving(map);
    for entry in &mut map.partitions {
        if has_other_store {
            entry.former.retain(|&node| node != up.node);
        }
        let is_other_up =
            entry.replicas.iter().any(|&node| node != up.node && serving[node as usize]);
        if entry.replicas.contains(&up.node) {
            match (is_other_up, has_other_store) {
                (true, _) => {
                    leave_configuration(entry, up.node);
                    entry.former.retain(|&node| node != up.node || !has_other_store);
                    entry.learners.push(up.node);
                }
                // Others that are down may miss what it acknowledges from now on.
                (false, false) => take_over(entry, up.node),
                (false, true) => lose_disk(entry, up.node, &serving),
            }
        } else if entry.former.contains(&up.node) && !is_other_up && !entry.lost {
            take_over(entry, up.node);
        }
    }
}

/// An end is news while that incarnation, or an earlier one, counts as alive.
pub(super) fn down_holds(map: &wire::ClusterMap, down: &wire::MemberDown) -> bool {
    member(map, NodeId(down.node)).is_some_and(|member| {
        down.incarnation >= member.incarnation && !matches!(member.phase(), Down | Removed)
    })
}

/// Where others have a copy they go on; where the node is alone, the partition waits for it.
pub(super) fn down(map: &mut wire::ClusterMap, down: &wire::MemberDown) {
    let member = member_mut(map, down.node);
    member.incarnation = down.incarnation;
    member.phase = Down as i32;
    super::slow::after_loss(map);
    let serving = serving(map);
    for entry in &mut map.partitions {
        if entry.learners.contains(&down.node) {
            entry.learners.retain(|&node| node != down.node);
            // As when one is dropped: it may let its copy go now, and be a learner again soon, and
            // its primary, which hears of neither, may say that it has caught up.
            entry.epoch += u64::from(entry.active);
        }
        if !entry.replicas.contains(&down.node) {
            continue;
        }
        let former = entry.former.iter().copied().find(|&node| serving[node as usize]);
        if entry.replicas.iter().any(|&node| serving[node as usize]) {
            leave_configuration(entry, down.node);
        } else if let Some(former) = former {
            take_over(entry, former);
        } else {
            // What its home has said and is still on its way must not change it any more.
            entry.epoch += 1;
            entry.active = false;
        }
    }
}

/// One step of the partition's epoch. A new primary has to activate, and one that is left alone has
/// to register anew: until it has, nothing is acknowledged that who left would miss. It may be that
/// the one that is left is gone for good, and nobody has noticed yet.
fn leave_configuration(entry: &mut wire::PartitionEntry, node: u32) {
    let was_primary = entry.replicas[0] == node;
    entry.replicas.retain(|&replica| replica != node);
    assert!(!entry.replicas.is_empty(), "the last copy never leaves");
    entry.epoch += 1;
    entry.active &= !was_primary;
    let is_left_alone = entry.replicas.len() == 1;
    let is_remembered = (!entry.active || is_left_alone) && !is(Mutant::FormerForgotten);
    if is_remembered && !entry.former.contains(&node) {
        entry.former.push(node);
    }
}

/// Of those who have all that was acknowledged this one is at hand: it is to activate alone.
fn take_over(entry: &mut wire::PartitionEntry, node: u32) {
    let before = std::mem::replace(&mut entry.replicas, vec![node]);
    if !is(Mutant::PassedOver) {
        entry.former.extend(before);
    }
    entry.former.sort_unstable();
    entry.former.dedup();
    entry.former.retain(|&former| former != node);
    entry.learners.retain(|&learner| learner != node);
    entry.epoch += 1;
    entry.active = false;
}

/// The disk of the only member at hand is gone: others may still have everything.
fn lose_disk(entry: &mut wire::PartitionEntry, node: u32, serving: &[bool]) {
    entry.replicas.retain(|&replica| replica != node);
    let at_hand = entry.former.iter().copied().find(|&former| serving[former as usize]);
    if !entry.replicas.is_empty() && at_hand.is_none() {
        // Others of the configuration are down, and waited for.
        entry.epoch += 1;
        entry.active = false;
        return;
    }
    let heir = at_hand.or_else(|| entry.former.first().copied());
    if let Some(heir) = heir.filter(|_| !is(Mutant::LostTooEarly)) {
        take_over(entry, heir);
    } else {
        entry.replicas.push(node);
        entry.epoch += 1;
        entry.active = false;
        entry.lost = true;
    }
}

/// By number of node.
fn serving(map: &wire::ClusterMap) -> Vec<bool> {
    let nodes = map.members.last().map_or(0, |member| member.node + 1);
    (0..nodes).map(|node| is_serving(map, node)).collect()
}

/// A store joins once; 0 is no store.
pub(super) fn join_holds(map: &wire::ClusterMap, join: &wire::MemberJoin) -> bool {
    let has_room = map.members.last().is_none_or(|last| last.node + 1 < limits::NODES_MAX);
    has_room && join.store != 0 && map.members.iter().all(|member| member.store != join.store)
}

/// It gets the next number; its first start makes it a member that work is given to.
pub(super) fn join(map: &mut wire::ClusterMap, join: &wire::MemberJoin) {
    let node = map.members.last().map_or(0, |last| last.node + 1);
    map.members.push(wire::Member {
        node,
        incarnation: 0,
        address: join.address.clone(),
        phase: Joining as i32,
        slots: join.slots,
        pid: 0,
        store: join.store,
        data_address: join.data_address.clone(),
        slow: false,
        host: String::new(),
        keeper: join.keeper,
    });
}

pub(super) fn leave_holds(map: &wire::ClusterMap, leave: &wire::MemberLeave) -> bool {
    matches!(phase(map, leave.node), Some(Joining | Up))
}

/// It serves until the planner has given away all it has.
pub(super) fn leave(map: &mut wire::ClusterMap, leave: &wire::MemberLeave) {
    member_mut(map, leave.node).phase = Leaving as i32;
    super::slow::after_loss(map);
}

/// Whether an operator may have a node removed: it is down, or it was let in and never came. Any
/// other leaves by itself, and says when it has nothing left.
#[must_use]
pub fn may_be_removed(map: &wire::ClusterMap, node: NodeId) -> bool {
    member(map, node).is_some_and(|member| match member.phase() {
        Down => true,
        Joining | Leaving => member.incarnation == 0,
        Up | Removed => false,
    })
}

/// Only who holds nothing and has no vote goes for good.
pub(super) fn remove_holds(map: &wire::ClusterMap, remove: &wire::MemberRemove) -> bool {
    let is_on_its_way = matches!(phase(map, remove.node), Some(Down | Joining | Leaving));
    is_on_its_way
        && !map.voters.contains(&remove.node)
        && map.partitions.iter().all(|entry| {
            let mut holders = entry.replicas.iter().chain(&entry.learners).chain(&entry.former);
            !holders.any(|&node| node == remove.node)
        })
}

pub(super) fn remove(map: &mut wire::ClusterMap, remove: &wire::MemberRemove) {
    member_mut(map, remove.node).phase = Removed as i32;
}
