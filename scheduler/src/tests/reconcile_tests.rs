//! The credits that the reconciler asks for, the times, and which of them are counted.

use proto::wire::message::Body;
use proto::{Event, JobId, LocalId, NodeId, PartitionId, Time, wire};

use crate::limits::{RECONCILE_INTERVAL, RECONCILE_SKIPS_MAX, RECONCILE_TASKS_MAX};
use crate::output::Out;
use crate::tests::test_nodes;
use crate::{Homes, LedgerRecord, Policy, Scheduler, Tuning};

const MINE: PartitionId = PartitionId(1);
const PARENT: LocalId = LocalId(0);

/// Node 0 is home of the tasks, another node of their parent.
fn homes(of_parent: u32) -> Homes {
    let members = (0..3).map(test_nodes::member).collect();
    test_nodes::homes(0, members, &[of_parent, 0]).moving()
}

/// This number of tasks waits here for the same parent.
fn waiting(tasks: usize) -> Scheduler {
    waiting_in(tasks, wire::Openness::ClosedGraph)
}

fn waiting_in(tasks: usize, openness: wire::Openness) -> Scheduler {
    let mut node = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes(1));
    let body = Some(wire::spec::Body::Sleep(Default::default()));
    let parents = |index| {
        let (parent, output) = (vec![PARENT.0], vec![0]);
        wire::Parents { index, parent, output, ..Default::default() }
    };
    let chunk = wire::Chunk {
        job: 1,
        partition: MINE.0,
        open: openness == wire::Openness::Open,
        specs: vec![wire::Spec { body, ..Default::default() }],
        tasks: vec![wire::Task { slots: 1, ..Default::default() }; tasks],
        parents: (0..tasks as u64).map(parents).collect(),
        ..Default::default()
    };
    let openness = openness as i32;
    let visible = wire::VisibleRecord { chunks: 1, openness, ..Default::default() };
    for record in [LedgerRecord::Chunk(chunk), LedgerRecord::Visible(visible)] {
        node.adopt(Time(0), MINE, JobId(1), record).expect("records fit one another");
    }
    node.serve(Time(0), MINE, 2, &mut Out::default());
    node
}

fn asked(out: &mut Out) -> Vec<wire::CreditRequest> {
    let asks =
        std::mem::take(&mut out.best_effort).into_iter().filter_map(|(_, body)| match body {
            Body::CreditQuery(query) => Some(query.requests),
            _ => None,
        });
    asks.flatten().collect()
}

#[test]
fn however_many_wait_each_is_asked_for_in_its_turn() {
    let (mut node, mut out) = (waiting(RECONCILE_TASKS_MAX + 2), Out::default());
    node.act(Time(0), &mut out);
    let mut children = |round: u64| {
        node.act(Time(round * RECONCILE_INTERVAL.0), &mut out);
        asked(&mut out).iter().map(|ask| LocalId(ask.child).index()).collect::<Vec<u64>>()
    };
    let max = RECONCILE_TASKS_MAX as u64;
    assert_eq!(children(0), [0; 0], "they have just begun to wait");
    assert_eq!(children(1), (0..max).collect::<Vec<u64>>());
    assert_eq!(children(2), [max, max + 1]);
    assert_eq!(children(3).len(), RECONCILE_TASKS_MAX, "and again from the first on");
}

/// The home of the parent may hold a credit until the edge is synced. A round would overtake that.
#[test]
fn a_parent_is_asked_once_its_home_has_confirmed_the_edge() {
    let (mut node, mut out) = (waiting_in(1, wire::Openness::Open), Out::default());
    node.act(Time(0), &mut out);
    let mut asks = |node: &mut Scheduler, round: u64| {
        node.act(Time(RECONCILE_INTERVAL.0 * round), &mut out);
        asked(&mut out).len()
    };
    assert_eq!(asks(&mut node, 1), 0);
    let kept = wire::LateEdgesKept { job: 1, child_partition: MINE.0, ..Default::default() };
    let kept = Body::LateEdgesKept(kept);
    node.on_message(Time(RECONCILE_INTERVAL.0), NodeId(1), kept, &mut Out::default());
    assert_eq!(asks(&mut node, 2), 1);
}

