//! The number of replicas of each partition: the wanted number, limited by the number of nodes. The
//! planner uses it.
//!
//! The *wanted* number is set when the cluster is made and stays. The number *in force* follows the
//! members. It determines how many members must have a change before an acknowledgement
//! ([`min_in_sync`]). It is at least two where primaries move, since two replicas require no more
//! than one does. It grows to three or more only when every partition already has the members that
//! an acknowledgement then needs. So no partition waits for a replica that is still to be created.
//!
//! It shrinks when members are removed. Otherwise a cluster with three replicas on three nodes
//! could never be drained to one node. Each change would need a second replica, and no node can
//! hold it. It never shrinks for a node that is down, which may return with its data.

use proto::wire;
use proto::wire::MemberPhase::Removed;

use super::{is_fit, is_serving, min_in_sync};

/// The minimum number of replicas in force where primaries move.
const COPIES_LEAST: u32 = 2;

/// The number of replicas of each partition once there are enough nodes.
#[must_use]
pub fn wanted_copies(map: &wire::ClusterMap) -> u32 {
    map.wanted.max(map.copies)
}

/// The number of replicas in force in a new cluster that wants `wanted` of them.
#[must_use]
pub fn first_copies(wanted: u32, nodes: u32) -> u32 {
    wanted.min(nodes.max(COPIES_LEAST))
}

/// The number of replicas that should be in force now; `None` if it is the present one.
pub(super) fn next_copies(map: &wire::ClusterMap) -> Option<u32> {
    let wanted = wanted_copies(map);
    let count = |nodes: usize| wanted.min(nodes as u32).max(wanted.min(COPIES_LEAST));
    let members = map.members.iter();
    let left = members.clone().filter(|member| member.phase() != Removed && !is_new(member));
    let most = count(left.count());
    if map.copies > most {
        return Some(most);
    }
    let next = count(members.filter(|member| is_fit(map, member.node)).count());
    let needed = min_in_sync(next);
    let has_needed = |entry: &wire::PartitionEntry| {
        let serving = entry.replicas.iter().filter(|&&node| is_serving(map, node)).count();
        entry.lost || (entry.active && serving >= needed)
    };
    (next > map.copies && map.partitions.iter().all(has_needed)).then_some(next)
}

/// The node has joined and has never started.
fn is_new(member: &wire::Member) -> bool {
    member.phase() == wire::MemberPhase::Joining
}

pub(super) fn set_holds(map: &wire::ClusterMap, set: &wire::SetCopies) -> bool {
    set.copies != map.copies && (1..=proto::limits::COPIES_MAX).contains(&set.copies)
}

pub(super) fn set(map: &mut wire::ClusterMap, set: &wire::SetCopies) {
    let wanted = wanted_copies(map);
    map.copies = set.copies;
    map.wanted = if wanted > set.copies { wanted } else { 0 };
}
