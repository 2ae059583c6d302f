//! A slow node has not failed: no other node waits for it, and it gets work again after it has
//! recovered.

use std::sync::atomic::Ordering;

use proto::marks::{self, Mark};
use proto::{JobId, PartitionId, Span};
use sim::scenarios::slow::{add_meters, count_fenced, world};
use sim::{ClientPlan, Draft, SimRng, World, WorldOptions};

const VICTIM: usize = 1;

fn runs_well(world: &mut World, span: Span) {
    world.run_for(span);
    if let Some(violation) = world.violation() {
        panic!("{violation}");
    }
}

fn ends_well(world: &mut World) {
    world.must_end().unwrap_or_else(|violation| panic!("{violation}"));
    world.must_remember().unwrap_or_else(|violation| panic!("{violation}"));
    world.must_be_whole().unwrap_or_else(|violation| panic!("{violation}"));
}

/// First one node for less than the required time, then all nodes alike for a long time.
#[test]
fn a_briefly_slow_node_or_one_among_equally_slow_nodes_is_not_declared_slow() {
    let mut world = world(3, 5, 3, None);
    world.must_be_whole().unwrap_or_else(|violation| panic!("{violation}"));
    add_meters(&mut world, 300);
    for _ in 0..4 {
        world.slow_down(VICTIM, 100);
        runs_well(&mut world, Span::from_secs(4));
        assert!(world.slow_nodes().is_empty(), "{:?}", world.slow_nodes());
        world.slow_down(VICTIM, 1);
        runs_well(&mut world, Span::from_secs(3));
        assert!(world.slow_nodes().is_empty(), "{:?}", world.slow_nodes());
    }
    (0..5).for_each(|node| world.slow_down(node, 30));
    for _ in 0..20 {
        runs_well(&mut world, Span::from_secs(1));
        assert!(world.slow_nodes().is_empty(), "{:?}", world.slow_nodes());
    }
    (0..5).for_each(|node| world.slow_down(node, 1));
    ends_well(&mut world);
}

fn holds_a_copy(world: &World, node: usize) -> bool {
    world.holders().iter().flatten().any(|&holder| holder == node as u32)
}

/// The node keeps its process and its vote. It loses its homes, its replicas and new tasks. It gets
/// all of them again after half a minute at normal speed.
#[test]
fn a_slow_node_gets_no_work_until_it_recovers() {
    for (seed, copies) in [(1, 2), (2, 3)] {
        let _ = marks::take();
        let mut world = world(seed, 5, copies, None);
        world.must_be_whole().unwrap_or_else(|violation| panic!("{violation}"));
        let fenced = count_fenced(&mut world);
        add_meters(&mut world, 2_000);
        world.slow_down(VICTIM, 100);
        runs_well(&mut world, Span::from_secs(20));
        assert_eq!(world.slow_nodes(), [VICTIM]);
        assert!(world.partitions_of(VICTIM).is_empty());
        assert!(!holds_a_copy(&world, VICTIM));
        let launches = world.launches()[VICTIM];
        let held: Vec<PartitionId> = (0..world.partitions()).map(PartitionId).collect();
        let draft = Draft::bag(200, Span::from_millis(100));
        let submission = draft.submission(&mut SimRng::new(7), JobId(0x5eed_0000), &held);
        let client = world.add_job(submission, ClientPlan::simple());
        runs_well(&mut world, Span::from_secs(10));
        let told = world.told(client).expect("its job is told of");
        assert!(told.ended_ns > 0, "the others run it");
        assert_eq!(world.launches()[VICTIM], launches, "it is given no task");
        world.slow_down(VICTIM, 1);
        runs_well(&mut world, Span::from_secs(25));
        assert_eq!(world.slow_nodes(), [VICTIM], "not yet");
        runs_well(&mut world, Span::from_secs(20));
        assert!(world.slow_nodes().is_empty(), "{:?}", world.slow_nodes());
        assert!(!world.partitions_of(VICTIM).is_empty() && holds_a_copy(&world, VICTIM));
        assert_eq!(fenced.load(Ordering::Relaxed), 0, "it was never declared failed");
        let gone = marks::take();
        assert!([Mark::CalledSlow, Mark::CalledWell].iter().all(|&mark| gone[mark as usize] > 0));
        ends_well(&mut world);
    }
}

/// One of three nodes is slow and another is lost: a slow node is better than none.
#[test]
fn a_slow_node_is_used_again_when_another_is_lost() {
    for seed in 1..=4 {
        let mut world = world(seed, 3, 2, None);
        world.must_be_whole().unwrap_or_else(|violation| panic!("{violation}"));
        add_meters(&mut world, 500);
        world.slow_down(VICTIM, 20);
        runs_well(&mut world, Span::from_secs(15));
        assert_eq!(world.slow_nodes(), [VICTIM]);
        world.lose(2);
        runs_well(&mut world, Span::from_secs(20));
        assert!(world.slow_nodes().is_empty(), "{:?}", world.slow_nodes());
        assert!(holds_a_copy(&world, VICTIM));
        ends_well(&mut world);
    }
}

/// However many are slow, the majority is never voted slow.
#[test]
fn at_most_two_of_five_are_declared_slow() {
    let mut world = world(5, 5, 3, None);
    world.must_be_whole().unwrap_or_else(|violation| panic!("{violation}"));
    add_meters(&mut world, 3_000);
    for (node, times) in [(0, 30), (1, 100), (2, 300)] {
        world.slow_down(node, times);
        for _ in 0..15 {
            runs_well(&mut world, Span::from_secs(1));
            assert!(world.slow_nodes().len() <= 2, "{:?}", world.slow_nodes());
        }
    }
    assert_eq!(world.slow_nodes().len(), 2);
    (0..5).for_each(|node| world.slow_down(node, 1));
    ends_well(&mut world);
}

/// The latency of its answers is just below the limit for slow nodes, and sometimes above it. A
/// node that is not voted slow for such answers must also recover with them.
#[test]
fn a_node_that_is_rarely_late_is_declared_healthy() {
    const FAR: usize = 4;
    for seed in 1..=4 {
        let mut options = WorldOptions::healthy(seed, 5, 2);
        (options.copies, options.faultless) = (3, false);
        (options.sync_min, options.sync_max) = (Span::from_millis(5), Span::from_millis(10));
        options.slowness = vec![1, 1, 1, 1, 20];
        options.step_max = Span::from_micros(1_600);
        let mut world = World::new(options);
        world.must_be_whole().unwrap_or_else(|violation| panic!("{violation}"));
        world.declare_slow(FAR, true);
        runs_well(&mut world, Span::from_secs(5));
        assert_eq!(world.slow_nodes(), [FAR]);
        let mut seconds = 5;
        while !world.slow_nodes().is_empty() {
            runs_well(&mut world, Span::from_secs(1));
            seconds += 1;
            assert!(seconds < 120, "seed {seed}: it stays slow");
        }
        assert!(seconds > 30, "seed {seed}: {seconds} s are too few to tell");
    }
}
