//! Slow nodes: members that receive no new replicas, primaries or tasks. They keep a replica only
//! while others are too few. They continue with their work and keep their votes.

use proto::wire;
use proto::wire::MemberPhase::Up;

use super::{is_up, member, member_mut};

/// True if the node is up and not slow. Only such a node receives replicas, primaries and tasks.
#[must_use]
pub fn is_fit(map: &wire::ClusterMap, node: u32) -> bool {
    is_up(map, node) && member(map, proto::NodeId(node)).is_some_and(|member| !member.slow)
}

/// How many of `up` nodes may be slow at once. The other nodes must be a majority. So at least two
/// remain of three or more, as many as an acknowledgement needs.
#[must_use]
pub fn slow_max(up: usize) -> usize {
    up.saturating_sub(1) / 2
}

/// The numbers of nodes that are up, and of those that are up and slow.
fn counts(map: &wire::ClusterMap) -> (usize, usize) {
    let up = map.members.iter().filter(|member| member.phase() == Up);
    (up.clone().count(), up.filter(|member| member.slow).count())
}

/// Valid only for the incarnation that was measured.
pub(super) fn set_holds(map: &wire::ClusterMap, set: &wire::SetSlow) -> bool {
    let (up, slow) = counts(map);
    let is_current = member(map, proto::NodeId(set.node)).is_some_and(|member| {
        member.incarnation == set.incarnation && member.phase() == Up && member.slow != set.slow
    });
    is_current && (!set.slow || slow < slow_max(up))
}

pub(super) fn set(map: &mut wire::ClusterMap, set: &wire::SetSlow) {
    member_mut(map, set.node).slow = set.slow;
}

/// Called when fewer nodes are up. If more nodes are slow than allowed, some count as fit again: a
/// slow node is better than none.
pub(super) fn after_loss(map: &mut wire::ClusterMap) {
    for member in map.members.iter_mut().filter(|member| member.phase() != Up) {
        member.slow = false;
    }
    let (up, mut slow) = counts(map);
    for member in map.members.iter_mut().filter(|member| member.slow) {
        if slow > slow_max(up) {
            member.slow = false;
            slow -= 1;
        }
    }
}
