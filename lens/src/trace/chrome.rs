//! The JSON form.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::chrome_event::{event_colour, write_event};
use super::counters::counters;
use super::{busy, slices, slot_name};
use crate::attempt::Outcome;
use crate::record::Record;

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
        write_event(&event, &mut *out)
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
            "cname": event_colour(row.kind as usize, row.outcome == Outcome::Failed), "pid": row.node, "tid": slot, "ts": slice.start_us,
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
