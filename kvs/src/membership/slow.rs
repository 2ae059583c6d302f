//! Nodes that are slow: members that nothing new is given to, and that keep no copy for which
//! others would have to wait. They go on with what they have, and vote.

use proto::wire;
use proto::wire::MemberPhase::Up;

use super::{is_up, member, member_mut};

/// It takes copies, homes and tasks.
#[must_use]
pub fn is_fit(map: &wire::ClusterMap, node: u32) -> bool {
    is_up(map, node) && member(map, proto::NodeId(node)).is_some_and(|member| !member.slow)
}

/// How many of so many nodes may be slow at once: those that are not must be a majority. So two at
/// least stay, which is what it takes to acknowledge anything.
#[must_use]
pub fn slow_max(up: usize) -> usize {
    up.saturating_sub(1) / 2
}

/// How many are up, and how many of these are slow.
fn counts(map: &wire::ClusterMap) -> (usize, usize) {
    let up = map.members.iter().filter(|member| member.phase() == Up);
    (up.clone().count(), up.filter(|member| member.slow).count())
}

/// Only of the incarnation that was measured.
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

/// Somebody is up no more. A slow node is better than none: too many are well again.
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
