//! One slot: a thread that runs one bag at a time.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use search::{Bag, Status, Tally, Vars};

use crate::pool::{Pool, SPLIT, STOP};

/// The time of a step. The budget of nodes follows it.
const STEP_MIN: Duration = Duration::from_micros(20);
const STEP_MAX: Duration = Duration::from_micros(50);
const BUDGET_MAX: u64 = 1 << 20;
/// The interval at which a slot publishes its counts.
const PUBLISH_EVERY: Duration = Duration::from_millis(20);

/// The counts of one slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) tally: Tally,
    /// The time that the slot has spent in steps.
    pub(crate) searched: Duration,
    pub(crate) splits: u64,
    /// The bound of the bag.
    pub(crate) bound: Option<i64>,
}

/// Runs bags until the search has ended, and returns how many.
pub(crate) fn run<B: Bag, V: Vars>(pool: &Pool<'_, B, V>, slot: usize) -> u64 {
    let mut pieces = 0;
    let mut counts = Counts::default();
    let mut budget = 1;
    while let Some(mut bag) = pool.next_bag(slot) {
        pieces += 1;
        run_bag(pool, slot, &mut bag, &mut counts, &mut budget);
        counts.bound = bag.bound();
        pool.slots[slot].counts().clone_from(&counts);
    }
    pieces
}

/// Runs one bag until it is empty or the search ends.
fn run_bag<B: Bag, V: Vars>(
    pool: &Pool<'_, B, V>,
    slot: usize,
    bag: &mut B,
    counts: &mut Counts,
    budget: &mut u64,
) {
    let shared = &pool.slots[slot];
    shared.weight.store(bag.weight(), Ordering::Relaxed);
    let mut before = Instant::now();
    let mut published = before;
    loop {
        let status = bag.step(*budget, pool.vars, &mut counts.tally);
        let now = Instant::now();
        let step = now - before;
        counts.searched += step;
        before = now;
        match status {
            Status::Ran => {}
            Status::Empty => return,
            Status::Decided => return pool.stop(true),
        }
        *budget = next_budget(*budget, step);
        shared.weight.store(bag.weight(), Ordering::Relaxed);
        let word = shared.word.load(Ordering::Relaxed);
        if word & STOP != 0 {
            return;
        }
        if word & SPLIT != 0 {
            counts.splits += u64::from(pool.serve(slot, bag));
            before = Instant::now();
        }
        if now - published >= PUBLISH_EVERY {
            published = now;
            counts.bound = bag.bound();
            shared.counts().clone_from(counts);
        }
    }
}

/// The budget with which the next step takes 20 to 50 µs, if its nodes take as long.
fn next_budget(budget: u64, step: Duration) -> u64 {
    if step < STEP_MIN {
        (budget * 2).min(BUDGET_MAX)
    } else if step > 4 * STEP_MAX {
        (budget / 4).max(1)
    } else if step > STEP_MAX {
        // A pause of the thread says nothing about its nodes: the budget falls slowly.
        (budget - budget.div_ceil(4)).max(1)
    } else {
        budget
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_follows_the_cost_of_a_node() {
        for node_ns in [1, 10, 100, 1000, 30_000, 10_000_000] {
            let mut budget = 64;
            for _ in 0..100 {
                budget = next_budget(budget, Duration::from_nanos(node_ns * budget));
            }
            let step = Duration::from_nanos(node_ns * budget);
            assert!(budget == 1 || STEP_MIN <= step && step <= STEP_MAX, "{node_ns}: {step:?}");
        }
    }
}
