//! Passages of a text that break its format although their meaning is clear.
//!
//! A reader accepts them and reports one warning for each kind. With `--strict` it refuses the
//! first one.

use std::cell::RefCell;

use crate::formats::error::Problem;
use crate::formats::text::{Misread, shown};

/// The oddities of one text.
#[derive(Debug, Default)]
pub(crate) struct Deviations {
    is_strict: bool,
    /// One for each kind. The source code of the readers bounds their number.
    kinds: RefCell<Vec<Deviation>>,
}

#[derive(Debug)]
struct Deviation {
    kind: &'static str,
    /// The first one's name, which stands before its description.
    name: String,
    /// Line and column of the first one, from 1; 0: unknown.
    at: (usize, usize),
    more: u64,
}

/// An oddity as users read it.
fn told(name: &str, kind: &str) -> String {
    if name.is_empty() { kind.to_owned() } else { format!("task '{}': {kind}", shown(name)) }
}

impl Deviations {
    pub(crate) fn new(is_strict: bool) -> Self {
        Self { is_strict, ..Self::default() }
    }

    /// Records an accepted oddity; `kind` describes it and its interpretation.
    ///
    /// # Errors
    /// The user asked for strictness.
    pub(crate) fn pass(&self, at: (usize, usize), kind: &'static str) -> Result<(), Misread> {
        self.pass_named(at, "", kind)
    }

    /// The same for an oddity of a task. Its place may be unknown: 0.
    ///
    /// # Errors
    /// The user asked for strictness.
    pub(crate) fn pass_named(
        &self,
        at: (usize, usize),
        name: &str,
        kind: &'static str,
    ) -> Result<(), Misread> {
        if self.is_strict {
            let at = (at.0 > 0).then_some(at);
            return Err(Misread { at, problem: Problem::Odd { kind: told(name, kind) } });
        }
        let mut kinds = self.kinds.borrow_mut();
        match kinds.iter_mut().find(|oddity| oddity.kind == kind) {
            Some(oddity) => oddity.more += 1,
            None => kinds.push(Deviation { kind, name: name.to_owned(), at, more: 0 }),
        }
        Ok(())
    }

    /// One line for each kind, with the position of the first one.
    pub(crate) fn into_warnings(self, file: &str) -> Vec<String> {
        let warning = |Deviation { kind, name, at: (line, column), more }| {
            let place = match line {
                0 => file.to_owned(),
                line => format!("{file}:{line}:{column}"),
            };
            let told = told(&name, kind);
            match more {
                0 => format!("{place}: {told}"),
                more => format!("{place}: {told} (and {more} more)"),
            }
        };
        self.kinds.into_inner().into_iter().map(warning).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_for_a_kind_names_the_first_place() {
        let deviations = Deviations::new(false);
        for line in 2..5 {
            deviations.pass((line, 7), "a further column is passed over").unwrap();
        }
        deviations.pass((9, 1), "a header is passed over").unwrap();
        let expected = [
            "w.swf:2:7: a further column is passed over (and 2 more)",
            "w.swf:9:1: a header is passed over",
        ];
        assert_eq!(deviations.into_warnings("w.swf"), expected);
    }

    #[test]
    fn a_strict_reader_refuses_the_first() {
        let refused = Deviations::new(true).pass((2, 7), "a header is passed over").unwrap_err();
        assert_eq!(refused.at, Some((2, 7)));
    }
}
