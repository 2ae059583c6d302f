//! Reports of moved tasks at their home.

use proto::wire::message::Body;
use proto::{NodeId, wire};

use crate::home::ledger::Cell;
use crate::output::Out;
use crate::tests::failover_tests::{home_of_command, task};

/// Node 1 starts the task, and reports only then that node 2 had it before and died.
#[test]
fn a_late_report_of_an_earlier_death_does_not_withdraw_the_start() {
    let (mut heir, attempt) = home_of_command(3);
    let mut out = Out::default();
    let told = |starts, gone_incarnation| {
        let moved = wire::TaskAttempt { job: 1, local: task().local.0, attempt: attempt.0 };
        let (tasks, gone_node) = (vec![moved], 2);
        wire::TasksMoved { tasks, starts, gone_node, gone_incarnation, ..Default::default() }
    };
    heir.on_tasks_moved(NodeId(1), &told(true, 0), &mut out);
    heir.on_tasks_moved(NodeId(1), &told(false, 1), &mut out);
    let started = heir.home.ledger.cell(task()).map(Cell::has_started);
    let deaths = heir.home.ledger.work(task()).map(|work| work.deaths);
    assert_eq!((started, deaths), (Some(true), Some(1)));
}

/// A victim takes a task back from a thief that died. That thief had given it to another node,
/// which has reported it.
#[test]
fn a_task_that_another_node_has_is_not_taken_back() {
    let (mut heir, attempt) = home_of_command(4);
    let mut out = Out::default();
    let told = |gone_node, gone_incarnation| {
        let moved = wire::TaskAttempt { job: 1, local: task().local.0, attempt: attempt.0 };
        wire::TasksMoved { tasks: vec![moved], gone_node, gone_incarnation, ..Default::default() }
    };
    let mut stale = |from, told: &wire::TasksMoved| {
        out.reliable.clear();
        heir.on_tasks_moved(NodeId(from), told, &mut out);
        let holder = heir.home.ledger.cell(task()).expect("it is homed here").holder();
        let acks = out.reliable.iter().filter_map(|(_, body)| match body {
            Body::TasksMovedAck(ack) => Some(ack.stale.len()),
            _ => None,
        });
        (holder, acks.sum::<usize>())
    };
    assert_eq!(stale(1, &told(0, 0)), (NodeId(1), 0));
    assert_eq!(stale(2, &told(3, 1)), (NodeId(1), 1), "node 1 has it");
    assert_eq!(stale(1, &told(3, 1)), (NodeId(1), 0));
}
