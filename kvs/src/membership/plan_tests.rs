//! Tests of the planner: it brings any map to its target with few moves.

use proptest::prelude::*;

use super::*;
use crate::limits::{PLAN_COMMANDS_MAX, PLAN_LEARNERS_MAX};
use crate::{check_map, make_replicated_map};

/// Applies plan after plan until the planner rests. Every primary activates and every learner
/// catches up. Returns the number of replicas created.
fn settle(map: &mut wire::ClusterMap) -> usize {
    settle_where(map, |_, _| true)
}

/// As [`settle`], but in each round only the partitions for which `answers` holds make progress.
fn settle_where(map: &mut wire::ClusterMap, answers: impl Fn(u32, u32) -> bool) -> usize {
    let mut made = 0;
    for round in 0..2000 {
        let commands = plan(map);
        assert!(commands.len() <= PLAN_COMMANDS_MAX + 1);
        assert_eq!(commands, plan(map), "the same map has the same plan");
        let idle = commands.is_empty();
        for said in commands {
            assert!(apply(map, &said), "a plan that changes nothing: {said:?}");
            made += usize::from(matches!(said.body, Some(Body::AddLearner(_))));
        }
        let answered = answer(map, |partition| answers(round, partition));
        if idle && !answered && !answer(map, |_| true) {
            check_map(map).unwrap();
            return made;
        }
    }
    panic!("the planner does not come to rest")
}

/// The answers of live primaries, and the removal of leaving nodes. Returns whether any command
/// changed the map.
fn answer(map: &mut wire::ClusterMap, answers: impl Fn(u32) -> bool) -> bool {
    let mut any = false;
    for node in 0..map.members.len() as u32 {
        let departure = departure(map, NodeId(node));
        any |= departure.is_some_and(|command| apply(map, &command));
    }
    for at in (0..map.partitions.len()).filter(|&at| answers(at as u32)) {
        let entry = map.partitions[at].clone();
        let (partition, epoch, node) = (at as u32, entry.epoch, entry.replicas[0]);
        let incarnation = map.members[node as usize].incarnation;
        let partitions = vec![wire::PartitionEpoch { partition, epoch }];
        let activated = wire::Activated { node, incarnation, partitions };
        any |= apply(map, &command(Body::Activated(activated)));
        if let Some(&learner) = entry.learners.first() {
            let incarnation = map.members[learner as usize].incarnation;
            let caught_up = wire::CaughtUp { partition, epoch, learner, incarnation };
            any |= apply(map, &command(Body::CaughtUp(caught_up)));
        }
    }
    any
}

fn spread(counts: impl Iterator<Item = usize>) -> usize {
    let counts: Vec<usize> = counts.collect();
    counts.iter().max().unwrap() - counts.iter().min().unwrap()
}

fn up_nodes(map: &wire::ClusterMap) -> Vec<u32> {
    map.members.iter().filter(|m| m.phase() == Up).map(|member| member.node).collect()
}

fn copies_spread(map: &wire::ClusterMap) -> usize {
    let held = |node| map.partitions.iter().filter(|e| e.replicas.contains(&node)).count();
    spread(up_nodes(map).into_iter().map(held))
}
fn homes_spread(map: &wire::ClusterMap) -> usize {
    let held = |node| map.partitions.iter().filter(|e| e.replicas[0] == node).count();
    spread(up_nodes(map).into_iter().map(held))
}

fn start(nodes: u32, partitions: u32, copies: u32) -> wire::ClusterMap {
    let mut map = make_replicated_map(3, nodes, partitions, copies);
    for node in 0..nodes {
        up(&mut map, node, 1);
    }
    map
}
fn up(map: &mut wire::ClusterMap, node: u32, incarnation: u32) {
    let store = u64::from(node) + 100;
    let up = wire::MemberUp { node, incarnation, store, ..Default::default() };
    assert!(apply(map, &command(Body::Up(up))));
}
fn join(map: &mut wire::ClusterMap) {
    let node = map.members.len() as u32;
    let join = wire::MemberJoin { store: u64::from(node) + 100, ..Default::default() };
    assert!(apply(map, &command(Body::Join(join))));
    up(map, node, 1);
}
fn kill(map: &mut wire::ClusterMap, node: u32) {
    let incarnation = map.members[node as usize].incarnation;
    assert!(apply(map, &command(Body::Down(wire::MemberDown { node, incarnation }))));
}

