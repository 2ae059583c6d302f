//! The seeds: without a bug all pass; each bug on purpose is found.

use std::collections::BTreeSet;
use std::panic;

use super::sim::{Options, World, run};
use super::*;

/// Seeds that the suite runs; more by hand with `STARLING_GROUP_SEEDS`.
const SEEDS: u64 = 2000;
/// A bug that as many seeds do not find is not found.
const MUTANT_SEEDS: u64 = 4000;

fn seeds() -> u64 {
    let asked = std::env::var("STARLING_GROUP_SEEDS").ok();
    asked.map_or(SEEDS, |text| text.parse().expect("STARLING_GROUP_SEEDS is a number"))
}

#[test]
fn all_seeds_agree_and_go_on() {
    let mut seen = BTreeSet::new();
    for seed in 0..seeds() {
        match run(&Options { seed, mutant: None }) {
            Ok(some) => seen.extend(some),
            Err(what) => panic!("{what}"),
        }
    }
    for rare in
        ["start from a snapshot", "snapshot taken over", "agreed", "elected again", "other voters"]
    {
        assert!(seen.contains(rare), "no seed came by: {rare}");
    }
}

#[test]
fn a_seed_repeats_itself() {
    for seed in [3, 77] {
        let trace = |seed| {
            let mut world = World::new(&Options { seed, mutant: None });
            world.live();
            format!("{:?}", world.checks)
        };
        assert_eq!(trace(seed), trace(seed));
    }
}

#[test]
fn every_bug_is_found() {
    let mut missed = Vec::new();
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {})); // An assertion that fires is a find.
    for mutant in Mutant::ALL {
        let finds = |&seed: &u64| {
            let options = Options { seed, mutant: Some(mutant) };
            !matches!(panic::catch_unwind(|| run(&options)), Ok(Ok(_)))
        };
        match (0..MUTANT_SEEDS).find(finds) {
            Some(seed) => println!("{mutant:?} is found by seed {seed}"),
            None => missed.push(mutant),
        }
    }
    panic::set_hook(hook);
    assert_eq!(missed, [], "bugs that no seed finds");
}
