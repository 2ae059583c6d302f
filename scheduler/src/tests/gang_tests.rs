//! A gang at its leader: what becomes of its nodes when it is revoked.

use proto::wire::GangStep;
use proto::wire::message::Body;
use proto::{Attempt, Event, Incarnation, JobId, LocalId, NodeId, PartitionId, TaskId, Time, wire};

use crate::holder::task::unpack;
use crate::output::Out;
use crate::tests::test_nodes;
use crate::{Options, Policy, Scheduler, Tuning};

const ME: NodeId = NodeId(0);
const OTHER: NodeId = NodeId(1);
const NOW: Time = Time(1);
const ATTEMPT: Attempt = Attempt(7);

fn gang() -> TaskId {
    TaskId { job: JobId(1), local: LocalId::new(PartitionId(0), 0) }
}

/// The leader of a gang of two nodes. The other node is its home.
fn leader() -> (Scheduler, Out) {
    let homes = test_nodes::homes(0, (0..2).map(test_nodes::member).collect(), &[1, 1]);
    let mut leader = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes);
    let mut out = Out::default();
    leader.on_peer_incarnation(NOW, OTHER, Incarnation(1), &mut out);
    push_gang(&mut leader, OTHER, &mut out);
    (leader, out)
}

fn push_gang(leader: &mut Scheduler, home: NodeId, out: &mut Out) {
    let body = Some(wire::spec::Body::Sleep(wire::Sleep::default()));
    let (local, attempt) = (gang().local.0, ATTEMPT.0);
    let bundle = wire::Bundle {
        specs: vec![wire::Spec { body, nodes: 2, ..Default::default() }],
        settings: vec![wire::JobSettings::default()],
        tasks: vec![wire::Placed { job: 1, local, attempt, ..Default::default() }],
    };
    let push = wire::Push { bundle: Some(bundle), ..Default::default() };
    leader.on_message(NOW, home, Body::Push(push), out);
}

fn step(leader: &mut Scheduler, out: &mut Out) {
    leader.settle(NOW, out);
    leader.act(NOW, out);
}

/// Delivers the leader's messages to itself. Returns the steps that the other node is asked for.
fn deliver(leader: &mut Scheduler, out: &mut Out) -> Vec<wire::Gang> {
    let mut asked = Vec::new();
    step(leader, out);
    while !out.reliable.is_empty() {
        for (to, body) in std::mem::take(&mut out.reliable) {
            match body {
                body if to == ME => {
                    leader.on_message(NOW, ME, body, out);
                }
                Body::Gang(said) => asked.push(said),
                _ => {}
            }
        }
        step(leader, out);
    }
    asked
}

/// The other node answers with this step.
fn answer(leader: &mut Scheduler, asked: &wire::Gang, step: GangStep, out: &mut Out) {
    let said = wire::Gang { step: step as i32, ..asked.clone() };
    leader.on_message(NOW, OTHER, Body::Gang(said), out);
}

/// All nodes of the gang have been asked to start, and the other node has not answered.
fn joining() -> (Scheduler, Out, wire::Gang) {
    let (mut leader, mut out) = leader();
    step(&mut leader, &mut out);
    for (asked, answered) in
        [(GangStep::GangReserve, GangStep::GangHeld), (GangStep::GangLock, GangStep::GangLocked)]
    {
        let of_other = deliver(&mut leader, &mut out);
        assert_eq!(of_other.iter().map(wire::Gang::step).collect::<Vec<_>>(), [asked]);
        answer(&mut leader, &of_other[0], answered, &mut out);
    }
    let of_other = deliver(&mut leader, &mut out);
    assert_eq!(of_other[0].step(), GangStep::GangJoin);
    (leader, out, of_other[0].clone())
}

#[test]
fn a_gang_starts_when_all_its_nodes_have_joined() {
    let (mut leader, mut out, join) = joining();
    assert!(out.launches.is_empty());
    answer(&mut leader, &join, GangStep::GangJoined, &mut out);
    deliver(&mut leader, &mut out);
    assert_eq!(out.launches.iter().map(|it| it.task).collect::<Vec<_>>(), [gang()]);
    assert_eq!(leader.holder.slots().free(), 0);
}

