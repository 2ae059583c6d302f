//! Output to stdout: JSON on request, tables on a terminal, plain columns otherwise.

use std::io::{IsTerminal, Write};

use serde::Serialize;

use crate::errors::{Failure, plain};
use crate::terminal_text::{shown, shown_lines};

/// The output format, by the global flags and the terminal.
#[derive(Clone, Copy, Debug)]
pub struct Output {
    pub json: bool,
    pub quiet: bool,
    pub verbose: bool,
    /// Stdout is a terminal.
    terminal: bool,
    /// Stderr is a terminal: progress may be drawn there.
    pub progress: bool,
    color: bool,
}

/// Puts the schema first in every JSON value.
#[derive(Serialize)]
struct WithSchema<'v, T> {
    schema: u32,
    #[serde(flatten)]
    value: &'v T,
}

impl Output {
    pub fn new(json: bool, quiet: bool, verbose: bool) -> Self {
        let terminal = std::io::stdout().is_terminal();
        let color = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let progress = std::io::stderr().is_terminal() && !quiet;
        Self { json, quiet, verbose, terminal, progress, color }
    }

    /// True if tables are for a person.
    pub fn is_table(&self) -> bool {
        self.terminal && !self.json
    }

    /// Prints bytes as they are.
    pub fn bytes(&self, bytes: &[u8]) -> Result<(), Failure> {
        let mut out = std::io::stdout().lock();
        let written = out.write_all(bytes).and_then(|()| out.flush());
        written.map_err(|error| match error.kind() {
            std::io::ErrorKind::BrokenPipe => Failure::broken_pipe(),
            _ => Failure::refused(format!("cannot write to stdout: {}", plain(&error))),
        })
    }

    /// Prints a text for people, in lines that this program has formatted. Foreign text in it
    /// cannot control the terminal.
    pub fn text(&self, text: &str) -> Result<(), Failure> {
        self.bytes(shown_lines(text).as_bytes())
    }

    /// Prints one line for people.
    pub fn line(&self, text: &str) -> Result<(), Failure> {
        self.raw_line(&shown(text))
    }

    /// Prints one line for programs, as it is.
    pub fn raw_line(&self, text: &str) -> Result<(), Failure> {
        self.bytes(format!("{text}\n").as_bytes())
    }

    /// Prints one JSON value on one line, with `"schema": 1` before its fields.
    pub fn json(&self, value: &impl Serialize) -> Result<(), Failure> {
        self.json_with_schema(&WithSchema { schema: 1, value })
    }

    /// Prints a value that contains its schema, such as the report of a run.
    pub fn json_with_schema(&self, value: &impl Serialize) -> Result<(), Failure> {
        self.raw_line(&serde_json::to_string(value).expect("numbers and strings always serialise"))
    }

    /// Prints a note for people, beside the data.
    pub fn note(&self, text: &str) {
        if !self.quiet {
            say(text);
        }
    }

    /// Prints rows under a header on a terminal; tab-separated rows without one otherwise.
    pub fn table(&self, header: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
        let clean = |row: &Vec<String>| row.iter().map(|cell| shown(cell).into_owned()).collect();
        let rows: Vec<Vec<String>> = rows.iter().map(clean).collect();
        if !self.terminal {
            let text: String = rows.iter().map(|row| row.join("\t") + "\n").collect();
            return self.bytes(text.as_bytes());
        }
        let mut text = layout(header, &rows);
        if self.color
            && let Some(end) = text.find('\n')
        {
            text = format!("\x1b[1m{}\x1b[0m{}", &text[..end], &text[end..]);
        }
        self.bytes(text.as_bytes())
    }
}

/// Columns padded to their widest cell, except the last one.
fn layout(header: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = header.iter().map(|cell| cell.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: Vec<&str>| {
        let padded: Vec<String> =
            cells.iter().zip(&widths).map(|(cell, &width)| format!("{cell:width$}")).collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let mut text = line(header.to_vec());
    for row in rows {
        text.push_str(&line(row.iter().map(String::as_str).collect()));
    }
    text
}

/// The line as a warning. A line that is one already stays as it is.
#[must_use]
pub fn as_warning(line: &str) -> String {
    match line.starts_with("warning: ") || line.contains(": warning: ") {
        true => line.to_owned(),
        false => format!("warning: {line}"),
    }
}

/// Prints a line on stderr. A failed write is ignored.
pub fn say(text: &str) {
    say_lines(&shown(text));
}

/// Prints lines on stderr, in which foreign text is on one line already.
pub fn say_lines(text: &str) {
    let _ = writeln!(std::io::stderr().lock(), "{}", shown_lines(text));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_end_ragged() {
        let rows = [vec!["1".to_owned(), "long".to_owned()], vec!["22".to_owned(), "x".to_owned()]];
        assert_eq!(layout(&["id", "name"], &rows), "id  name\n1   long\n22  x\n");
    }

    #[test]
    fn a_warning_is_called_one_once() {
        assert_eq!(as_warning("no disk"), "warning: no disk");
        assert_eq!(as_warning("warning: no disk"), "warning: no disk");
        assert_eq!(as_warning("node n0: warning: no disk"), "node n0: warning: no disk");
    }
}
