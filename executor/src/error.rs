//! What can go wrong when an executor starts, and how a system error reads.

use std::io;
use std::path::{Path, PathBuf};

/// Why an executor could not start.
#[derive(Debug, thiserror::Error)]
pub enum ExecutorError {
    #[error("cannot use {path}: {reason}; give the node a state directory it may write to")]
    Directory { path: PathBuf, reason: String },
    #[error("cannot start a thread: {reason}; raise the limit of threads (ulimit -u)")]
    Thread { reason: String },
}

impl ExecutorError {
    pub(crate) fn directory(path: &Path, error: &io::Error) -> Self {
        Self::Directory { path: path.to_owned(), reason: reason(error) }
    }
    pub(crate) fn thread(error: &io::Error) -> Self {
        Self::Thread { reason: reason(error) }
    }
}

/// A system error in lower case and without the number in brackets: `no space left on device`.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().expect("split yields at least one part");
    let mut letters = text.chars();
    match letters.next() {
        Some(first) => first.to_lowercase().chain(letters).collect(),
        None => String::from("unknown error"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_plain() {
        assert_eq!(reason(&io::Error::from_raw_os_error(28)), "no space left on device");
        assert_eq!(reason(&io::Error::other("Odd")), "odd");
    }
}
