//! Errors between a client and its cluster.

use std::path::{Path, PathBuf};

use proto::{JobId, LocalId};

/// This text is in errors about a rejected certificate, of either side. A repetition does not help.
pub(crate) const DISTRUST: &str = "certificate";

/// Every message is one line with the error and its reason. [`ClientError::hint`] names the next
/// step.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// There is nothing to connect to.
    #[error("no cluster at {}: {reason}", dir.display())]
    NoInstance {
        /// The directory that was named.
        dir: PathBuf,
        /// What it lacks.
        reason: String,
    },
    /// No node answered within the client's patience.
    #[error("cluster unreachable: {0}")]
    ClusterUnreachable(String),
    /// The node understood the request and refuses it.
    #[error("{0}")]
    Refused(String),
    /// The node asked for a later retry until the client's patience ended.
    #[error("node n{node} is busy: {text}")]
    Busy {
        /// The node that was asked.
        node: u32,
        /// What it has too much of.
        text: String,
    },
    /// There is no such job, or not any more.
    #[error("no job {}", .0.0)]
    UnknownJob(JobId),
    /// The job has no such task.
    #[error("job {}: no task {task}", job.0)]
    UnknownTask {
        /// The job that was named.
        job: JobId,
        /// The task that it lacks.
        task: LocalId,
    },
    /// The connection broke after a write that must not be repeated was sent.
    #[error("connection to node n{node} lost: the write may or may not have happened")]
    Uncertain {
        /// The node that may have done the write.
        node: u32,
    },
    /// The number of a write is forgotten: it happened long ago, or never.
    #[error("node n{node}: {text}")]
    Forgotten {
        /// The node that was asked.
        node: u32,
        /// The reason.
        text: String,
        /// The ticket of a number that the partition accepts.
        ticket: u64,
    },
    /// A numbered write was answered before, and the answer is not kept. It is not done again.
    #[error("{0}")]
    AnswerUnkept(String),
    /// The answer of a node does not fit the request.
    #[error("node n{node} sent an unexpected answer: {what}")]
    Protocol {
        /// The node that answered.
        node: u32,
        /// What is wrong with its answer.
        what: &'static str,
    },
    /// A user that can read the key file has the rights of its role.
    #[error("{} may be read by others (mode {mode:04o})", path.display())]
    KeyMode {
        /// The key file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A key that is here and cannot be used. The reason names its file.
    #[error("{0}")]
    BadKey(String),
    /// A file of this machine.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The reason, in lower case.
        reason: String,
    },
}

impl ClientError {
    pub(crate) fn file(path: &Path, error: &std::io::Error) -> Self {
        Self::File { path: path.to_owned(), reason: reason(error) }
    }

    /// The next step, if there is an obvious one.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        Some(match self {
            Self::NoInstance { .. } => {
                "start one with 'starling up', or name its directory with --dir"
            }
            Self::ClusterUnreachable(why) if why.contains(DISTRUST) => {
                "use the directory of a node of this cluster, or copy its keys/client.pem again"
            }
            Self::ClusterUnreachable(_) => "'starling up' starts the nodes that are missing",
            Self::Busy { .. } => "try again later",
            Self::UnknownJob(_) => "'starling job list' shows the jobs of the cluster",
            Self::UnknownTask { .. } => "'starling task list JOB' shows the tasks of a job",
            Self::Uncertain { .. } | Self::Forgotten { .. } | Self::AnswerUnkept(_) => {
                "look the key up and decide whether to write again"
            }
            Self::Protocol { .. } => "use the same version of starling as the nodes",
            Self::KeyMode { .. } => "make it private again: chmod 600",
            Self::BadKey(_) => {
                "put the directory's keys back, or copy the keys/client.pem of another node"
            }
            Self::File { reason, .. } if reason.starts_with("damaged") => {
                "put the file back as it was, or name another directory with --dir"
            }
            Self::File { .. } => "check the file, or name another",
            Self::Refused(_) => return None,
        })
    }
}

/// The text of a system error in our style: lower case, without its number.
pub(crate) fn reason(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}
