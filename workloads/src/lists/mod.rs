//! Lists of commands: one command with replacement strings, run for each entry of a list.
//!
//! [`split`] separates the command from its lists, [`Product`] makes the entries, and a
//! [`Template`] makes the command of an entry. [`JobLog`] is the record of ended entries in GNU
//! parallel's form, and [`Halt`] ends a run early. Entries are made one at a time, so a list may
//! have any length.

mod halt;
mod joblog;
mod nested;
mod quoting;
mod sources;
mod template;

pub use halt::{Halt, HaltKind, HaltRule, Tally};
pub use joblog::{Again, HEADER, JobLog, Row, SeenCommands};
pub use quoting::command_line;
pub use sources::{Entry, Items, Product, Source, SourceKind, Split, split};
pub use template::{Template, has_replacement};

use std::fmt;

/// A refused list, command or job log, and the suggested next step.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ListError {
    pub text: String,
    pub hint: String,
}

impl ListError {
    pub(crate) fn new(text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { text: text.into(), hint: hint.into() }
    }
}

impl fmt::Display for ListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for ListError {}
