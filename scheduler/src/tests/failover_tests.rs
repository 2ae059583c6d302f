//! A node becomes home of tasks that it held, or was to hold, for the earlier home.

use prost::Message as _;
use proto::event::{Reason, RetryReason};
use proto::wire::message::Body;
use proto::{
    Attempt, ClientId, Event, Incarnation, JobId, LocalId, NodeId, PartitionId, Span, TaskId, Time,
    wire,
};

use crate::holder::queues::ready_queue::Ready;
use crate::limits::PARKED_RETRY_AFTER;
use crate::output::Out;
use crate::tests::test_nodes;
use crate::{LedgerRecord, Policy, Request, Scheduler, Tuning};

pub(crate) const MOVES: PartitionId = PartitionId(1);
const ATTEMPT: Attempt = Attempt(1 << 32 | 1);

pub(crate) fn task() -> TaskId {
    TaskId::new(1, LocalId::new(MOVES, 0).0)
}

fn spec() -> wire::Spec {
    let body = Some(wire::spec::Body::Sleep(Default::default()));
    wire::Spec { body, ..Default::default() }
}

/// Node 0 of two, each home of the partition of its number; its slot is taken.
pub(crate) fn heir() -> Scheduler {
    let homes = test_nodes::homes(0, (0..2).map(test_nodes::member).collect(), &[0, 1]);
    let mut heir = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes.moving());
    heir.holder.slots_mut().take_cpus(1);
    heir
}

/// The task's home, node 1, pushes the task to this node.
fn push(heir: &mut Scheduler, out: &mut Out) {
    push_from(NodeId(1), heir, out);
}

fn push_from(home: NodeId, to: &mut Scheduler, out: &mut Out) {
    let placed =
        wire::Placed { job: 1, local: task().local.0, attempt: ATTEMPT.0, ..Default::default() };
    let settings = vec![wire::JobSettings::default()];
    let bundle = wire::Bundle { specs: vec![spec()], settings, tasks: vec![placed] };
    let body = Body::Push(wire::Push { bundle: Some(bundle), ..Default::default() });
    to.on_message(Time(0), home, body, out);
}

/// The record of its home: node 0 holds the task.
fn held_by_heir() -> LedgerRecord {
    LedgerRecord::Holder(wire::HolderRecord {
        index: vec![0],
        attempt: vec![ATTEMPT.0],
        node: vec![0],
        incarnation: vec![1],
        ..Default::default()
    })
}

/// The first records of the partition.
pub(crate) fn until_visible() -> [LedgerRecord; 2] {
    let chunk = wire::Chunk {
        job: 1,
        partition: MOVES.0,
        specs: vec![spec()],
        tasks: vec![wire::Task::default()],
        ..Default::default()
    };
    let visible = wire::VisibleRecord { chunks: 1, ..Default::default() };
    [LedgerRecord::Chunk(chunk), LedgerRecord::Visible(visible)]
}

/// Node 0 is the task's home from now on; `last` is the last record of the earlier home.
fn inherit(heir: &mut Scheduler, last: LedgerRecord, out: &mut Out) {
    for record in until_visible().into_iter().chain([last]) {
        heir.adopt(Time(0), MOVES, JobId(1), record).expect("records fit one another");
    }
    heir.serve(Time(0), MOVES, 2, out);
    heir.settle(Time(0), out);
}

#[test]
fn a_late_push_of_an_earlier_home_is_refused() {
    let (mut heir, mut out) = (heir(), Out::default());
    inherit(&mut heir, held_by_heir(), &mut out);
    let rerun = heir.home.ledger.cell(task()).expect("it is homed here").attempt();
    assert!(rerun > ATTEMPT, "it had not come");
    push(&mut heir, &mut out);
    let pushed = |event: &Event| matches!(event, Event::Queued { reason: Reason::Pushed, .. });
    assert!(!out.events.iter().any(pushed), "{:?}", out.events);
    let census = heir.census();
    assert_eq!(census.held.into_iter().collect::<Vec<_>>(), [(task(), rerun)]);
    assert_eq!(census.stuck, []);
}

