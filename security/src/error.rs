//! The errors of keys, certificates and tokens.

use std::io;
use std::path::{Path, PathBuf};

/// An error with a one-line text that names the file and the reason.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    #[error("cannot {doing} {}: {}", path.display(), reason(error))]
    Io { doing: &'static str, path: PathBuf, error: io::Error },
    /// A reader of a key has the permissions of its role.
    #[error("{} may be read by others (mode {mode:04o})", path.display())]
    Mode { path: PathBuf, mode: u32 },
    #[error("{} is damaged: {what}", path.display())]
    Damaged { path: PathBuf, what: String },
    #[error("cannot make a key: {0}")]
    Make(String),
    #[error("there are {count} unused tokens")]
    TooManyTokens { count: usize },
    #[error("not a token: {0}")]
    Token(&'static str),
    #[error("these keys belong to another cluster than the token")]
    OtherCluster,
}

/// The text of a system error in lower case, without its number.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

impl KeyError {
    pub(crate) fn io(doing: &'static str, path: &Path, error: io::Error) -> Self {
        Self::Io { doing, path: path.to_path_buf(), error }
    }

    pub(crate) fn damaged(path: &Path, what: impl ToString) -> Self {
        Self::Damaged { path: path.to_path_buf(), what: what.to_string() }
    }
}

impl From<rcgen::Error> for KeyError {
    fn from(error: rcgen::Error) -> Self {
        Self::Make(error.to_string())
    }
}
