//! Reports of moved tasks at their home.

use proto::wire::message::Body;
use proto::{NodeId, Time, wire};

use crate::output::Out;
use crate::tests::failover_tests::{inherit_command, task};
use crate::tests::test_nodes;
use crate::{Policy, Tuning};

/// A victim takes a task back from a thief that died. That thief had given it to another node,
/// which has reported it.
#[test]
fn a_task_that_another_node_has_is_not_taken_back() {
    let members = (0..4).map(test_nodes::member).collect();
    let homes = test_nodes::homes(0, members, &[0, 1]).moving();
    let mut heir = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes);
    let mut out = Out::default();
    heir.holder.slots_mut().take_cpus(1);
    inherit_command(&mut heir, &mut out);
    heir.settle(Time(0), &mut out);
    let attempt = heir.home.ledger.cell(task()).expect("it is homed here").attempt();
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
