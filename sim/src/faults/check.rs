//! Checks many seeds. Each one runs a small cluster through faults, healing, the end of all jobs
//! and silence.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::Mutant;
use proto::Span;
use proto::marks::{self, Mark};

use crate::checkers::Violation;
use crate::checkers::linear::Searched;
use crate::faults::lifecycle::live;
use crate::faults::seed_plan::Plan;
use crate::faults::world::World;

/// The seeds to check, and how.
#[derive(Clone, Debug)]
pub struct CheckOptions {
    pub first_seed: u64,
    pub seeds: u64,
    pub mutant: Option<Mutant>,
    pub threads: usize,
    /// Stop at the first seed that fails.
    pub stop_early: bool,
}

/// One seed that failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SeedFailure {
    pub seed: u64,
    pub checker: String,
    /// The violation, and the command that reproduces it.
    pub message: String,
}

/// The results of all checked seeds. They are independent of the number of threads unless the check
/// stopped early.
#[derive(Clone, Debug, Default)]
pub struct CheckReport {
    pub seeds: u64,
    pub failed: Vec<SeedFailure>,
    /// The number of faults of each kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// How often each rare path was taken.
    pub marks: BTreeMap<Mark, u64>,
    /// Totals of the search for a linear order of the key-value histories.
    pub searched: Searched,
    /// Of all runs together.
    pub trace_hash: u64,
    pub simulated: Span,
}

/// The result of one run.
#[derive(Clone, Debug)]
pub struct SeedReport {
    pub failure: Option<SeedFailure>,
    pub faults: BTreeMap<&'static str, u64>,
    /// How often each rare path was taken.
    pub marks: BTreeMap<Mark, u64>,
    pub searched: Searched,
    pub trace_hash: u64,
    pub simulated: Span,
    /// The events of the run, one a line, if a trace was requested.
    pub story: Vec<String>,
}

/// Runs the seeds on several threads.
#[must_use]
pub fn check(options: &CheckOptions) -> CheckReport {
    let next = AtomicU64::new(0);
    let stop = AtomicBool::new(false);
    let reports: Mutex<BTreeMap<u64, SeedReport>> = Mutex::new(BTreeMap::new());
    std::thread::scope(|scope| {
        for _ in 0..options.threads.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= options.seeds {
                        break;
                    }
                    let seed = options.first_seed + number;
                    let report = run_seed(seed, options.mutant, false);
                    if options.stop_early && report.failure.is_some() {
                        stop.store(true, Ordering::Relaxed);
                    }
                    reports.lock().expect("no run panics outside its net").insert(seed, report);
                }
            });
        }
    });
    let mut total = CheckReport::default();
    for report in reports.into_inner().expect("all threads have ended").into_values() {
        total.seeds += 1;
        total.failed.extend(report.failure);
        for (kind, n) in report.faults {
            *total.faults.entry(kind).or_default() += n;
        }
        for (mark, n) in report.marks {
            *total.marks.entry(mark).or_default() += n;
        }
        total.searched.add(report.searched);
        let mixed = (total.trace_hash ^ report.trace_hash).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        total.trace_hash = mixed.rotate_left(23);
        total.simulated = Span(total.simulated.0 + report.simulated.0);
    }
    total
}

/// Runs one seed. A panic of the node under test counts as a failure.
#[must_use]
pub fn run_seed(seed: u64, mutant: Option<Mutant>, trace: bool) -> SeedReport {
    let _ = marks::take(); // Marks that an earlier run left on this thread.
    let mut plan = Plan::new(seed, mutant);
    let mut world = World::new(plan.world.clone());
    if trace {
        world.keep_story();
    }
    let begin = world.now();
    let lived = catch_unwind(AssertUnwindSafe(|| live(&mut world, &mut plan)));
    let violation = match lived {
        Ok(verdict) => verdict.err(),
        Err(panic) => Some(Violation::of_panic(&*panic)),
    };
    let failure = violation.map(|violation| SeedFailure {
        seed,
        checker: violation.checker.to_string(),
        message: violation.message,
    });
    SeedReport {
        failure,
        faults: world.injection.counts().clone(),
        marks: Mark::ALL.into_iter().zip(marks::take().map(u64::from)).collect(),
        searched: world.clients.searched(),
        trace_hash: world.trace_hash(),
        simulated: world.now().since(begin),
        story: world.take_story(),
    }
}