/// The first node has an attempt instead.
#[test]
fn the_part_of_another_node_has_events_from_the_start_of_the_gang_to_its_end() {
    let (mut leader, mut out) = leader();
    let homes = test_nodes::homes(1, (0..2).map(test_nodes::member).collect(), &[1, 1]);
    let mut member = test_nodes::scheduler(1, 1, Tuning::of(Policy::Mlb), homes);
    let mut told = Out::default();
    member.on_peer_incarnation(NOW, ME, Incarnation(1), &mut told);
    let exchange =
        |leader: &mut Scheduler, out: &mut Out, member: &mut Scheduler, told: &mut Out| {
            for _ in 0..6 {
                for asked in deliver(leader, out) {
                    member.on_message(NOW, ME, Body::Gang(asked), told);
                }
                step(member, told);
                for (_, body) in std::mem::take(&mut told.reliable) {
                    leader.on_message(NOW, OTHER, body, out);
                }
            }
        };
    let of_parts = |out: &Out| {
        let is_part = |it: &&Event| matches!(it, Event::PartBegan { .. } | Event::PartEnded { .. });
        out.events.iter().filter(is_part).copied().collect::<Vec<_>>()
    };
    exchange(&mut leader, &mut out, &mut member, &mut told);
    assert_eq!(out.launches.len(), 1);
    let (task, attempt) = (gang(), ATTEMPT);
    let began = Event::PartBegan { task, attempt, slot: 0 };
    assert_eq!(of_parts(&told), [began]);
    member.on_peer_incarnation(NOW, ME, Incarnation(2), &mut told);
    step(&mut member, &mut told);
    assert_eq!(of_parts(&told), [began, Event::PartEnded { task, attempt }]);
    assert_eq!(of_parts(&out), []);
}

/// In one step the gang is revoked, because a user has cancelled it, and the last node joins.
#[test]
fn a_gang_that_is_revoked_while_it_joins_frees_its_leader() {
    let (mut leader, mut out, join) = joining();
    let (local, attempt) = (gang().local.0, ATTEMPT.0);
    let tasks = vec![wire::TaskAttempt { job: 1, local, attempt }];
    let revoke = Body::RevokeAttempts(wire::RevokeAttempts { tasks });
    leader.on_message(NOW, OTHER, revoke, &mut out);
    answer(&mut leader, &join, GangStep::GangJoined, &mut out);
    let of_other = deliver(&mut leader, &mut out);
    assert!(of_other.iter().any(|said| said.step() == GangStep::GangRelease), "{of_other:?}");
    assert!(out.launches.is_empty());
    assert_eq!(leader.gang_parts().count(), 0);
    assert_eq!(leader.holder.slots().free(), 1);
}

/// The home learns that it was not this node that failed.
#[test]
fn the_home_of_a_gang_hears_that_a_member_is_gone() {
    let (mut leader, mut out, join) = joining();
    answer(&mut leader, &join, GangStep::GangJoined, &mut out);
    deliver(&mut leader, &mut out);
    assert_eq!(out.launches.len(), 1);
    leader.on_peer_incarnation(NOW, OTHER, Incarnation(2), &mut out);
    step(&mut leader, &mut out);
    let told = out.reliable.iter().filter_map(|(_, body)| match body {
        Body::TasksNotHeld(told) => Some((told.tasks.len(), told.member_gone, told.moved)),
        _ => None,
    });
    assert_eq!(told.collect::<Vec<_>>(), [(1, true, false)]);
}

/// Two of three nodes are there: they could not hold a gang of three.
#[test]
fn a_gang_that_lacks_nodes_names_those_that_are_down() {
    let with = |change: fn(&mut wire::Member)| {
        let mut members: Vec<_> = (0..4).map(test_nodes::member).collect();
        change(&mut members[2]);
        let homes = test_nodes::homes(0, members, &[0, 1]);
        let leader = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes);
        let spec = wire::Spec { nodes: 4, ..Default::default() };
        let bundle = wire::Bundle {
            specs: vec![spec],
            settings: vec![wire::JobSettings::default()],
            tasks: vec![wire::Placed { job: 1, ..Default::default() }],
        };
        let (_, _, work) = unpack(bundle, 2).expect("it is whole").remove(0);
        let mut leader = leader;
        leader.note_class(&work);
        leader.explain_lack(&work)
    };
    let lack =
        |state| format!("it needs 4 nodes at once, and of the 4 nodes that fit n2 is {state}");
    assert_eq!(with(|_| {}), None);
    assert_eq!(with(|it| it.phase = wire::MemberPhase::Down as i32), Some(lack("down")));
    assert_eq!(with(|it| it.phase = wire::MemberPhase::Leaving as i32), Some(lack("drained")));
    assert_eq!(with(|it| it.slow = true), Some(lack("slow")));
    assert!(with(|it| it.paused = true).is_some_and(|it| it.contains("1 of the 4 nodes that fit")));
}

/// The nodes 0 and 2 are one group, and 1, 3 and 4 another one, or have none.
#[test]
fn a_gang_is_of_one_group() {
    let lack = "it needs 4 nodes of one node group at once, and 3 of the 5 nodes of the cluster fit in \
                the largest group, b: it waits for more to join";
    check_groups("group:b", lack);
    let lack = "it needs 4 nodes of one node group at once, and 3 of the 5 nodes of the cluster fit \
                and have no group: it waits for more to join";
    check_groups("fast", lack);
}

