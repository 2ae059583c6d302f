//! Inputs whose makers are away or do not have them: who is asked next, and what is lost.

use proto::limits::{
    FETCH_ABSENCES_MAX, FETCH_RETRY_MAX, FETCH_RETRY_START, FETCH_TRIES_REBUILT_MAX,
    STAGING_PER_SLOT_MAX,
};
use proto::wire::message::Body;
use proto::work::{Fetch, FetchError, Outcome};
use proto::{Attempt, Incarnation, JobId, LocalId, NodeId, PartitionId, Span, TaskId, Time, wire};

use crate::out::Out;
use crate::staging_tests::{
    input, placed, push, run_here, scheduler, scheduler_where, unreachable,
};
use crate::{Homes, Policy, Tuning};

#[test]
fn a_maker_that_cannot_be_reached_stops_no_other_work() {
    let mut scheduler = scheduler(Tuning::of(Policy::Mlb));
    let mut out = Out::default();
    // More than are staged at a time, of higher rank than the last.
    let many = 2 * STAGING_PER_SLOT_MAX as u64;
    let mut tasks: Vec<_> =
        (0..many).map(|index| placed(index, vec![input(index, 2, 5_000)], 0)).collect();
    tasks.push(placed(many, vec![input(many, 3, 4_000)], 0));
    push(&mut scheduler, tasks, &mut out);
    let mut now = Time(0);
    for _ in 0..10 {
        scheduler.act(now, &mut out);
        for Fetch { object, from, .. } in std::mem::take(&mut out.fetches) {
            let reached = from == NodeId(3);
            let result = if reached { Ok(()) } else { Err(unreachable()) };
            scheduler.on_fetched(now, object, result, &mut out);
        }
        now = now + FETCH_RETRY_MAX;
    }
    assert_eq!(out.launches.len(), 1, "the one whose input could be had runs");
}

#[test]
fn copies_and_the_maker_are_asked_by_turns() {
    let mut scheduler = scheduler(Tuning::of(Policy::Mlb));
    let mut out = Out::default();
    push(&mut scheduler, vec![placed(0, vec![input(0, 2, 1 << 20)], 0)], &mut out);
    scheduler.act(Time(0), &mut out);
    let locate = std::mem::take(&mut out.locate);
    let asked = locate[&NodeId(1)].objects[0];
    let located = |node: u32| {
        let at = wire::ObjectAt { object: Some(asked), nodes: vec![node], later: false };
        Body::Located(wire::Located { objects: vec![at] })
    };
    scheduler.on_message(Time(0), NodeId(1), located(2), &mut out);
    let fetch = out.fetches.pop().expect("the maker is asked");
    scheduler.on_fetched(Time(0), fetch.object, Err(unreachable()), &mut out);
    let later = Time(0) + FETCH_RETRY_MAX;
    scheduler.act(later, &mut out);
    assert_eq!(out.locate[&NodeId(1)].copies_only, [asked]);
    scheduler.on_message(later, NodeId(1), located(3), &mut out);
    let fetch = out.fetches.pop().expect("the copy is asked");
    assert_eq!(fetch.from, NodeId(3));
    scheduler.on_fetched(later, fetch.object, Ok(()), &mut out);
    scheduler.act(later, &mut out);
    assert_eq!(out.launches.len(), 1);
    assert_eq!((scheduler.data.stalled_bytes, scheduler.data.stalled_tasks), (0, 0));
    assert_eq!(scheduler.data.reserved_bytes, 0);
}

#[test]
fn a_maker_that_is_back_is_asked_although_the_map_does_not_say_so_yet() {
    let mut scheduler = scheduler_where(Tuning::of(Policy::Mlb), &[2]);
    let mut out = Out::default();
    push(&mut scheduler, vec![placed(0, vec![input(0, 2, 1 << 20)], 0)], &mut out);
    scheduler.act(Time(0), &mut out);
    let asked = std::mem::take(&mut out.locate)[&NodeId(1)].copies_only[0];
    let located = |nodes: Vec<u32>| {
        let at = wire::ObjectAt { object: Some(asked), nodes, later: false };
        Body::Located(wire::Located { objects: vec![at] })
    };
    scheduler.on_message(Time(0), NodeId(1), located(vec![2]), &mut out);
    let fetch = out.fetches.pop().expect("its home has heard that it is back");
    assert_eq!(fetch.from, NodeId(2));
    // It cannot be reached from here yet: after a pause its home is asked once more.
    scheduler.on_fetched(Time(0), fetch.object, Err(unreachable()), &mut out);
    assert!(out.locate.is_empty() && out.completions.is_empty());
    let later = Time(0) + FETCH_RETRY_MAX;
    scheduler.act(later, &mut out);
    assert_eq!(std::mem::take(&mut out.locate)[&NodeId(1)].copies_only, [asked]);
    scheduler.on_message(later, NodeId(1), located(vec![]), &mut out);
    assert_eq!(out.completions[&NodeId(1)][0].lost_inputs.len(), 1, "it is really dead");
}