#[test]
fn a_holder_that_becomes_home_drops_an_ended_task() {
    let (mut heir, mut out) = (heir(), Out::default());
    push(&mut heir, &mut out);
    let end = wire::EndRecord {
        index: vec![0],
        attempt: vec![ATTEMPT.0],
        verdict: vec![wire::Verdict::Done as i32 as u32],
        node: vec![1],
        ..Default::default()
    };
    inherit(&mut heir, LedgerRecord::End(end), &mut out);
    let dismissed = |event: &Event| match *event {
        Event::Dismissed { task, attempt } => Some((task, attempt)),
        _ => None,
    };
    let dismissed: Vec<_> = out.events.iter().filter_map(dismissed).collect();
    assert_eq!(dismissed, [(task(), ATTEMPT)], "{:?}", out.events);
    assert!(heir.census().held.is_empty());
}

/// Node 0 sends node 1 a task of which node 2 is home by now; node 2 will place it elsewhere.
#[test]
fn a_late_push_of_an_earlier_home_to_a_third_node_is_refused() {
    let third = |since| {
        let members = (0..3).map(test_nodes::member).collect();
        let homes = test_nodes::homes_since(since, 1, members, &[0, 2]).moving();
        test_nodes::scheduler(1, 1, Tuning::of(Policy::Mlb), homes)
    };
    let (mut third, mut unaware) = (third(2), third(1));
    let mut out = Out::default();
    push_from(NodeId(0), &mut third, &mut out);
    assert!(third.census().held.is_empty());
    let told = wire::TaskAttempt { job: 1, local: task().local.0, attempt: ATTEMPT.0 };
    let told = Body::TasksNotHeld(wire::TasksNotHeld { tasks: vec![told], ..Default::default() });
    assert_eq!(out.reliable, [(NodeId(2), told)]);
    push_from(NodeId(2), &mut third, &mut out);
    assert_eq!(third.census().held.into_iter().collect::<Vec<_>>(), [(task(), ATTEMPT)]);
    // A node that still knows node 2 as the home has not learned that it is node 0 again.
    push_from(NodeId(0), &mut unaware, &mut out);
    assert_eq!(unaware.census().held.into_iter().collect::<Vec<_>>(), [(task(), ATTEMPT)]);
}

/// The heir holds the task of node 1. Node 1 revokes it late, because of another attempt that it
/// has not recorded.
#[test]
fn a_late_revocation_of_an_earlier_home_is_ignored() {
    let (mut heir, mut out) = (heir(), Out::default());
    heir.holder.slots_mut().give_back(Some(crate::holder::slots::Seat { first: 0, claim: None }));
    push(&mut heir, &mut out);
    heir.act(Time(0), &mut out);
    assert!(
        heir.holder.running().contains_key(&task()),
        "what only waits has no other record to lose"
    );
    let stale = wire::TaskAttempt { job: 1, local: task().local.0, attempt: ATTEMPT.0 };
    let stale = Body::RevokeAttempts(wire::RevokeAttempts { tasks: vec![stale] });
    inherit(&mut heir, held_by_heir(), &mut out);
    heir.on_message(Time(0), NodeId(1), stale, &mut out);
    let census = heir.census();
    assert_eq!(census.held.into_iter().collect::<Vec<_>>(), [(task(), ATTEMPT)]);
}

