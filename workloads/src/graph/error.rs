//! The errors of graphs and of generators' texts. Each is one lower-case line with the problem and
//! the reason, and a separate hint.

use crate::limits::{GRAPH_EDGES_MAX, GRAPH_TASKS_MAX, SPEC_BYTES_MAX};
use proto::limits;

/// An invalid graph. Tasks have the user's names.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    #[error("the workflow has no tasks")]
    Empty,
    #[error("task '{task}' depends on itself")]
    SelfLoop { task: String },
    #[error("the tasks form a cycle: {path}")]
    Cycle { path: String },
    #[error("the workflow has more than {} tasks", GRAPH_TASKS_MAX)]
    TooManyTasks,
    #[error("the workflow has more than {} edges", GRAPH_EDGES_MAX)]
    TooManyEdges,
    #[error(
        "task '{task}': its description takes {size_bytes} bytes, at most {} are allowed",
        SPEC_BYTES_MAX
    )]
    SpecTooLarge { task: String, size_bytes: usize },
    #[error("task '{start}...': its name is longer than {} bytes", limits::NAME_BYTES_MAX)]
    NameTooLong { start: String },
}

impl GraphError {
    /// The suggested next step, if any.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Empty => "a workflow needs at least one task",
            Self::SelfLoop { .. } | Self::Cycle { .. } => {
                "a task can only run after its parents; break the cycle by removing one dependency"
            }
            Self::TooManyTasks | Self::TooManyEdges => "split the workflow into several jobs",
            Self::SpecTooLarge { .. } => "pass long lists of files in a file",
            Self::NameTooLong { .. } => return None,
        };
        Some(hint.to_owned())
    }
}

/// An invalid generator text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GeneratorError {
    #[error("unknown generator '{name}'")]
    UnknownGenerator { name: String, known: String },
    #[error("generator '{generator}': unknown key '{key}'")]
    UnknownKey { generator: String, key: String, known: String },
    #[error("generator '{generator}': '{part}' is not key=value")]
    NotKeyValue { generator: String, part: String },
    #[error("generator '{generator}': '{key}' is given twice")]
    KeyTwice { generator: String, key: String },
    #[error("generator '{generator}': {key}={value}: {reason}")]
    BadValue { generator: String, key: String, value: String, reason: String },
    #[error("generator '{generator}': {source}")]
    Graph { generator: String, source: GraphError },
}

impl GeneratorError {
    /// The suggested next step, if any.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::UnknownGenerator { name, known } => Some(match meant(name, known) {
                Some(own) => format!("'{own}' is meant? known generators: {known}"),
                None => format!("known generators: {known}"),
            }),
            Self::UnknownKey { key, known, .. } => Some(match meant(key, known) {
                Some(own) => format!("'{own}' is meant? known keys: {known}"),
                None => format!("known keys: {known}"),
            }),
            Self::NotKeyValue { .. } => {
                Some("write NAME:key=value,key=value, for example bag:tasks=1000".to_owned())
            }
            Self::Graph { source, .. } => source.hint(),
            Self::KeyTwice { .. } | Self::BadValue { .. } => None,
        }
    }
}

/// The most similar of the known words, which are separated by commas.
fn meant<'k>(word: &str, known: &'k str) -> Option<&'k str> {
    let known: Vec<&str> = known.split(", ").collect();
    nearest(&word.to_lowercase(), &known)
}

/// The most similar known word, if it is similar enough.
#[must_use]
pub fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let near = |own: &&str| strsim::damerau_levenshtein(word, own);
    let best = known.iter().copied().min_by_key(near)?;
    (near(&best) <= 1 + best.len() / 4).then_some(best)
}
