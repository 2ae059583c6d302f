//! Errors of an executor and its objects, and the texts of system errors.

use std::io;
use std::path::{Path, PathBuf};

use proto::ObjectId;

/// The reason why an executor could not start.
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

/// The reason why bytes of an object cannot be read or stored.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    #[error("object {0} is not on this node")]
    Absent(ObjectName),
    #[error("object {0} was changed on the disk of this node")]
    Changed(ObjectName),
    #[error("cannot {action} object {object}: {reason}")]
    Io { action: &'static str, object: ObjectName, reason: String },
    #[error("object {object} exceeds {limit_bytes} bytes, the largest object of this node")]
    TooLarge { object: ObjectName, limit_bytes: u64 },
}

impl ObjectError {
    pub(crate) fn failed(action: &'static str, object: ObjectId, error: &io::Error) -> Self {
        Self::Io { action, object: ObjectName(object), reason: reason(error) }
    }
}

/// The name of an object in messages: `j1/0.7 output 0 (attempt 1.2)`.
#[derive(Clone, Copy, Debug)]
pub struct ObjectName(pub ObjectId);

impl std::fmt::Display for ObjectName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ObjectId { task, attempt, output } = self.0;
        write!(f, "{task} output {output} (attempt {attempt})")
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