/// Node 0 has a task of its own in its queue. Then it becomes home of two partitions with six ready
/// tasks each, in chunks of this size. Returns the order in which they would run.
fn order_after_a_death(slots: u32, chunk_tasks: usize) -> Vec<(u32, u64)> {
    let member = |node| wire::Member { slots, ..test_nodes::member(node) };
    let homes = test_nodes::homes(0, (0..2).map(member).collect(), &[0, 1, 1, 0]);
    let mut heir = test_nodes::scheduler(0, slots, Tuning::of(Policy::Mlb), homes.moving());
    let mut out = Out::default();
    heir.holder.slots_mut().take_cpus(slots);
    let own = TaskId::new(1, LocalId::new(PartitionId(0), 0).0);
    let ready = Ready { task: own, attempt: ATTEMPT, rank: 0, priority: 0, class: 0 };
    heir.holder.enqueue(false, ready, &[]);
    for partition in [1, 2].map(PartitionId) {
        let chunk = |number: usize| wire::Chunk {
            job: 1,
            partition: partition.0,
            number: number as u32,
            first: (number * chunk_tasks) as u64,
            specs: vec![spec()],
            tasks: vec![wire::Task::default(); chunk_tasks],
            ..Default::default()
        };
        let chunks = 6 / chunk_tasks;
        let visible = wire::VisibleRecord { chunks: chunks as u32, ..Default::default() };
        let records = (0..chunks).map(|number| LedgerRecord::Chunk(chunk(number)));
        for record in records.chain([LedgerRecord::Visible(visible)]) {
            heir.adopt(Time(0), partition, JobId(1), record).expect("records fit one another");
        }
        heir.serve(Time(0), partition, 2, &mut out);
    }
    heir.settle(Time(0), &mut out);
    let order = std::iter::from_fn(|| heir.holder.take_next_shared());
    order.map(|ready| (ready.task.partition().0, ready.task.local.index())).collect()
}

/// Their home had this number of slots: that many tasks of each partition may have run there, and
/// go first.
#[test]
fn a_task_that_may_have_run_on_a_dead_home_goes_first() {
    for (slots, chunk_tasks) in [(1, 6), (4, 3)] {
        let turn = |partition, indices: std::ops::Range<u64>| indices.map(move |i| (partition, i));
        let first = u64::from(slots);
        let expected = turn(1, 0..first).chain(turn(2, 0..first)).chain(turn(0, 0..1));
        let expected = expected.chain(turn(1, first..6)).chain(turn(2, first..6));
        assert_eq!(order_after_a_death(slots, chunk_tasks), expected.collect::<Vec<_>>());
    }
}

/// The task has failed and has retries left, or its holder is gone.
#[test]
fn a_retry_waits_for_its_turn_and_a_lost_task_does_not() {
    let goes_first = |why| {
        let (mut heir, mut out) = (heir(), Out::default());
        inherit(&mut heir, held_by_heir(), &mut out);
        heir.home.ledger.replace_ready(task(), RetryReason::HolderGone, &mut out);
        heir.settle(Time(0), &mut out);
        heir.home.ledger.replace_ready(task(), why, &mut out);
        heir.home.ledger.runs_again(task())
    };
    assert_eq!([RetryReason::Retry, RetryReason::Lost].map(goes_first), [false, true]);
}

/// Delivers the messages that the node sends to itself.
fn talk_to_itself(node: &mut Scheduler, out: &mut Out) {
    loop {
        node.settle(Time(0), out);
        node.address(out);
        if out.reliable.is_empty() {
            return;
        }
        for (to, body) in std::mem::take(&mut out.reliable) {
            assert_eq!(to, NodeId(0));
            node.on_message(Time(0), NodeId(0), body, out);
        }
    }
}

/// The records of a cancelled job come before those of its tasks: the cancellation by its home
/// finds nothing to cancel yet.
#[test]
fn a_cancelled_job_is_cancelled_where_its_tasks_come_later() {
    let homes = test_nodes::homes(0, vec![test_nodes::member(0)], &[0, 0]).moving();
    let mut heir = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes);
    let mut out = Out::default();
    let total = wire::PartitionTotal { partition: MOVES.0, chunks: 1, tasks: 1 };
    let mut state =
        wire::JobState { job: 1, total: 1, partitions: vec![total], ..Default::default() };
    state.set_phase(wire::JobPhase::JobCancelled);
    heir.adopt_job(PartitionId(0), state);
    heir.serve(Time(0), PartitionId(0), 2, &mut out);
    talk_to_itself(&mut heir, &mut out);
    let chunk = wire::Chunk {
        job: 1,
        partition: MOVES.0,
        specs: vec![spec()],
        tasks: vec![wire::Task::default()],
        ..Default::default()
    };
    heir.adopt(Time(0), MOVES, JobId(1), LedgerRecord::Chunk(chunk)).expect("it is the first");
    heir.serve(Time(0), MOVES, 2, &mut out);
    talk_to_itself(&mut heir, &mut out);
    let ended = |event: &Event| matches!(event, Event::Committed { .. });
    assert!(out.events.iter().any(ended), "{:?}", out.events);
}

