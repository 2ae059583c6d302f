//! Signals before an end: the attempts that are told, and what the end of a told command means.

use proto::event::RetryReason;
use proto::variable::parse_declared;
use proto::wire::message::Body;
use proto::work::Outcome;
use proto::{Attempt, Event, Incarnation, JobId, NodeId, PartitionId, TaskId, Time, wire};
use resources::EndOfLife;

use crate::output::Out;
use crate::tests::test_nodes;
use crate::{LedgerRecord, Mutant, Options, Policy, Scheduler, Tuning};

const BEFORE_NS: u64 = 100;

/// A node of two slots beside another node. It is home of two commands; the first has a signal.
struct Node {
    scheduler: Scheduler,
    out: Out,
    launched: Vec<(TaskId, Attempt)>,
}

fn leaving(phase: wire::MemberPhase, by_ns: u64) -> crate::Homes {
    homes(0, [2, 2], phase, by_ns)
}

/// Node `me` is home of the tasks, and node 0 is in this phase.
fn homes(me: u32, slots: [u32; 2], phase: wire::MemberPhase, by_ns: u64) -> crate::Homes {
    let of = |node: u32| wire::Member { slots: slots[node as usize], ..test_nodes::member(node) };
    let mut members = vec![of(0), of(1)];
    (members[0].phase, members[0].leaves_by_ns) = (phase as i32, by_ns);
    test_nodes::homes(me, members, &[me, 1 - me])
}

fn notice() -> wire::Notice {
    wire::Notice { signal: 10, before_ns: BEFORE_NS }
}

fn spec(notice: Option<wire::Notice>) -> wire::Spec {
    let notice = notice.map(Box::new);
    let command = wire::Command { argv: vec!["x".to_owned()], notice, ..Default::default() };
    wire::Spec { body: Some(wire::spec::Body::Command(command)), ..Default::default() }
}

impl Node {
    fn new(end: Option<EndOfLife>, mutant: Option<Mutant>) -> Self {
        let homes = leaving(wire::MemberPhase::Up, 0);
        let plain = test_nodes::scheduler(0, 2, Tuning::of(Policy::Mlb), homes.clone());
        let options = Options { end, mutant, ..plain.options };
        let specs = vec![spec(Some(notice())), spec(None)];
        let node = Self::with(Scheduler::new(options, homes), specs);
        assert_eq!(node.launched.len(), 2);
        node
    }

    /// The home of a task of two slots. Node 0 alone has two slots, and is in this phase.
    fn of_wide_command(me: u32, phase: wire::MemberPhase) -> Self {
        let homes = homes(me, [2, 1], phase, 0);
        let own = [2, 1][me as usize];
        let scheduler = test_nodes::scheduler(me, own, Tuning::of(Policy::Mlb), homes);
        Self::with(scheduler, vec![wire::Spec { cpus: 2, ..spec(Some(notice())) }])
    }

    /// The home of a task of each spec.
    fn with(mut scheduler: Scheduler, specs: Vec<wire::Spec>) -> Self {
        let task = |spec| wire::Task { spec, ..Default::default() };
        let tasks = (0..specs.len() as u32).map(task).collect();
        let chunk = wire::Chunk { job: 1, specs, tasks, ..Default::default() };
        let visible = wire::VisibleRecord { chunks: 1, ..Default::default() };
        for record in [LedgerRecord::Chunk(chunk), LedgerRecord::Visible(visible)] {
            let at = (PartitionId(0), JobId(1));
            scheduler.load(Time(1), at.0, at.1, record).expect("records fit one another");
        }
        let mut out = Out::default();
        let other = NodeId(1 - scheduler.options.me.0);
        scheduler.on_peer_incarnation(Time(1), other, Incarnation(1), &mut out);
        scheduler.resume(Time(1), &mut out);
        let mut node = Self { scheduler, out, launched: Vec::new() };
        node.step(2);
        node
    }

    fn step(&mut self, at: u64) {
        self.scheduler.settle(Time(at), &mut self.out);
        self.scheduler.act(Time(at), &mut self.out);
        let launches = std::mem::take(&mut self.out.launches);
        self.launched.extend(launches.iter().map(|launch| (launch.task, launch.attempt)));
    }

    fn drain(&mut self, at: u64, by_ns: u64) {
        let homes = leaving(wire::MemberPhase::Leaving, by_ns);
        self.scheduler.set_homes(Time(at), homes, &mut self.out);
        self.step(at);
    }

    fn told(&mut self) -> Vec<(TaskId, Attempt)> {
        self.out.notices.take().map_or_else(Vec::new, |told| *told)
    }

