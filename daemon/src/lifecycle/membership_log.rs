//! The log lines about the changes of a newer map.

use std::collections::BTreeMap;

use kvs::membership::awaited;
use proto::{NodeId, wire};
use wire::MemberPhase;

/// For more partitions only their number is listed.
const NAMED_MAX: usize = 8;

/// Nodes that joined, failed, left or were removed, and lost partitions. Moves of partitions are
/// left out: after a failure they would be hundreds of lines.
pub(crate) fn map_changes(
    own: NodeId,
    before: &wire::ClusterMap,
    now: &wire::ClusterMap,
) -> Vec<String> {
    let known: BTreeMap<u32, (MemberPhase, u32, bool)> =
        before.members.iter().map(|member| (member.node, state(member))).collect();
    let others = now.members.iter().filter(|member| member.node != own.0);
    let changed = others.filter(|member| known.get(&member.node) != Some(&state(member)));
    let mut lines: Vec<String> = changed.filter_map(about).collect();
    let is_lost = |map: &wire::ClusterMap, at: usize| {
        map.partitions.get(at).is_some_and(|entry| entry.lost) // The last replica is lost.
    };
    let partitions = 0..now.partitions.len();
    let lost: Vec<usize> =
        partitions.filter(|&at| is_lost(now, at) && !is_lost(before, at)).collect();
    if !lost.is_empty() {
        lines.push(format!("lost with its last copy: {}", listed(&lost)));
    }
    let waits = awaited(now);
    if !waits.nodes.is_empty() && waits != awaited(before) {
        let nodes: Vec<usize> = waits.nodes.iter().map(|&node| node as usize).collect();
        let (nodes, partitions) = (numbers(&nodes), waits.partitions);
        lines.push(format!("{partitions} partitions wait for nodes that are down: {nodes}"));
    }
    lines
}

fn state(member: &wire::Member) -> (MemberPhase, u32, bool) {
    (member.phase(), member.incarnation, member.slow)
}

fn about(member: &wire::Member) -> Option<String> {
    let (node, incarnation) = (member.node, member.incarnation);
    Some(match member.phase() {
        MemberPhase::Joining => return None, // The node has not sent anything yet.
        MemberPhase::Up if member.slow => {
            format!("node {node} is slow, nothing new goes there (incarnation {incarnation})")
        }
        MemberPhase::Up => format!("node {node} is up (incarnation {incarnation})"),
        MemberPhase::Down => format!("node {node} is down (incarnation {incarnation})"),
        MemberPhase::Leaving => format!("node {node} leaves (incarnation {incarnation})"),
        MemberPhase::Removed => format!("node {node} was removed from the cluster"),
    })
}

fn listed(partitions: &[usize]) -> String {
    let (named, number) = (numbers(partitions), partitions.len());
    match number {
        1 => format!("partition {named}"),
        _ if number <= NAMED_MAX => format!("partitions {named}"),
        _ => format!("{number} partitions: {named} and others"),
    }
}

/// The first numbers of a list.
fn numbers(of: &[usize]) -> String {
    let named: Vec<String> = of.iter().take(NAMED_MAX).map(usize::to_string).collect();
    named.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(phases: &[MemberPhase], lost: &[bool]) -> wire::ClusterMap {
        let member = |(node, &phase): (usize, &MemberPhase)| wire::Member {
            node: node as u32,
            incarnation: 1,
            phase: phase as i32,
            ..Default::default()
        };
        let entry = |&lost: &bool| wire::PartitionEntry { lost, ..Default::default() };
        wire::ClusterMap {
            members: phases.iter().enumerate().map(member).collect(),
            partitions: lost.iter().map(entry).collect(),
            ..Default::default()
        }
    }

    #[test]
    fn each_arrival_and_departure_is_logged_once() {
        use MemberPhase::{Down, Joining, Leaving, Removed, Up};
        let steps = [
            (vec![Up, Up, Joining], vec!["node 1 is up (incarnation 1)"]),
            (vec![Down, Up, Up], vec!["node 2 is up (incarnation 1)"]), // Without the node itself.
            (
                vec![Up, Leaving, Down],
                vec!["node 1 leaves (incarnation 1)", "node 2 is down (incarnation 1)"],
            ),
            (vec![Up, Leaving, Down], vec![]),
            (vec![Up, Removed, Down], vec!["node 1 was removed from the cluster"]),
        ];
        let mut before = map(&[], &[]);
        for (phases, told) in steps {
            let now = map(&phases, &[]);
            assert_eq!(map_changes(NodeId(0), &before, &now), told);
            before = now;
        }
    }

    #[test]
    fn a_slow_node_and_its_recovery_are_logged() {
        let well = map(&[MemberPhase::Up, MemberPhase::Up], &[]);
        let mut slow = well.clone();
        slow.members[1].slow = true;
        let told = ["node 1 is slow, nothing new goes there (incarnation 1)"];
        assert_eq!(map_changes(NodeId(0), &well, &slow), told);
        assert_eq!(map_changes(NodeId(0), &slow, &well), ["node 1 is up (incarnation 1)"]);
    }

    #[test]
    fn lost_partitions_are_named_or_counted() {
        let whole = map(&[], &[false; 20]);
        let two = [&[false, true, true][..], &[false; 17]].concat();
        let few = map(&[], &two);
        assert_eq!(
            map_changes(NodeId(0), &whole, &few),
            ["lost with its last copy: partitions 1, 2"]
        );
        assert!(map_changes(NodeId(0), &few, &few).is_empty());
        assert_eq!(
            map_changes(NodeId(0), &few, &map(&[], &[true; 20])),
            ["lost with its last copy: 18 partitions: 0, 3, 4, 5, 6, 7, 8, 9 and others"]
        );
    }
}
