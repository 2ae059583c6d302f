//! Reads a workflow's text by lines and fields, with the position of each. The readers of text
//! formats use it.

use std::cell::Cell;
use std::io::{BufRead as _, BufReader, Read};

use crate::formats::error::{LoadError, Problem};
use crate::graph::error::GraphError;
use crate::limits::{UNPACKED_BYTES_MIN, UNPACKED_RATIO_MAX, WORKFLOW_LINE_BYTES_MAX};

/// A text that is read once, from its beginning.
pub(crate) type Source<'a> = BufReader<Box<dyn Read + 'a>>;

/// An error in a text, with line and column from 1.
#[derive(Debug)]
pub(crate) struct Misread {
    pub(crate) at: Option<(usize, usize)>,
    pub(crate) problem: Problem,
}

impl Misread {
    pub(crate) fn at(line: usize, column: usize, problem: impl Into<Problem>) -> Self {
        Self { at: Some((line, column)), problem: problem.into() }
    }

    pub(crate) fn syntax(line: usize, column: usize, reason: impl Into<String>) -> Self {
        Self::at(line, column, Problem::Syntax { reason: reason.into() })
    }

    pub(crate) fn in_file(self, file: &str) -> LoadError {
        LoadError { file: file.to_owned(), at: self.at, problem: Box::new(self.problem) }
    }
}

impl From<Problem> for Misread {
    fn from(problem: Problem) -> Self {
        Self { at: None, problem }
    }
}

impl From<GraphError> for Misread {
    fn from(error: GraphError) -> Self {
        Problem::from(error).into()
    }
}

impl From<std::io::Error> for Misread {
    fn from(error: std::io::Error) -> Self {
        Problem::Unreadable { reason: error.to_string() }.into()
    }
}

/// Lines of a text, one at a time.
pub(crate) struct Lines<'s, 'a> {
    source: &'s mut Source<'a>,
    line: usize,
    bytes: Vec<u8>,
    /// A line that begins with this byte is a comment in any encoding, and is returned as an empty
    /// line.
    comment: Option<u8>,
}

impl<'s, 'a> Lines<'s, 'a> {
    pub(crate) fn new(source: &'s mut Source<'a>) -> Self {
        Self { source, line: 0, bytes: Vec::new(), comment: None }
    }

    pub(crate) fn with_comments(source: &'s mut Source<'a>, mark: u8) -> Self {
        Self { comment: Some(mark), ..Self::new(source) }
    }

    /// The number of the last line that was read.
    pub(crate) fn line(&self) -> usize {
        self.line
    }

    /// The next line without its end.
    ///
    /// # Errors
    /// A line that is unreadable, too long, or not UTF-8.
    pub(crate) fn next(&mut self) -> Result<Option<Line<'_>>, Misread> {
        self.bytes.clear();
        self.line += 1;
        let limit = WORKFLOW_LINE_BYTES_MAX;
        let taken =
            self.source.by_ref().take(limit as u64 + 1).read_until(b'\n', &mut self.bytes)?;
        if taken == 0 {
            self.line -= 1;
            return Ok(None);
        }
        if taken > limit {
            let reason = format!("the line is longer than {limit} bytes");
            return Err(Misread::syntax(self.line, 1, reason));
        }
        if self.comment.is_some() && self.bytes.trim_ascii_start().first().copied() == self.comment
        {
            self.bytes.clear();
        }
        let text = std::str::from_utf8(&self.bytes).map_err(|error| {
            let column = error.valid_up_to() + 1;
            Misread::syntax(self.line, column, "the text is not UTF-8 from here on")
        })?;
        Ok(Some(Line { number: self.line, text: text.trim_end_matches(['\n', '\r']) }))
    }
}

/// One line of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'t> {
    pub(crate) number: usize,
    pub(crate) text: &'t str,
}

