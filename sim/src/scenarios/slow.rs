//! One machine becomes slow, with its disk, network and steps, but does not fail.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Mutant;
use crate::{Action, Violation, World, WorldOptions};
use node::Effect;
use proto::{Span, Time};

const VICTIM: usize = 1;
/// The time for which the other nodes may be slow with it.
const PATIENCE: Span = Span::from_secs(15);
/// The largest factor between their waiting times afterwards and before.
const SLOWER_MAX: u64 = 3;
/// The number of operations that makes a percentile meaningful.
const TELLING: usize = 100;

/// A world with syncs of 5 to 10 ms.
pub fn world(seed: u64, nodes: u32, copies: u32, mutant: Option<Mutant>) -> World {
    let mut options = WorldOptions::healthy(seed, nodes, 2);
    (options.copies, options.faultless, options.mutant) = (copies, false, mutant);
    (options.sync_min, options.sync_max) = (Span::from_millis(5), Span::from_millis(10));
    World::new(options)
}

/// Counts the incarnations that are declared failed.
pub fn count_fenced(world: &mut World) -> Arc<AtomicU64> {
    let fenced = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&fenced);
    world.on_effect(Box::new(move |_, _, effect| {
        if matches!(effect, Effect::Fenced { .. }) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Action::Carry
    }));
    fenced
}

/// Adds clients with keys of each node.
pub fn add_meters(world: &mut World, operations: u32) {
    for node in 0..world.nodes() {
        for _ in 0..3 {
            world.add_kv_meter(node, 16, operations, Span::from_millis(20));
        }
    }
}

/// The 99th percentile of waits for keys that were not homed on the victim. `None`: there were too
/// few.
fn p99(world: &World, from: Time) -> Option<Span> {
    let waits = world.kv_waits(from, world.now());
    let waits = waits.iter().filter(|wait| wait.home != VICTIM);
    let mut took: Vec<Span> = waits.map(|wait| wait.took).collect();
    took.sort_unstable();
    (took.len() >= TELLING).then(|| took[(took.len() - 1) * 99 / 100])
}

pub fn the_rest_waits_no_longer(mutant: Option<Mutant>) -> Result<(), Violation> {
    for (seed, (nodes, copies)) in (1..).zip([(3, 2), (5, 3)]) {
        for times in [10, 100, 1_000] {
            one_is_slow(mutant, seed, (nodes, copies), times)?;
        }
    }
    Ok(())
}

fn one_is_slow(
    mutant: Option<Mutant>,
    seed: u64,
    (nodes, copies): (u32, u32),
    times: u64,
) -> Result<(), Violation> {
    let mut world = world(seed, nodes, copies, mutant);
    world.must_be_whole()?;
    let fenced = count_fenced(&mut world);
    add_meters(&mut world, 1_200);
    let begin = world.now();
    world.run_for(Span::from_secs(10));
    let before = p99(&world, begin);
    world.slow_down(VICTIM, times);
    world.run_for(PATIENCE);
    let begin = world.now();
    world.run_for(Span::from_secs(10));
    if let Some(violation) = world.violation() {
        return Err(violation.clone());
    }
    let after = p99(&world, begin);
    let (before, after) = before.zip(after).expect("the rest goes on");
    assert!(after <= Span(before.0 * SLOWER_MAX), "x{times}: {after:?}, {before:?} before");
    assert_eq!(fenced.load(Ordering::Relaxed), 0, "slow is not dead");
    Ok(())
}
