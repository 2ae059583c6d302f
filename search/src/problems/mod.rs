//! The problems that `starling search` knows, by name.
//!
//! A new problem is a module here, a line in [`NAMES`], and an arm in [`solve`].

#[cfg(test)]
mod brute;
mod chance;
pub mod gsssa;
pub mod jobshop;
pub mod knapsack;
#[cfg(test)]
mod proofs;
pub mod qap;
pub mod queens;
mod text;
pub mod tsp;
pub mod uts;

pub use text::InputError;

use crate::Problem;

/// Each kind of problem with the form of its argument.
pub const NAMES: [(&str, &str); 8] = [
    ("uts", "T1, T3, T5, T1L, T3L or tiny"),
    ("queens", "the size of the board, 1 to 20"),
    ("gsssa", "C, IW, IS or w_r=..,w_i=..,b=..,g=.."),
    ("tsp", "a file of TSPLIB; the bound is a 1-tree"),
    ("tsp-paths", "a file of TSPLIB; the bound is a spanning tree"),
    ("knapsack", "a file: items and capacity, then profit and weight of each item"),
    ("qap", "a file of QAPLIB"),
    ("jobshop", "a file: jobs and machines, then machine and duration of each operation"),
];

/// The reason why a problem cannot be searched, with a hint for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ProblemError {
    pub kind: ErrorKind,
    pub message: String,
    pub hint: String,
}

/// The part of the input that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The name of the problem, or its argument.
    Name,
    /// The content of the file.
    Content,
}

impl ProblemError {
    pub fn name(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Name, message: message.into(), hint: hint.into() }
    }

    pub fn content(message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { kind: ErrorKind::Content, message: message.into(), hint: hint.into() }
    }
}

/// The number that is the result of an *enumerate* search.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    Nodes,
    /// The sum of the values of all solutions.
    Values,
}

/// The work that is done with a problem, for any type of problem.
pub trait Solver: Sized {
    type Output;

    fn enumerate<P: Problem>(self, problem: P, counted: Counted) -> Self::Output;

    fn optimise<P: Problem>(self, problem: P) -> Self::Output;
}

/// Makes the problem that `name` describes, such as `uts:T1`, and gives it to `solver`. `read`
/// returns the text of a file.
pub fn solve<S: Solver, E: From<ProblemError>>(
    name: &str,
    read: impl FnOnce(&str) -> Result<String, E>,
    solver: S,
) -> Result<S::Output, E> {
    let (kind, argument) = name.split_once(':').unwrap_or((name, ""));
    Ok(match kind {
        "uts" => solver.enumerate(uts::Uts::named(argument)?, Counted::Nodes),
        "queens" => solver.enumerate(queens::Queens::named(argument)?, Counted::Values),
        "gsssa" => solver.enumerate(gsssa::Gsssa::named(argument)?, Counted::Values),
        "tsp" => solver.optimise(tsp::Tsp::new(parsed(argument, read, tsp::parse)?)),
        "tsp-paths" => solver.optimise(tsp::Paths::new(parsed(argument, read, tsp::parse)?)?),
        "knapsack" => {
            solver.optimise(knapsack::Knapsack::new(&parsed(argument, read, knapsack::parse)?))
        }
        "qap" => solver.optimise(qap::Qap::new(parsed(argument, read, qap::parse)?)),
        "jobshop" => {
            solver.optimise(jobshop::JobShop::new(parsed(argument, read, jobshop::parse)?))
        }
        _ => return Err(unknown(kind).into()),
    })
}

/// The instance in a file.
fn parsed<I, E: From<ProblemError>>(
    file: &str,
    read: impl FnOnce(&str) -> Result<String, E>,
    parse: fn(&str) -> Result<I, InputError>,
) -> Result<I, E> {
    let text = read(file)?;
    parse(&text).map_err(|error| {
        let message = format!("{file}, {error}");
        ProblemError::content(message, "correct this line of the file").into()
    })
}

fn unknown(kind: &str) -> ProblemError {
    let known: Vec<String> = NAMES.iter().map(|(name, form)| format!("{name}:<{form}>")).collect();
    ProblemError::name(
        format!("there is no problem '{kind}'"),
        format!("the problems are {}", known.join(", ")),
    )
}
