//! The reports about a silent job while the homes of its tasks move.

use proto::event::Stall;
use proto::wire::message::Body;
use proto::{ClientId, Event, NodeId, Time, wire};

use crate::limits::STALL_LOOK_INTERVAL;
use crate::output::Out;
use crate::tests::test_nodes;
use crate::{Homes, Policy, Request, Scheduler, Tuning};

/// Node 0 is home of the job, and of partition 0.
fn homes(home_of_tasks: u32) -> Homes {
    test_nodes::homes(0, (0..3).map(test_nodes::member).collect(), &[0, home_of_tasks])
}

fn node() -> Scheduler {
    test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes(1))
}

/// No node ever answers. Returns the check in which the job is reported as stalled, and the home
/// that is named. Node 2 becomes home of its tasks just before the check of this number.
fn stalls(moves_before: Option<u64>) -> (u64, NodeId) {
    let (mut node, mut out) = (node(), Out::default());
    let total = wire::PartitionTotal { partition: 1, chunks: 1, tasks: 1 };
    let commit = wire::JobCommit { job: 1, partitions: vec![total], ..Default::default() };
    node.on_request(Time(0), ClientId(1), 1, Request::Commit(commit), &mut out);
    for look in 0..100 {
        let now = Time(look * STALL_LOOK_INTERVAL.0);
        if moves_before == Some(look) {
            node.set_homes(now, homes(2), &mut out);
        }
        node.act(now, &mut out);
        for event in std::mem::take(&mut out.events) {
            if let Event::Stalled { stall, home, .. } = event {
                assert_eq!(stall, Stall::HomeSilent);
                return (look, home);
            }
        }
    }
    panic!("no report of the stall");
}

#[test]
fn a_new_home_has_as_long_to_answer_as_the_earlier_one_had() {
    let (look, home) = stalls(None);
    assert_eq!(home, NodeId(1));
    assert_eq!(stalls(Some(look)), (look + 1, NodeId(2)), "it is asked before it is named");
}

/// The number of rounds of questions within an hour, if the only home of tasks answers each at
/// once.
fn rounds_within_an_hour(rests_ns: u64) -> usize {
    let (mut node, mut out) = (node(), Out::default());
    let total = wire::PartitionTotal { partition: 1, chunks: 1, tasks: 1 };
    let commit = wire::JobCommit { job: 1, partitions: vec![total], ..Default::default() };
    node.on_request(Time(0), ClientId(1), 1, Request::Commit(commit), &mut out);
    let mut rounds = 0;
    for look in 0..360 {
        let now = Time(look * STALL_LOOK_INTERVAL.0);
        node.act(now, &mut out);
        for (to, body) in std::mem::take(&mut out.best_effort) {
            let Body::ProgressQuery(ask) = body else { continue };
            assert_eq!(to, NodeId(1));
            rounds += 1;
            let report = wire::ProgressReport {
                job: 1,
                round: ask.round,
                alive: true,
                rests_ns,
                ..Default::default()
            };
            node.on_message(now, to, Body::ProgressReport(report), &mut out);
        }
        assert!(!out.events.iter().any(|event| matches!(event, Event::Stalled { .. })));
    }
    rounds
}

#[test]
fn a_job_that_awaits_a_release_time_is_not_probed_before_it() {
    let half_an_hour = 1_800_000_000_000;
    assert!(rounds_within_an_hour(0) > 30);
    // One round before the release, and those after it.
    let rounds = rounds_within_an_hour(half_an_hour);
    assert!((1..=2).contains(&rounds), "{rounds}");
}

#[test]
fn a_node_that_does_not_know_a_job_reports_nothing_about_it() {
    let (mut node, mut out) = (node(), Out::default());
    let ask = wire::ProgressQuery { job: 1, round: 1, reply_to: 2, ..Default::default() };
    node.on_message(Time(0), NodeId(2), Body::ProgressQuery(ask.clone()), &mut out);
    assert!(out.best_effort.is_empty(), "{:?}", out.best_effort);
    // About a task that it should hold it answers that the task is not here.
    let tasks = vec![wire::TaskAttempt { job: 1, local: 1 << 40, attempt: 1 }];
    let ask = wire::ProgressQuery { tasks, ..ask };
    node.on_message(Time(0), NodeId(2), Body::ProgressQuery(ask), &mut out);
    let is_not_here = |body: &Body| match body {
        Body::ProgressReport(report) => {
            report.stall.as_ref().is_some_and(|stall| stall.why == Stall::NotHere as u32)
        }
        _ => false,
    };
    assert!(
        matches!(&out.best_effort[..], [(NodeId(2), body)] if is_not_here(body)),
        "{:?}",
        out.best_effort
    );
}
