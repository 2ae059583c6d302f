//! The chunks that leave memory when a node keeps too many ended ones.

use proto::limits::CHUNK_TASKS_MAX;
use proto::wire::message::Body;
use proto::{Attempt, JobId, LocalId, NodeId, PartitionId, TaskId, Time, wire};

use crate::home::ledger::{End, Ending, Ledger};
use crate::limits::RETIRED_WEIGHT_MAX;
use crate::output::Out;
use crate::routing::partition_owners::Homes;
use crate::tests::test_nodes;

const MINE: PartitionId = PartitionId(0);
const OTHER: PartitionId = PartitionId(1);

fn homes() -> Homes {
    test_nodes::homes(0, (0..2).map(test_nodes::member).collect(), &[0, 1])
}

fn parent() -> TaskId {
    TaskId { job: JobId(1), local: LocalId::new(MINE, 0) }
}

/// A job of one task here with a child on another node, or of many tasks without children.
fn job(job: u64, tasks: usize, ledger: &mut Ledger, out: &mut Out) {
    let children = wire::Children {
        index: 0,
        child: vec![LocalId::new(OTHER, 0).0],
        slot: vec![0],
        output: vec![0],
    };
    let chunk = wire::Chunk {
        job,
        partition: MINE.0,
        specs: vec![wire::Spec::default()],
        tasks: vec![wire::Task::default(); tasks],
        children: if tasks == 1 { vec![children] } else { Vec::new() },
        ..Default::default()
    };
    ledger.accept_chunk(Time(1), chunk, out).expect("it is well formed");
    let total = wire::PartitionTotal { partition: MINE.0, chunks: 1, tasks: tasks as u64 };
    let commit = wire::JobCommit { job, partitions: vec![total], ..Default::default() };
    let visible = wire::Visible { commit: Some(commit), ..Default::default() };
    assert!(ledger.make_visible(Time(1), &visible, &homes(), out));
}

fn end(task: TaskId, term: u32, ledger: &mut Ledger, out: &mut Out) -> Attempt {
    let attempt = ledger.begin_attempt(task, term);
    ledger.end(Time(2), task, End::Done, NodeId(0), Ending::default(), out);
    attempt
}

fn told(ledger: &mut Ledger) -> Vec<u64> {
    let mut out = Out::default();
    ledger.pump(Time(3), &homes(), 100, &mut out);
    let credits = out.reliable.into_iter().filter_map(|(to, body)| match body {
        Body::Credits(credits) if to == NodeId(1) => Some(credits.credits),
        _ => None,
    });
    credits.flatten().map(|credit| credit.attempt).collect()
}

#[test]
fn a_task_that_has_children_to_tell_stays_in_memory() {
    let (mut ledger, mut out) =
        (Ledger::new(NodeId(0), proto::Incarnation(1), false, None), Out::default());
    job(1, 1, &mut ledger, &mut out);
    let first = end(parent(), 1, &mut ledger, &mut out);
    assert_eq!(told(&mut ledger), [first.0]);
    // The chunk is not needed any more. Then the task runs again, and its child gets no credit at
    // once.
    ledger.reopen(parent());
    let second = end(parent(), 1, &mut ledger, &mut out);
    for number in 2..=2 + (RETIRED_WEIGHT_MAX / CHUNK_TASKS_MAX) as u64 {
        job(number, CHUNK_TASKS_MAX, &mut ledger, &mut out);
        for index in 0..CHUNK_TASKS_MAX as u64 {
            let task = TaskId { job: JobId(number), local: LocalId::new(MINE, index) };
            ledger.end(Time(2), task, End::Cancelled, NodeId(0), Ending::default(), &mut out);
        }
    }
    assert!(ledger.cell(parent()).is_some(), "it is not told yet");
    assert_eq!(told(&mut ledger), [second.0]);
}
