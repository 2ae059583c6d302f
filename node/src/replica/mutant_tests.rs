//! Mutants that seeds hardly ever show: each is wrong in one order of events at one node.

use crate::Mutant;
use proto::wire::map_command::Body as Change;
use proto::{NodeId, Span, Time, wire};

use super::ReplicaQueryKind;
use super::tests::{P, Scenario};
use crate::replica::limits::LEASE_GIVEN;

/// A scenario that returns whether it succeeds.
type ScenarioRun = fn(Option<Mutant>) -> bool;

const SCENARIOS: [(Mutant, ScenarioRun); Mutant::OF_ONE_SIDE.len()] = [
    (Mutant::RefusalsIgnored, what_is_refused_is_not_everywhere),
    (Mutant::FormerMembersDropReplica, a_former_member_keeps_its_replica),
    (Mutant::TailsUnsent, a_lagging_member_is_brought_along),
    (Mutant::ShortestWins, the_furthest_is_followed),
    (Mutant::LeasesForgotten, an_earlier_life_may_have_given_a_lease),
];

#[test]
fn every_mutant_of_one_side_is_found() {
    for (mutant, telling) in SCENARIOS {
        assert!(Mutant::OF_ONE_SIDE.contains(&mutant));
        assert!(telling(None), "{} is wrong without the bug", mutant.name());
        assert!(!telling(Some(mutant)), "{} is not found", mutant.name());
    }
}

fn change(seq: u64) -> wire::Change {
    wire::Change {
        partition: P.0,
        epoch: 1,
        before: Some(wire::Position { epoch: u64::from(seq > 1), seq: seq - 1 }),
        after: Some(wire::Position { epoch: 1, seq }),
        ..Default::default()
    }
}

fn what_is_refused_is_not_everywhere(mutant: Option<Mutant>) -> bool {
    let mut n0 = Scenario::broken(0, mutant);
    n0.write();
    n0.hear(1, true);
    n0.hear(2, false);
    !n0.is_everywhere()
}

/// The primary may be lost permanently before it registers alone.
fn a_former_member_keeps_its_replica(mutant: Option<Mutant>) -> bool {
    let mut n1 = Scenario::broken(1, mutant);
    n1.agree(Change::SetCopies(wire::SetCopies { copies: 2 }));
    n1.agree(n1.drop_of(2));
    let replicate = wire::Replicate { number: 1, changes: vec![change(1)], client_waits: false };
    n1.replica.on_replicate(NodeId(0), replicate);
    n1.step();
    let up = wire::MemberUp { node: 1, incarnation: 2, store: 2, slots: 1, ..Default::default() };
    n1.replica.incarnation.0 = 2;
    n1.agree(Change::Up(up));
    // The planner wants the new replica on another node.
    n1.agree(n1.drop_of(1));
    assert_eq!(n1.map.partitions[0].former, [1]);
    n1.step();
    !n1.replica.copies.is_installing_snapshot(P)
}

/// A member of three becomes primary: its own position, and the position that another one reports.
fn takes_over(mutant: Option<Mutant>, own: u64, other: u64) -> Scenario {
    let mut n1 = Scenario::broken(1, mutant);
    let changes = (1..=own).map(change).collect();
    n1.replica.on_replicate(NodeId(0), wire::Replicate { number: 1, changes, client_waits: false });
    n1.step();
    n1.hand_over(1);
    n1.step();
    for node in [0, 2] {
        n1.answer(node, ReplicaQueryKind::Drained, wire::Position::default());
    }
    n1.step();
    for (node, seq) in [(0, own), (2, other)] {
        let answer = wire::ReplicaAnswer {
            partition: P.0,
            epoch: n1.epoch(),
            kind: ReplicaQueryKind::Prepare as i32,
            position: Some(wire::Position { epoch: 1, seq }),
            installing_snapshot: false,
            tail: (own + 1..=seq).map(change).collect(),
        };
        n1.replica.member_answered(NodeId(node), answer);
    }
    n1.step();
    n1
}

fn a_lagging_member_is_brought_along(mutant: Option<Mutant>) -> bool {
    let n1 = takes_over(mutant, 2, 1);
    n1.replica.shipping.is_open_elsewhere(NodeId(1), P)
}

fn the_furthest_is_followed(mutant: Option<Mutant>) -> bool {
    let n1 = takes_over(mutant, 1, 2);
    wire::Position::from(n1.replica.copies.position(P)) == wire::Position { epoch: 1, seq: 2 }
}

fn an_earlier_life_may_have_given_a_lease(mutant: Option<Mutant>) -> bool {
    let mut n2 = Scenario::broken(2, mutant);
    n2.hand_over(1);
    let kind = ReplicaQueryKind::Prepare as i32;
    let query = wire::ReplicaQuery {
        partition: P.0,
        epoch: n2.epoch(),
        kind,
        position: None,
        map_epoch: n2.map.epoch,
    };
    n2.replica.pending_queries.add(NodeId(1), vec![query]);
    let promises = |n2: &mut Scenario, now: Time| {
        n2.replica.end_step(now, 0, 0, false);
        n2.replica.copies.promised(P) == n2.epoch()
    };
    // It has just started.
    let early = promises(&mut n2, Time(0) + LEASE_GIVEN - Span(1));
    !early && promises(&mut n2, Time(0) + LEASE_GIVEN)
}
