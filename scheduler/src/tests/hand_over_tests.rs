//! When a home moves in order, tasks that only this node can run stay.

use proto::{JobId, NodeId, Time, wire};

use crate::LedgerRecord;
use crate::output::{Out, task_attempt};
use crate::tests::failover_tests::{MOVES, heir, task, until_visible};

/// The file is on this node only: wherever the home moves, the task waits for its turn here.
#[test]
fn a_task_that_only_this_node_can_run_waits_here_when_its_home_moves() {
    let (mut home, mut out) = (heir(), Out::default());
    let body = Some(wire::spec::Body::Upload(Default::default()));
    let spec = wire::Spec { body, ..Default::default() };
    let [chunk, visible] = until_visible();
    let LedgerRecord::Chunk(chunk) = chunk else { unreachable!("the chunk is first") };
    let chunk = LedgerRecord::Chunk(wire::Chunk { specs: vec![spec], ..chunk });
    for record in [chunk, visible] {
        home.adopt(Time(0), MOVES, JobId(1), record).expect("records fit one another");
    }
    home.serve(Time(0), MOVES, 2, &mut out);
    home.settle(Time(0), &mut out);
    let attempt = home.home.ledger.cell(task()).expect("it is homed here").attempt();
    home.hand_over_partitions(&[MOVES].into(), &mut out);
    let said = &out.facts.holders[&(MOVES, JobId(1))];
    assert_eq!((said.attempt.last(), said.node.last()), (Some(&attempt.0), Some(&0)));
    home.give_up(MOVES, &mut out);
    assert_eq!(home.census().held.into_iter().collect::<Vec<_>>(), [(task(), attempt)]);
    let asked = [task_attempt(task(), attempt)];
    home.on_held_tasks_query(NodeId(1), &asked, &mut out);
    assert_eq!(out.reliable, [], "it has it");
    home.holder.slots_mut().give_back(Some(crate::holder::slots::Seat { first: 0, claim: None }));
    home.act(Time(0), &mut out);
    assert_eq!(out.launches.iter().map(|it| it.task).collect::<Vec<_>>(), [task()]);
}
