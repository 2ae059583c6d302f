//! The problems that `starling search` knows, by name.
//!
//! A new problem is a module here, a line in [`NAMES`], and an arm in [`solve`].

pub mod gsssa;
pub mod queens;
pub mod uts;

use crate::Problem;

/// Each kind of problem with the form of its argument.
pub const NAMES: [(&str, &str); 3] = [
    ("uts", "T1, T3, T5, T1L, T3L or tiny"),
    ("queens", "the size of the board, 1 to 20"),
    ("gsssa", "C, IW, IS or w_r=..,w_i=..,b=..,g=.."),
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
    _read: impl FnOnce(&str) -> Result<String, E>,
    solver: S,
) -> Result<S::Output, E> {
    let (kind, argument) = name.split_once(':').unwrap_or((name, ""));
    Ok(match kind {
        "uts" => solver.enumerate(uts::Uts::named(argument)?, Counted::Nodes),
        "queens" => solver.enumerate(queens::Queens::named(argument)?, Counted::Values),
        "gsssa" => solver.enumerate(gsssa::Gsssa::named(argument)?, Counted::Values),
        // Problems of a file: `solver.optimise(tsp::Tsp::parse(&read(argument)?)?)`.
        _ => return Err(unknown(kind).into()),
    })
}

fn unknown(kind: &str) -> ProblemError {
    let known: Vec<String> = NAMES.iter().map(|(name, form)| format!("{name}:<{form}>")).collect();
    ProblemError::name(
        format!("there is no problem '{kind}'"),
        format!("the problems are {}", known.join(", ")),
    )
}
