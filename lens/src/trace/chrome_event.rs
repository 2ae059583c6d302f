//! What events of Chrome traces have in common: their JSON, and their colours.

use std::io::{self, Write};

use serde::Serialize as _;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};

/// The colours of Chrome that show no failure, for kinds.
const COLOURS: [&str; 12] = [
    "thread_state_running",
    "thread_state_runnable",
    "thread_state_iowait",
    "rail_response",
    "rail_animation",
    "rail_idle",
    "rail_load",
    "generic_work",
    "good",
    "startup",
    "olive",
    "yellow",
];

/// The colour of an attempt: that of its kind, which any number may stand for, unless it failed.
#[must_use]
pub fn event_colour(kind: usize, has_failed: bool) -> &'static str {
    if has_failed { "terrible" } else { COLOURS[kind % COLOURS.len()] }
}

/// Writes `<`, `>` and `&` as their numbers, so that JSON is safe inside a page.
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

/// Writes an event as JSON that is safe inside a page.
///
/// # Errors
/// When `out` fails.
pub fn write_event(event: &Value, out: &mut impl Write) -> io::Result<()> {
    let mut serializer = Serializer::with_formatter(out, WithoutMarkup);
    event.serialize(&mut serializer).map_err(io::Error::from)
}
