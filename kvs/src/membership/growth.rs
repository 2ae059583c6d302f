//! How many copies of each partition there are to be: as many as are wanted, as far as there are
//! nodes for them.
//!
//! What is *wanted* is said when the cluster is made, and stays. The number *in force* follows the
//! members: it is what acknowledgements ask for ([`min_in_sync`]), and it is never below two where
//! homes move, since two copies ask for no more than one does. It grows to three or more only when
//! every partition has the copies that acknowledgements ask for then: no partition waits for a
//! copy that is still to be made.
//!
//! It shrinks when nodes are members no more. Else a cluster of three copies on three nodes could
//! never be drained to one: each change would ask for a second copy that no node can keep. It never
//! shrinks for a node that is down, which may come back with what it has.

use proto::wire;
use proto::wire::MemberPhase::Removed;

use super::{is_fit, is_serving, min_in_sync};

/// Fewer copies than that are not counted where homes move.
const COPIES_LEAST: u32 = 2;

/// How many copies of each partition there are to be once there are nodes for them.
#[must_use]
pub fn wanted_copies(map: &wire::ClusterMap) -> u32 {
    map.wanted.max(map.copies)
}

/// How many copies a cluster begins with that is to have `wanted` of them.
#[must_use]
pub fn first_copies(wanted: u32, nodes: u32) -> u32 {
    wanted.min(nodes.max(COPIES_LEAST))
}

/// How many there should be now; `None`: as there are.
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

/// It was let in and has never been there.
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