fn set_slow(map: &mut wire::ClusterMap, node: u32, slow: bool) -> bool {
    let incarnation = map.members[node as usize].incarnation;
    apply(map, &command(Body::SetSlow(wire::SetSlow { node, incarnation, slow })))
}

#[test]
fn a_slow_node_holds_nothing_until_it_is_well_and_votes() {
    for (nodes, copies) in [(3, 1), (3, 2), (3, 3), (5, 2), (5, 3)] {
        let mut map = start(nodes, 64, copies);
        let voters = map.voters.clone();
        assert!(set_slow(&mut map, 1, true) && !set_slow(&mut map, 1, true));
        settle(&mut map);
        let of_others = copies.min(nodes - 1) as usize;
        for entry in &map.partitions {
            assert!(!entry.replicas.contains(&1), "{nodes} nodes, {copies} copies: {entry:?}");
            assert_eq!((entry.replicas.len(), entry.learners.len()), (of_others, 0));
        }
        assert!(is_fully_replicated(&map) && map.voters == voters);
        assert!(set_slow(&mut map, 1, false));
        settle(&mut map);
        assert!(copies_spread(&map) <= 1 && homes_spread(&map) <= 1, "{nodes} {copies}");
    }
}

/// The full number of replicas remains while another is created, slow nodes included.
#[test]
fn a_slow_copy_goes_at_once_only_where_no_other_can_be_made() {
    let drops = |nodes, copies| {
        let mut map = start(nodes, 64, copies);
        assert!(set_slow(&mut map, 1, true));
        let drop = |said: &wire::MapCommand| matches!(said.body, Some(Body::DropReplica(_)));
        plan(&map).iter().filter(|said| drop(said)).count()
    };
    assert_eq!((drops(5, 2), drops(5, 3)), (0, 0));
    assert!(drops(3, 3) > 64 / 3, "all that it is not the home of");
}

#[test]
fn most_are_never_slow() {
    for (nodes, most) in [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (7, 3)] {
        let mut map = start(nodes, 64, 2);
        let slow = |map: &wire::ClusterMap| map.members.iter().filter(|it| it.slow).count();
        (0..nodes).for_each(|node| _ = set_slow(&mut map, node, true));
        assert_eq!(slow(&map), most, "of {nodes}");
        // A failed node is not slow, and of the others no more are slow than allowed.
        kill(&mut map, nodes - 1);
        assert_eq!(slow(&map), most.min(slow_max(nodes as usize - 1)), "of {nodes} but one");
        up(&mut map, nodes - 1, 2);
        assert!(!map.members[nodes as usize - 1].slow);
    }
}

/// A measurement of an earlier incarnation does not apply to the next one.
#[test]
fn only_the_life_that_was_measured_is_slow() {
    let mut map = start(3, 64, 2);
    assert!(set_slow(&mut map, 2, true));
    up(&mut map, 2, 2);
    assert!(!map.members[2].slow);
    let late = wire::SetSlow { node: 2, incarnation: 1, slow: true };
    assert!(!apply(&mut map, &command(Body::SetSlow(late))));
}

#[test]
fn a_fresh_cluster_needs_nothing() {
    for (nodes, copies) in [(1, 1), (2, 2), (3, 2), (4, 2), (5, 3), (7, 3), (12, 2)] {
        let map = start(nodes, 256, copies);
        assert!(is_fully_replicated(&map));
        assert_eq!(plan(&map), [], "{nodes} nodes, {copies} copies");
    }
}

#[test]
fn a_join_moves_what_the_new_node_is_to_hold_and_no_more() {
    for (nodes, copies) in [(1u32, 1u32), (1, 2), (3, 1), (3, 2), (4, 3), (7, 2), (15, 3)] {
        let mut map = start(nodes, 512, copies);
        join(&mut map);
        let made = settle(&mut map);
        let wanted = copies.min(nodes + 1) as usize * 512;
        let share = wanted.div_ceil(nodes as usize + 1);
        assert!(made <= share * 6 / 5, "{made} copies for a share of {share}");
        assert!(is_fully_replicated(&map));
        assert!(copies_spread(&map) <= 1 && homes_spread(&map) <= 1, "{nodes} {copies}");
    }
}

