//! The invariants of every run. Each file states one and its reason.
//!
//! A simulator finds only the violations that its checkers check. `tests/mutants.rs` proves that
//! they find seeded bugs.

pub(crate) mod bound;
pub(crate) mod calls;
pub(crate) mod captured;
pub(crate) mod conservation;
pub(crate) mod contents;
pub(crate) mod copies;
pub(crate) mod durable;
pub(crate) mod growth;
pub(crate) mod inputs;
pub(crate) mod kept;
pub(crate) mod linear;
pub(crate) mod lists;
pub(crate) mod moves;
pub(crate) mod once;
pub(crate) mod one_attempt;
pub(crate) mod order;
pub(crate) mod past;
pub(crate) mod poison;
pub(crate) mod progress;
pub(crate) mod quiesce;
pub(crate) mod quiet;
pub(crate) mod removal;
pub(crate) mod rounds;
pub(crate) mod slots;
pub(crate) mod stall;
pub(crate) mod turns;
pub(crate) mod variables;

pub(crate) use slots::{after_jobs, claims, gang, patience, starve, throttle};

use std::collections::BTreeMap;

use proto::{JobId, TaskId};

use crate::state::expected::{ExpectedJob, ExpectedTask};

/// An invariant that did not hold.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{checker}: {message}")]
pub struct Violation {
    /// The checker's name.
    pub checker: &'static str,
    pub message: String,
}

impl Violation {
    pub(crate) fn new(checker: &'static str, message: String) -> Self {
        Self { checker, message }
    }

    /// The panic message of a node under test.
    pub(crate) fn of_panic(panic: &(dyn std::any::Any + Send)) -> Self {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        Self::new("panic", text.unwrap_or_else(|| "a panic without a message".to_string()))
    }
}

pub(crate) type Verdict = Result<(), Violation>;

/// All submitted jobs, by id.
pub(crate) type Jobs = BTreeMap<JobId, ExpectedJob>;

/// The simulator's record of the task. It is a violation if a node names a task that no client
/// submitted.
pub(crate) fn known<'a>(
    jobs: &'a mut Jobs,
    checker: &'static str,
    task: TaskId,
) -> Result<&'a mut ExpectedTask, Violation> {
    jobs.get_mut(&task.job)
        .and_then(|job| job.tasks.get_mut(&task.local))
        .ok_or_else(|| Violation::new(checker, format!("{task}: no client submitted this task")))
}
