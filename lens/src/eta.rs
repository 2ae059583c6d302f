//! The end of a job as a range.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::attempt::AttemptRow;
use crate::view::View;

/// A range for the remaining time, in seconds.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct Range {
    pub low_s: f64,
    pub high_s: f64,
}

/// The remaining time, or the reason why it is not known.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Eta {
    Range(Range),
    /// Kinds of which no task has ended.
    NotMeasured(Vec<String>),
    Done,
}

/// The tasks of a kind that have not ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Remaining {
    /// Waiting, ready and running ones.
    pub tasks: u64,
    /// The time since the start of the running ones: the sum, and that of the longest.
    pub elapsed_us: u64,
    pub elapsed_max_us: u64,
}

/// The remaining tasks of a job, by kind. `left`: a kind for each task that has not ended;
/// `running`: attempts up to now, with the kinds that `name` gives.
#[must_use]
pub fn remaining<'k>(
    left: impl Iterator<Item = &'k str>,
    running: &[AttemptRow],
    name: impl Fn(u32) -> &'k str,
) -> BTreeMap<String, Remaining> {
    let mut all: BTreeMap<String, Remaining> = BTreeMap::new();
    for kind in left {
        all.entry(kind.to_owned()).or_default().tasks += 1;
    }
    for row in running {
        if let Some(kind) = all.get_mut(name(row.kind)) {
            kind.elapsed_us += row.ran_us;
            kind.elapsed_max_us = kind.elapsed_max_us.max(row.ran_us);
        }
    }
    all
}

/// The spread of the mean that the range covers, in deviations.
const DEVIATIONS: f64 = 1.7;
/// Few lengths say little about the rest: their share of the range.
const FEW: f64 = 0.6;
/// A running task that is longer than nearly all others may take this part of its time again.
const TAIL: f64 = 1.5;

/// The time until all remaining tasks have ended. `remaining`: the tasks of each kind that have not
/// ended. `busy_slots`: the number of busy slots now.
#[must_use]
pub fn eta(
    view: &View,
    remaining: &BTreeMap<String, Remaining>,
    slots: u64,
    busy_slots: f64,
) -> Eta {
    if remaining.values().all(|it| it.tasks == 0) {
        return Eta::Done;
    }
    let (mut low, mut high, mut longest) = (0.0, 0.0, 0.0f64);
    let mut unmeasured = Vec::new();
    for (kind, left) in remaining.iter().filter(|(_, left)| left.tasks > 0) {
        let Some(known) = view.kinds.kept.get(kind).filter(|it| it.work.ran.number > 0) else {
            unmeasured.push(kind.clone());
            continue;
        };
        let (ran, attempts) = (&known.work.ran, known.work.ran.number as f64);
        let width = known.work.busy_us as f64 / ran.sum.max(1) as f64;
        let tasks = left.tasks as f64;
        // Long tasks run when short ones have ended, so the ended ones alone are too short.
        let mean_us = ran.mean() + left.elapsed_us as f64 / attempts;
        // The sum of the remaining lengths, and the mean itself, are uncertain.
        let spread = ran.deviation() * (tasks + tasks * tasks / attempts).sqrt() * DEVIATIONS
            + mean_us * tasks * FEW / attempts;
        let done = (left.elapsed_us as f64).min(mean_us * tasks);
        let least = ran.quantile(0.0) as f64 * tasks;
        low += ((ran.mean() * tasks - spread).max(least) - done).max(0.0) * width / 1e6;
        high += (mean_us * tasks + spread) * width / 1e6;
        let mut tail = ran.quantile(0.99).max(ran.quantile(0.5) * 2) as f64;
        if left.elapsed_max_us > ran.quantile(0.99) {
            tail = tail.max(left.elapsed_max_us as f64 * TAIL);
        }
        longest = longest.max(tail / 1e6);
    }
    if !unmeasured.is_empty() {
        return Eta::NotMeasured(unmeasured);
    }
    let slots = slots.max(1) as f64;
    let busy = busy_slots.clamp(slots.min(1.0), slots);
    // The last tasks begin when others end, so up to one long task follows the mean end.
    Eta::Range(Range { low_s: low / slots, high_s: high / busy + longest })
}

