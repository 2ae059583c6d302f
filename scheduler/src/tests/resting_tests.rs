//! Attempts that wait for other tasks without their slots.

use proto::wire::message::Body;
use proto::{Attempt, LocalId, NodeId, PartitionId, TaskId, Time, wire};

use crate::output::Out;
use crate::tests::test_nodes;
use crate::{Policy, Scheduler, Tuning};

fn task(index: u64) -> TaskId {
    TaskId::new(1, LocalId::new(PartitionId(1), index).0)
}

struct Node {
    scheduler: Scheduler,
    out: Out,
}

impl Node {
    /// A node with two slots, and tasks of node 1 with these numbers of cpus.
    fn with(cpus: &[u32]) -> Self {
        let homes = test_nodes::homes(0, (0..2).map(test_nodes::member).collect(), &[0, 1]);
        let scheduler = test_nodes::scheduler(0, 2, Tuning::of(Policy::Mlb), homes);
        let mut node = Self { scheduler, out: Out::default() };
        let placed = |index: usize| wire::Placed {
            job: 1,
            local: task(index as u64).local.0,
            attempt: 1,
            spec: index as u32,
            ..Default::default()
        };
        let body = Some(wire::spec::Body::Sleep(wire::Sleep {}));
        let spec = |&cpus| wire::Spec { cpus, body: body.clone(), ..Default::default() };
        let bundle = Some(wire::Bundle {
            specs: cpus.iter().map(spec).collect(),
            settings: vec![wire::JobSettings::default()],
            tasks: (0..cpus.len()).map(placed).collect(),
        });
        let push = Body::Push(wire::Push { bundle, ..Default::default() });
        node.scheduler.on_message(Time(0), NodeId(1), push, &mut node.out);
        node
    }

    /// Ends a step: the tasks that start, and those that go on.
    fn step(&mut self) -> (Vec<TaskId>, Vec<TaskId>) {
        self.scheduler.act(Time(1), &mut self.out);
        let starts = self.out.launches.drain(..).map(|launch| launch.task).collect();
        (starts, self.goes_on())
    }

    fn goes_on(&mut self) -> Vec<TaskId> {
        let goes_on = self.out.goes_on.take().into_iter().flat_map(|all| *all);
        goes_on.map(|(task, _)| task).collect()
    }

    fn rests(&mut self, index: u64, rests: bool) -> (Vec<TaskId>, Vec<TaskId>) {
        self.scheduler.on_rests(task(index), Attempt(1), rests, &mut self.out);
        self.step()
    }

    fn finish(&mut self, index: u64) -> (Vec<TaskId>, Vec<TaskId>) {
        let (task, attempt) = (task(index), Attempt(1));
        self.scheduler.on_finished(Time(1), task, attempt, Box::default(), &mut self.out);
        self.step()
    }
}

#[test]
fn an_attempt_that_rests_gives_its_slots_to_others_and_goes_on_before_later_tasks() {
    let mut node = Node::with(&[2, 1, 1, 1]);
    assert_eq!(node.step().0, [task(0)]);
    assert_eq!(node.rests(0, true).0, [task(1), task(2)], "both slots are free");
    assert_eq!(node.rests(0, true), (vec![], vec![]), "a repetition changes nothing");
    assert_eq!(node.rests(0, false), (vec![], vec![]), "it has to wait for two slots");
    assert_eq!(node.finish(1), (vec![], vec![]), "task 3 does not overtake it");
    assert_eq!(node.finish(2), (vec![], vec![task(0)]));
    assert_eq!(node.rests(0, false), (vec![], vec![task(0)]), "it has its slots");
    assert_eq!(node.finish(0).0, [task(3)]);
}

#[test]
fn a_paused_node_gives_a_resting_attempt_its_slots_back() {
    let mut node = Node::with(&[2, 1, 1]);
    assert_eq!(node.step().0, [task(0)]);
    assert_eq!(node.rests(0, true).0, [task(1), task(2)]);
    let paused = Tuning { paused: true, ..Tuning::of(Policy::Mlb) };
    node.scheduler.retune(paused, &mut node.out);
    assert_eq!(node.rests(0, false), (vec![], vec![]));
    node.finish(1);
    assert_eq!(node.finish(2), (vec![], vec![task(0)]), "it finishes what runs");
}

#[test]
fn an_attempt_that_ends_while_it_rests_leaves_nothing_behind() {
    let mut node = Node::with(&[2, 2, 2]);
    node.step();
    node.rests(0, true);
    node.rests(0, false);
    assert_eq!(node.finish(0), (vec![], vec![]), "task 1 has both slots");
    assert_eq!(node.finish(1).0, [task(2)], "no seat is kept for task 0");
    assert_eq!(node.scheduler.holder.slots().free(), 0);
    node.finish(2);
    assert_eq!(node.scheduler.holder.slots().free(), 2);
    assert_eq!(node.rests(0, true), (vec![], vec![]), "it does not run here");
}