impl<'t> Line<'t> {
    /// The words between white space.
    pub(crate) fn words(self) -> impl Iterator<Item = Field<'t>> {
        let start = self.text.as_ptr() as usize;
        self.text.split_ascii_whitespace().map(move |text| Field {
            line: self.number,
            column: text.as_ptr() as usize - start + 1,
            text,
        })
    }

    /// The fields between commas.
    pub(crate) fn between_commas(self) -> impl Iterator<Item = Field<'t>> {
        let mut column = 1;
        self.text.split(',').map(move |text| {
            let field = Field { line: self.number, column, text };
            column += text.len() + 1;
            field
        })
    }

    pub(crate) fn syntax(self, column: usize, reason: impl Into<String>) -> Misread {
        Misread::syntax(self.number, column, reason)
    }
}

/// A part of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Field<'t> {
    pub(crate) line: usize,
    /// In bytes, from 1.
    pub(crate) column: usize,
    pub(crate) text: &'t str,
}

impl Field<'_> {
    pub(crate) fn fault(self, problem: impl Into<Problem>) -> Misread {
        Misread::at(self.line, self.column, problem)
    }

    pub(crate) fn syntax(self, reason: impl Into<String>) -> Misread {
        Misread::syntax(self.line, self.column, reason)
    }

    /// # Errors
    /// The field is no whole number or too large; `what` names the expected value.
    pub(crate) fn whole(self, what: &str) -> Result<u64, Misread> {
        self.text.parse().map_err(|_| {
            self.syntax(format!("{what} is a whole number, not '{}'", shown(self.text)))
        })
    }

    /// # Errors
    /// The field is no number; `what` names the expected value.
    pub(crate) fn number(self, what: &str) -> Result<f64, Misread> {
        let wrong = || self.syntax(format!("{what} is a number, not '{}'", shown(self.text)));
        let number: f64 = self.text.trim().parse().map_err(|_| wrong())?;
        if number.is_finite() { Ok(number) } else { Err(wrong()) }
    }
}

/// The maximum number of characters of the input in an error.
const SHOWN_CHARACTERS_MAX: usize = 40;

/// The start of a piece of input, for a one-line error.
pub(crate) fn shown(text: &str) -> String {
    let mut shown: String = text.chars().take(SHOWN_CHARACTERS_MAX).collect();
    if shown.len() < text.len() {
        shown.push_str("...");
    }
    shown.escape_debug().to_string()
}

/// A reader that counts its bytes.
pub(crate) struct Counted<'c, R> {
    pub(crate) reader: R,
    pub(crate) bytes: &'c Cell<u64>,
}

impl<R: Read> Read for Counted<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.bytes.set(self.bytes.get() + count as u64);
        Ok(count)
    }
}

/// A reader of unpacked text that fails if it is far larger than the `packed` bytes so far. A
/// parser of whole texts needs several times the text in memory.
pub(crate) struct Expanding<'c, R> {
    pub(crate) reader: R,
    pub(crate) packed: &'c Cell<u64>,
    pub(crate) unpacked: u64,
}

impl<R: Read> Read for Expanding<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.reader.read(buffer)?;
        self.unpacked += count as u64;
        let limit = UNPACKED_BYTES_MIN + self.packed.get().saturating_mul(UNPACKED_RATIO_MAX);
        if self.unpacked <= limit {
            return Ok(count);
        }
        let text = format!(
            "unpacked it is larger than {limit} bytes, the limit for a packed file of this size \
             ({UNPACKED_BYTES_MIN} + {UNPACKED_RATIO_MAX} for each byte); unpack it to have it read"
        );
        Err(std::io::Error::other(text))
    }
}

/// A reader that fails beyond a number of bytes.
pub(crate) struct Limited<R> {
    reader: R,
    left: u64,
    limit: u64,
}

impl<R: Read> Limited<R> {
    pub(crate) fn new(reader: R, limit: u64) -> Self {
        Self { reader, left: limit, limit }
    }
}

impl<R: Read> Read for Limited<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let count = self.reader.read(buffer)?;
        match self.left.checked_sub(count as u64) {
            Some(left) => self.left = left,
            None => {
                let limit = self.limit;
                return Err(std::io::Error::other(format!("it is larger than {limit} bytes")));
            }
        }
        Ok(count)
    }
}