/// How often its maker is asked before it is lost, and how long that takes.
fn absences_until_lost(home_answers: bool) -> (u32, Span) {
    let mut scheduler = scheduler(Tuning::of(Policy::Mlb));
    scheduler.homes = std::mem::replace(&mut scheduler.homes, Homes::empty()).moving();
    let mut out = Out::default();
    push(&mut scheduler, vec![placed(0, vec![input(0, 2, 5_000)], 0)], &mut out);
    let mut now = Time(0);
    let mut asked_of_makers = 0;
    while out.completions.is_empty() {
        scheduler.act(now, &mut out);
        for Fetch { object, from, .. } in std::mem::take(&mut out.fetches) {
            assert_eq!(from, NodeId(2));
            asked_of_makers += 1;
            scheduler.on_fetched(now, object, Err(FetchError::NotThere), &mut out);
        }
        // Between two turns its home is asked for copies, and knows of none.
        if let Some(locate) = std::mem::take(&mut out.locate).remove(&NodeId(1))
            && home_answers
        {
            let at = |object: &wire::Object| wire::ObjectAt {
                object: Some(*object),
                ..Default::default()
            };
            let objects = locate.objects.iter().chain(&locate.copies_only).map(at).collect();
            let located = Body::Located(wire::Located { objects });
            scheduler.on_message(now, NodeId(1), located, &mut out);
            continue;
        }
        now = now + FETCH_RETRY_START;
        assert!(now < Time(0) + Span::from_secs(600), "it should be lost by now");
    }
    assert_eq!(out.completions[&NodeId(1)][0].lost_inputs.len(), 1);
    (asked_of_makers, now.since(Time(0)))
}

#[test]
fn what_its_maker_does_not_have_is_lost_when_it_has_said_so_a_few_times() {
    let (asked, took) = absences_until_lost(true);
    assert_eq!(asked, FETCH_ABSENCES_MAX);
    assert!(took < Span::from_secs(1), "{took:?}");
}

/// What a leaving node had may lie elsewhere by now, as its home knows.
#[test]
fn while_its_home_is_silent_an_absence_is_no_proof() {
    assert_eq!(absences_until_lost(false).0, FETCH_TRIES_REBUILT_MAX);
}

#[test]
fn a_home_names_the_maker_to_who_takes_it_for_dead() {
    // It is its own maker, and its map has not heard of its second life.
    for down in [&[][..], &[0]] {
        let mut scheduler = scheduler_where(Tuning::of(Policy::Mlb), down);
        scheduler.options.incarnation = Incarnation(2);
        let mut out = Out::default();
        let task = TaskId { job: JobId(1), local: LocalId::new(PartitionId(0), 0) };
        run_here(&mut scheduler, task, &mut out);
        let attempt = Attempt(out.launches[0].attempt.0);
        let outcome = Outcome { output_sizes: vec![1 << 20], ..Default::default() };
        scheduler.on_finished(Time(0), task, attempt, outcome, &mut out);
        scheduler.settle(Time(0), &mut out);
        let object = wire::Object {
            job: 1,
            task: task.local.0,
            attempt: attempt.0,
            output: 0,
            size_bytes: 1 << 20,
        };
        let locate = wire::Locate { copies_only: vec![object], ..Default::default() };
        scheduler.on_message(Time(0), NodeId(1), Body::Locate(locate), &mut out);
        let found = out.located[&NodeId(1)][0].nodes.clone();
        assert_eq!(found, [0], "down {down:?}");
    }
}

/// A thief ended the task, and is taken for dead: it runs here once more, while its reader has
/// what the thief made fetched. Then the home says that it is not wanted.
#[test]
fn what_ran_once_more_takes_no_copy_with_it_when_it_is_dismissed() {
    let discarded = |is_read| {
        let mut scheduler = scheduler(Tuning::of(Policy::Mlb));
        let mut out = Out::default();
        let mut tasks = vec![placed(0, Vec::new(), 5_000)];
        if is_read {
            tasks.push(placed(1, vec![input(1_000_000, 2, 5_000)], 0));
        }
        push(&mut scheduler, tasks, &mut out);
        scheduler.act(Time(0), &mut out);
        assert_eq!((out.launches.len(), out.fetches.len()), (1, usize::from(is_read)));
        out.launches.clear(); // The shell has started it.
        let dismissed = [crate::out::task_attempt(
            TaskId::new(1, LocalId::new(PartitionId(1), 1_000_000).0),
            Attempt(1),
        )];
        for fetch in std::mem::take(&mut out.fetches) {
            scheduler.on_fetched(Time(0), fetch.object, Ok(()), &mut out);
        }
        scheduler.on_stale(NodeId(1), &dismissed, &mut out);
        assert_eq!(out.kills.len(), 1);
        out.discards.len()
    };
    assert_eq!([false, true].map(discarded), [1, 0]);
}
