//! Exit codes, and the format of every error: one line, lower case, then a hint.

use client::ClientError;
use daemon::{NodeError, StartError};
use hardware::DetectError;
use workloads::LoadError;

use crate::terminal_text::shown;

/// The exit codes of the program; a contract.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Exit {
    Ok = 0,
    /// The run finished with failed tasks, or a check found something.
    Failed = 1,
    Usage = 2,
    /// The cluster is lost or unreachable.
    Lost = 3,
    /// The input was refused.
    Refused = 4,
    TimedOut = 124,
    Interrupted = 130,
}

/// The reason why a verb ended early.
#[derive(Debug)]
pub struct Failure {
    pub exit: Exit,
    /// One line; empty if everything was printed before.
    pub message: String,
    pub hint: Option<String>,
}

pub type Done = Result<Exit, Failure>;

/// The hint for an unknown word: the known words, after the most similar one.
pub fn meant(word: &str, known: &[&str], what: &str) -> String {
    let nearest = workloads::nearest(&word.to_lowercase(), known);
    let nearest = nearest.map_or_else(String::new, |own| format!("'{own}' is meant? "));
    format!("{nearest}{what}: {}", known.join(", "))
}

impl Failure {
    pub fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None }
    }
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }
    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(Exit::Refused, message)
    }
    pub fn lost(message: impl Into<String>) -> Self {
        Self::new(Exit::Lost, message)
    }
    pub fn interrupted() -> Self {
        Self::new(Exit::Interrupted, "interrupted")
    }
    /// The reader of the output is gone, which is no error of this program.
    pub fn broken_pipe() -> Self {
        Self::new(Exit::Ok, "")
    }
    /// A file of this machine that could not be used.
    pub fn file(path: &std::path::Path, error: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        let hint = match error.kind() {
            ErrorKind::NotFound | ErrorKind::NotADirectory => "check the path",
            ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
                "name one that you may use"
            }
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => "free some space, or name another",
            _ => "check the file, or name another",
        };
        Self::refused(format!("{}: {}", path.display(), plain(error))).hint(hint)
    }
    /// With what has led to it.
    #[must_use]
    pub fn because(mut self, reason: &str) -> Self {
        self.message = format!("{}; {reason}", self.message);
        self
    }
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Both lines, in the format for stderr. A hint within the message is the nearer one.
    pub fn render(&self) -> String {
        let (message, hint) = match self.message.split_once("; hint: ") {
            Some((message, hint)) => (message, Some(hint)),
            None => (self.message.as_str(), self.hint.as_deref()),
        };
        let mut text = format!("error: {}\n", shown(message));
        if let Some(hint) = hint {
            text.push_str(&format!("hint: {}\n", shown(hint)));
        }
        text
    }
}

/// The result of a print that must not end the verb or change its exit code: a missing reader is
/// ignored.
pub fn heard(printed: Result<(), Failure>) -> Result<(), Failure> {
    match printed {
        Err(failure) if failure.exit == Exit::Ok => Ok(()),
        printed => printed,
    }
}

/// The text of a system error, without its number.
pub fn plain(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

impl From<ClientError> for Failure {
    fn from(error: ClientError) -> Self {
        let exit = match error {
            ClientError::Refused(_)
            | ClientError::UnknownJob(_)
            | ClientError::UnknownTask { .. }
            | ClientError::KeyMode { .. }
            | ClientError::BadKey(_)
            | ClientError::File { .. } => Exit::Refused,
            _ => Exit::Lost,
        };
        let hint = error.hint().map(str::to_owned);
        Self { exit, message: error.to_string(), hint }
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        Self { exit: Exit::Refused, message: error.to_string(), hint: error.hint() }
    }
}

impl From<StartError> for Failure {
    fn from(error: StartError) -> Self {
        let exit = match error {
            StartError::Options { .. }
            | StartError::NotLoopback { .. }
            | StartError::JoinNotLoopback { .. }
            | StartError::AutoInsecure
            | StartError::NoAddress { .. } => Exit::Usage,
            StartError::Missing { .. } | StartError::LostState { .. } | StartError::Join { .. } => {
                Exit::Lost
            }
            _ => Exit::Refused,
        };
        let hint = Some(error.hint()).filter(|hint| !hint.is_empty()).map(str::to_owned);
        Self { exit, message: error.to_string(), hint }
    }
}

impl From<NodeError> for Failure {
    fn from(error: NodeError) -> Self {
        match error {
            NodeError::Start(error) => error.into(),
            error @ NodeError::Removed { .. } => Self::lost(error.to_string()).hint(
                "with another state directory it becomes a new node: by 'starling node --join', or \
                     as a rank of a launcher",
            ),
            error @ NodeError::DirectoryTaken { .. } => Self::lost(error.to_string())
                .hint("give each node a directory of its own; see 'starling node list'"),
            error => Self::lost(error.to_string())
                .hint("start it again: what it accepted is on its disk"),
        }
    }
}

impl From<DetectError> for Failure {
    fn from(error: DetectError) -> Self {
        Self::usage(error.to_string())
            .hint("docs/resources.md describes pools, labels and couplings")
    }
}

/// What Rust says of a number that is none, in the words of a user.
pub fn numbers_plain(text: &str) -> String {
    text.replace("invalid digit found in string", "it is not a whole number")
        .replace("invalid float literal", "it is not a number")
        .replace("number too large to fit in target type", "it is too large a number")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_has_one_hint() {
        let failure = Failure::refused("no child 3; hint: there are 2").hint("see --help");
        assert_eq!(failure.render(), "error: no child 3\nhint: there are 2\n");
        let failure = Failure::refused("no child 3").hint("see --help");
        assert_eq!(failure.render(), "error: no child 3\nhint: see --help\n");
    }

    #[test]
    fn a_closed_pipe_alone_is_passed_over() {
        assert!(heard(Err(Failure::broken_pipe())).is_ok());
        assert!(heard(Err(Failure::refused("no space"))).is_err());
    }
}
