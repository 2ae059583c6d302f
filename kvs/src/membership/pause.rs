//! Paused nodes: they finish what runs and start nothing, so no gang chooses them.

use proto::{NodeId, wire};

use super::{member, member_mut};

/// Valid only for the incarnation that was paused.
pub(super) fn set_holds(map: &wire::ClusterMap, set: &wire::SetPaused) -> bool {
    member(map, NodeId(set.node))
        .is_some_and(|member| member.incarnation == set.incarnation && member.paused != set.paused)
}

pub(super) fn set(map: &mut wire::ClusterMap, set: &wire::SetPaused) {
    member_mut(map, set.node).paused = set.paused;
}