/// A command of the job, as its home stores it.
fn command() -> wire::Spec {
    let body = Some(wire::spec::Body::Command(Default::default()));
    wire::Spec { body, ..Default::default() }
}

fn inherit_command(heir: &mut Scheduler, out: &mut Out) {
    let chunk = wire::Chunk {
        job: 1,
        partition: MOVES.0,
        specs: vec![command()],
        tasks: vec![wire::Task::default()],
        ..Default::default()
    };
    let visible = wire::VisibleRecord { chunks: 1, ..Default::default() };
    for record in [LedgerRecord::Chunk(chunk), LedgerRecord::Visible(visible), held_by_heir()] {
        heir.adopt(Time(0), MOVES, JobId(1), record).expect("records fit one another");
    }
    heir.serve(Time(0), MOVES, 2, out);
}

/// Node 0 of three, which has given the task of node 1 to node 2.
fn victim() -> Scheduler {
    let members = (0..3).map(test_nodes::member).collect();
    let homes = test_nodes::homes(0, members, &[0, 1]).moving();
    let mut victim = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes);
    victim.holder.slots_mut().take_cpus(1);
    let placed =
        wire::Placed { job: 1, local: task().local.0, attempt: ATTEMPT.0, ..Default::default() };
    let settings = vec![wire::JobSettings::default()];
    let bundle = wire::Bundle { specs: vec![command()], settings, tasks: vec![placed] };
    let tasks = crate::holder::task::unpack(bundle, 2).expect("it is well formed");
    victim.stealing.note_granted((NodeId(2), 7), tasks);
    victim
}

/// Its job has ended, and then node 0 learns that node 2 has died.
#[test]
fn tasks_of_an_ended_job_are_not_taken_back_from_a_thief() {
    let taken_back = |is_over| {
        let (mut victim, mut out) = (victim(), Out::default());
        if is_over {
            let end = Body::JobEnd(wire::JobEnd { job: 1, ..Default::default() });
            victim.on_message(Time(0), NodeId(1), end, &mut out);
        }
        victim.take_back_unacked_grants(NodeId(2), Incarnation(1), &mut out);
        out.events.iter().any(|event| matches!(event, Event::Queued { .. }))
    };
    assert_eq!([false, true].map(taken_back), [true, false]);
}

/// Node 2 had the task from node 0, which becomes its home, and dies: node 2 may have run it.
#[test]
fn the_death_of_a_thief_is_noted_where_the_victim_has_become_the_home() {
    let (mut heir, mut out) = (victim(), Out::default());
    inherit_command(&mut heir, &mut out);
    heir.take_back_unacked_grants(NodeId(2), Incarnation(1), &mut out);
    let deaths = heir.home.ledger.work(task()).map(|work| work.deaths);
    assert_eq!((deaths, heir.home.ledger.crash_count(task())), (Some(1), 0), "{:?}", out.events);
}

/// The home of a command, among this number of nodes, and the attempt that waits for a slot.
pub(super) fn home_of_command(nodes: u32) -> (Scheduler, Attempt) {
    let members = (0..nodes).map(test_nodes::member).collect();
    let homes = test_nodes::homes(0, members, &[0, 1]).moving();
    let mut heir = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes);
    let mut out = Out::default();
    heir.holder.slots_mut().take_cpus(1);
    inherit_command(&mut heir, &mut out);
    heir.settle(Time(0), &mut out);
    let attempt = heir.home.ledger.cell(task()).expect("it is homed here").attempt();
    (heir, attempt)
}