/// Some partitions activate or catch up long after others. The replicas that they will drop do not
/// count as load, however long that takes.
#[test]
fn a_join_moves_no_more_where_some_answer_later_than_others() {
    for (nodes, copies) in [(3u32, 2u32), (4, 3), (5, 3), (7, 2), (15, 2), (15, 3)] {
        for pace in 2..9 {
            let mut map = start(nodes, 512, copies);
            join(&mut map);
            let made = settle_where(&mut map, |round, partition| {
                (round + partition.wrapping_mul(0x9e37_79b9) / 7).is_multiple_of(pace)
            });
            let share = (copies as usize * 512).div_ceil(nodes as usize + 1);
            let what = format!("{made} copies for a share of {share}: {nodes} {copies} {pace}");
            assert!(made <= share * 6 / 5, "{what}");
            assert!(is_fully_replicated(&map), "{what}");
            assert!(copies_spread(&map) <= 1 && homes_spread(&map) <= 1, "{what}");
        }
    }
}

#[test]
fn a_leave_moves_what_the_node_held_and_ends() {
    for (nodes, copies) in [(2u32, 1u32), (4, 1), (4, 2), (5, 3), (8, 2)] {
        let mut map = start(nodes, 512, copies);
        assert!(apply(&mut map, &command(Body::Leave(wire::MemberLeave { node: 1, by_ns: 0 }))));
        let made = settle(&mut map);
        let share = (copies as usize * 512).div_ceil(nodes as usize);
        assert!(made <= share * 6 / 5, "{made} copies for a share of {share}");
        assert_eq!(map.members[1].phase(), wire::MemberPhase::Removed);
        assert!(is_fully_replicated(&map) && !map.voters.contains(&1));
        assert!(copies_spread(&map) <= 1 && homes_spread(&map) <= 1, "{nodes} {copies}");
    }
}

#[test]
fn a_death_is_made_up_for_with_what_the_node_held() {
    for (nodes, copies) in [(3u32, 2u32), (5, 2), (5, 3), (8, 3)] {
        let mut map = start(nodes, 512, copies);
        kill(&mut map, 0);
        assert!(!is_fully_replicated(&map));
        let made = settle(&mut map);
        let share = (copies as usize * 512).div_ceil(nodes as usize);
        assert!(made <= share * 6 / 5, "{made} copies for a share of {share}");
        assert!(is_fully_replicated(&map));
        assert!(copies_spread(&map) <= 1 && homes_spread(&map) <= 1, "{nodes} {copies}");
    }
}

/// n0 and n1 lose their disks and return with empty ones, and their replicas are filled before they
/// vote again. Until then two of n2, n3 and n4 must not fail.
#[test]
fn a_node_with_replicas_and_without_a_vote_makes_no_cluster_whole() {
    let mut map = start(5, 64, 3);
    for voters in [vec![2, 3, 4], vec![0, 2, 3, 4]] {
        map.voters = voters;
        assert!(!is_fully_replicated(&map), "{:?}", map.voters);
    }
    map.voters = vec![0, 1, 2, 3, 4];
    assert!(is_fully_replicated(&map));
}

#[test]
fn two_may_be_lost_at_once_when_three_copies_and_five_votes_are_there() {
    let survived = |nodes, copies| losses_survived(&start(nodes, 64, copies));
    let alone = [(1, 1), (4, 1), (2, 2)].map(|(nodes, copies)| survived(nodes, copies));
    assert_eq!(alone, [0, 0, 0]);
    let one = [(3, 2), (3, 3), (4, 3), (5, 2)].map(|(nodes, copies)| survived(nodes, copies));
    assert_eq!(one, [1, 1, 1, 1]);
    assert_eq!([survived(5, 3), survived(9, 3)], [2, 2]);
    let mut map = start(5, 64, 3);
    kill(&mut map, 0);
    assert_eq!(losses_survived(&map), 0, "no node serves its partitions yet");
    settle(&mut map);
    assert!(is_fully_replicated(&map));
    assert_eq!(losses_survived(&map), 1, "of three votes that are left");
    up(&mut map, 0, 2);
    settle(&mut map);
    assert_eq!(losses_survived(&map), 2);
}

