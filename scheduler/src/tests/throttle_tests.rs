//! A job that runs at most a number of its tasks at once.

use proto::wire::message::Body;
use proto::{Attempt, Incarnation, JobId, LocalId, NodeId, PartitionId, TaskId, Time, wire};

use crate::home::ledger::State;
use crate::output::Out;
use crate::tests::test_nodes;
use crate::{LedgerRecord, Policy, Scheduler, Tuning};

const MINE: PartitionId = PartitionId(0);
const TASKS: u64 = 5;

fn task(index: u64) -> TaskId {
    TaskId { job: JobId(1), local: LocalId::new(MINE, index) }
}

fn chunk() -> wire::Chunk {
    let body = Some(wire::spec::Body::Sleep(wire::Sleep::default()));
    let task = wire::Task { duration_ns: 1_000, ..Default::default() };
    wire::Chunk {
        job: 1,
        specs: vec![wire::Spec { body, ..Default::default() }],
        tasks: vec![task; TASKS as usize],
        ..Default::default()
    }
}

/// A home of the job, which runs at most two tasks. By its records node 1 holds the last one.
fn recovered() -> (Scheduler, Out) {
    let settings = Some(wire::JobSettings { at_most: 2, ..Default::default() });
    let visible = wire::VisibleRecord { settings, chunks: 1, ..Default::default() };
    let held = wire::HolderRecord {
        index: vec![TASKS - 1],
        attempt: vec![7],
        node: vec![1],
        incarnation: vec![1],
        ..Default::default()
    };
    let records =
        [LedgerRecord::Chunk(chunk()), LedgerRecord::Visible(visible), LedgerRecord::Holder(held)];
    let homes = test_nodes::homes(0, (0..2).map(test_nodes::member).collect(), &[0, 1]);
    let mut home = test_nodes::scheduler(0, 4, Tuning::of(Policy::Mlb), homes);
    for record in records {
        home.load(Time(1), MINE, JobId(1), record).expect("records fit one another");
    }
    let mut out = Out::default();
    home.on_peer_incarnation(Time(1), NodeId(1), Incarnation(1), &mut out);
    home.resume(Time(1), &mut out);
    (home, out)
}

fn placed(home: &Scheduler) -> Vec<u64> {
    let is_placed = |index: &u64| home.home.ledger.state(task(*index)) == Some(State::Ready);
    (0..TASKS).filter(is_placed).collect()
}

#[test]
fn a_recovered_home_counts_tasks_that_other_nodes_hold() {
    let (mut home, mut out) = recovered();
    home.settle(Time(2), &mut out);
    assert_eq!(placed(&home), [0, 4], "at most two, and the first ones first");
    assert_eq!(home.home.ledger.throttled_by(task(1)), Some(2));
    assert_eq!(home.home.ledger.throttled_by(task(0)), None);
    assert!(!home.home.ledger.has_work(), "a held task is no work");
    let completion = wire::Completion {
        job: 1,
        local: task(4).local.0,
        attempt: Attempt(7).0,
        verdict: wire::Verdict::Done as i32,
        node: 1,
        ..Default::default()
    };
    let finished = wire::Finished { completions: vec![completion] };
    home.on_message(Time(3), NodeId(1), Body::Finished(finished), &mut out);
    assert!(home.home.ledger.has_work(), "a place is free");
    home.settle(Time(3), &mut out);
    assert_eq!(placed(&home), [0, 1]);
}

#[test]
fn a_limited_job_has_one_partition_and_is_not_open() {
    let homes = test_nodes::homes(0, (0..2).map(test_nodes::member).collect(), &[0, 1]);
    let mut jobs = crate::home::jobs::Jobs::new(None);
    let mut commit = |at_most, partitions: u32, openness: wire::Openness| {
        let total = |partition| wire::PartitionTotal { partition, chunks: 1, tasks: 1 };
        let commit = wire::JobCommit {
            job: 1,
            settings: Some(wire::JobSettings { at_most, ..Default::default() }),
            partitions: (0..partitions).map(total).collect(),
            openness: openness as i32,
            ..Default::default()
        };
        jobs.commit(Time(1), commit, &homes, &mut Out::default())
    };
    let closed = wire::Openness::ClosedGraph;
    assert!(commit(3, 2, closed).expect_err("two homes").contains("one partition"));
    assert!(commit(3, 0, wire::Openness::Open).expect_err("it grows").contains("one partition"));
    assert_eq!(commit(3, 1, closed), Ok(()));
}