/// The earlier home gave the task to node 1 before it knew node 1's incarnation.
fn given_to_an_unknown_node() -> (Scheduler, LedgerRecord) {
    let homes = test_nodes::homes(0, (0..3).map(test_nodes::member).collect(), &[0, 2]).moving();
    let heir = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes);
    let held = wire::HolderRecord {
        index: vec![0],
        attempt: vec![ATTEMPT.0],
        node: vec![1],
        incarnation: vec![0],
        ..Default::default()
    };
    (heir, LedgerRecord::Holder(held))
}

/// The new home knows node 1 already; then node 1 restarts.
#[test]
fn tasks_given_to_an_unknown_node_are_lost_with_its_first_life() {
    let ((mut heir, held), mut out) = (given_to_an_unknown_node(), Out::default());
    heir.on_peer_incarnation(Time(0), NodeId(1), Incarnation(1), &mut out);
    inherit(&mut heir, held, &mut out);
    heir.on_peer_incarnation(Time(0), NodeId(1), Incarnation(2), &mut out);
    let replaced = |event: &Event| matches!(event, Event::Replaced { .. });
    assert!(out.events.iter().any(replaced), "{:?}", out.events);
}

/// The new home does not know node 1 either. The first message of node 1 comes from its second
/// incarnation.
#[test]
fn a_node_first_met_in_a_later_life_is_asked_for_its_tasks() {
    let asked = |incarnation| {
        let ((mut heir, held), mut out) = (given_to_an_unknown_node(), Out::default());
        inherit(&mut heir, held, &mut out);
        out.reliable.clear();
        heir.on_peer_incarnation(Time(0), NodeId(1), Incarnation(incarnation), &mut out);
        let asks = |(to, body): &(NodeId, Body)| {
            *to == NodeId(1) && matches!(body, Body::HeldTasksQuery(_))
        };
        out.reliable.iter().any(asks)
    };
    assert_eq!([1, 2].map(asked), [false, true]);
}

/// The node may have run tasks of the job since it is back, while the map still lists it as down.
#[test]
fn a_returned_node_learns_of_a_job_end_before_the_map_lists_it() {
    let told = |life: u32| {
        let down = wire::Member {
            phase: wire::MemberPhase::Down as i32,
            incarnation: 1,
            ..test_nodes::member(1)
        };
        let homes = test_nodes::homes(0, vec![test_nodes::member(0), down], &[0, 0]).moving();
        let mut home = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes);
        let mut out = Out::default();
        home.serve(Time(0), PartitionId(0), 2, &mut out);
        home.on_peer_incarnation(Time(0), NodeId(1), Incarnation(life), &mut out);
        let cancel = wire::Cancel { job: 1, staged: true, ..Default::default() };
        home.on_request(Time(0), ClientId(1), 1, Request::Cancel(cancel), &mut out);
        let end = |(to, body): &(NodeId, Body)| *to == NodeId(1) && matches!(body, Body::JobEnd(_));
        out.reliable.iter().any(end)
    };
    assert_eq!([1, 2].map(told), [false, true]);
}

/// The task's output was lost, and the job was cancelled before the task was placed again.
#[test]
fn a_task_to_be_rebuilt_may_end_by_its_earlier_attempt() {
    let end = |verdict| {
        LedgerRecord::End(wire::EndRecord {
            index: vec![0],
            attempt: vec![ATTEMPT.0],
            verdict: vec![verdict],
            node: vec![0],
            ..Default::default()
        })
    };
    let done_and_then = |verdict| {
        let mut heir = heir();
        for record in until_visible().into_iter().chain([end(0)]) {
            heir.adopt(Time(0), MOVES, JobId(1), record).expect("records fit one another");
        }
        heir.adopt(Time(0), MOVES, JobId(1), end(verdict))
    };
    assert!(done_and_then(0).is_err(), "done twice");
    for verdict in 1..4 {
        assert_eq!(done_and_then(verdict), Ok(()), "verdict {verdict}");
    }
}