fn check_groups(other: &str, lack: &str) {
    let member = |node: u32| {
        let group = resources::Name::group("a");
        let other = resources::Name::label(other).expect("it is a label");
        let label = if node == 0 || node == 2 { group } else { other };
        let cpu = resources::parse_pool("cpus=1").expect("it is a pool");
        let offer = resources::Offer::new(vec![cpu, resources::Pool::label(label)], Vec::new());
        let offer = resources::Totals::from(&offer.expect("an offer")).encode();
        wire::Member { offer, ..test_nodes::member(node) }
    };
    let node_of = |me: u32, nodes: u32| {
        let homes = test_nodes::homes(me, (0..5).map(member).collect(), &[0, 1]);
        let mut node = test_nodes::scheduler(me, 1, Tuning::of(Policy::Mlb), homes);
        let bundle = wire::Bundle {
            specs: vec![wire::Spec { nodes, ..Default::default() }],
            settings: vec![wire::JobSettings::default()],
            tasks: vec![wire::Placed { job: 1, ..Default::default() }],
        };
        let (_, _, work) = unpack(bundle, 2).expect("it is whole").remove(0);
        node.note_class(&work);
        (node, work)
    };
    let (node, work) = node_of(0, 3);
    assert!([1, 3, 4].map(NodeId).contains(&node.leader_of(gang(), &work).expect("there is one")));
    assert!(!node.lacks_nodes_for(&work));
    let (node, work) = node_of(2, 4);
    assert!(node.lacks_nodes_for(&work));
    assert_eq!(node.explain_lack(&work).as_deref(), Some(lack));
}

/// When the node is back, its map still shows the earlier life, which was leaving.
#[test]
fn a_node_that_is_back_holds_for_gangs_although_its_earlier_life_was_leaving() {
    let homes = |incarnation, phase: wire::MemberPhase| {
        let mut members: Vec<_> = (0..2).map(test_nodes::member).collect();
        (members[1].incarnation, members[1].phase) = (incarnation, phase as i32);
        test_nodes::homes(1, members, &[0, 0])
    };
    let before = || homes(1, wire::MemberPhase::Leaving);
    let earlier = test_nodes::scheduler(1, 1, Tuning::of(Policy::Mlb), before());
    let options = Options { incarnation: Incarnation(2), ..earlier.options };
    let (mut member, mut out) = (Scheduler::new(options, before()), Out::default());
    member.on_peer_incarnation(NOW, ME, Incarnation(1), &mut out);
    member.set_homes(NOW, before(), &mut out);
    member.set_homes(NOW, homes(2, wire::MemberPhase::Up), &mut out);
    let (job, local, reserve) = (1, gang().local.0, GangStep::GangReserve as i32);
    let asked = wire::Gang { job, local, attempt: ATTEMPT.0, step: reserve, ..Default::default() };
    member.on_message(NOW, ME, Body::Gang(asked), &mut out);
    step(&mut member, &mut out);
    let is_held = |(to, body): &(NodeId, Body)| {
        *to == ME && matches!(body, Body::Gang(said) if said.step() == GangStep::GangHeld)
    };
    assert!(out.reliable.iter().any(is_held));
    member.set_homes(NOW, homes(2, wire::MemberPhase::Leaving), &mut out);
    assert!(member.objects.is_draining(), "this life leaves");
}

/// Until then the map has the offer of an earlier life, or of the join.
#[test]
fn a_gang_takes_no_node_before_the_map_shows_its_present_life() {
    let reserved = |out: &mut Out| -> Vec<NodeId> {
        let is_it = |(to, body): (NodeId, Body)| match body {
            Body::Gang(said) if said.step() == GangStep::GangReserve => Some(to),
            _ => None,
        };
        std::mem::take(&mut out.reliable).into_iter().filter_map(is_it).collect()
    };
    let gathering = |lives: [u32; 2], heard: u32, moves: bool| {
        let mut members: Vec<_> = (0..3).map(test_nodes::member).collect();
        (members[0].incarnation, members[1].incarnation) = (lives[0], lives[1]);
        let homes = test_nodes::homes(0, members, &[2, 2]);
        let homes = if moves { homes.moving() } else { homes };
        let mut leader = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes);
        let mut out = Out::default();
        for (node, life) in [(1, heard), (2, 1)] {
            leader.on_peer_incarnation(NOW, NodeId(node), Incarnation(life), &mut out);
        }
        push_gang(&mut leader, NodeId(2), &mut out);
        step(&mut leader, &mut out);
        (leader, out)
    };
    let (mut leader, mut out) = gathering([1, 1], 1, true);
    assert_eq!(reserved(&mut out), [ME, NodeId(1)]);
    leader.on_peer_incarnation(NOW, NodeId(1), Incarnation(2), &mut out); // while it gathers
    step(&mut leader, &mut out);
    assert!(reserved(&mut out).contains(&NodeId(2)));
    let reserved_of = |lives, heard, moves| reserved(&mut gathering(lives, heard, moves).1);
    assert_eq!(reserved_of([1, 1], 2, true), [ME, NodeId(2)], "it has restarted");
    assert_eq!(reserved_of([1, 0], 1, true), [ME, NodeId(2)], "it has only joined");
    assert_eq!(reserved_of([0, 1], 1, true), [], "this node is not listed: it waits");
    assert_eq!(reserved_of([0, 0], 1, false), [ME, NodeId(1)], "a map without lives");
}
