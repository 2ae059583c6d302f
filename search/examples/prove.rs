//! Solves one instance and prints nodes and seconds: `cargo run --release -p search --example prove
//! -- [--seconds S] [--slots N] tsp:FILE`. The last line is JSON for `scripts/verify-search`.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "its output is what it is for")]
#![expect(clippy::disallowed_methods, reason = "it measures time and has a thread for each slot")]

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use search::problems::{Counted, ProblemError, Solver, solve};
use search::{Bag, Optimise, Problem, Solution, Status, Tally, TreeBag, Vars};

/// Nodes between two looks at the time and at idle slots.
const BUDGET: u64 = 16;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let (mut seconds, mut slots, mut name) = (600, 1, String::new());
    while let Some(argument) = arguments.next() {
        let mut number = || arguments.next().and_then(|next| next.parse().ok());
        match argument.as_str() {
            "--seconds" => seconds = number().unwrap_or(seconds),
            "--slots" => slots = usize::try_from(number().unwrap_or(1)).unwrap_or(1),
            _ => name = argument,
        }
    }
    let limit = Duration::from_secs(seconds);
    let prove = Prove { name: name.clone(), begin: Instant::now(), limit, slots };
    let read =
        |file: &str| std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"));
    match solve(&name, |file| read(file).map_err(Failed), prove) {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failed(message)) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

struct Failed(String);

impl From<ProblemError> for Failed {
    fn from(error: ProblemError) -> Self {
        Self(format!("{error}; {}", error.hint))
    }
}

struct Prove {
    name: String,
    begin: Instant,
    limit: Duration,
    slots: usize,
}

/// The incumbent, the pieces that wait for a slot, and the outcome so far.
struct Shared<B> {
    best: AtomicI64,
    witness: Mutex<Solution>,
    pieces: Mutex<VecDeque<B>>,
    /// Slots without a bag that wait for one.
    hungry: AtomicUsize,
    outcome: Mutex<(Tally, Vec<i64>, u64)>,
}

impl<B> Vars for Shared<B> {
    fn best(&self) -> i64 {
        self.best.load(Ordering::Relaxed)
    }

    fn improve(&self, solution: Solution) {
        let mut known = lock(&self.witness);
        // All problems of files minimise but one; the caller has compared the values.
        eprintln!("{} after {}", solution.value, known.value);
        self.best.store(solution.value, Ordering::Relaxed);
        *known = solution;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Solver for Prove {
    type Output = ();

    fn enumerate<P: Problem>(self, _problem: P, _counted: Counted) {
        eprintln!("{} counts; only problems that optimise can be proved", self.name);
    }

    fn optimise<P: Problem>(self, problem: P) {
        let begin = self.begin;
        let problem = Arc::new(problem);
        let start = problem.start();
        let start = start.unwrap_or(Solution { value: P::GOAL.worst(), witness: Vec::new() });
        let bag = TreeBag::new(Arc::clone(&problem), Optimise { prune: true });
        let made_s = begin.elapsed().as_secs_f64();
        let (best, begun) = (start.value, start.value);
        let shared = Shared {
            best: AtomicI64::new(best),
            witness: Mutex::new(start),
            pieces: Mutex::new(VecDeque::from([bag])),
            hungry: AtomicUsize::new(0),
            outcome: Mutex::new((Tally::default(), Vec::new(), 0)),
        };
        std::thread::scope(|scope| {
            for _ in 0..self.slots {
                scope.spawn(|| self.slot::<P, _>(&shared, begin));
            }
        });
        self.report::<P, _>(&shared, begun, made_s, begin.elapsed());
    }
}

impl Prove {
    /// Searches pieces until there are none, or the time is over.
    fn slot<P: Problem, B: Bag>(&self, shared: &Shared<B>, begin: Instant) {
        let mut tally = Tally::default();
        let mut splits = 0;
        shared.hungry.fetch_add(1, Ordering::SeqCst);
        while begin.elapsed() < self.limit {
            let Some(mut bag) = lock(&shared.pieces).pop_front() else {
                if shared.hungry.load(Ordering::SeqCst) == self.slots {
                    break;
                }
                std::thread::yield_now();
                continue;
            };
            shared.hungry.fetch_sub(1, Ordering::SeqCst);
            while begin.elapsed() < self.limit {
                if bag.step(BUDGET, shared, &mut tally) != Status::Ran {
                    break;
                }
                let is_wanted = shared.hungry.load(Ordering::Relaxed) > 0;
                if is_wanted && lock(&shared.pieces).is_empty() {
                    if let Some(piece) = bag.split() {
                        splits += 1;
                        lock(&shared.pieces).push_back(piece);
                    }
                }
            }
            if let Some(bound) = bag.bound() {
                lock(&shared.outcome).1.push(bound);
            }
            shared.hungry.fetch_add(1, Ordering::SeqCst);
        }
        let mut outcome = lock(&shared.outcome);
        outcome.0.add(&tally);
        outcome.2 += splits;
    }

    fn report<P: Problem, B: Bag>(
        &self,
        shared: &Shared<B>,
        begun: i64,
        made_s: f64,
        wall: Duration,
    ) {
        let (tally, mut bounds, splits) = lock(&shared.outcome).clone();
        bounds.extend(lock(&shared.pieces).iter().filter_map(Bag::bound));
        let solution = lock(&shared.witness).clone();
        let is_proved = bounds.is_empty();
        let bound =
            bounds.into_iter().fold(solution.value, |best, bound| P::GOAL.better(best, bound));
        let Tally { nodes, leaves, depth, pruned, .. } = tally;
        println!(
            "{}: {} {}, bound {bound}, start {begun} ({made_s:.2} s), {nodes} nodes, {:.2} s",
            self.name,
            solution.value,
            if is_proved { "proved" } else { "open" },
            wall.as_secs_f64(),
        );
        println!(
            "{{\"schema\":1,\"problem\":{:?},\"result\":{},\"proved\":{is_proved},\"witness\":{:?},\
             \"bound\":{bound},\"nodes\":{nodes},\"leaves\":{leaves},\"depth\":{depth},\
             \"pruned\":{pruned},\"splits\":{splits},\"wall_s\":{:.3}}}",
            self.name,
            solution.value,
            solution.witness,
            wall.as_secs_f64(),
        );
    }
}
