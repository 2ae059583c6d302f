//! The choice of the voters, which agree on the map. The planner uses it.

use proto::wire;

use super::{is_serving, is_up, member};
use crate::limits::VOTERS_MAX;

/// The wanted number of voters. It is odd, because one more voter would not survive more losses.
fn wanted(up: usize) -> usize {
    match up {
        0..=2 => 1,
        3..=4 => 3,
        _ => VOTERS_MAX,
    }
}

/// The voters of the first map: the lowest-numbered nodes.
#[must_use]
pub fn first_voters(nodes: u32) -> Vec<u32> {
    (0..nodes).take(wanted(nodes as usize)).collect()
}

/// The next set of voters on the way to the wanted number, all of them up. Each step adds or
/// removes one voter. `None` if no change is wanted.
///
/// A voter that is down is removed before a new one is added. The removal needs no answer of a
/// further node, so when five nodes fail one after another, the last two still agree. If the
/// addition came first, the group would wait for the new voter, forever if its disk fails then. A
/// leaving voter still answers, so it is removed after a new one has been added, if there is a
/// candidate.
#[must_use]
pub fn wanted_voters(map: &wire::ClusterMap) -> Option<Vec<u32>> {
    let nodes = |is_meant: fn(&wire::ClusterMap, u32) -> bool| -> Vec<u32> {
        map.members.iter().map(|member| member.node).filter(|&node| is_meant(map, node)).collect()
    };
    let mut up = nodes(is_up);
    if up.is_empty() {
        up = nodes(is_serving); // All nodes are leaving and vote until another joins.
    }
    if up.is_empty() {
        return None;
    }
    let wanted = wanted(up.len());
    let voting = map.voters.iter().filter(|node| up.contains(node)).count();
    let last =
        |is_there: &dyn Fn(u32) -> bool| map.voters.iter().rev().find(|&&node| !is_there(node));
    let down = last(&|node| is_serving(map, node));
    let leaving = last(&|node| up.contains(&node));
    let fresh = up.iter().find(|&node| !map.voters.contains(node));
    let mut voters = map.voters.clone();
    if let Some(&gone) = down
        && voters.len() > 1
    {
        voters.retain(|&node| node != gone);
    } else if voting < wanted
        && let Some(&node) = fresh
        && voters.len() <= VOTERS_MAX
    {
        voters.push(node);
        voters.sort_unstable();
    } else if let Some(&gone) = leaving {
        voters.retain(|&node| node != gone);
    } else if voting > wanted {
        let last = voters.pop();
        assert!(last.is_some() && !voters.is_empty(), "one voter stays");
    } else {
        return None;
    }
    Some(voters)
}

/// Valid if it changes the voters. The group checks that it is a single step.
pub(super) fn set_holds(map: &wire::ClusterMap, set: &wire::SetVoters) -> bool {
    !set.voters.is_empty()
        && set.voters.is_sorted_by(|a, b| a < b)
        && set.voters.iter().all(|&node| member(map, proto::NodeId(node)).is_some())
        && set.voters != map.voters
}