    fn fail(&mut self, at: u64, (task, attempt): (TaskId, Attempt)) {
        let outcome = Outcome { error: "it ended".to_owned(), exit_code: 7, ..Default::default() };
        self.scheduler.on_finished(Time(at), task, attempt, Box::new(outcome), &mut self.out);
        self.step(at);
    }

    /// A variable of the job has a value; it is synced or not.
    fn learn_value(&mut self, synced: bool) {
        let declared = parse_declared("best=min").expect("it is well formed");
        let value = wire::VarValue { number: 5, ..Default::default() };
        let (declared, value) = (Some(declared), Some(value));
        let variables = vec![wire::Variable { declared, value, ..Default::default() }];
        let push = wire::VarPush { job: 1, synced, variables, ..Default::default() };
        self.scheduler.holder.variables_mut().entry(JobId(1)).or_default();
        let from = NodeId(1);
        self.scheduler.on_message(Time(3), from, Body::VarPush(push), &mut self.out);
    }

    /// The reasons of further attempts.
    fn replaced(&self) -> Vec<RetryReason> {
        let events = self.out.events.iter();
        let why = events.filter_map(|event| match event {
            Event::Replaced { why, .. } => Some(*why),
            _ => None,
        });
        why.collect()
    }

    /// Whether tasks were sent to the other node.
    fn pushed(&self) -> bool {
        self.out.reliable.iter().any(|(_, body)| matches!(body, Body::Push(_)))
    }

    /// Whether the one task waits at its home for a node, and no node has it.
    fn awaits_node(&self) -> bool {
        let waits = self.scheduler.home.awaiting_wide_node().len() == 1;
        waits && self.out.facts.ends.is_empty() && !self.pushed()
    }
}

/// Returns whether a command is told once, and runs again elsewhere when it exits after that.
fn a_told_command_is_moved_when_it_exits(mutant: Option<Mutant>) -> bool {
    let mut node = Node::new(None, mutant);
    let first = node.launched[0];
    assert!(node.told().is_empty());
    node.drain(3, 0);
    assert_eq!(node.told(), [first], "it alone has a signal");
    node.step(4);
    let once = node.told().is_empty();
    node.fail(5, first);
    once && node.replaced() == [RetryReason::Moved] && node.pushed()
}

#[test]
fn a_drained_node_tells_commands_and_moves_them() {
    assert!(a_told_command_is_moved_when_it_exits(None));
}

/// The log of a drained home goes with it.
#[test]
fn the_next_node_tells_from_where_a_command_was_moved() {
    let mut node = Node::new(None, None);
    let first = node.launched[0];
    node.drain(3, 0);
    node.fail(5, first);
    let pushes = node.out.reliable.iter().filter_map(|(_, body)| match body {
        Body::Push(push) => Some(push.clone()),
        _ => None,
    });
    let push = pushes.last().expect("the other node gets it");
    let of = |node: u32| wire::Member { slots: 2, ..test_nodes::member(node) };
    let homes = test_nodes::homes(1, vec![of(0), of(1)], &[0, 1]);
    let mut other = test_nodes::scheduler(1, 2, Tuning::of(Policy::Mlb), homes);
    let mut out = Out::default();
    other.on_message(Time(6), NodeId(0), Body::Push(push), &mut out);
    let from = |event: &Event| match event {
        Event::Moved { task, from, .. } if *task == first.0 => Some(*from),
        _ => None,
    };
    assert_eq!(out.events.iter().find_map(from), Some(NodeId(0)), "{:?}", out.events);
}

#[test]
fn a_command_without_a_signal_ends_as_ever() {
    let mut node = Node::new(None, None);
    let second = node.launched[1];
    node.drain(3, 1_000);
    node.step(2_000);
    assert!(!node.out.kills.contains(&second));
    node.fail(2_001, second);
    assert_eq!(node.replaced(), [RetryReason::Moved], "the first, at the deadline");
    assert_eq!(node.launched.len(), 2, "no further attempt of the second");
}

/// Returns whether a command that goes on is killed and moved at the deadline of a drain.
fn at_the_deadline_a_command_is_moved(mutant: Option<Mutant>) -> bool {
    let mut node = Node::new(None, mutant);
    let first = node.launched[0];
    node.drain(3, 50);
    let awaits = node.scheduler.next_notice() == Some(Time(50));
    node.step(49);
    assert!(node.out.kills.is_empty());
    node.step(50);
    let killed = node.out.kills == [first];
    node.step(51);
    let moved = node.replaced() == [RetryReason::Moved] && node.pushed();
    awaits && killed && moved && node.scheduler.next_notice().is_none()
}

