//! A paused node finishes what runs and starts nothing.

use proto::wire::message::Body;
use proto::{Incarnation, JobId, NodeId, PartitionId, Time, wire};

use crate::output::Out;
use crate::tests::test_nodes;
use crate::{LedgerRecord, Policy, Scheduler, Tuning};

/// A node of two slots, home of a job of three tasks, beside another node.
fn node() -> (Scheduler, Out) {
    let body = Some(wire::spec::Body::Sleep(wire::Sleep::default()));
    let task = wire::Task { duration_ns: 1_000, ..Default::default() };
    let chunk = wire::Chunk {
        job: 1,
        specs: vec![wire::Spec { body, ..Default::default() }],
        tasks: vec![task; 3],
        ..Default::default()
    };
    let visible = wire::VisibleRecord { chunks: 1, ..Default::default() };
    let homes = test_nodes::homes(0, (0..2).map(test_nodes::member).collect(), &[0, 1]);
    let mut home = test_nodes::scheduler(0, 2, Tuning::of(Policy::Mlb), homes);
    for record in [LedgerRecord::Chunk(chunk), LedgerRecord::Visible(visible)] {
        home.load(Time(1), PartitionId(0), JobId(1), record).expect("records fit one another");
    }
    let mut out = Out::default();
    home.on_peer_incarnation(Time(1), NodeId(1), Incarnation(1), &mut out);
    home.resume(Time(1), &mut out);
    (home, out)
}

fn step(home: &mut Scheduler, now: Time, out: &mut Out) -> usize {
    out.launches.clear();
    home.settle(now, out);
    home.act(now, out);
    out.launches.len()
}

fn pause(home: &mut Scheduler, paused: bool, out: &mut Out) {
    home.retune(Tuning { paused, ..Tuning::of(Policy::Mlb) }, out);
}

#[test]
fn a_paused_node_finishes_what_runs_and_starts_nothing() {
    let (mut home, mut out) = node();
    assert_eq!(step(&mut home, Time(2), &mut out), 2);
    let ran: Vec<_> = out.launches.iter().map(|it| (it.task, it.attempt)).collect();
    pause(&mut home, true, &mut out);
    assert_eq!(step(&mut home, Time(3), &mut out), 0);
    for (task, attempt) in ran {
        home.on_finished(Time(4), task, attempt, Default::default(), &mut out);
    }
    out.best_effort.clear();
    assert_eq!(step(&mut home, Time(5), &mut out), 0, "two slots are free");
    let is_probe = |(_, body): &(NodeId, Body)| matches!(body, Body::StealProbe(_));
    assert!(!out.best_effort.iter().any(is_probe), "it steals nothing");
    // A thief is told of the task that waits here.
    out.best_effort.clear();
    let probe = wire::StealProbe { probe: 1, ..Default::default() };
    home.on_message(Time(6), NodeId(1), Body::StealProbe(probe), &mut out);
    let shared = out.best_effort.iter().find_map(|(_, body)| match body {
        Body::StealLoad(load) => Some(load.shared),
        _ => None,
    });
    assert_eq!(shared, Some(1));
    pause(&mut home, false, &mut out);
    assert_eq!(step(&mut home, Time(7), &mut out), 1);
}