/// The node gave an earlier attempt to node 2. The later attempt, which it holds according to the
/// records, never arrived.
#[test]
fn a_task_that_did_not_arrive_is_placed_again() {
    let placed_again = |attempt: u64| {
        let (mut heir, mut out) = (victim(), Out::default());
        let held = wire::HolderRecord {
            index: vec![0],
            attempt: vec![attempt],
            node: vec![0],
            incarnation: vec![1],
            ..Default::default()
        };
        inherit(&mut heir, LedgerRecord::Holder(held), &mut out);
        out.events.iter().any(|event| matches!(event, Event::Replaced { .. }))
    };
    assert_eq!([ATTEMPT.0, ATTEMPT.0 + 1].map(placed_again), [false, true]);
}

/// Node 2 received the task, and gave it back before it reported that it held the task.
#[test]
fn a_returned_task_leaves_the_unacked_grants() {
    let (mut node, mut out) = (victim(), Out::default());
    push_from(NodeId(1), &mut node, &mut out);
    let census = node.census();
    assert_eq!((census.held.len(), census.in_transit.len()), (1, 0), "it is here, and only here");
}

/// Another home has given the task to node 1; node 0 is no longer its home, and does not know that.
/// According to its records the attempt would be stale, and node 1 would drop a task on which the
/// other home relies.
#[test]
fn a_message_about_an_attempt_of_a_later_home_is_bounced() {
    let own = LocalId::new(PartitionId(0), 0).0;
    let answers = |term: u64| {
        let attempt = term << 32 | 1;
        let tasks = vec![wire::TaskAttempt { job: 1, local: own, attempt }];
        let completion = wire::Completion { job: 1, local: own, attempt, ..Default::default() };
        let moved = wire::TasksMoved { steal: 3, tasks, starts: true, ..Default::default() };
        let finished = wire::Finished { completions: vec![completion] };
        let (mut home, mut out) = (heir(), Out::default());
        home.serve(Time(0), PartitionId(0), 2, &mut out);
        for body in [Body::TasksMoved(moved), Body::Finished(finished)] {
            home.on_message(Time(0), NodeId(1), body, &mut out);
        }
        let back = |(_, body): &&(NodeId, Body)| matches!(body, Body::WrongOwner(_));
        (out.reliable.iter().filter(back).count(), out.reliable.len())
    };
    assert_eq!(answers(99), (2, 2), "nothing is called stale");
    assert_eq!(answers(2).0, 0, "its own");
}

/// The job's home announces the cancellation. A home that has asked the parent's home for credits
/// may learn of it from there sooner.
#[test]
fn what_ends_with_its_job_needs_no_waking() {
    let child_id = LocalId::new(PartitionId(2), 0).0;
    let wakes = |locals: Vec<u64>| {
        let homes = test_nodes::homes(0, (0..2).map(test_nodes::member).collect(), &[0, 0, 1, 1]);
        let mut home = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes.moving());
        let mut out = Out::default();
        let [LedgerRecord::Chunk(mut chunk), visible] = until_visible() else { unreachable!() };
        let (child, slot, output) = (vec![child_id], vec![0], vec![0]);
        chunk.children = vec![wire::Children { index: 0, child, slot, output }];
        for record in [LedgerRecord::Chunk(chunk), visible] {
            home.adopt(Time(0), MOVES, JobId(1), record).expect("records fit one another");
        }
        home.serve(Time(0), MOVES, 2, &mut out);
        let cancel = wire::Cancel { job: 1, locals, ..Default::default() };
        home.on_message(Time(0), NodeId(1), Body::Cancel(cancel), &mut out);
        home.settle(Time(0), &mut out);
        out.reliable.clear();
        let ask = wire::CreditRequest {
            job: 1,
            parent: task().local.0,
            child: child_id,
            ..Default::default()
        };
        let query = wire::CreditQuery { requests: vec![ask] };
        home.on_message(Time(0), NodeId(1), Body::CreditQuery(query), &mut out);
        let answers = out.reliable.iter().filter_map(|(_, body)| match body {
            Body::Credits(credits) => Some(credits.reconciled),
            _ => None,
        });
        answers.collect::<Vec<bool>>()
    };
    assert_eq!(wakes(vec![task().local.0]), [true], "that task alone is cancelled");
    assert_eq!(wakes(Vec::new()), [false], "the whole job is");
}

