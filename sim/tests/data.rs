//! What becomes of objects: they travel ahead, are copied from copies, go when nobody reads them,
//! and a store with little room delays work or refuses it, but never stops it.

use std::sync::{Arc, Mutex};

use node::Effect;
use proto::{Event, JobId, PartitionId, Span, wire};
use scheduler::Policy;
use sim::{Action, ClientPlan, Draft, SimRng, Submission, World, WorldOptions};

const JOB: JobId = JobId(0x5eed_0000_0000);

fn options(nodes: u32, slots: u32) -> WorldOptions {
    let mut options = WorldOptions::healthy(11, nodes, slots);
    options.tuning.policy = Policy::Mlb;
    options
}

fn submission(world: &World, draft: &Draft, homes: &[usize], real_data: bool) -> Submission {
    let of = |&node: &usize| world.partitions_of(node).into_iter().take(2);
    let held: Vec<PartitionId> = homes.iter().flat_map(of).collect();
    let mut submission = draft.submission(&mut SimRng::new(7), JOB, &held);
    submission.commit.settings = Some(wire::JobSettings { real_data, ..Default::default() });
    submission
}

fn run(world: &mut World, draft: &Draft, homes: &[usize], real_data: bool) -> wire::JobState {
    let submission = submission(world, draft, homes, real_data);
    let client = world.add_job(submission, ClientPlan::simple());
    world.must_end().expect("the job ends");
    world.run_for(Span::from_secs(10));
    world.told(client).expect("the client hears of the end").clone()
}

/// Counts what effects there are, by a test of its own.
fn count(world: &mut World, counts: impl Fn(&Effect) -> bool + Send + 'static) -> Arc<Mutex<u64>> {
    let seen = Arc::new(Mutex::new(0));
    let counter = Arc::clone(&seen);
    world.on_effect(Box::new(move |_, _, effect| {
        *counter.lock().expect("one thread") += u64::from(counts(effect));
        Action::Carry
    }));
    seen
}

#[test]
fn an_object_goes_when_its_last_reader_has_ended() {
    let mut world = World::new(options(3, 1));
    let draft = Draft::chain(30, Span::from_millis(500), 10_000);
    let submission = submission(&world, &draft, &[0, 1, 2], false);
    world.add_job(submission, ClientPlan::simple());
    world.run_for(Span::from_secs(12));
    let stored = |world: &mut World| -> u64 {
        let states = world.node_states().expect("all nodes live");
        states.iter().map(|state| state.stored_bytes).sum()
    };
    let midway = stored(&mut world);
    assert!(midway > 0, "something is being read");
    // The object that is read, its copy, and those whose reader's end is on its way to be known.
    assert!(midway <= 60_000, "{midway} bytes are stored in the middle of a chain");
    world.must_end().expect("the job ends");
    world.run_for(Span::from_secs(10));
    assert_eq!(stored(&mut world), 0, "nothing is kept of an ended job");
}

#[test]
fn copies_are_sources() {
    let mut world = World::new(options(8, 1));
    let from_copies = count(&mut world, |effect| match effect {
        Effect::Fetch(fetch) => fetch.from.0 != 0,
        _ => false,
    });
    let mut draft = Draft::fan_out(81, Span::from_millis(300), 10_000_000);
    draft.tasks[0].duration = Span::ZERO;
    let state = run(&mut world, &draft, &[0], false);
    let sum = state.sum.expect("a finished job has counts");
    assert_eq!(sum.done, 81);
    assert!(*from_copies.lock().expect("one thread") > 0, "all came from the maker");
    // Each node brings it once; every further reader finds it.
    assert!(sum.moved_bytes <= 7 * 10_000_000, "{} bytes moved", sum.moved_bytes);
    assert_eq!(sum.inputs, 80);
    assert_eq!(sum.inputs - sum.inputs_local - sum.inputs_copied, sum.moved_bytes / 10_000_000);
}

#[test]
fn inputs_of_a_wide_fan_in_travel_as_they_are_made() {
    let mut world = World::new(options(4, 2));
    let ended = Arc::new(Mutex::new((0, 0)));
    let shared = Arc::clone(&ended);
    world.on_effect(Box::new(move |_, _, effect| {
        let mut seen = shared.lock().expect("one thread");
        match effect {
            Effect::Fetch(_) if seen.0 < 200 => seen.1 += 1,
            Effect::Trace(Event::Committed { .. }) => seen.0 += 1,
            _ => {}
        }
        Action::Carry
    }));
    let draft = Draft::fan_in(201, Span::from_millis(50), 10_000);
    let state = run(&mut world, &draft, &[0], false);
    assert_eq!(state.sum.expect("a finished job has counts").done, 201);
    let (_, before) = *ended.lock().expect("one thread");
    assert!(before > 60, "only {before} of the inputs travelled before the last was made");
}

