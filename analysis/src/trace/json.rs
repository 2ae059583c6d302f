//! JSON that is safe inside a page: without the signs of markup.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};

/// Writes `<`, `>` and `&` as their numbers.
struct WithoutMarkup;

impl Formatter for WithoutMarkup {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        out: &mut W,
        fragment: &str,
    ) -> io::Result<()> {
        let is_markup = |letter: char| matches!(letter, '<' | '>' | '&');
        for part in fragment.split_inclusive(is_markup) {
            let plain = part.trim_end_matches(is_markup);
            out.write_all(plain.as_bytes())?;
            for sign in part[plain.len()..].bytes() {
                write!(out, "\\u{sign:04x}")?;
            }
        }
        Ok(())
    }
}

pub(super) fn write(value: &Value, out: &mut impl Write) -> io::Result<()> {
    let mut serializer = Serializer::with_formatter(out, WithoutMarkup);
    value.serialize(&mut serializer).map_err(io::Error::from)
}
