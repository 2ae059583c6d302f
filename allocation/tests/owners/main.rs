//! Owners of allocations under faults: crashes and pauses at every step, lost answers, a batch
//! system that is away, is slow, and forgets. Each run is a function of its seed.

mod batch;
mod checks;
mod world;

use allocation::Mutant;

use crate::world::{Faults, World};

const SEEDS: u64 = 150;

fn run(seed: u64, mutant: Option<Mutant>) -> Result<World, String> {
    let mut world = World::new(seed, Faults::of_seed(seed), mutant);
    world.run().map(|()| world)
}

/// `STARLING_ALLOC_SEEDS` sets the number of seeds.
fn seeds() -> u64 {
    let text = std::env::var("STARLING_ALLOC_SEEDS").ok();
    text.and_then(|text| text.parse().ok()).unwrap_or(SEEDS)
}

fn is_found(mutant: Mutant) -> Option<String> {
    (0..seeds()).find_map(|seed| run(seed, Some(mutant)).err())
}

#[test]
fn demand_is_met_and_one_batch_job_of_an_intent_works() {
    let (mut duplicates, mut adopted, mut unknown) = (0, 0, 0);
    for seed in 0..seeds() {
        match run(seed, None) {
            Ok(world) => {
                duplicates += world.duplicates();
                adopted += world.adopted();
                unknown += world.unknown();
            }
            Err(why) => panic!("seed {seed}: {why}"),
        }
    }
    let rare = [duplicates, adopted, unknown];
    assert!(rare.iter().all(|&count| count > 0), "the seeds reach too little: {rare:?}");
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let hash = |seed| run(seed, None).expect("it passes").steps();
    assert_eq!((hash(3), hash(8)), (hash(3), hash(8)));
}

#[test]
fn each_seeded_bug_is_found() {
    for (mutant, says) in [
        (Mutant::LapsedOwnerSubmits, "lapsed"),
        (Mutant::IntentNotWritten, "no intent"),
        (Mutant::ClaimUnchecked, "works as well"),
        (Mutant::NeverUnknown, "forgotten"),
    ] {
        let why = is_found(mutant).unwrap_or_else(|| panic!("{mutant:?} is not found"));
        assert!(why.contains(says), "{mutant:?}: {why}");
    }
}
