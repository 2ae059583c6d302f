//! Directed tests: single commands and their expected effects.

use super::*;
use crate::make_replicated_map;

/// Two partitions: p0 on n0, n1, n2 and p1 on n1 alone. All nodes have started once.
fn map() -> wire::ClusterMap {
    let mut map = make_replicated_map(1, 3, 2, 1);
    map.partitions[0].replicas = vec![0, 1, 2];
    map.partitions[1].replicas = vec![1];
    for node in 0..3 {
        assert!(apply(&mut map, &up(node, 1, 10 + u64::from(node))));
    }
    assert!(map.partitions.iter().all(|entry| entry.active && entry.epoch == 1));
    map
}

fn up(node: u32, incarnation: u32, store: u64) -> wire::MapCommand {
    command(Body::Up(wire::MemberUp { node, incarnation, store, ..Default::default() }))
}
fn down(node: u32, incarnation: u32) -> wire::MapCommand {
    command(Body::Down(wire::MemberDown { node, incarnation }))
}
fn activated(node: u32, incarnation: u32, of: &[(u32, u64)]) -> wire::MapCommand {
    let of = of.iter().map(|&(partition, epoch)| wire::PartitionEpoch { partition, epoch });
    command(Body::Activated(wire::Activated { node, incarnation, partitions: of.collect() }))
}
/// Epoch, replicas, learners, active.
fn entry(map: &wire::ClusterMap, partition: usize) -> (u64, &[u32], &[u32], bool) {
    let entry = &map.partitions[partition];
    (entry.epoch, &entry.replicas, &entry.learners, entry.active)
}

#[test]
fn a_primary_that_dies_is_followed_by_the_next_member() {
    let mut map = map();
    assert!(apply(&mut map, &down(0, 1)));
    assert_eq!(entry(&map, 0), (2, &[1, 2][..], &[][..], false));
    assert_eq!(entry(&map, 1), (1, &[1][..], &[][..], true));
    // A past epoch registers nothing, and neither does a node that is not the primary.
    assert!(!apply(&mut map, &activated(1, 1, &[(0, 1)])));
    assert!(!apply(&mut map, &activated(2, 1, &[(0, 2)])));
    assert!(apply(&mut map, &activated(1, 1, &[(0, 2), (1, 1)])));
    assert_eq!(entry(&map, 0), (2, &[1, 2][..], &[][..], true));
}

#[test]
fn a_backup_that_dies_leaves_the_primary_at_work() {
    let mut map = map();
    assert!(apply(&mut map, &down(2, 1)));
    assert_eq!(entry(&map, 0), (2, &[0, 1][..], &[][..], true));
}

#[test]
fn a_node_that_restarts_has_to_catch_up_or_to_activate() {
    let mut map = map();
    assert!(apply(&mut map, &up(1, 2, 11)));
    assert_eq!(entry(&map, 0), (2, &[0, 2][..], &[1][..], true));
    assert_eq!(entry(&map, 1), (2, &[1][..], &[][..], false), "alone it has all there is");
    // A command about an earlier incarnation has no effect.
    assert!(!apply(&mut map, &activated(1, 1, &[(1, 2)])));
    assert!(apply(&mut map, &activated(1, 2, &[(1, 2)])));
    let caught_up = |incarnation| {
        let (partition, epoch, learner) = (0, 2, 1);
        command(Body::CaughtUp(wire::CaughtUp { partition, epoch, learner, incarnation }))
    };
    assert!(!apply(&mut map, &caught_up(1)));
    assert!(apply(&mut map, &caught_up(2)));
    assert_eq!(entry(&map, 0), (3, &[0, 2, 1][..], &[][..], true));
}

#[test]
fn a_partition_waits_for_its_last_replica_while_that_is_down() {
    let mut map = map();
    assert!(apply(&mut map, &down(1, 1)));
    assert_eq!(entry(&map, 1), (2, &[1][..], &[][..], false));
    assert!(!apply(&mut map, &down(1, 1)), "dead is dead");
    assert!(!apply(&mut map, &activated(1, 1, &[(1, 2)])), "the dead serve nothing");
    assert!(!apply(&mut map, &up(1, 1, 11)), "that incarnation does not come back");
    assert!(apply(&mut map, &up(1, 2, 11)));
    assert_eq!(entry(&map, 1), (3, &[1][..], &[][..], false));
    // The node is no longer a member of p0; the planner will add it again.
    assert_eq!(entry(&map, 0), (2, &[0, 2][..], &[][..], true));
}

