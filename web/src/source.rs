//! Questions of a page, and the source of their answers.

use std::pin::Pin;

use serde::Deserialize;

/// A selection of the tasks of a job.
#[derive(Clone, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TaskFilter {
    /// The word of a state; empty: all.
    pub state: String,
    /// The name of a kind; empty: all.
    pub kind: String,
    /// A part of a name or of an id.
    pub name: String,
    /// The number of rows to leave out.
    pub skip: usize,
}

/// A question of a page. A job is named by its text: records have other numbers than clusters.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Question {
    /// Nodes, jobs, and the changes seen so far.
    Overview,
    /// The partitions and their copies.
    Store,
    /// The report of a job, as `starling report --json` prints it.
    Report {
        job: String,
    },
    /// The run record of a job.
    Record {
        job: String,
    },
    Tasks {
        job: String,
        filter: TaskFilter,
    },
    Task {
        job: String,
        task: String,
    },
    /// The captured output of a task.
    Output {
        job: String,
        task: String,
        stderr: bool,
    },
    Metrics,
}

/// The content of an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    Json(String),
    Bytes(Vec<u8>),
    /// OpenMetrics.
    Metrics(String),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProblemKind {
    /// There is no such thing.
    Absent,
    /// The source does not answer now.
    Away,
    Refused,
}

/// The reason why a question has no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    pub kind: ProblemKind,
    pub text: String,
    pub hint: Option<String>,
}

impl Problem {
    #[must_use]
    pub fn new(kind: ProblemKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into(), hint: None }
    }

    #[must_use]
    pub fn absent(text: impl Into<String>) -> Self {
        Self::new(ProblemKind::Absent, text)
    }

    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

pub type Answer = Pin<Box<dyn Future<Output = Result<Body, Problem>> + Send>>;

/// A change that a page asks for. The server has checked that it is allowed and confirmed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Change {
    CancelJob { job: String },
    RetryJob { job: String },
    DrainNode { node: String },
    PauseNode { node: String },
    ResumeNode { node: String },
}

/// Answers questions, and makes changes where it is allowed to.
pub trait Source: Send + Sync + 'static {
    /// Changes nothing.
    fn answer(&self, question: Question) -> Answer;

    /// Makes a change; its answer has a line for people.
    fn change(&self, _: Change) -> Answer {
        let text = "this page shows what has ended: nothing of it changes";
        Box::pin(async move { Err(Problem::new(ProblemKind::Refused, text)) })
    }
}
