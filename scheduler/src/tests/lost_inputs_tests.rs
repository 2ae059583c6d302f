//! Inputs with makers that are away or do not have them: which node is asked next, and what is
//! lost.

use proto::wire::message::Body;
use proto::work::{Fetch, FetchError, Outcome};
use proto::{
    Attempt, Event, Incarnation, JobId, LocalId, NodeId, PartitionId, Span, TaskId, Time, wire,
};

use crate::limits::{
    FETCH_ABSENCES_MAX, FETCH_RETRY_MAX, FETCH_RETRY_START, FETCH_TRIES_REBUILT_MAX,
    STAGING_PER_SLOT_MAX,
};
use crate::output::Out;
use crate::tests::staging_tests::{
    input, placed, push, run_here, scheduler, scheduler_where, unreachable,
};
use crate::tests::test_nodes;
use crate::{Policy, Scheduler, Tuning};

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
        for Fetch { object, number, from, .. } in std::mem::take(&mut out.fetches) {
            let reached = from == NodeId(3);
            let result = if reached { Ok(()) } else { Err(unreachable()) };
            scheduler.on_fetched(now, object, number, result, &mut out);
        }
        now = now + FETCH_RETRY_MAX;
    }
    assert_eq!(out.launches.len(), 1, "the task with an available input runs");
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
    scheduler.on_fetched(Time(0), fetch.object, fetch.number, Err(unreachable()), &mut out);
    let later = Time(0) + FETCH_RETRY_MAX;
    scheduler.act(later, &mut out);
    assert_eq!(out.locate[&NodeId(1)].copies_only, [asked]);
    scheduler.on_message(later, NodeId(1), located(3), &mut out);
    let fetch = out.fetches.pop().expect("the copy is asked");
    assert_eq!(fetch.from, NodeId(3));
    scheduler.on_fetched(later, fetch.object, fetch.number, Ok(()), &mut out);
    scheduler.act(later, &mut out);
    assert_eq!(out.launches.len(), 1);
    assert_eq!(scheduler.objects.failed_fetches(), (0, 0));
    assert_eq!(scheduler.objects.reserved(), (0, 0));
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
    assert!(out.fetches.is_empty(), "its home may not have heard yet that it is dead");
    let soon = scheduler.deadline(Time(0)).expect("it asks again");
    scheduler.act(soon, &mut out);
    assert_eq!(std::mem::take(&mut out.locate)[&NodeId(1)].copies_only, [asked]);
    scheduler.on_message(soon, NodeId(1), located(vec![2]), &mut out);
    let fetch = out.fetches.pop().expect("its home has heard that it is back");
    assert_eq!(fetch.from, NodeId(2));
    // This node cannot reach the source yet: after a pause it asks the home again.
    scheduler.on_fetched(soon, fetch.object, fetch.number, Err(unreachable()), &mut out);
    assert!(out.locate.is_empty() && out.completions.is_empty());
    let later = soon + FETCH_RETRY_MAX;
    scheduler.act(later, &mut out);
    assert_eq!(std::mem::take(&mut out.locate)[&NodeId(1)].copies_only, [asked]);
    scheduler.on_message(later, NodeId(1), located(vec![]), &mut out);
    assert_eq!(out.completions[&NodeId(1)][0].lost_inputs.len(), 1, "it is really dead");
}

