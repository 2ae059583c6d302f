//! Names of pools and labels.

use std::fmt;

use thiserror::Error;

use crate::limits::NAME_BYTES_MAX;

/// A label with this prefix names the group of a node.
const GROUP_PREFIX: &str = "group:";

/// The name of a pool or of a label.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Name(Box<str>);

#[derive(Clone, PartialEq, Eq, Error, Debug)]
pub enum NameError {
    #[error(
        "'{0}' is not a name of a resource: letters, digits and '/', and a letter first, such as \
         gpus/nvidia"
    )]
    Pool(String),
    #[error("'{0}' is not a label: letters, digits and '/ - _ . :', and a letter first")]
    Label(String),
    #[error("a name has at most {NAME_BYTES_MAX} characters, and this one has {0}")]
    TooLong(usize),
}

impl Name {
    /// The name of a pool with an amount. It becomes the name of a variable of tasks, where `/` is
    /// `_`; with these characters no two pools have the same variable.
    pub fn pool(text: &str) -> Result<Self, NameError> {
        let fits = |c: char| c.is_ascii_alphanumeric() || c == '/';
        Self::checked(text, fits).unwrap_or_else(|| Err(NameError::Pool(text.to_owned())))
    }

    pub fn label(text: &str) -> Result<Self, NameError> {
        let fits = |c: char| c.is_ascii_alphanumeric() || "/-_.:".contains(c);
        Self::checked(text, fits).unwrap_or_else(|| Err(NameError::Label(text.to_owned())))
    }

    /// The label of a group of nodes. It is cut to the length of a label, and characters that a
    /// label cannot have become `-`.
    #[must_use]
    pub fn group(name: &str) -> Self {
        let fits = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let name = name.chars().map(|c| if fits(c) { c } else { '-' });
        Self(GROUP_PREFIX.chars().chain(name).take(NAME_BYTES_MAX).collect())
    }

    /// The name of the group of nodes, if this is the label of one.
    #[must_use]
    pub fn group_name(&self) -> Option<&str> {
        self.0.strip_prefix(GROUP_PREFIX)
    }

    /// `None`: a character is not allowed.
    fn checked(text: &str, fits: impl Fn(char) -> bool) -> Option<Result<Self, NameError>> {
        if text.len() > NAME_BYTES_MAX {
            return Some(Err(NameError::TooLong(text.len())));
        }
        let begins = text.starts_with(|c: char| c.is_ascii_alphabetic());
        (begins && text.chars().all(fits)).then(|| Ok(Self(text.into())))
    }

    /// The pool of cpus.
    #[must_use]
    pub fn cpus() -> Self {
        Self("cpus".into())
    }

    /// The pool of memory, in bytes.
    #[must_use]
    pub fn memory() -> Self {
        Self("memory".into())
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// True if amounts of this pool are bytes.
    #[must_use]
    pub fn is_bytes(&self) -> bool {
        &*self.0 == "memory"
    }

    /// The last part of a variable of tasks: `gpus/nvidia` is `gpus_nvidia`.
    #[must_use]
    pub fn variable(&self) -> String {
        self.0.replace('/', "_")
    }

    /// True if `other` is this name, or a kind of it: `gpus/nvidia` is a kind of `gpus`.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let rest = other.0.strip_prefix(&*self.0);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
