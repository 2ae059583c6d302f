//! A task that kills its node ends few incarnations, and no other task fails because of it.

use proto::limits::CRASHES_MAX;
use proto::{JobId, PartitionId, Span, wire};
use sim::{ClientPlan, Draft, SimRng, World, WorldOptions};

fn run(seed: u64, nodes: u32, slots: u32, draft: &Draft, homes: &[usize]) -> wire::JobState {
    let mut options = WorldOptions::healthy(seed, nodes, slots);
    options.faultless = false; // Nodes die here.
    let mut world = World::new(options);
    let held = homes.iter().flat_map(|&node| world.partitions_of(node).into_iter().take(2));
    let held: Vec<PartitionId> = held.collect();
    let submission = draft.submission(&mut SimRng::new(seed), JobId(0x5eed_0000_0000), &held);
    let client = world.add_job(submission, ClientPlan::simple());
    world.must_end().unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
    world.must_remember().expect("what was told stays so");
    world.must_leave_nothing().expect("all work has ended");
    world.told(client).expect("it has ended").clone()
}

fn sum(state: &wire::JobState) -> &wire::PartitionCount {
    state.sum.as_ref().expect("an ended job has counts")
}

#[test]
fn it_fails_after_three_deaths_and_all_others_complete() {
    for seed in 1..=40 {
        let draft = Draft::bag(60, Span::from_millis(20)).with_poison(&[7]);
        let state = run(seed, 4, 2, &draft, &[0, 1, 2, 3]);
        assert_eq!((sum(&state).done, sum(&state).failed), (59, 1), "seed {seed}");
        let error = &sum(&state).failures[0].error;
        let times = format!("died {CRASHES_MAX} times");
        assert!(error.contains(&times) && error.contains("incarnation"), "{error}");
        assert_eq!(error.matches("died while it").count(), usize::from(CRASHES_MAX), "{error}");
    }
}

#[test]
fn several_at_once_do_not_fail_tasks_that_ran_beside_them() {
    for seed in 1..=40 {
        let poison = [3, 4, 5, 30, 31];
        let draft = Draft::bag(80, Span::from_millis(15)).with_poison(&poison);
        let state = run(seed, 3, 4, &draft, &[0, 1]);
        assert_eq!((sum(&state).done, sum(&state).failed), (75, 5), "seed {seed}");
    }
}

#[test]
fn what_waits_for_it_is_skipped() {
    for seed in 1..=20 {
        let draft = Draft::chain(6, Span::from_millis(5), 1_000).with_poison(&[2]);
        let state = run(seed, 2, 1, &draft, &[0, 1]);
        let sum = sum(&state);
        assert_eq!((sum.done, sum.failed, sum.skipped), (2, 1, 3), "seed {seed}");
    }
}

/// The home that counts the deaths is itself the node that dies.
#[test]
fn a_home_that_is_its_only_node_remembers_how_often_it_died() {
    for seed in 1..=20 {
        let draft = Draft::bag(8, Span::from_millis(5)).with_poison(&[0]);
        let state = run(seed, 1, 2, &draft, &[0]);
        assert_eq!((sum(&state).done, sum(&state).failed), (7, 1), "seed {seed}");
    }
}

/// A task kills one of two nodes, and the other node dies at the same time, permanently. The next
/// incarnation of the first node sees no other node. This must not count against the task.
#[test]
fn a_node_that_died_at_the_same_time_is_no_witness_after_its_restart() {
    let mut deaths = 0;
    for seed in 1..=12 {
        let mut options = WorldOptions::healthy(seed, 2, 1);
        (options.faultless, options.copies) = (false, 2);
        let mut world = World::new(options);
        world.must_be_whole().expect("it begins well");
        let killed = (seed % 2) as usize;
        let held = world.partitions_of(killed).into_iter().take(2).collect::<Vec<_>>();
        let draft = Draft::bag(1, Span::from_secs(1)).with_poison(&[0]);
        let submission = draft.submission(&mut SimRng::new(seed), JobId(0x5eed_0000_0000), &held);
        world.add_job(submission, ClientPlan::simple());
        world.run_for(Span::from_millis(900 + 40 * (seed / 2)));
        world.lose(1 - killed);
        world.run_for(Span::from_secs(30));
        assert_eq!(world.violation(), None, "seed {seed}");
        deaths += world.launches()[killed];
    }
    assert!(deaths > 12, "{deaths}");
}

/// All nodes have restarted, and have nothing else to say to one another. Each is a witness of what
/// happens to the others all the same, where homes do not move.
#[test]
fn nodes_that_have_restarted_are_witnesses_at_once() {
    for seed in 1..=20 {
        let mut options = WorldOptions::healthy(seed, 3, 1);
        options.faultless = false;
        let mut world = World::new(options);
        world.run_for(Span::from_millis(100));
        (0..3).for_each(|node| world.crash(node));
        world.run_for(Span::from_secs(20));
        let held = world.partitions_of(0).into_iter().take(1).collect::<Vec<_>>();
        let draft = Draft::bag(1, Span::from_millis(20)).with_poison(&[0]);
        let submission = draft.submission(&mut SimRng::new(seed), JobId(0x5eed_0000_0000), &held);
        let client = world.add_job(submission, ClientPlan::simple());
        world.must_end().unwrap_or_else(|violation| panic!("seed {seed}: {violation}"));
        assert_eq!(sum(world.told(client).expect("it has ended")).failed, 1, "seed {seed}");
        let launches = world.launches().iter().sum::<u64>();
        assert_eq!(launches, u64::from(CRASHES_MAX), "seed {seed}: each death is a strike");
    }
}
