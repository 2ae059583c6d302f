//! The errors of workflow files. Each is one lower-case line with the place, the problem and the
//! reason, and a separate hint.

use std::fmt::Write as _;

use crate::graph::error::{GeneratorError, GraphError};

/// A problem in a file, without its place.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Problem {
    #[error("cannot read it: {reason}")]
    Unreadable { reason: String },
    #[error("{reason}")]
    Syntax { reason: String },
    #[error("{reason}")]
    Mistake { reason: String, hint: Option<String> },
    #[error("not a workflow: {reason}")]
    NotAWorkflow { reason: String },
    #[error("{kind}")]
    Odd { kind: String },
    #[error("unknown schema version '{version}'")]
    UnknownSchema { version: String },
    #[error("duplicate task '{task}'")]
    DuplicateTask { task: String },
    #[error("task '{task}': unknown task '{parent}' in {list}")]
    UnknownTask { task: String, parent: String, list: &'static str },
    #[error("task '{task}': file not found: '{file}'")]
    FileNotFound { task: String, file: String },
    #[error("task '{task}': cannot read file '{file}': {reason}")]
    FileUnreadable { task: String, file: String, reason: String },
    #[error("input file '{file}' cannot be used: {path}: {reason}")]
    InputNotFound { file: String, path: String, reason: String },
    #[error("file '{file}' is written by both task '{first}' and task '{second}'")]
    FileTwice { file: String, first: String, second: String },
    #[error("task '{task}': {reason}")]
    BadTask { task: String, reason: String, hint: Option<String> },
    #[error(transparent)]
    Graph(#[from] GraphError),
    #[error(transparent)]
    Generator(#[from] GeneratorError),
}

impl Problem {
    /// The problem of a task's file for which the file system reported this error.
    pub(crate) fn of_file(task: String, file: String, error: &std::io::Error) -> Self {
        if error.kind() == std::io::ErrorKind::NotFound {
            return Self::FileNotFound { task, file };
        }
        let text = error.to_string();
        let reason = text.split(" (os error").next().unwrap_or(&text).to_lowercase();
        Self::FileUnreadable { task, file, reason }
    }
}

/// A workflow that could not be loaded: the place and the problem.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LoadError {
    /// Empty for a text that is no file.
    pub file: String,
    /// Line and column from 1, if known.
    pub at: Option<(usize, usize)>,
    pub problem: Box<Problem>,
}

impl LoadError {
    pub(crate) fn new(file: &str, problem: impl Into<Problem>) -> Self {
        Self { file: file.to_owned(), at: None, problem: Box::new(problem.into()) }
    }

    /// Marks the error as one of a text without a recognised format, which was read as TOML.
    pub(crate) fn of_unknown_kind(mut self) -> Self {
        if let Problem::Syntax { reason } | Problem::Mistake { reason, .. } = &*self.problem {
            let reason = format!("no known kind was recognised; as TOML: {reason}");
            *self.problem = Problem::NotAWorkflow { reason };
        }
        self
    }

    /// The suggested next step, if any.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match &*self.problem {
            Problem::Unreadable { .. } => {
                Some("name a workflow file, or a generator such as bag:tasks=1000".to_owned())
            }
            Problem::NotAWorkflow { .. } => {
                let known: Vec<&str> = super::detect::Format::names().collect();
                Some(format!("known kinds: {}; see --format", known.join(", ")))
            }
            Problem::UnknownSchema { .. } => {
                Some(format!("known versions: {}", super::wfformat::VERSIONS.join(", ")))
            }
            Problem::DuplicateTask { .. } => Some("each task needs a name of its own".to_owned()),
            Problem::UnknownTask { .. } => {
                Some("name a task of this workflow, or remove the dependency".to_owned())
            }
            Problem::FileNotFound { .. } => Some(
                "paths are relative to the workflow file; no task lists it as an output".to_owned(),
            ),
            Problem::InputNotFound { .. } => Some(
                "name a file that exists, relative to the current directory or with its whole path"
                    .to_owned(),
            ),
            Problem::FileUnreadable { .. } => Some(
                "check the path and its permissions; it is relative to the workflow file"
                    .to_owned(),
            ),
            Problem::FileTwice { .. } => Some("give each output a file of its own".to_owned()),
            Problem::BadTask { hint, .. } | Problem::Mistake { hint, .. } => hint.clone(),
            Problem::Graph(error) => error.hint(),
            Problem::Generator(error) => error.hint(),
            Problem::Odd { .. } => {
                Some("without --strict the file is read with a warning".to_owned())
            }
            Problem::Syntax { .. } => None,
        }
    }
}

impl std::error::Error for LoadError {}

impl std::fmt::Display for LoadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if !self.file.is_empty() {
            write!(f, "{}:", self.file)?;
            if let Some((line, column)) = self.at {
                write!(f, "{line}:{column}:")?;
            }
            f.write_str(" ")?;
        }
        // Names in a damaged file may contain control characters, but an error must be one line.
        for c in self.problem.to_string().chars() {
            match c.is_control() {
                true => write!(f, "{}", c.escape_default())?,
                false => f.write_char(c)?,
            }
        }
        Ok(())
    }
}
