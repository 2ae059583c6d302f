//! Many small clusters with faults of all kinds: no checker may find a violation.

use sim::{CheckOptions, check, run_seed};

/// `SIM_SEEDS` and `SIM_FIRST_SEED` select other seeds than the project's minimum of 2,000.
fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

fn threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

#[test]
fn no_seed_fails() {
    let options = CheckOptions {
        first_seed: number("SIM_FIRST_SEED", 1),
        seeds: number("SIM_SEEDS", 2_000),
        mutant: None,
        threads: threads(),
        stop_early: false,
    };
    let report = check(&options);
    println!(
        "{} seeds, {:.0} s simulated, trace {:016x}, faults {:?}",
        report.seeds,
        report.simulated.as_secs_f64(),
        report.trace_hash,
        report.faults
    );
    for failure in &report.failed {
        println!("seed {}: {}: {}", failure.seed, failure.checker, failure.message);
    }
    assert!(report.failed.is_empty(), "{} seeds failed", report.failed.len());
    assert_eq!(report.seeds, options.seeds);
    // A few seeds need not draw every kind.
    if options.seeds < 100 {
        return;
    }
    for kind in ["crash", "power-cut", "pause", "one-way-cut", "partition", "lost", "repeated"] {
        assert!(report.faults.contains_key(kind), "no seed drew the fault {kind}");
    }
}

#[test]
fn the_same_seed_is_the_same_run() {
    for seed in 1..=20 {
        let (a, b) = (run_seed(seed, None, false), run_seed(seed, None, true));
        assert_eq!(a.trace_hash, b.trace_hash, "seed {seed}");
        assert_eq!(a.simulated, b.simulated, "seed {seed}");
        assert!(!b.story.is_empty());
    }
    let one = |threads| {
        let (first_seed, seeds, mutant) = (1, 20, None);
        check(&CheckOptions { first_seed, seeds, mutant, threads, stop_early: false }).trace_hash
    };
    assert_eq!(one(1), one(3), "the number of threads must not matter");
}

/// `SIM_FIRST_SEED=7 cargo test -p starling-sim --test seeds story -- --ignored --nocapture`
#[test]
#[ignore = "tells what happens in one seed, for a human"]
fn story() {
    let report = run_seed(number("SIM_FIRST_SEED", 1), None, true);
    report.story.iter().for_each(|line| println!("{line}"));
    println!("{:?}", report.failure);
}