fn join_as(map: &mut wire::ClusterMap, keeper: bool) {
    let node = map.members.len() as u32;
    let store = u64::from(node) + 100;
    let join = wire::MemberJoin { store, keeper, ..Default::default() };
    assert!(apply(map, &command(Body::Join(join))));
    let up = wire::MemberUp { node, incarnation: 1, store, keeper, ..Default::default() };
    assert!(apply(map, &command(Body::Up(up))));
}

#[test]
fn copies_grow_with_the_nodes_and_shrink_when_nodes_have_left() {
    for wanted in [2, 3, 5] {
        let mut map = start(1, 64, wanted);
        for nodes in 1..=6u32 {
            let all = nodes.min(wanted);
            settle(&mut map);
            assert!(is_fully_replicated(&map));
            assert_eq!((map.copies, wanted_copies(&map)), (all.max(2), wanted), "{nodes} nodes");
            assert!(map.partitions.iter().all(|entry| entry.replicas.len() == all as usize));
            assert!(copies_spread(&map) <= 1 && homes_spread(&map) <= 1);
            join(&mut map);
            assert!(nodes >= wanted || !is_fully_replicated(&map), "it has grown, and is not full");
        }
        settle(&mut map);
        // A node that is down may return; a removed one does not.
        kill(&mut map, 6);
        settle(&mut map);
        assert_eq!(map.copies, wanted);
        for left in (1..=6u32).rev() {
            if left < 6 {
                assert!(apply(
                    &mut map,
                    &command(Body::Leave(wire::MemberLeave { node: left, by_ns: 0 }))
                ));
            } else {
                assert!(apply(&mut map, &command(Body::Remove(wire::MemberRemove { node: left }))));
            }
            settle(&mut map);
            assert!(is_fully_replicated(&map), "{left} left: {map:?}");
            assert_eq!(map.copies, left.min(wanted).max(2), "{left} are left");
        }
        join(&mut map);
        settle(&mut map);
        assert_eq!(map.copies, 2);
    }
}

/// Otherwise each change would wait for a second replica that is still to be created.
#[test]
fn three_copies_are_asked_for_when_two_are_there() {
    let mut map = start(1, 16, 3);
    join(&mut map);
    join(&mut map);
    let copies = |commands: &[wire::MapCommand]| {
        commands.iter().find_map(|said| match &said.body {
            Some(Body::SetCopies(set)) => Some(set.copies),
            _ => None,
        })
    };
    assert_eq!(copies(&plan(&map)), None);
    for round in 0..100 {
        let commands = plan(&map);
        let two = map.partitions.iter().all(|entry| entry.active && entry.replicas.len() >= 2);
        assert_eq!(copies(&commands), two.then_some(3), "round {round}");
        if two {
            return;
        }
        commands.iter().for_each(|said| _ = apply(&mut map, said));
        answer(&mut map, |_| true);
    }
    panic!("no second copy was made");
}

#[test]
fn a_keeper_is_home_only_of_what_no_other_node_can_serve() {
    for (workers, keepers, copies) in [(2u32, 1u32, 2), (1, 3, 2), (3, 2, 3), (1, 2, 3)] {
        let mut map = start(1, 64, copies);
        (1..workers).for_each(|_| join_as(&mut map, false));
        (0..keepers).for_each(|_| join_as(&mut map, true));
        settle(&mut map);
        assert!(is_fully_replicated(&map));
        let homes = |map: &wire::ClusterMap| {
            let kept = map.partitions.iter().filter(|entry| is_keeper(map, entry.replicas[0]));
            kept.count()
        };
        assert_eq!(homes(&map), 0, "{workers} workers, {keepers} keepers");
        let held = |node: u32| map.partitions.iter().filter(|e| e.replicas.contains(&node)).count();
        assert!(held(workers) > 0, "a keeper keeps copies");
        // The workers fail one after another; the remaining ones serve their partitions.
        for dead in 0..workers {
            kill(&mut map, dead);
            settle(&mut map);
            assert!(map.partitions.iter().all(|entry| entry.active), "n{dead} is dead");
            assert_eq!(homes(&map), if dead + 1 == workers { 64 } else { 0 });
        }
        up(&mut map, 0, 2);
        settle(&mut map);
        assert_eq!(homes(&map), 0, "a worker is back");
    }
}