/// p0 on n0 and n1: n1 restarts after n0 has failed permanently, while the map still shows n0 as
/// up.
#[test]
fn a_restarted_replica_has_everything_until_the_other_has_registered_alone() {
    let mut map = map();
    map.partitions[0].replicas = vec![0, 1];
    assert!(apply(&mut map, &up(1, 2, 11)));
    assert_eq!(entry(&map, 0), (2, &[0][..], &[1][..], true));
    let mut noticed = map.clone();
    assert!(apply(&mut noticed, &down(0, 1)));
    assert_eq!(entry(&noticed, 0), (3, &[1][..], &[][..], false), "n1 is to activate");
    // But n0 was up and has acknowledged writes since.
    assert!(apply(&mut map, &activated(0, 1, &[(0, 2)])));
    assert!(!apply(&mut map, &activated(0, 1, &[(0, 2)])));
    assert!(apply(&mut map, &down(0, 1)));
    assert_eq!(entry(&map, 0), (3, &[0][..], &[1][..], false), "only n0 has everything");
}

#[test]
fn another_disk_has_nothing() {
    let mut map = map();
    assert!(!apply(&mut map, &up(1, 2, 99)), "it has forgotten what it promised as a voter");
    map.voters = vec![0];
    assert!(apply(&mut map, &up(1, 2, 99)));
    assert_eq!(entry(&map, 0), (2, &[0, 2][..], &[1][..], true));
    assert_eq!(entry(&map, 1), (2, &[1][..], &[][..], false));
    assert!(map.partitions[1].lost);
    assert!(!apply(&mut map, &activated(1, 2, &[(1, 2)])), "a lost partition is never served");
    assert!(!is_fully_replicated(&map));
}

#[test]
fn a_learner_that_was_given_up_does_not_catch_up_after_all() {
    let mut map = map();
    apply(&mut map, &up(1, 2, 11));
    let (partition, epoch, node) = (0, 2, 1);
    let drop = command(Body::DropReplica(wire::DropReplica { partition, epoch, node }));
    assert!(apply(&mut map, &drop));
    let add = wire::AddLearner { partition, epoch: 3, node, ..Default::default() };
    assert!(apply(&mut map, &command(Body::AddLearner(add))));
    let late = wire::CaughtUp { partition, epoch, learner: 1, incarnation: 2 };
    assert!(!apply(&mut map, &command(Body::CaughtUp(late))));
    assert_eq!(entry(&map, 0), (3, &[0, 2][..], &[1][..], true));
}

#[test]
fn a_learner_that_was_dead_meanwhile_does_not_catch_up_after_all() {
    let mut map = map();
    apply(&mut map, &up(1, 2, 11));
    assert_eq!(entry(&map, 0), (2, &[0, 2][..], &[1][..], true));
    assert!(apply(&mut map, &down(1, 2)) && apply(&mut map, &up(1, 3, 11)));
    let add = wire::AddLearner {
        partition: 0,
        epoch: map.partitions[0].epoch,
        node: 1,
        ..Default::default()
    };
    assert!(apply(&mut map, &command(Body::AddLearner(add))));
    // Its primary had filled it before it received any of these changes.
    let late = wire::CaughtUp { partition: 0, epoch: 2, learner: 1, incarnation: 3 };
    assert!(!apply(&mut map, &command(Body::CaughtUp(late))));
}

#[test]
fn a_home_is_handed_over_to_a_member_only() {
    let mut map = map();
    let hand_over =
        |partition, epoch, to| command(Body::Handover(wire::Handover { partition, epoch, to }));
    assert!(!apply(&mut map, &hand_over(1, 1, 0)));
    assert!(!apply(&mut map, &hand_over(0, 1, 0)), "it is the home already");
    assert!(apply(&mut map, &hand_over(0, 1, 2)));
    assert_eq!(entry(&map, 0), (2, &[2, 0, 1][..], &[][..], false));
    assert!(!apply(&mut map, &hand_over(0, 2, 1)), "the new home is not at work yet");
}