/// A node parks messages until its map changes, for each partition separately.
#[test]
fn what_comes_back_again_and_again_is_sent_ever_more_rarely() {
    let homes = |of_first| {
        let members = (0..3).map(test_nodes::member).collect();
        test_nodes::homes(0, members, &[of_first, 2]).moving()
    };
    let mut node = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes(1));
    let mut out = Out::default();
    // The home of a partition returns a message, which then waits this long.
    let mut waits = |node: &mut Scheduler, (partition, home): (u32, u32), from: u64| {
        let local = LocalId::new(PartitionId(partition), 0).0;
        let task = wire::TaskAttempt { job: 1, local, attempt: 1 };
        let body =
            Body::TasksNotHeld(wire::TasksNotHeld { tasks: vec![task], ..Default::default() });
        let message = wire::Message { body: Some(body) }.encode_to_vec();
        node.on_message(
            Time(from),
            NodeId(home),
            Body::WrongOwner(wire::WrongOwner { message }),
            &mut out,
        );
        let again = |out: &Out| out.reliable.iter().any(|(to, _)| *to == NodeId(home));
        let mut now = from;
        out.reliable.clear();
        while !again(&out) {
            now += Span::from_millis(10).0;
            assert!(now < from + Span::from_secs(10).0, "it is never sent again");
            node.act(Time(now), &mut out);
        }
        now - from
    };
    let mut now = 0;
    let mut spans = Vec::new();
    for _ in 0..7 {
        let waited = waits(&mut node, (0, 1), now);
        spans.push(waited / Span::from_millis(1).0);
        now += waited;
    }
    assert_eq!(spans, [50, 100, 200, 400, 800, 800, 800]);
    assert_eq!(waits(&mut node, (1, 2), now), PARKED_RETRY_AFTER.0);
    node.set_homes(Time(now), homes(2), &mut Out::default());
    assert_eq!(waits(&mut node, (0, 2), now), PARKED_RETRY_AFTER.0);
}

/// A message for one home is not sent again when the time of another home has come.
#[test]
fn each_partition_that_came_back_waits_its_own_time() {
    let members = (0..3).map(test_nodes::member).collect();
    let homes = test_nodes::homes(0, members, &[1, 2]).moving();
    let mut node = test_nodes::scheduler(0, 1, Tuning::of(Policy::Mlb), homes);
    let mut out = Out::default();
    let after = |times: u64| Time(PARKED_RETRY_AFTER.0 * times / 2);
    for (number, home) in [(0, 1), (1, 2)] {
        let local = LocalId::new(PartitionId(number), 0).0;
        let tasks = vec![wire::TaskAttempt { job: 1, local, attempt: 1 }];
        let body = Some(Body::TasksNotHeld(wire::TasksNotHeld { tasks, ..Default::default() }));
        let message = wire::Message { body }.encode_to_vec();
        let wrong_owner = Body::WrongOwner(wire::WrongOwner { message });
        node.on_message(after(u64::from(number)), NodeId(home), wrong_owner, &mut out);
    }
    let mut sent_at = |times| {
        node.act(after(times), &mut out);
        std::mem::take(&mut out.reliable).into_iter().map(|(to, _)| to.0).collect::<Vec<_>>()
    };
    assert_eq!([1, 2, 3].map(&mut sent_at), [vec![], vec![1], vec![2]]);
}
