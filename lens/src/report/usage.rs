//! What the commands of each kind used.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{ratio, seconds};
use crate::attempt::AttemptRow;
use crate::record::Record;

/// CPU time and peak memory of the measured tasks of a kind.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct KindUsage {
    /// The number of measured tasks.
    pub tasks: u64,
    pub cpu_s: f64,
    /// CPU time over the slot time of the last attempts of these tasks.
    pub cpu_share: f64,
    /// Half of the tasks used at most this.
    pub memory_p50_bytes: u64,
    pub memory_p95_bytes: u64,
    pub memory_max_bytes: u64,
}

#[derive(Default)]
struct Sum {
    cpu_us: u64,
    slot_us: u64,
    memory_kib: Vec<u64>,
}

/// The usage of each kind with a measured task.
pub(super) fn by_kind(record: &Record) -> BTreeMap<String, KindUsage> {
    if record.tasks.iter().all(|task| task.used.is_none()) {
        return BTreeMap::new();
    }
    // The timeline of a node may be missing, so a task may be without attempts.
    let mut last: Vec<Option<&AttemptRow>> = vec![None; record.tasks.len()];
    for attempt in &record.attempts {
        let place = record.tasks.binary_search_by_key(&attempt.task, |task| task.task);
        let Ok(place) = place else { continue };
        if last[place].is_none_or(|known| known.number < attempt.number) {
            last[place] = Some(attempt);
        }
    }
    let mut sums: BTreeMap<&str, Sum> = BTreeMap::new();
    for (task, attempt) in record.tasks.iter().zip(last) {
        let Some(attempt) = attempt.filter(|_| !task.used.is_none()) else { continue };
        let sum = sums.entry(record.kind(attempt.kind)).or_default();
        sum.cpu_us = sum.cpu_us.saturating_add(task.used.cpu_us);
        let slots = u64::from(attempt.width());
        sum.slot_us = sum.slot_us.saturating_add(attempt.ran_us.saturating_mul(slots));
        sum.memory_kib.push(task.used.max_rss_kib);
    }
    sums.into_iter().map(|(kind, sum)| (kind.to_owned(), sum.end())).collect()
}

impl Sum {
    fn end(mut self) -> KindUsage {
        self.memory_kib.sort_unstable();
        let rank = |part: usize| {
            let place = (self.memory_kib.len() * part).div_ceil(100).max(1);
            self.memory_kib[place - 1].saturating_mul(1024)
        };
        KindUsage {
            tasks: self.memory_kib.len() as u64,
            cpu_s: seconds(self.cpu_us),
            cpu_share: ratio(seconds(self.cpu_us), seconds(self.slot_us)),
            memory_p50_bytes: rank(50),
            memory_p95_bytes: rank(95),
            memory_max_bytes: rank(100),
        }
    }
}
