//! The JSON form.

use std::io::{self, Write};

use serde::Serialize as _;
use serde_json::ser::{Formatter, Serializer};
use serde_json::{Value, json};

use super::counters::counters;
use super::{busy, slices, slot_name};
use crate::attempt::{AttemptRow, Outcome};
use crate::record::Record;

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

/// The colour of an attempt: that of its kind, unless it failed.
fn colour(row: &AttemptRow) -> &'static str {
    match row.outcome {
        Outcome::Failed => "terrible",
        _ => COLOURS[row.kind as usize % COLOURS.len()],
    }
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

/// Writes a record as Chrome trace JSON. A record has no edges and no moves, so there are no
/// flows.
///
/// # Errors
/// When `out` fails.
pub fn chrome(record: &Record, out: &mut impl Write) -> io::Result<()> {
    out.write_all(b"{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
    let mut is_first = true;
    let mut write = |event: Value| {
        out.write_all(if std::mem::take(&mut is_first) { b"\n" } else { b",\n" })?;
        let mut serializer = Serializer::with_formatter(&mut *out, WithoutMarkup);
        event.serialize(&mut serializer).map_err(io::Error::from)
    };
    for node in &record.meta.nodes {
        let args = json!({"name": format!("node {}", node.node)});
        write(
            json!({"ph": "M", "name": "process_name", "pid": node.node, "tid": 0, "args": args}),
        )?;
    }
    let mut track = None;
    for slice in slices(record) {
        let (row, slot) = (slice.row, slice.slot);
        if track != Some((row.node, slot)) {
            track = Some((row.node, slot));
            let args = json!({"name": slot_name(slot)});
            let event = json!({"ph": "M", "name": "thread_name", "pid": row.node, "tid": slot, "args": args});
            write(event)?;
        }
        let mut args = json!({
            "task": row.task.to_string(), "attempt": row.number, "end": row.outcome.word(),
            "queued_us": row.wait_us, "moved_bytes": row.moved_bytes,
            "local_bytes": row.local_bytes,
        });
        if row.fetch_us > 0 {
            args["fetched_us"] = row.fetch_us.into();
        }
        write(json!({
            "ph": "X", "name": record.task_name(row.task), "cat": record.kind(row.kind),
            "cname": colour(row), "pid": row.node, "tid": slot, "ts": slice.start_us,
            "dur": slice.end_us - slice.start_us, "args": args,
        }))?;
    }
    for (at_us, slots) in busy(record) {
        let args = json!({"slots": slots});
        write(
            json!({"ph": "C", "name": "busy slots", "pid": 0, "tid": 0, "ts": at_us, "args": args}),
        )?;
    }
    for sample in counters(record) {
        let args = json!({"running": sample.running, "queued": sample.queued});
        let (pid, ts) = (sample.node, sample.at_us);
        write(
            json!({"ph": "C", "name": "attempts", "pid": pid, "tid": 0, "ts": ts, "args": args}),
        )?;
    }
    let note = "a run record has no inputs of tasks and no moves, so there are no flows";
    let other = json!({"data_flows": 0, "move_flows": 0, "note": note});
    writeln!(out, "\n],\"otherData\":{other}}}")
}
