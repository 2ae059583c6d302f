//! Checks that seeds take the rare paths. Checkers prove nothing about paths that no seed takes.
//!
//! The nightly run is `cargo test -p starling-sim --test marks -- --ignored --nocapture`, a part of
//! `scripts/nightly`.

use proto::marks::Mark;
use sim::{CheckOptions, check};

const SEEDS: u64 = 10_000;
/// The usual number of seeds, which takes most paths at least once.
const SEEDS_USUAL: u64 = 300;

/// Paths that no seed takes, and the tests that do. In a seed a named stall is a violation
/// (`stall_probe.rs`). The record of a job stays long
/// (`scheduler/src/tests/job_history_tests.rs`). A replica refuses during the activation of its
/// primary only in one order of events (`node/src/replica/tests.rs`). A vote that a node is slow
/// takes longer than the faults of a seed (`slow.rs`).
const GONE_ELSEWHERE: [Mark; 4] =
    [Mark::StallNamed, Mark::DropWhileActivating, Mark::CalledSlow, Mark::JobDropped];

/// `SIM_FIRST_SEED` and, in the nightly run, `SIM_SEEDS` select other seeds.
fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[expect(clippy::print_stdout, reason = "which paths were gone, and how often; what failed")]
fn gone(seeds: u64) -> Vec<(Mark, u64)> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (first_seed, mutant) = (number("SIM_FIRST_SEED", 1), None);
    let report = check(&CheckOptions { first_seed, seeds, mutant, threads, stop_early: false });
    let gone = Mark::ALL.map(|mark| (mark, report.marks.get(&mark).copied().unwrap_or(0)));
    for (mark, count) in gone {
        println!("{count:10} {mark:?}: {}", mark.text());
    }
    for failure in &report.failed {
        println!("seed {}: {}: {}", failure.seed, failure.checker, failure.message);
    }
    assert!(report.failed.is_empty(), "{} of {seeds} seeds failed", report.failed.len());
    assert_eq!(report.seeds, seeds);
    gone.to_vec()
}

fn never(gone: &[(Mark, u64)]) -> Vec<Mark> {
    gone.iter().filter(|(_, count)| *count == 0).map(|(mark, _)| *mark).collect()
}

#[test]
#[ignore = "many seeds: for the nightly run"]
fn every_rare_path_is_gone() {
    let seeds = number("SIM_SEEDS", SEEDS);
    let mut never = never(&gone(seeds));
    if seeds < SEEDS {
        never.clear(); // Too few seeds to take every path for certain.
    }
    never.retain(|mark| !GONE_ELSEWHERE.contains(mark));
    assert_eq!(never, [], "paths that no seed of {seeds} went");
}

#[test]
fn few_seeds_go_most_of_them() {
    let never = never(&gone(SEEDS_USUAL));
    assert!(never.len() <= Mark::ALL.len() / 3, "{never:?}");
}
