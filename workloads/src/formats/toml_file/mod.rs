//! Starling's own workflow file, and the tables that it shares with a single command line.
//!
//! Reading has three steps: [`raw`] parses the TOML, [`table`] checks each task by itself, and
//! [`assemble`] resolves names and files between tasks. An array stays one table until the last
//! step. Its elements share a spec, and `{i}` is replaced at launch.

pub(crate) mod array;
pub(crate) mod assemble;
mod diagnostics;
pub(crate) mod function;
mod index;
mod needs;
mod raw;
pub(crate) mod table;
mod variants;
mod write;

use std::path::{Path, PathBuf};

use proto::entry;

use crate::formats::error::{LoadError, Problem};
use crate::graph::Graph;
pub(crate) use write::write;

/// A value and its position in the text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Located<T> {
    pub(crate) value: T,
    /// The byte offset; `None` if the value is not from a text.
    pub(crate) at: Option<usize>,
}

/// A problem and its position in the text.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) at: Option<usize>,
    pub(crate) problem: Problem,
}

impl<T> Located<T> {
    pub(crate) fn nowhere(value: T) -> Self {
        Self { value, at: None }
    }

    pub(crate) fn fault(&self, problem: impl Into<Problem>) -> Fault {
        Fault { at: self.at, problem: problem.into() }
    }
}

impl<P: Into<Problem>> From<P> for Fault {
    fn from(problem: P) -> Self {
        Self { at: None, problem: problem.into() }
    }
}

impl Fault {
    /// An error in one task, as a sentence.
    pub(crate) fn task(at: Option<usize>, task: &str, reason: impl Into<String>) -> Self {
        let task = task.to_owned();
        Self { at, problem: Problem::BadTask { task, reason: reason.into(), hint: None } }
    }

    pub(crate) fn with_hint(mut self, text: &str) -> Self {
        if let Problem::BadTask { hint, .. } = &mut self.problem {
            *hint = Some(text.to_owned());
        }
        self
    }

    pub(crate) fn in_text(self, file: &str, text: &str) -> LoadError {
        let at = self.at.map(|offset| line_column(text, offset));
        LoadError { file: file.to_owned(), at, problem: Box::new(self.problem) }
    }
}

/// Reads a workflow file; paths in it are relative to its directory.
pub(crate) fn read(bytes: &[u8], path: &Path) -> Result<Graph, LoadError> {
    let file = path.to_string_lossy();
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let reason = format!("the text is not UTF-8 from byte {} on", error.valid_up_to());
        LoadError::new(&file, Problem::Syntax { reason })
    })?;
    let directory = directory_of(path)
        .map_err(|reason| LoadError::new(&file, Problem::Unreadable { reason }))?;
    let read = || {
        let raw = raw::parse(text)?;
        let name = raw.name.clone().unwrap_or_else(|| crate::formats::detect::stem(&file));
        let clocks_loads = raw.clocks_loads()?;
        let job = raw.job()?;
        let made = raw.outputs();
        let is_file = |name: &str| {
            let is_made = |output: &String| output == name || could_be(output, name);
            made.iter().any(is_made) || directory.join(entry::expand(name, 1)).exists()
        };
        let read = |raw| table::TaskTable::from_raw(raw, &is_file);
        let tables: Vec<table::TaskTable> =
            raw.tasks().into_iter().map(read).collect::<Result<_, _>>()?;
        let mut graph = assemble::assemble(&name, &tables, &directory, clocks_loads)?;
        graph.job = job;
        Ok(graph)
    };
    read().map_err(|fault: Fault| fault.in_text(&file, text))
}

/// True if an output of an array can have this name, with digits in place of its `{i}`.
fn could_be(template: &str, name: &str) -> bool {
    let Some(split) = entry::split(template) else { return false };
    let Some(rest) = name.strip_prefix(split.before) else { return false };
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    (1..=digits).any(|end| {
        let number = rest[..end].parse();
        number.is_ok_and(|number| entry::expand(template, number) == name)
    })
}

fn directory_of(path: &Path) -> Result<PathBuf, String> {
    let absolute = std::path::absolute(path).map_err(|error| error.to_string())?;
    absolute.parent().map(Path::to_path_buf).ok_or_else(|| "it has no directory".to_owned())
}

/// Line and column, both from 1; columns count characters.
fn line_column(text: &str, offset: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    // Continuation bytes of characters do not count.
    let column = before[start..].iter().filter(|byte| (**byte & 0xc0) != 0x80).count() + 1;
    (line, column)
}
