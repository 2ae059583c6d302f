//! Errors of calls and of the cluster.

use client::ClientError;

/// The reason why a call has no value.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The cluster does not do what was asked.
    #[error("{0}")]
    Cluster(#[from] ClientError),
    /// The function has panicked or has returned an error, or its worker could not run it.
    #[error("the call of {call} failed: {text}")]
    Failed {
        /// The name of the function.
        call: String,
        /// A panic has its place in it.
        text: String,
    },
    /// The call was cancelled.
    #[error("the call of {0} was cancelled")]
    Cancelled(String),
    /// The call never ran, because a call that is its argument has no value.
    #[error("the call of {0} did not run: a call that is its argument has no value")]
    Skipped(String),
    /// The call that runs is cancelled, or its time is over.
    #[error("this call is cancelled")]
    Interrupted,
    /// A value that JSON does not hold, or that is of another type than the one that is read.
    #[error("{what}: {text}")]
    Value {
        /// The value.
        what: String,
        /// The reason.
        text: String,
    },
    /// A value of a call cannot be an argument here.
    #[error("{0}")]
    Foreign(&'static str),
    /// The arguments of a call exceed a limit.
    #[error("{0}")]
    TooLarge(String),
    /// The program cannot be a worker, or there is no cluster to use.
    #[error("{0}")]
    Program(String),
    /// The text of a task's own error.
    #[error("{0}")]
    Text(String),
}

impl From<String> for Error {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<&str> for Error {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

/// A result with [`Error`] as its usual error.
pub type Result<T, E = Error> = std::result::Result<T, E>;