#[test]
fn a_joining_node_gets_the_next_number_once_and_a_node_with_replicas_is_not_removed() {
    let mut map = map();
    let join = command(Body::Join(wire::MemberJoin { store: 77, ..Default::default() }));
    assert!(apply(&mut map, &join));
    assert!(!apply(&mut map, &join));
    assert_eq!((map.members[3].node, map.members[3].phase()), (3, wire::MemberPhase::Joining));
    assert!(apply(&mut map, &up(3, 1, 77)));
    assert_eq!(map.members[3].phase(), Up);
    let remove = |node| command(Body::Remove(wire::MemberRemove { node }));
    assert!(!apply(&mut map, &remove(3)), "it works");
    assert!(apply(&mut map, &command(Body::Leave(wire::MemberLeave { node: 3, by_ns: 0 }))));
    assert!(apply(&mut map, &remove(3)));
    assert!(!apply(&mut map, &up(3, 2, 77)), "removed permanently");
    assert!(apply(&mut map, &down(1, 1)));
    assert!(!apply(&mut map, &remove(1)), "p1 waits for it");
}

#[test]
fn an_operator_may_have_a_node_removed_that_is_down_or_never_came() {
    let mut map = map();
    let join = |store| command(Body::Join(wire::MemberJoin { store, ..Default::default() }));
    let leave = |node| command(Body::Leave(wire::MemberLeave { node, by_ns: 0 }));
    let remove = |node| command(Body::Remove(wire::MemberRemove { node }));
    let may = |map: &wire::ClusterMap, node| may_be_removed(map, NodeId(node));
    assert!(apply(&mut map, &join(77)) && apply(&mut map, &join(78)) && apply(&mut map, &join(79)));
    assert!(!may(&map, 1) && may(&map, 3) && !may(&map, 9));
    assert!(apply(&mut map, &remove(3)));
    assert!(!apply(&mut map, &up(3, 1, 77)), "it came too late");
    assert!(!may(&map, 3));
    // The node was told to leave before its first start, so it never reports that it holds nothing.
    assert!(apply(&mut map, &leave(4)));
    assert!(may(&map, 4) && apply(&mut map, &remove(4)));
    // A leaving node may hold results that the map does not show.
    assert!(apply(&mut map, &up(5, 1, 79)) && apply(&mut map, &leave(5)));
    assert!(!may(&map, 5));
    assert!(apply(&mut map, &down(5, 1)));
    assert!(may(&map, 5) && apply(&mut map, &remove(5)));
}

#[test]
fn commands_about_what_does_not_exist_change_nothing() {
    let mut map = map();
    let before = map.clone();
    let nothing = [
        wire::MapCommand::default(),
        up(9, 1, 1),
        down(9, 1),
        activated(9, 1, &[(0, 1)]),
        activated(0, 1, &[(7, 1)]),
        command(Body::AddLearner(wire::AddLearner {
            partition: 9,
            epoch: 1,
            node: 0,
            ..Default::default()
        })),
        command(Body::AddLearner(wire::AddLearner {
            partition: 0,
            epoch: 1,
            node: 9,
            ..Default::default()
        })),
        command(Body::SetVoters(wire::SetVoters { voters: vec![] })),
        command(Body::SetVoters(wire::SetVoters { voters: vec![2, 1] })),
        command(Body::SetVoters(wire::SetVoters { voters: vec![0, 9] })),
        command(Body::SetCopies(wire::SetCopies { copies: 0 })),
        command(Body::SetCopies(wire::SetCopies { copies: 1000 })),
        command(Body::Join(wire::MemberJoin::default())),
        command(Body::Remove(wire::MemberRemove { node: 9 })),
    ];
    for said in &nothing {
        assert!(!apply(&mut map, said), "{said:?}");
    }
    assert_eq!(map, before);
}
