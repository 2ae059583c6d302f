//! The checkers find every seeded bug within a budget of seeds.

mod known_seeds;

use std::fmt::Write as _;

use proto::mutants::FoundBy;
use sim::{CheckOptions, Mutant, Scenario, SeedFailure, check};

const SEEDS_MAX: u64 = 2_000;

macro_rules! found {
    ($($test:ident $owner:ident $list:ident,)+) => {
        $(
            #[test]
            fn $test() {
                all_are_found(&$owner::Mutant::$list.map(Mutant::from));
            }
        )+

        fn looked_for() -> impl Iterator<Item = Mutant> {
            std::iter::empty()$(.chain($owner::Mutant::$list.map(Mutant::from)))+
        }
    };
}

found! {
    every_mutant_is_found scheduler ALL,
    every_mutant_of_effects_is_found node OF_EFFECTS,
    every_mutant_of_machines_is_found sim OF_MACHINES,
    every_mutant_of_copies_is_found node OF_COPIES,
    every_mutant_of_slowness_is_found node OF_SLOWNESS,
    every_mutant_of_crashes_is_found scheduler OF_CRASHES,
    every_mutant_of_other_bytes_is_found scheduler OF_OTHER_BYTES,
    every_mutant_of_growth_is_found scheduler OF_GROWTH,
    every_mutant_of_rounds_is_found scheduler OF_ROUNDS,
    every_mutant_of_the_past_is_found scheduler OF_THE_PAST,
    every_mutant_of_numbers_is_found node OF_NUMBERS,
    every_mutant_of_turns_is_found scheduler OF_TURNS,
    every_mutant_of_mail_is_found scheduler OF_MAIL,
    every_mutant_of_variables_is_found scheduler OF_VARIABLES,
    every_mutant_of_open_jobs_is_found scheduler OF_OPEN_JOBS,
    every_mutant_of_silence_is_found scheduler OF_SILENCE,
    every_mutant_of_resources_is_found scheduler OF_RESOURCES,
    every_mutant_of_gangs_is_found scheduler OF_GANGS,
    every_mutant_of_keepers_is_found node OF_KEEPERS,
    every_mutant_of_throttles_is_found scheduler OF_THROTTLES,
    every_mutant_of_after_is_found scheduler OF_AFTER,
    every_mutant_of_pauses_is_found scheduler OF_PAUSES,
    every_mutant_of_moves_is_found scheduler OF_MOVES,
}

#[test]
fn each_mutant_that_the_simulator_finds_is_looked_for() {
    for mutant in Mutant::every().filter(|mutant| mutant.found_by() == FoundBy::Simulator) {
        let lists = looked_for().filter(|other| *other == mutant);
        assert_eq!(lists.count(), 1, "{}", mutant.name());
    }
}

/// The failure of the known seed, else that of the first seed that fails.
fn first_failure(mutant: Mutant, threads: usize) -> Option<SeedFailure> {
    let search = |first_seed, seeds| {
        let mutant = Some(mutant);
        let options = CheckOptions { first_seed, seeds, mutant, threads, stop_early: true };
        check(&options).failed.into_iter().next()
    };
    let known = known_seeds::seed_of(mutant.name()).filter(|seed| *seed <= SEEDS_MAX);
    known.and_then(|seed| search(seed, 1)).or_else(|| search(1, SEEDS_MAX))
}

fn all_are_found(mutants: &[Mutant]) {
    // Assertions of the nodes may fail too; their messages would bury the table.
    std::panic::set_hook(Box::new(|_| {}));
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let mut table = String::new();
    let mut missed = Vec::new();
    for &mutant in mutants {
        let name = mutant.name();
        if let Some(scenario) = Scenario::about(mutant) {
            match scenario.run(Some(mutant)) {
                Ok(()) => missed.push(name),
                Err(violation) => {
                    let text = violation.message.lines().next().unwrap_or_default();
                    let checker = violation.checker;
                    let _ = writeln!(table, "{name:28} found by {checker:9} in a scenario: {text}");
                }
            }
            continue;
        }
        match first_failure(mutant, threads) {
            Some(failure) => {
                known_seeds::found_at(name, failure.seed);
                let text = failure.message.lines().next().unwrap_or_default();
                let (checker, seed) = (&failure.checker, failure.seed);
                let _ = writeln!(table, "{name:28} found by {checker:9} at seed {seed}: {text}");
            }
            None => {
                let _ = writeln!(table, "{name:28} NOT FOUND in {SEEDS_MAX} seeds");
                missed.push(name);
            }
        }
    }
    let _ = std::panic::take_hook();
    #[expect(clippy::print_stdout, reason = "which checker found which mutant")]
    {
        println!("{table}");
    }
    assert!(missed.is_empty(), "mutants that no checker finds: {missed:?}");
}
