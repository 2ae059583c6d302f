//! A record as a trace: JSON for Chrome and Perfetto, or Perfetto's own form.
//!
//! Time 0 is the submission. A process is a node, a track is a slot. Attempts of a track never
//! overlap.

mod chrome;
mod chrome_event;
mod counters;
mod perfetto;

pub use chrome::chrome;
pub use chrome_event::{event_colour, write_event};
pub use perfetto::perfetto;

use crate::attempt::{AttemptRow, SLOT_UNKNOWN};
use crate::record::Record;

/// An attempt on one of its slots, after the submission.
struct Slice<'r> {
    row: &'r AttemptRow,
    slot: u32,
    start_us: u64,
    end_us: u64,
}

/// The slices by track and start. What clocks or lost events make overlap is cut.
fn slices(record: &Record) -> Vec<Slice<'_>> {
    let origin = record.meta.submitted_us;
    let mut slices: Vec<Slice<'_>> = Vec::with_capacity(record.attempts.len());
    for row in record.attempts.iter().chain(&record.parts) {
        for &slot in std::iter::once(&row.slot).chain(&*row.more) {
            let start_us = row.start_us.saturating_sub(origin);
            let end_us = row.end_us().saturating_sub(origin);
            slices.push(Slice { row, slot, start_us, end_us });
        }
    }
    slices.sort_unstable_by_key(|it| (it.row.node, it.slot, it.start_us, it.end_us, it.row.key()));
    let mut last = (u32::MAX, u32::MAX, 0);
    for slice in &mut slices {
        if (slice.row.node, slice.slot) == (last.0, last.1) {
            slice.start_us = slice.start_us.max(last.2);
            slice.end_us = slice.end_us.max(slice.start_us);
        }
        last = (slice.row.node, slice.slot, slice.end_us);
    }
    slices
}

fn slot_name(slot: u32) -> String {
    match slot {
        SLOT_UNKNOWN => "slot unknown".to_owned(),
        slot => format!("slot {slot}"),
    }
}

/// The number of busy slots of all nodes, in equal steps of time after the submission.
fn busy(record: &Record) -> Vec<(u64, u64)> {
    const STEPS: u64 = 512;
    let (from, to) = (record.meta.submitted_us, record.end_us());
    let width = to.saturating_sub(from).div_ceil(STEPS).max(1);
    let mut sums = vec![0u64; STEPS as usize];
    for row in record.attempts.iter().chain(&record.parts) {
        let mut at = row.start_us.max(from) - from;
        let end = row.end_us().min(to).saturating_sub(from);
        while at < end {
            let until = ((at / width + 1) * width).min(end);
            sums[(at / width) as usize] += (until - at) * u64::from(row.width());
            at = until;
        }
    }
    (0..).zip(sums).map(|(step, sum)| (step * width, sum.div_ceil(width))).collect()
}

#[cfg(test)]
mod tests;