#[test]
fn a_worker_beside_keepers_is_filled_with_no_more_copies_at_a_time_than_may_be_made() {
    let mut map = start(1, 1024, 2);
    (0..2).for_each(|_| join_as(&mut map, true));
    settle(&mut map);
    kill(&mut map, 0);
    settle(&mut map);
    join_as(&mut map, false);
    for _ in 0..4 {
        plan(&map).iter().for_each(|said| _ = apply(&mut map, said));
        let learners: usize = map.partitions.iter().map(|entry| entry.learners.len()).sum();
        assert!((1..=PLAN_LEARNERS_MAX).contains(&learners), "{learners}");
    }
    settle(&mut map);
    assert!(map.partitions.iter().all(|entry| !is_keeper(&map, entry.replicas[0])));
}

#[test]
fn what_waits_for_nodes_that_are_down_is_named() {
    let mut map = start(4, 64, 2);
    settle(&mut map);
    assert_eq!(awaited(&map), Awaited::default());
    let both = map
        .partitions
        .iter()
        .filter(|entry| entry.replicas.contains(&2) && entry.replicas.contains(&3));
    let both = both.count();
    kill(&mut map, 2);
    kill(&mut map, 3);
    settle(&mut map);
    let waits = awaited(&map);
    assert_eq!((waits.partitions, waits.nodes), (both, [2, 3].into()));
    up(&mut map, 3, 2);
    settle(&mut map);
    assert_eq!(awaited(&map), Awaited::default());
}

/// Reports count only for the newest map and for nodes that are up.
#[test]
fn all_is_copied_when_every_node_says_so_by_the_newest_map() {
    let mut map = start(3, 16, 2);
    settle(&mut map);
    let said = |node: u32| Said { node, incarnation: 1, map_epoch: map.epoch, lacking: 0 };
    let all = [said(0), said(1), said(2)];
    assert!(has_all_copies(&map, &all));
    assert_eq!(losses_survived_by(&map, &all), 1);
    let wrong = [
        vec![said(0), said(1)],
        vec![said(0), said(1), Said { lacking: 1, ..said(2) }],
        vec![said(0), said(1), Said { map_epoch: map.epoch - 1, ..said(2) }],
        vec![said(0), said(1), Said { incarnation: 2, ..said(2) }],
        vec![said(0), said(1), said(2), said(3)],
    ];
    for said in wrong {
        assert!(!has_all_copies(&map, &said), "{said:?}");
        assert_eq!(losses_survived_by(&map, &said), 0);
    }
}

#[test]
fn one_copy_alone_waits_for_its_node_and_moves_nothing() {
    let mut map = start(4, 512, 1);
    kill(&mut map, 2);
    assert_eq!(settle(&mut map), 0);
    assert!(!is_fully_replicated(&map));
    up(&mut map, 2, 2);
    assert_eq!(settle(&mut map), 0);
    assert!(is_fully_replicated(&map));
}

/// One of three nodes leaves, and most partitions have dropped its replica, when another node fails
/// permanently.
#[test]
fn a_leaving_node_is_called_back_if_too_few_stay() {
    let mut map = start(3, 64, 3);
    assert!(apply(&mut map, &command(Body::Leave(wire::MemberLeave { node: 1, by_ns: 0 }))));
    for said in plan(&map) {
        assert!(apply(&mut map, &said));
    }
    let is_on = |entry: &wire::PartitionEntry, node: u32| entry.replicas.contains(&node);
    assert!(
        map.partitions.iter().any(|entry| !is_on(entry, 1)),
        "the node still has each partition"
    );
    kill(&mut map, 0);
    settle(&mut map);
    assert_eq!(map.members[1].phase(), Leaving, "it is needed");
    let serve = |entry: &wire::PartitionEntry| entry.active && is_on(entry, 1) && is_on(entry, 2);
    assert!(map.partitions.iter().all(serve), "{:?}", map.partitions);
    join(&mut map);
    settle(&mut map);
    assert_eq!(map.members[1].phase(), wire::MemberPhase::Removed);
}