/// How often the maker is asked before the input counts as lost, and how long that takes. The home
/// names these nodes beside the maker; `None`: it does not answer.
fn absences_until_lost(named: Option<&[u32]>) -> (u32, Span) {
    let mut scheduler = scheduler(Tuning::of(Policy::Mlb));
    let homes = scheduler.routing.homes().clone().moving();
    scheduler.routing.replace_homes(homes);
    let mut out = Out::default();
    push(&mut scheduler, vec![placed(0, vec![input(0, 2, 5_000)], 0)], &mut out);
    let mut now = Time(0);
    let mut asked_of_makers = 0;
    while out.completions.is_empty() {
        scheduler.act(now, &mut out);
        for Fetch { object, number, from, .. } in std::mem::take(&mut out.fetches) {
            asked_of_makers += u32::from(from == NodeId(2));
            scheduler.on_fetched(now, object, number, Err(FetchError::NotThere), &mut out);
        }
        // Between two tries the home is asked for copies.
        if let Some(locate) = std::mem::take(&mut out.locate).remove(&NodeId(1))
            && let Some(nodes) = named
        {
            let at = |object: &wire::Object| wire::ObjectAt {
                object: Some(*object),
                nodes: nodes.to_vec(),
                later: false,
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
fn an_object_is_lost_after_a_few_absences_at_its_maker() {
    let (asked, took) = absences_until_lost(Some(&[]));
    assert_eq!(asked, 1 + FETCH_ABSENCES_MAX, "the home had said nothing before the first time");
    assert!(took < Span::from_secs(2), "{took:?}");
}

/// A leaving node may have handed the object over, and its home knows the new place.
#[test]
fn while_its_home_is_silent_an_absence_is_no_proof() {
    assert_eq!(absences_until_lost(None).0, FETCH_TRIES_REBUILT_MAX);
}

/// The object may be in transit to the node that is named.
#[test]
fn while_its_home_names_another_an_absence_is_no_proof() {
    assert_eq!(absences_until_lost(Some(&[3])).0, FETCH_TRIES_REBUILT_MAX);
}

/// The partition of its maker moves during the pause after a failed fetch (seed 22037683).
#[test]
fn after_a_pause_the_home_of_today_is_asked() {
    let mut scheduler = scheduler(Tuning::of(Policy::Mlb));
    let homes = |epoch, homes_of: &[u32]| {
        let members = (0..4).map(test_nodes::member).collect();
        test_nodes::homes_since(epoch, 0, members, homes_of).moving()
    };
    let mut out = Out::default();
    scheduler.set_homes(Time(0), homes(1, &[0, 1, 2, 3]), &mut out);
    push(&mut scheduler, vec![placed(0, vec![input(0, 2, 5_000)], 0)], &mut out);
    scheduler.act(Time(0), &mut out);
    let mut now = Time(0);
    for (epoch, home) in [(2, 1), (3, 3), (4, 1)] {
        let fetch = out.fetches.pop().expect("the maker is asked");
        let absent = Err(FetchError::NotThere);
        scheduler.on_fetched(now, fetch.object, fetch.number, absent, &mut out);
        scheduler.set_homes(now, homes(epoch, &[0, home, 2, 3]), &mut out);
        now = now + FETCH_RETRY_MAX;
        scheduler.act(now, &mut out);
        let locate = std::mem::take(&mut out.locate);
        assert_eq!(locate.keys().copied().collect::<Vec<_>>(), [NodeId(home)]);
        let object = Some(locate[&NodeId(home)].copies_only[0]);
        let at = wire::ObjectAt { object, ..Default::default() };
        let located = Body::Located(wire::Located { objects: vec![at] });
        scheduler.on_message(now, NodeId(home), located, &mut out);
    }
}

#[test]
fn a_copy_that_is_named_late_is_asked_at_once() {
    let fetched_from = |nodes: &[u32], later: bool| {
        let mut scheduler = scheduler(Tuning::of(Policy::Mlb));
        let mut out = Out::default();
        push(&mut scheduler, vec![placed(0, vec![input(0, 2, 5_000)], 0)], &mut out);
        scheduler.act(Time(0), &mut out);
        let fetch = out.fetches.pop().expect("it travels");
        let absent = Err(FetchError::NotThere);
        scheduler.on_fetched(Time(0), fetch.object, fetch.number, absent, &mut out);
        let object = Some(crate::objects::data::wire_object(fetch.object, 5_000));
        let at = wire::ObjectAt { object, nodes: nodes.to_vec(), later };
        let located = Body::Located(wire::Located { objects: vec![at] });
        scheduler.on_message(Time(0), NodeId(1), located, &mut out);
        out.fetches.pop().map(|fetch| fetch.from)
    };
    assert_eq!(fetched_from(&[3], false), Some(NodeId(3)));
    assert_eq!(fetched_from(&[3], true), None, "its home tells again");
    assert_eq!(fetched_from(&[2], false), None, "the maker has just said no");
    assert_eq!(fetched_from(&[0], false), None, "it is not here");
    assert_eq!(fetched_from(&[99], false), None, "there is no such node");
    assert_eq!(fetched_from(&[99, 3], false), Some(NodeId(3)));
    assert_eq!(fetched_from(&[], false), None, "no node has it");
}

#[test]
fn a_home_names_the_maker_to_a_node_that_has_declared_it_failed() {
    // This node is the maker, and its map does not know its second incarnation.
    for down in [&[][..], &[0]] {
        let mut scheduler = scheduler_where(Tuning::of(Policy::Mlb), down);
        scheduler.options.incarnation = Incarnation(2);
        let mut out = Out::default();
        let task = TaskId { job: JobId(1), local: LocalId::new(PartitionId(0), 0) };
        run_here(&mut scheduler, task, &mut out);
        let attempt = Attempt(out.launches[0].attempt.0);
        let outcome = Outcome { output_sizes: vec![1 << 20], ..Default::default() };
        scheduler.on_finished(Time(0), task, attempt, outcome.into(), &mut out);
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

/// A node asks for an output of an earlier attempt, with a maker that has failed.
#[test]
fn a_home_names_no_dead_node() {
    for (down, expected) in [(&[][..], vec![2]), (&[2], vec![])] {
        let mut scheduler = scheduler_where(Tuning::of(Policy::Mlb), down);
        let mut out = Out::default();
        let task = TaskId { job: JobId(1), local: LocalId::new(PartitionId(0), 0) };
        run_here(&mut scheduler, task, &mut out);
        let now_made = out.launches[0].attempt;
        let earlier = Attempt(now_made.0 - 1);
        let (task, attempt) = (task.local.0, earlier.0);
        let object = wire::Object { job: 1, task, attempt, output: 0, size_bytes: 1 << 20 };
        let id = crate::objects::data::object_id(&object);
        scheduler.objects.add_copy(Time(0), id, NodeId(2));
        let locate = wire::Locate { copies_only: vec![object], ..Default::default() };
        scheduler.on_message(Time(0), NodeId(1), Body::Locate(locate), &mut out);
        assert_eq!(out.located[&NodeId(1)][0].nodes, expected, "down {down:?}");
    }
}

/// A thief ended the task and is declared failed: the task runs here once more, while its reader
/// has the thief's output fetched. Then the home revokes the attempt.
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
        let dismissed = [crate::output::task_attempt(
            TaskId::new(1, LocalId::new(PartitionId(1), 1_000_000).0),
            Attempt(1),
        )];
        for fetch in std::mem::take(&mut out.fetches) {
            scheduler.on_fetched(Time(0), fetch.object, fetch.number, Ok(()), &mut out);
        }
        scheduler.on_revoke_attempts(NodeId(1), &dismissed, &mut out);
        assert_eq!(out.kills.len(), 1);
        out.discards.len()
    };
    assert_eq!([false, true].map(discarded), [1, 0]);
}

/// The copy of an earlier fetch may be about to be deleted before the later fetch begins.
#[test]
fn the_end_of_an_earlier_fetch_says_nothing_of_a_later_one() {
    let mut scheduler = scheduler(Tuning::of(Policy::Mlb));
    let mut out = Out::default();
    push(&mut scheduler, vec![placed(0, vec![input(0, 2, 5_000)], 0)], &mut out);
    scheduler.act(Time(0), &mut out);
    let earlier = out.fetches.pop().expect("it travels");
    scheduler.ask_for_job_end(JobId(1), &mut out);
    let end = Body::JobEnd(wire::JobEnd { job: 1, unknown: true, ..Default::default() });
    let home = scheduler.routing.homes().job_home(JobId(1));
    scheduler.on_message(Time(0), home, end, &mut out);
    assert_eq!(scheduler.objects.fetches_in_flight(), 0, "no node knows its job yet");
    push(&mut scheduler, vec![placed(1, vec![input(0, 2, 5_000)], 0)], &mut out);
    scheduler.act(Time(0), &mut out);
    let later = out.fetches.pop().expect("it travels again");
    assert_eq!(later.object, earlier.object);
    for result in [Ok(()), Err(FetchError::NotThere)] {
        scheduler.on_fetched(Time(0), earlier.object, earlier.number, result, &mut out);
        scheduler.act(Time(0), &mut out);
        assert!(out.launches.is_empty() && out.fetches.is_empty() && out.evicted.is_empty());
    }
    scheduler.on_fetched(Time(0), later.object, later.number, Ok(()), &mut out);
    scheduler.act(Time(0), &mut out);
    assert_eq!(out.launches.len(), 1);
}

/// An input that is fetched from node 2, and then from node 3 too.
fn fetched_twice(scheduler: &mut Scheduler, out: &mut Out) -> (Fetch, Fetch) {
    push(scheduler, vec![placed(0, vec![input(0, 2, 5_000)], 0)], out);
    scheduler.act(Time(0), out);
    let earlier = out.fetches.pop().expect("it travels");
    scheduler.objects.fetch_from(Time(0), earlier.object, NodeId(3), out);
    (earlier, out.fetches.pop().expect("from elsewhere"))
}

/// The maker is declared failed while the input is fetched from it, and another source is named.
#[test]
fn what_an_earlier_fetch_of_a_flight_brings_is_here() {
    for later_comes in [false, true] {
        let (mut scheduler, mut out) = (scheduler(Tuning::of(Policy::Mlb)), Out::default());
        let (earlier, later) = fetched_twice(&mut scheduler, &mut out);
        scheduler.on_fetched(Time(0), earlier.object, earlier.number, Ok(()), &mut out);
        scheduler.act(Time(0), &mut out);
        assert_eq!(out.launches.len(), 1);
        let from = |event: &Event| match event {
            Event::Fetched { from, .. } => Some(*from),
            _ => None,
        };
        assert_eq!(out.events.iter().filter_map(from).collect::<Vec<_>>(), [NodeId(2)]);
        assert_eq!(scheduler.objects.reserved(), (0, 0));
        let result = if later_comes { Ok(()) } else { Err(FetchError::NotThere) };
        scheduler.on_fetched(Time(0), later.object, later.number, result, &mut out);
        assert_eq!(out.evicted, [], "it is in use");
        assert!(out.completions.is_empty());
    }
}

/// ... and the result of the earlier fetch does not concern the later one.
#[test]
fn an_earlier_fetch_of_a_flight_that_fails_is_forgotten() {
    let (mut scheduler, mut out) = (scheduler(Tuning::of(Policy::Mlb)), Out::default());
    let (earlier, later) = fetched_twice(&mut scheduler, &mut out);
    let failed = Err(unreachable());
    scheduler.on_fetched(Time(0), earlier.object, earlier.number, failed, &mut out);
    scheduler.on_fetched(Time(0), earlier.object, earlier.number, Ok(()), &mut out);
    scheduler.act(Time(0), &mut out);
    assert!(out.fetches.is_empty() && out.launches.is_empty(), "it has ended once");
    scheduler.on_fetched(Time(0), later.object, later.number, Ok(()), &mut out);
    scheduler.act(Time(0), &mut out);
    assert_eq!(out.launches.len(), 1);
}

/// One of them has lost another input and gives up, and an input with one reader is deleted with
/// its task.
#[test]
fn what_two_wait_for_is_there_for_both() {
    for loser in [0, 1] {
        let mut scheduler = scheduler_where(Tuning::of(Policy::Mlb), &[2]);
        let mut out = Out::default();
        let shared = || wire::InputAt { consumers: 1, ..input(1, 3, 5_000) };
        let own = |index| input(2 + index, if index == loser { 2 } else { 3 }, 5_000);
        let task = |index| placed(index, vec![shared(), own(index)], 0);
        push(&mut scheduler, vec![task(0), task(1)], &mut out);
        scheduler.act(Time(0), &mut out);
        let asked = std::mem::take(&mut out.locate)[&NodeId(1)].copies_only[0];
        let at = wire::ObjectAt { object: Some(asked), ..Default::default() };
        let located = Body::Located(wire::Located { objects: vec![at] });
        scheduler.on_message(Time(0), NodeId(1), located, &mut out);
        let fetches = std::mem::take(&mut out.fetches);
        assert_eq!(fetches.len(), 2, "what both wait for comes once");
        for fetch in fetches {
            scheduler.on_fetched(Time(0), fetch.object, fetch.number, Ok(()), &mut out);
        }
        scheduler.act(Time(0), &mut out);
        assert_eq!(out.completions[&NodeId(1)][0].lost_inputs.len(), 1);
        assert_eq!((out.launches.len(), out.evicted), (1, vec![]));
    }
}