#[test]
fn at_the_deadline_what_was_told_is_killed_and_moved() {
    assert!(at_the_deadline_a_command_is_moved(None));
}

#[test]
fn every_mutant_of_moves_is_found_at_one_home() {
    for mutant in Mutant::OF_MOVES {
        let ends_well = match mutant {
            Mutant::DeadlineIgnored => at_the_deadline_a_command_is_moved(Some(mutant)),
            _ => a_told_command_is_moved_when_it_exits(Some(mutant)),
        };
        assert!(!ends_well, "{} is not found", mutant.name());
    }
}

#[test]
fn the_end_of_a_node_is_told_in_time() {
    let mut node = Node::new(Some(EndOfLife::from_parts(1_000, 10)), None);
    let first = node.launched[0];
    assert_eq!(node.scheduler.next_notice(), Some(Time(1_000 - 5 - BEFORE_NS)));
    node.step(894);
    assert!(node.told().is_empty());
    node.step(895);
    assert_eq!(node.told(), [first]);
    node.fail(900, first);
    // The other node has no known end.
    assert!(node.replaced() == [RetryReason::Moved] && node.pushed());
}

#[test]
fn a_command_that_ends_before_it_is_told_ends_as_ever() {
    let mut node = Node::new(None, None);
    let first = node.launched[0];
    node.fail(3, first);
    assert!(node.replaced().is_empty());
    node.drain(4, 50);
    node.step(60);
    assert!(node.told().is_empty() && node.out.kills.is_empty());
}

/// The end waits for values of a variable; the signal comes only then.
#[test]
fn a_command_that_ended_before_the_drain_is_not_moved() {
    let mut node = Node::new(None, None);
    let first = node.launched[0];
    node.learn_value(false);
    node.fail(3, first);
    node.drain(4, 50);
    assert!(node.told().is_empty());
    node.step(60);
    node.learn_value(true);
    node.step(61);
    assert!(node.replaced().is_empty() && node.out.kills.is_empty());
    assert!(!node.scheduler.holder.running().contains_key(&first.0), "its end is reported");
}

#[test]
fn a_told_command_is_moved_while_values_are_not_synced() {
    let mut node = Node::new(None, None);
    let first = node.launched[0];
    node.learn_value(false);
    node.drain(3, 0);
    node.fail(4, first);
    assert!(node.replaced() == [RetryReason::Moved] && node.pushed());
}

/// A task that waits on a node that is drained does not start there.
#[test]
fn a_drained_node_starts_no_command_with_a_signal() {
    let homes = leaving(wire::MemberPhase::Up, 0);
    let scheduler = test_nodes::scheduler(0, 2, Tuning::of(Policy::Mlb), homes);
    let told = || spec(Some(notice()));
    let mut node = Node::with(scheduler, vec![told(), spec(None), told()]);
    assert_eq!(node.launched.len(), 2, "the third one waits");
    let second = node.launched[1];
    node.drain(3, 0);
    node.fail(5, second);
    for at in 6..20 {
        node.step(at);
    }
    assert_eq!(node.launched.len(), 2);
    assert!(node.pushed(), "the other node gets it");
}

/// Only the drained node has room for the task, and it is the task's home.
#[test]
fn a_command_waits_while_its_drained_home_alone_offers_enough() {
    let mut node = Node::of_wide_command(0, wire::MemberPhase::Up);
    let first = node.launched[0];
    let drained = |slots| homes(0, slots, wire::MemberPhase::Leaving, 0);
    node.scheduler.set_homes(Time(3), drained([2, 1]), &mut node.out);
    node.step(3);
    node.fail(4, first);
    assert!(node.replaced() == [RetryReason::Moved] && node.awaits_node());
    let why = node.scheduler.explain_awaiting_wide_node(first.0);
    assert!(why.contains("is drained"), "{why}");
    node.scheduler.set_homes(Time(5), drained([2, 2]), &mut node.out);
    node.step(5);
    assert!(node.pushed(), "the other node offers enough now");
}

/// Only the drained node has room for the task, and another node is the task's home.
#[test]
fn a_home_sends_no_command_with_a_signal_to_a_drained_node() {
    let mut node = Node::of_wide_command(1, wire::MemberPhase::Leaving);
    assert!(node.awaits_node());
    let returned = homes(1, [2, 1], wire::MemberPhase::Up, 0);
    node.scheduler.set_homes(Time(3), returned, &mut node.out);
    node.step(3);
    assert!(node.pushed(), "the other node is there again");
}
