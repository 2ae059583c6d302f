//! Proves optima and prints a row for each problem, or with `--json` an object for
//! `scripts/verify-search`.
//!
//! ```text
//! cargo run --release -p starling-searcher --example prove -- \
//!     --slots 2 --seconds 600 tsp:berlin52.tsp
//! ```

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "its output is its purpose")]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use search::problems::{Counted, ProblemError, Solver, solve};
use search::{Optimise, Problem, TreeBag};
use searcher::{Incumbent, Next, run};

#[derive(Clone)]
struct Prove {
    problem: String,
    slots: usize,
    seconds: u64,
    is_json: bool,
    began: Instant,
}

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let (problem, began) = (String::new(), Instant::now());
    let mut prove = Prove { problem, slots: 1, seconds: 600, is_json: false, began };
    while let Some(word) = words.next() {
        let mut number = || words.next().and_then(|word| word.parse().ok()).expect("a number");
        match word.as_str() {
            "--slots" => prove.slots = usize::try_from(number()).expect("a number of slots"),
            "--seconds" => prove.seconds = number(),
            "--json" => prove.is_json = true,
            problem => {
                let prove =
                    Prove { problem: problem.to_owned(), began: Instant::now(), ..prove.clone() };
                if let Err(Failed(reason)) = solve(problem, read, prove) {
                    eprintln!("{problem}: {reason}");
                    return ExitCode::from(2);
                }
            }
        }
    }
    ExitCode::SUCCESS
}

struct Failed(String);

impl From<ProblemError> for Failed {
    fn from(error: ProblemError) -> Self {
        Self(format!("{error}; {}", error.hint))
    }
}

fn read(file: &str) -> Result<String, Failed> {
    std::fs::read_to_string(file).map_err(|error| Failed(error.to_string()))
}

impl Solver for Prove {
    type Output = ();

    fn enumerate<P: Problem>(self, _problem: P, _counted: Counted) {
        eprintln!("{} counts and has no optimum", self.problem);
    }

    fn optimise<P: Problem>(self, problem: P) {
        let start = problem.start();
        let start_value = start.as_ref().map(|start| start.value).unwrap_or_default();
        let vars = Incumbent::new(P::GOAL, start);
        let bag = TreeBag::new(Arc::new(problem), Optimise { prune: true });
        let limit = Duration::from_secs(self.seconds);
        let outcome = run(bag, self.slots, P::GOAL, &vars, Duration::from_millis(50), |_| {
            if self.began.elapsed() > limit { Next::Stop } else { Next::Continue }
        });
        let outcome = outcome.expect("the threads start");
        // With the time for the start solution and the root.
        let wall_s = self.began.elapsed().as_secs_f64();
        let solution =
            vars.solution().unwrap_or_else(|| panic!("{} has no solution", self.problem));
        let is_proved = outcome.is_complete;
        let open = outcome.last.bound.filter(|_| !is_proved);
        let bound = P::GOAL.better(solution.value, open.unwrap_or(solution.value));
        let (problem, value, tally) = (&self.problem, solution.value, outcome.last.tally);
        if self.is_json {
            println!(
                "{{\"schema\":1,\"problem\":{problem:?},\"result\":{value},\"proved\":{is_proved},\
                 \"witness\":{:?},\"nodes\":{},\"bound\":{bound},\"wall_s\":{wall_s:.3}}}",
                solution.witness, tally.nodes,
            );
        } else {
            let state = if is_proved { "proved".to_owned() } else { format!("bound {bound}") };
            let name = problem.rsplit(['/', ':']).next().unwrap_or_default();
            println!(
                "| {name} | {value} | {state} | {start_value} | {} | {} | {wall_s:.2} | {:.2} |",
                tally.nodes, tally.pruned, outcome.last.efficiency,
            );
        }
    }
}