#[test]
fn work_goes_on_in_a_store_with_little_room() {
    let mut options = options(3, 2);
    options.tuning.store_soft_bytes = 15_000;
    options.tuning.cache_bytes = 10_000;
    let mut world = World::new(options);
    let draft = Draft::fan_out(60, Span::from_millis(20), 5_000);
    let state = run(&mut world, &draft, &[0, 1, 2], true);
    assert_eq!(state.sum.expect("a finished job has counts").done, 60);
}

#[test]
fn a_task_that_cannot_fit_fails_and_says_why() {
    let mut options = options(1, 2);
    options.tuning.store_soft_bytes = 8_000;
    options.tuning.store_hard_bytes = 10_000;
    let mut world = World::new(options);
    let mut draft = Draft::bag(3, Span::from_millis(20));
    draft.tasks[1].output_sizes = vec![10_001];
    draft.tasks[1].duration = Span::ZERO;
    // A demand of the world is that plain tasks are done: this one cannot be.
    draft.tasks[1].kind = sim::KIND_FAILING;
    let state = run(&mut world, &draft, &[0], true);
    let sum = state.sum.expect("a finished job has counts");
    assert_eq!((sum.done, sum.failed), (2, 1));
    let error = &sum.failures[0].error;
    assert!(error.contains("needs 10001 bytes on node n0"), "{error}");
    assert!(error.contains("at most 10000"), "{error}");
}

/// Each object must go before the next can be made, and its reader is on the other node.
#[test]
fn a_full_store_waits_for_readers_elsewhere() {
    let mut options = options(2, 1);
    options.tuning.store_soft_bytes = 10_000;
    options.tuning.store_hard_bytes = 25_000;
    let mut world = World::new(options);
    let draft = Draft::chain(40, Span::from_millis(20), 10_000);
    let state = run(&mut world, &draft, &[0, 1], true);
    assert_eq!(state.sum.expect("a finished job has counts").done, 40);
}

/// As long as all that is written is declared.
#[test]
fn no_store_grows_beyond_its_hard_mark() {
    let mut options = options(3, 2);
    options.tuning.store_soft_bytes = 20_000;
    options.tuning.store_hard_bytes = 24_000;
    let mut world = World::new(options);
    let mut draft = Draft::fan_out(11, Span::from_millis(20), 7_000);
    for task in draft.tasks.iter_mut().skip(1) {
        task.output_sizes = vec![3_000];
    }
    let submission = submission(&world, &draft, &[0, 1, 2], true);
    world.add_job(submission, ClientPlan::simple());
    for _ in 0..200 {
        world.run_for(Span::from_millis(10));
        let states = world.node_states().expect("all nodes live");
        let most = states.iter().map(|state| state.stored_bytes).max();
        assert!(most <= Some(24_000), "{most:?} bytes are stored");
    }
}

/// How often tasks were stolen.
fn steals(world: &mut World) -> Arc<Mutex<u64>> {
    count(world, |effect| matches!(effect, Effect::Trace(Event::Stolen { .. })))
}

/// Two objects lie on two nodes, and no node has room for both. Where tasks take longer than their
/// inputs move, others may have all that is ready: whoever gets the one that reads both has no room
/// for it either, and one of them must refuse it.
#[test]
fn what_fits_no_store_is_refused_however_often_it_is_stolen() {
    for (nodes, policy) in [(2, Policy::Eft), (4, Policy::Eft), (2, Policy::Mlb), (3, Policy::Flds)]
    {
        let mut options = options(nodes, 1);
        options.tuning.policy = policy;
        options.tuning.store_soft_bytes = 8_000;
        options.tuning.store_hard_bytes = 10_000;
        let mut world = World::new(options);
        let stolen = steals(&mut world);
        let mut draft = Draft::fan_in(3, Span::from_millis(500), 7_000);
        draft.tasks[2].output_sizes = vec![0];
        draft.tasks[2].kind = sim::KIND_FAILING; // See above.
        let state = run(&mut world, &draft, &[0, 1], true);
        let sum = state.sum.expect("a finished job has counts");
        assert_eq!((sum.done, sum.failed), (2, 1), "{policy:?}");
        let error = &sum.failures[0].error;
        assert!(error.contains("bytes on node n") && error.contains("at most 10000"), "{error}");
        let stolen = *stolen.lock().expect("one thread");
        assert!(stolen <= 4 * u64::from(nodes), "{policy:?}: {stolen} steals of three tasks");
    }
}

/// What waits for room does not go round among nodes that have a free slot and no room.
#[test]
fn what_waits_for_room_does_not_wander() {
    let mut options = options(2, 2);
    options.tuning.store_soft_bytes = 8_000;
    options.tuning.store_hard_bytes = 20_000;
    let mut world = World::new(options);
    let stolen = steals(&mut world);
    let mut draft = Draft::bag(3, Span::from_secs(5));
    for (task, bytes) in draft.tasks.iter_mut().zip([5_000, 5_000, 6_000]) {
        task.output_sizes = vec![bytes];
    }
    let state = run(&mut world, &draft, &[0], true);
    assert_eq!(state.sum.expect("a finished job has counts").done, 3);
    let stolen = *stolen.lock().expect("one thread");
    assert!(stolen <= 8, "{stolen} steals of three tasks");
}
