//! Commands about nodes: start, failure, join, leave and removal.

use proto::wire::MemberPhase::{self, Down, Joining, Leaving, Removed, Up};
use proto::{NodeId, limits, wire};

use super::mutant::{Mutant, is};
use super::{is_serving, member, member_mut};

fn phase(map: &wire::ClusterMap, node: u32) -> Option<MemberPhase> {
    member(map, NodeId(node)).map(wire::Member::phase)
}

/// Valid for a new incarnation only. A voter that lost its disk has lost its votes and log, so it
/// must be removed from the voters before it may start.
pub(super) fn up_holds(map: &wire::ClusterMap, up: &wire::MemberUp) -> bool {
    member(map, NodeId(up.node)).is_some_and(|member| {
        let forgets =
            member.store != 0 && member.store != up.store && map.voters.contains(&up.node);
        up.incarnation > member.incarnation && member.phase() != Removed && !forgets
    })
}

/// A new incarnation has lost its memory and may have lost unsynced writes. Where another member
/// serves, the node becomes a learner. Where it is alone, its disk has all acknowledged writes, and
/// it is to activate. A node with another store has nothing.
///
/// A node in `former` has as much as the members, because no primary has registered since it left.
pub(super) fn up(map: &mut wire::ClusterMap, up: &wire::MemberUp) {
    let member = member_mut(map, up.node);
    // The first start of a member of the first map: all partitions are empty, so nothing is
    // missing.
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
    member.offer.clone_from(&up.offer);
    member.pid = up.pid;
    member.slow = false; // This incarnation has not been measured.
    member.paused = false; // A restart ends a pause.
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
                // The members that are down may miss later writes.
                (false, false) => take_over(entry, up.node),
                (false, true) => lose_disk(entry, up.node, &serving),
            }
        } else if entry.former.contains(&up.node) && !is_other_up && !entry.lost {
            take_over(entry, up.node);
        }
    }
}

/// Valid while the map shows this incarnation, or an earlier one, as not down.
pub(super) fn down_holds(map: &wire::ClusterMap, down: &wire::MemberDown) -> bool {
    member(map, NodeId(down.node))
        .is_some_and(|member| down.incarnation >= member.incarnation && !member.is_gone())
}

/// Where other members serve, they continue. Where the node was the last one, the partition waits
/// for it.
pub(super) fn down(map: &mut wire::ClusterMap, down: &wire::MemberDown) {
    let member = member_mut(map, down.node);
    member.incarnation = down.incarnation;
    member.phase = Down as i32;
    super::slow::after_loss(map);
    let serving = serving(map);
    for entry in &mut map.partitions {
        if entry.learners.contains(&down.node) {
            entry.learners.retain(|&node| node != down.node);
            // The epoch changes as for a dropped learner. The node may delete its replica now and
            // become a learner again soon. Its primary could then still report that the old replica
            // has caught up.
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
            // Invalidates commands of this partition's primary that are still in transit.
            entry.epoch += 1;
            entry.active = false;
        }
    }
}

/// Removes a node from the configuration, in one step of the partition's epoch. A new primary must
/// activate. A member that is left alone must register again. Until then nothing is acknowledged
/// that the removed node would miss. If the last member has failed permanently and the map does not
/// show it yet, the removed node can replace it.
fn leave_configuration(entry: &mut wire::PartitionEntry, node: u32) {
    let was_primary = entry.replicas[0] == node;
    entry.replicas.retain(|&replica| replica != node);
    assert!(!entry.replicas.is_empty(), "the last replica is never removed");
    entry.epoch += 1;
    entry.active &= !was_primary;
    let is_left_alone = entry.replicas.len() == 1;
    let is_remembered = (!entry.active || is_left_alone) && !is(Mutant::FormerForgotten);
    if is_remembered && !entry.former.contains(&node) {
        entry.former.push(node);
    }
}

/// Makes `node` the only member, which is to activate alone. It is up and has all acknowledged
/// writes.
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

/// Handles the loss of the disk of the only serving member. Other nodes may still have everything.
fn lose_disk(entry: &mut wire::PartitionEntry, node: u32, serving: &[bool]) {
    entry.replicas.retain(|&replica| replica != node);
    let at_hand = entry.former.iter().copied().find(|&former| serving[former as usize]);
    if !entry.replicas.is_empty() && at_hand.is_none() {
        // The other members are down; the partition waits for them.
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

/// Whether each node is serving, by node number.
fn serving(map: &wire::ClusterMap) -> Vec<bool> {
    let nodes = map.members.last().map_or(0, |member| member.node + 1);
    (0..nodes).map(|node| is_serving(map, node)).collect()
}

/// Each store joins once; 0 is no store number.
pub(super) fn join_holds(map: &wire::ClusterMap, join: &wire::MemberJoin) -> bool {
    let has_room = map.members.last().is_none_or(|last| last.node + 1 < limits::NODES_MAX);
    has_room && join.store != 0 && map.members.iter().all(|member| member.store != join.store)
}

/// Adds a member under the next number. It is given work after its first start.
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
        paused: false,
        host: String::new(),
        keeper: join.keeper,
        offer: join.offer.clone(),
        leaves_by_ns: 0,
    });
}

/// A leaving node may get an earlier deadline. A later one would never be agreed on, because both
/// are proposed again until the map shows them.
pub(super) fn leave_holds(map: &wire::ClusterMap, leave: &wire::MemberLeave) -> bool {
    let Some(known) = member(map, NodeId(leave.node)) else { return false };
    match known.phase() {
        Joining | Up => true,
        Leaving if leave.by_ns > 0 => known.leaves_by_ns == 0 || leave.by_ns < known.leaves_by_ns,
        _ => false,
    }
}

/// The node keeps serving until the planner has moved away everything that it holds.
pub(super) fn leave(map: &mut wire::ClusterMap, leave: &wire::MemberLeave) {
    let leaving = member_mut(map, leave.node);
    (leaving.phase, leaving.leaves_by_ns) = (Leaving as i32, leave.by_ns);
    super::slow::after_loss(map);
}

/// True if an operator may have the node removed. Either it is down, or it joined and never
/// started. Any other node leaves by itself and reports when it holds nothing.
#[must_use]
pub fn may_be_removed(map: &wire::ClusterMap, node: NodeId) -> bool {
    member(map, node).is_some_and(|member| match member.phase() {
        Down => true,
        Joining | Leaving => member.incarnation == 0,
        Up | Removed => false,
    })
}

/// Only a node without replicas and without a vote is removed.
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
