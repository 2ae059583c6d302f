//! Exit codes, and the format of every error: one line, lower case, then a hint.

use clap::CommandFactory;
use client::ClientError;
use daemon::{NodeError, StartError};
use workloads::LoadError;

use crate::args::Cli;
use crate::common::terminal_text::shown;

/// The exit codes of the program; a contract.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Exit {
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
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// One line; empty if everything was printed before.
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

pub(crate) type Done = Result<Exit, Failure>;

/// The hint for an unknown word: the known words, after the most similar one.
pub(crate) fn meant(word: &str, known: &[&str], what: &str) -> String {
    let nearest = workloads::nearest(&word.to_lowercase(), known);
    let nearest = nearest.map_or_else(String::new, |own| format!("'{own}' is meant? "));
    format!("{nearest}{what}: {}", known.join(", "))
}

impl Failure {
    pub(crate) fn new(exit: Exit, message: impl Into<String>) -> Self {
        Self { exit, message: message.into(), hint: None }
    }
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(Exit::Usage, message)
    }
    pub(crate) fn refused(message: impl Into<String>) -> Self {
        Self::new(Exit::Refused, message)
    }
    pub(crate) fn lost(message: impl Into<String>) -> Self {
        Self::new(Exit::Lost, message)
    }
    pub(crate) fn interrupted() -> Self {
        Self::new(Exit::Interrupted, "interrupted")
    }
    /// The reader of the output is gone, which is no error of this program.
    pub(crate) fn nobody_listens() -> Self {
        Self::new(Exit::Ok, "")
    }
    /// A file of this machine that could not be used.
    pub(crate) fn file(path: &std::path::Path, error: &std::io::Error) -> Self {
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
    /// Adds a hint if there is none: where to read more, or where to look.
    #[must_use]
    pub(crate) fn or_hint(mut self, words: &[String]) -> Self {
        let general = || match self.exit {
            Exit::Usage | Exit::Refused => Some(format!("see '{} --help'", verb_of(words))),
            Exit::Lost => Some("'starling node list' shows which nodes answer".to_owned()),
            Exit::Ok | Exit::Failed | Exit::TimedOut | Exit::Interrupted => None,
        };
        self.hint = self.hint.take().or_else(general);
        self
    }
    /// With what has led to it.
    #[must_use]
    pub(crate) fn because(mut self, reason: &str) -> Self {
        self.message = format!("{}; {reason}", self.message);
        self
    }
    #[must_use]
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Both lines, in the format for stderr.
    pub(crate) fn render(&self) -> String {
        let mut text = format!("error: {}\n", shown(&self.message));
        if let Some(hint) = &self.hint {
            text.push_str(&format!("hint: {}\n", shown(hint)));
        }
        text
    }
}

/// The result of a print that must not end the verb or change its exit code: a missing reader is
/// ignored.
pub(crate) fn heard(printed: Result<(), Failure>) -> Result<(), Failure> {
    match printed {
        Err(failure) if failure.exit == Exit::Ok => Ok(()),
        printed => printed,
    }
}

/// The text of a system error, without its number.
pub(crate) fn plain(error: &std::io::Error) -> String {
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

/// A usage error of clap in our format: its first line, and where to read more.
pub(crate) fn usage_of_clap(error: &clap::Error, words: &[String]) -> Failure {
    let text = error.render().to_string();
    let mut parts = text.split("\n\n");
    let first = parts.next().unwrap_or_default();
    let message: Vec<&str> = first.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let message = message.join(" ");
    let message = numbers_plain(message.strip_prefix("error: ").unwrap_or(&message));
    if error.kind() == clap::error::ErrorKind::InvalidUtf8
        && let Some(word) = odd_word(words)
    {
        return Failure::usage(format!("'{word}' is not valid UTF-8"))
            .hint("rename the file, or let the command find it: sh -c 'cat *.txt'");
    }
    let tip = text.lines().find_map(|line| line.trim().strip_prefix("tip: "));
    let usage = text.lines().find_map(|line| line.strip_prefix("Usage: "));
    let hint = match (tip, usage) {
        (Some(tip), _) => tip.to_owned(),
        (None, Some(usage)) => format!("usage: {usage}"),
        (None, None) => format!("see '{} --help'", verb_of(words)),
    };
    Failure::usage(message).hint(hint)
}

/// The last word that is no text: a directory may have any name.
fn odd_word(words: &[String]) -> Option<&String> {
    let is_dir = |at: usize| words[at].starts_with("--dir=") || at > 0 && words[at - 1] == "--dir";
    let is_odd = |at: &usize| words[*at].contains(char::REPLACEMENT_CHARACTER) && !is_dir(*at);
    (0..words.len()).rev().find(is_odd).map(|at| &words[at])
}

/// What Rust says of a number that is none, in the words of a user.
pub(crate) fn numbers_plain(text: &str) -> String {
    text.replace("invalid digit found in string", "it is not a whole number")
        .replace("invalid float literal", "it is not a number")
        .replace("number too large to fit in target type", "it is too large a number")
}

/// The verb that a command line begins with: `starling job list`.
fn verb_of(words: &[String]) -> String {
    let mut command = Cli::command();
    let mut verb = command.get_name().to_owned();
    for word in words {
        if let Some(found) = command.find_subcommand(word).cloned() {
            verb = format!("{verb} {word}");
            command = found;
        }
    }
    verb
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_that_is_no_text_is_named() {
        let words = ["--dir", "d\u{fffd}", "submit", "f\u{fffd}"].map(str::to_owned);
        assert_eq!(odd_word(&words), Some(&words[3]));
        assert_eq!(odd_word(&words[..3]), None);
    }

    #[test]
    fn every_error_has_a_hint() {
        let words = ["--dir", "d", "kv", "insert", "", "v"].map(str::to_owned);
        let empty = Failure::from(ClientError::Refused("the key is empty".to_owned()));
        let text = empty.or_hint(&words).render();
        assert_eq!(text, "error: the key is empty\nhint: see 'starling kv insert --help'\n");
        let own = Failure::usage("no").hint("mine").or_hint(&words);
        assert_eq!(own.hint.as_deref(), Some("mine"));
        let missing = std::io::Error::from_raw_os_error(2);
        let text = Failure::file(std::path::Path::new("a.json"), &missing).render();
        let expected = "error: a.json: no such file or directory\n\
                        hint: check the path\n";
        assert_eq!(text, expected);
    }

    #[test]
    fn a_closed_pipe_alone_is_passed_over() {
        assert!(heard(Err(Failure::nobody_listens())).is_ok());
        assert!(heard(Err(Failure::refused("no space"))).is_err());
    }
}
