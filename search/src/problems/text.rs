//! Reads numbers from an instance's text and names the line of each error.

/// An instance that cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("line {line}: {reason}")]
pub struct InputError {
    /// The line, from 1.
    pub line: usize,
    pub reason: String,
}

impl InputError {
    pub(crate) fn new(line: usize, reason: impl Into<String>) -> Self {
        Self { line, reason: reason.into() }
    }
}

/// The words of a text, one after the other.
#[derive(Debug)]
pub(crate) struct Words<'t> {
    lines: std::iter::Enumerate<std::str::Lines<'t>>,
    words: std::str::SplitWhitespace<'t>,
    /// The line of the last word, from 1; at the end of the text the last line.
    line: usize,
}

impl<'t> Words<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        Self { lines: text.lines().enumerate(), words: "".split_whitespace(), line: 1 }
    }

    /// The next word. A line that starts with `#` is a comment.
    pub(crate) fn next(&mut self) -> Option<&'t str> {
        loop {
            if let Some(word) = self.words.next() {
                return Some(word);
            }
            let (index, line) = self.lines.next()?;
            self.line = index + 1;
            if !line.trim_start().starts_with('#') {
                self.words = line.split_whitespace();
            }
        }
    }

    /// The next word as a whole number of a range.
    pub(crate) fn number(&mut self, what: &str, from: i64, to: i64) -> Result<i64, InputError> {
        let Some(word) = self.next() else {
            return Err(self.error(format!("the text ends before {what}")));
        };
        let number = word
            .parse::<i64>()
            .map_err(|_| self.error(format!("{what}: `{}` is no whole number", short(word))))?;
        if (from..=to).contains(&number) {
            return Ok(number);
        }
        Err(self.error(format!("{what} is {number}, but it must be from {from} to {to}")))
    }

    /// The same for a number of things.
    pub(crate) fn count(
        &mut self,
        what: &str,
        from: usize,
        to: usize,
    ) -> Result<usize, InputError> {
        let number = self.number(what, to_i64(from), to_i64(to))?;
        usize::try_from(number).map_err(|_| self.error(format!("{what} is too large")))
    }

    pub(crate) fn error(&self, reason: impl Into<String>) -> InputError {
        InputError::new(self.line, reason)
    }
}

/// At most 40 letters of a word, for an error.
pub(crate) fn short(word: &str) -> String {
    word.chars().take(40).collect()
}

/// A number of things as a signed number; the limits of all parsers are far below its maximum.
pub(crate) fn to_i64(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_skip_comments_and_know_their_line() {
        let mut words = Words::new("# a comment\n 1 2\n\n # b\n3");
        assert_eq!((words.next(), words.line), (Some("1"), 2));
        assert_eq!((words.next(), words.line), (Some("2"), 2));
        assert_eq!((words.next(), words.line), (Some("3"), 5));
        assert_eq!(words.next(), None);
    }

    #[test]
    fn numbers_out_of_range_and_other_words_are_errors_with_the_line() {
        let mut words = Words::new("7\nx\n9");
        assert_eq!(words.number("a", 0, 9), Ok(7));
        let error = words.number("b", 0, 9).unwrap_err();
        assert_eq!(error.to_string(), "line 2: b: `x` is no whole number");
        let error = words.number("c", 0, 8).unwrap_err();
        assert_eq!(error.to_string(), "line 3: c is 9, but it must be from 0 to 8");
        let error = words.number("d", 0, 8).unwrap_err();
        assert_eq!(error.to_string(), "line 3: the text ends before d");
    }
}