/// A home that has changed is asked anyway, and a round would overtake that.
#[test]
fn a_home_that_has_just_changed_is_left_out_of_a_round() {
    let rounds_that_ask = |changed_at: u64| {
        let (mut node, mut out) = (waiting(1), Out::default());
        node.act(Time(0), &mut out);
        node.set_homes(Time(RECONCILE_INTERVAL.0 * changed_at / 2), homes(2), &mut out);
        out.best_effort.clear();
        let mut asks = |round: u64| {
            node.act(Time(RECONCILE_INTERVAL.0 * round), &mut out);
            !asked(&mut out).is_empty()
        };
        [1, 2].map(&mut asks)
    };
    assert_eq!(rounds_that_ask(0), [true, true]);
    assert_eq!(rounds_that_ask(1), [false, true]);
}

/// ... and so are tasks that wait at such a home.
#[test]
fn what_has_just_been_taken_over_is_left_out_of_a_round() {
    let (mut node, mut out) = (waiting(1), Out::default());
    node.act(Time(0), &mut out);
    let members = (0..3).map(test_nodes::member).collect();
    let newer = test_nodes::homes_since(2, 0, members, &[1, 0]).moving();
    let mut changed = std::collections::BTreeSet::new();
    changed
        .extend(newer.changed_since(node.routing.homes()).filter(|&partition| partition == MINE));
    assert_eq!(changed.len(), 1);
    node.home.homes_changed(Time(1), &changed);
    let mut asks = |round: u64| {
        node.act(Time(RECONCILE_INTERVAL.0 * round), &mut out);
        !asked(&mut out).is_empty()
    };
    assert_eq!([1, 2].map(&mut asks), [false, true]);
}

#[test]
fn homes_that_change_all_the_time_do_not_keep_it_from_asking() {
    let (mut node, mut out) = (waiting(1), Out::default());
    let mut rounds = Vec::new();
    for tenth in 0..=60 {
        let now = Time(RECONCILE_INTERVAL.0 / 10 * tenth);
        node.set_homes(now, homes(1 + tenth as u32 % 2), &mut out);
        out.best_effort.clear();
        node.act(now, &mut out);
        rounds.extend(asked(&mut out).iter().map(|_| tenth / 10));
    }
    let first = u64::from(RECONCILE_SKIPS_MAX) + 1;
    assert_eq!(rounds, (first..=6).collect::<Vec<_>>());
}

/// Such homes are asked anyway, and earlier questions are no evidence about links. Other partitions
/// are not concerned.
#[test]
fn what_comes_while_new_homes_are_asked_was_not_lost() {
    let woken = |newer: Homes, since_change: u64| {
        let (mut node, mut out) = (waiting(1), Out::default());
        node.set_homes(Time(0), newer, &mut out);
        let credit = wire::Credit {
            job: 1,
            parent: PARENT.0,
            verdict: wire::Verdict::Done as i32,
            child: vec![LocalId::new(MINE, 0).0],
            slot: vec![0],
            output: vec![0],
            ..Default::default()
        };
        let credits = wire::Credits { credits: vec![credit], reconciled: true };
        node.on_message(Time(since_change), NodeId(2), Body::Credits(credits), &mut out);
        out.events.iter().any(|event| matches!(event, Event::MissedWakeupRepaired { .. }))
    };
    let moments = [0, RECONCILE_INTERVAL.0 - 1, RECONCILE_INTERVAL.0];
    assert_eq!(moments.map(|moment| woken(homes(2), moment)), [false, false, true]);
    let members = (0..3).map(test_nodes::member).collect();
    let other = test_nodes::homes(0, members, &[1, 0, 2, 2]).moving();
    assert!(woken(other, 0));
}
