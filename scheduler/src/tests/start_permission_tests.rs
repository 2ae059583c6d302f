//! A holder asks a task's home before it starts a suspect task: while it waits for the answer, and
//! after a timeout.

use proto::wire::message::Body;
use proto::{
    Attempt, ClientId, Event, Incarnation, LocalId, NodeId, PartitionId, Span, TaskId, Time, wire,
};

use crate::limits::START_ASK_TIMEOUT;
use crate::output::{Out, task_attempt};
use crate::tests::test_nodes;
use crate::{Policy, Request, Scheduler, Tuning};

/// A node with one slot, home of the partition of its number.
fn node(me: u32) -> Scheduler {
    let homes = test_nodes::homes(me, (0..2).map(test_nodes::member).collect(), &[0, 1]);
    test_nodes::scheduler(me, 1, Tuning::of(Policy::Mlb), homes)
}

fn command() -> wire::Spec {
    let body = Some(wire::spec::Body::Command(Default::default()));
    wire::Spec { body, ..Default::default() }
}

fn task(index: u64) -> TaskId {
    TaskId::new(1, LocalId::new(PartitionId(1), index).0)
}

/// Tasks of node 1, each with its number of deaths; those without deaths are no commands.
fn push(holder: &mut Scheduler, crash_count: &[u32], out: &mut Out) {
    let placed = |(index, &crash_count)| wire::Placed {
        job: 1,
        local: task(index).local.0,
        attempt: 1,
        crash_count,
        alone: crash_count > 1,
        spec: u32::from(crash_count == 0),
        ..Default::default()
    };
    let tasks = (0..).zip(crash_count).map(placed).collect();
    let settings = vec![wire::JobSettings::default()];
    let specs = vec![command(), wire::Spec::default()];
    let bundle = Some(wire::Bundle { specs, settings, tasks });
    holder.on_message(
        Time(0),
        NodeId(1),
        Body::Push(wire::Push { bundle, ..Default::default() }),
        out,
    );
}

/// The reports that the home receives.
fn moves(out: &mut Out) -> Vec<wire::TasksMoved> {
    let said = std::mem::take(&mut out.reliable).into_iter();
    let moved = said.filter_map(|(to, body)| match body {
        Body::TasksMoved(moved) if to == NodeId(1) => Some(moved),
        _ => None,
    });
    moved.collect()
}

fn answer(holder: &mut Scheduler, now: Time, steal: u64, out: &mut Out) {
    let reply = wire::TasksMovedAck { steal, stale: Vec::new() };
    holder.on_message(now, NodeId(1), Body::TasksMovedAck(reply), out);
    holder.act(now, out);
}

fn launched(out: &mut Out) -> Vec<TaskId> {
    std::mem::take(&mut out.launches).into_iter().map(|launch| launch.task).collect()
}

/// Otherwise the home would count a queued task as running, and charge the node's death to it.
#[test]
fn an_answer_that_comes_too_late_starts_nothing_and_is_asked_for_again() {
    let (mut holder, mut out) = (node(0), Out::default());
    push(&mut holder, &[2, 0], &mut out);
    holder.act(Time(0), &mut out);
    let asked = moves(&mut out);
    assert!(
        matches!(&asked[..], [start] if start.starts && start.tasks[0].local == task(0).local.0)
    );
    assert!(launched(&mut out).is_empty(), "it waits for the answer, and nothing runs beside it");
    let late = Time(0) + START_ASK_TIMEOUT;
    holder.act(late, &mut out);
    assert_eq!(launched(&mut out), [task(1)], "others have the slot");
    let told = moves(&mut out);
    assert!(matches!(&told[..], [over] if over.start_withdrawn && !over.starts), "{told:?}");
    assert_eq!(told[0].tasks, asked[0].tasks);
    // A home that returns gets no start.
    holder.stealing.repeat_moves(NodeId(1), &mut out);
    assert_eq!(moves(&mut out), told);
    answer(&mut holder, late, asked[0].steal, &mut out);
    holder.on_finished(late, task(1), Attempt(1), Default::default(), &mut out);
    holder.act(late, &mut out);
    assert!(launched(&mut out).is_empty() && moves(&mut out).is_empty(), "it is in no line");
    answer(&mut holder, late, told[0].steal, &mut out);
    let again = moves(&mut out);
    assert!(matches!(&again[..], [start] if start.starts), "its turn has come: {again:?}");
    holder.act(late + START_ASK_TIMEOUT, &mut out);
    assert!(moves(&mut out).is_empty(), "a slow node gets more time to answer");
    answer(&mut holder, late + START_ASK_TIMEOUT, again[0].steal, &mut out);
    assert_eq!(launched(&mut out), [task(0)]);
    assert_eq!(holder.holder.deadline(late), None);
}