/// A voter that lost its disk can return only after it was removed from the voters.
#[test]
fn a_dead_node_loses_its_vote_although_all_others_leave() {
    let mut map = start(3, 64, 2);
    for node in 0..3 {
        assert!(apply(&mut map, &command(Body::Leave(wire::MemberLeave { node, by_ns: 0 }))));
    }
    kill(&mut map, 1);
    let voters = wanted_voters(&map).expect("the dead one has a vote");
    assert!(!voters.contains(&1), "{voters:?}");
    settle(&mut map);
    assert!(!map.voters.is_empty() && !map.voters.contains(&1), "{:?}", map.voters);
}

#[test]
fn voters_follow_the_living_one_step_at_a_time() {
    let mut map = start(7, 8, 3);
    assert_eq!(map.voters, [0, 1, 2, 3, 4]);
    let mut gone = |node: u32, voters: &[u32]| {
        kill(&mut map, node);
        let mut before = map.voters.clone();
        while let Some(next) = wanted_voters(&map) {
            let added = next.iter().filter(|node| !before.contains(node)).count();
            let removed = before.iter().filter(|node| !next.contains(node)).count();
            assert_eq!(added + removed, 1);
            let set = wire::SetVoters { voters: next.clone() };
            assert!(apply(&mut map, &command(Body::SetVoters(set))));
            check_map(&map).unwrap();
            before = next;
        }
        assert_eq!(map.voters, voters, "after n{node}");
    };
    gone(1, &[0, 2, 3, 4, 5]);
    gone(0, &[2, 3, 4, 5, 6]);
    gone(6, &[2, 3, 4]);
    gone(2, &[3, 4, 5]);
    gone(5, &[3]);
    gone(3, &[4]);
}

/// If a new voter's disk failed, the group would wait for it as well as for the failed one.
#[test]
fn failed_voters_lose_their_vote_before_a_node_joins() {
    let mut map = start(4, 8, 2);
    assert_eq!(map.voters, [0, 1, 2]);
    kill(&mut map, 2);
    assert_eq!(wanted_voters(&map), Some(vec![0, 1]));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    /// After any failures, returns, joins and leaves the planner comes to rest. Each node that is
    /// up then holds equally much, and all possible replicas exist.
    #[test]
    fn it_comes_to_rest_evenly(
        nodes in 1..7u32,
        copies in 1..4u32,
        events in proptest::collection::vec((0..10u32, 0..5u32, any::<bool>()), 0..12),
    ) {
        let mut map = start(nodes, 64, copies);
        for (node, event, rest) in events {
            let node = node % map.members.len() as u32;
            let member = map.members[node as usize].clone();
            match event {
                0 | 1 if member.phase() == Up => kill(&mut map, node),
                2 if map.members.len() < 9 => join(&mut map),
                3 if member.phase() == Up => {
                    apply(&mut map, &command(Body::Leave(wire::MemberLeave { node, by_ns: 0 })));
                }
                _ if member.phase() != wire::MemberPhase::Removed => {
                    up(&mut map, node, member.incarnation + 1);
                }
                _ => {}
            }
            if rest {
                settle(&mut map);
            }
        }
        settle(&mut map);
        // All nodes that are down return, so that all partitions can be active again.
        let down: Vec<u32> = map.members.iter()
            .filter(|member| member.phase() == wire::MemberPhase::Down)
            .map(|member| member.node)
            .collect();
        for node in down {
            let incarnation = map.members[node as usize].incarnation + 1;
            up(&mut map, node, incarnation);
        }
        settle(&mut map);
        if !up_nodes(&map).is_empty() {
            prop_assert!(is_fully_replicated(&map), "{map:?}");
            prop_assert!(copies_spread(&map) <= 1, "{}", copies_spread(&map));
            let leaving = map.members.iter().any(|m| m.phase() == Leaving);
            let enough = up_nodes(&map).len() >= min_in_sync(copies);
            prop_assert!(!leaving || !enough, "a leaving node has left at the end");
            // Primaries can be balanced only along chains of shared partitions.
            prop_assert!(homes_spread(&map) <= 1, "{}", homes_spread(&map));
        }
    }
}