#[cfg(test)]
mod tests {
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;

    use proto::{JobId, LocalId, Time};

    use super::*;
    use crate::view::{Lens, Sampling};

    fn random(state: &mut u64) -> f64 {
        *state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((*state >> 11) as f64 / (1u64 << 53) as f64).max(1e-12)
    }

    /// Starts and ends of tasks on slots, in order.
    fn run(lengths: &[u64], slots: usize) -> Vec<AttemptRow> {
        let mut free: BinaryHeap<_> = (0..slots as u32).map(|slot| Reverse((0u64, slot))).collect();
        let row = |(task, &ran_us): (usize, &u64)| {
            let Reverse((start_us, slot)) = free.pop().unwrap();
            free.push(Reverse((start_us + ran_us, slot)));
            AttemptRow {
                slot,
                start_us,
                ran_us,
                task: LocalId(task as u64),
                ..AttemptRow::default()
            }
        };
        lengths.iter().enumerate().map(row).collect()
    }

    /// The share of moments after 20 % of the tasks at which the range holds the true end.
    fn held(lengths: &[u64], slots: usize) -> f64 {
        let rows = run(lengths, slots);
        let end = rows.iter().map(AttemptRow::end_us).max().unwrap();
        let (mut held, mut all) = (0, 0);
        for percent in (20..95).step_by(5) {
            let mut ends: Vec<u64> = rows.iter().map(AttemptRow::end_us).collect();
            ends.sort_unstable();
            let now = ends[rows.len() * percent / 100];
            let mut lens =
                Lens::new(JobId(1), Time(0), Sampling::default(), vec!["a".to_owned()], |_| 0);
            let ended = rows.iter().filter(|row| row.end_us() <= now);
            let number = ended.clone().count();
            ended.for_each(|row| lens.add(row));
            let running = || rows.iter().filter(|it| it.start_us <= now && it.end_us() > now);
            let elapsed = || running().map(|row| now - row.start_us);
            let left = Remaining {
                tasks: (rows.len() - number) as u64,
                elapsed_us: elapsed().sum(),
                elapsed_max_us: elapsed().max().unwrap_or(0),
            };
            let remaining = BTreeMap::from([("a".to_owned(), left)]);
            let view = lens.finish(None);
            let Eta::Range(range) = eta(&view, &remaining, slots as u64, slots as f64) else {
                panic!("it is measured");
            };
            let left_s = (end - now) as f64 / 1e6;
            all += 1;
            held += u32::from(range.low_s <= left_s && left_s <= range.high_s);
        }
        f64::from(held) / f64::from(all)
    }

    #[test]
    fn the_range_holds_the_end_of_even_and_of_heavy_tailed_runs() {
        let mut state = 7;
        let mut shares = Vec::new();
        for _ in 0..20 {
            let even: Vec<u64> =
                (0..800).map(|_| 50_000 + (random(&mut state) * 1e5) as u64).collect();
            let heavy: Vec<u64> =
                (0..800).map(|_| (1e4 * random(&mut state).powf(-1.0 / 1.8)) as u64).collect();
            let log: Vec<u64> = (0..800)
                .map(|_| (1e4 * (-2.0 * random(&mut state).ln()).sqrt().exp()) as u64)
                .collect();
            shares.extend([held(&even, 8), held(&heavy, 8), held(&log, 32)]);
        }
        let mean = shares.iter().sum::<f64>() / shares.len() as f64;
        assert!(mean >= 0.8, "{mean} {shares:?}");
    }

    #[test]
    fn an_unmeasured_kind_has_no_range() {
        let remaining =
            BTreeMap::from([("b".to_owned(), Remaining { tasks: 3, ..Remaining::default() })]);
        let unknown = eta(&View::default(), &remaining, 4, 4.0);
        assert_eq!(unknown, Eta::NotMeasured(vec!["b".to_owned()]));
        assert_eq!(eta(&View::default(), &BTreeMap::new(), 4, 4.0), Eta::Done);
    }
}