#[test]
fn a_start_that_is_permitted_after_a_pause_is_dropped() {
    for is_paused in [false, true] {
        let (mut holder, mut out) = (node(0), Out::default());
        push(&mut holder, &[2], &mut out);
        holder.act(Time(0), &mut out);
        let asked = moves(&mut out);
        holder.holder.slots_mut().set_paused(is_paused);
        answer(&mut holder, Time(0), asked[0].steal, &mut out);
        holder.act(Time(0), &mut out);
        let told = std::mem::take(&mut out.reliable).into_iter();
        let dropped = told.filter(|(_, body)| matches!(body, Body::TasksNotHeld(_))).count();
        let expected = if is_paused { (vec![], 1) } else { (vec![task(0)], 0) };
        assert_eq!((launched(&mut out), dropped), expected, "paused: {is_paused}");
    }
}

/// A job of one command of node 1, stolen by node 0; `said` are the reports about it. Returns the
/// number of tasks for which the death of node 0 then raises doubts.
fn doubts(said: &[(bool, bool)]) -> usize {
    let (mut home, mut out) = (node(1), Out::default());
    let chunk = wire::Chunk {
        job: 1,
        partition: 1,
        specs: vec![command()],
        tasks: vec![wire::Task::default()],
        ..Default::default()
    };
    let total = wire::PartitionTotal { partition: 1, chunks: 1, tasks: 1 };
    let commit = wire::JobCommit { job: 1, partitions: vec![total], ..Default::default() };
    let visible = Body::Visible(wire::Visible { commit: Some(commit), ..Default::default() });
    home.holder.slots_mut().take_cpus(1);
    home.on_request(Time(0), ClientId(1), 1, Request::Submit(chunk), &mut out);
    home.on_message(Time(0), NodeId(0), visible, &mut out);
    home.settle(Time(0), &mut out);
    let request =
        wire::StealRequest { steal: 1, slots: 1, free: 1, held: 0, free_amounts: Vec::new() };
    home.on_message(Time(0), NodeId(0), Body::StealRequest(request), &mut out);
    let (task, attempt) =
        (task(0), home.home.ledger.cell(task(0)).expect("it is homed here").attempt());
    home.on_peer_incarnation(Time(0), NodeId(0), Incarnation(1), &mut out);
    // It has a death on record already: only attempts that ran count.
    home.home.ledger.note_held(task, (NodeId(0), Incarnation(0)), &mut out);
    for (number, &(starts, start_withdrawn)) in (1..).zip(said) {
        let tasks = vec![task_attempt(task, attempt)];
        let moved = wire::TasksMoved {
            steal: number,
            tasks,
            starts,
            start_withdrawn,
            ..Default::default()
        };
        home.on_message(Time(0), NodeId(0), Body::TasksMoved(moved), &mut out);
    }
    home.on_peer_incarnation(Time(0) + Span(1), NodeId(0), Incarnation(2), &mut out);
    let replaced = |event: &&Event| matches!(event, Event::Replaced { .. });
    assert_eq!(out.events.iter().filter(replaced).count(), 1);
    let deaths = home.home.ledger.doubts().into_iter();
    deaths.filter_map(|(death, _)| home.home.ledger.tasks_in_doubt(death)).sum()
}

#[test]
fn a_death_counts_while_the_task_starts_and_not_once_it_waits_again() {
    let (starts, start_withdrawn) = ((true, false), (false, true));
    assert_eq!(doubts(&[]), 0);
    assert_eq!(doubts(&[starts]), 1);
    assert_eq!(doubts(&[starts, start_withdrawn]), 0);
    assert_eq!(doubts(&[starts, start_withdrawn, starts]), 1);
}
