//! Busy slots over time, in a bounded number of buckets for a run of any length.

use crate::{Span, Time, wire};

/// The maximum number of buckets. Beyond it neighbouring buckets merge and the width doubles.
pub const BUCKETS_MAX: usize = 256;
const WIDTH_START: Span = Span::from_millis(1);

/// Sums busy time per bucket. The order of intervals does not matter.
#[derive(Clone, PartialEq, Debug)]
pub struct BusySeries {
    width_ns: u64,
    /// The absolute number of the first bucket, which starts at `first * width_ns`.
    first: u64,
    busy_ns: Vec<u64>,
}

impl Default for BusySeries {
    fn default() -> Self {
        Self { width_ns: WIDTH_START.0, first: 0, busy_ns: Vec::new() }
    }
}

impl BusySeries {
    /// Adds an interval in which `slots` slots were busy.
    pub fn add(&mut self, start: Time, end: Time, slots: u32) {
        if end <= start {
            return;
        }
        let weight = u64::from(slots);
        // The common case, within the last bucket, needs no division.
        let last_start = (self.first + self.busy_ns.len().saturating_sub(1) as u64) * self.width_ns;
        if let Some(last) = self.busy_ns.last_mut()
            && start.0 >= last_start
            && end.0 - last_start <= self.width_ns
        {
            *last += (end.0 - start.0) * weight;
            return;
        }
        self.reach(start.0, end.0);
        let mut at = start.0;
        while at < end.0 {
            let bucket = at / self.width_ns;
            let until = ((bucket + 1) * self.width_ns).min(end.0);
            self.busy_ns[(bucket - self.first) as usize] += (until - at) * weight;
            at = until;
        }
    }

    #[must_use]
    pub fn width(&self) -> Span {
        Span(self.width_ns)
    }

    /// The mean share of busy slots, in 0..=1, in each bucket that overlaps `from..to`.
    #[must_use]
    pub fn shares(&self, from: Time, to: Time, slots: u32) -> Vec<f64> {
        if to <= from || slots == 0 {
            return Vec::new();
        }
        let (low, high) = (from.0 / self.width_ns, (to.0 - 1) / self.width_ns);
        // Bounds the number of empty buckets in a window far wider than the busy time.
        let high = high.min(low + 2 * BUCKETS_MAX as u64);
        (low..=high)
            .map(|bucket| {
                let start = (bucket * self.width_ns).max(from.0);
                let end = ((bucket + 1) * self.width_ns).min(to.0);
                let index = bucket.checked_sub(self.first).map(|index| index as usize);
                let busy = index.and_then(|index| self.busy_ns.get(index)).copied().unwrap_or(0);
                let whole = (end - start) as f64 * f64::from(slots);
                (busy as f64 / whole).clamp(0.0, 1.0)
            })
            .collect()
    }

    /// The stored form with at most `buckets_max` buckets. `None` if nothing was busy.
    #[must_use]
    pub fn to_wire(&self, buckets_max: usize) -> Option<wire::BusyTime> {
        let mut series = self.clone();
        while series.busy_ns.len() > buckets_max.max(1) {
            series.halve();
        }
        let Self { width_ns, first, busy_ns } = series;
        (!busy_ns.is_empty()).then_some(wire::BusyTime { width_ns, first, busy_ns })
    }

    /// Converts a message of another node. `None` if it is invalid.
    #[must_use]
    pub fn from_wire(stored: &wire::BusyTime) -> Option<Self> {
        let wire::BusyTime { width_ns, first, ref busy_ns } = *stored;
        let is_doubled =
            width_ns % WIDTH_START.0 == 0 && (width_ns / WIDTH_START.0).is_power_of_two();
        let fits = busy_ns.len() <= BUCKETS_MAX;
        let end = first.checked_add(BUCKETS_MAX as u64)?.checked_mul(width_ns);
        (is_doubled && fits && end.is_some()).then(|| Self {
            width_ns,
            first,
            busy_ns: busy_ns.clone(),
        })
    }

    /// Adds the busy time of another series.
    pub fn merge(&mut self, mut other: Self) {
        let Some(last) = (other.busy_ns.len() as u64).checked_sub(1) else { return };
        self.reach(other.first * other.width_ns, (other.first + last + 1) * other.width_ns);
        while self.width_ns < other.width_ns {
            self.halve();
        }
        while other.width_ns < self.width_ns {
            other.halve();
        }
        for (bucket, busy_ns) in (other.first..).zip(other.busy_ns) {
            let index = (bucket - self.first) as usize;
            self.busy_ns[index] = self.busy_ns[index].saturating_add(busy_ns);
        }
    }

    /// Extends the buckets to cover `start..end`.
    fn reach(&mut self, start: u64, end: u64) {
        loop {
            let (low, high) = (start / self.width_ns, (end - 1) / self.width_ns);
            let (low, high) = match self.busy_ns.len() as u64 {
                0 => (low, high),
                n => (low.min(self.first), high.max(self.first + n - 1)),
            };
            if high - low < BUCKETS_MAX as u64 {
                if self.busy_ns.is_empty() {
                    self.first = low;
                }
                let missing = (self.first - low) as usize;
                self.busy_ns.splice(0..0, std::iter::repeat_n(0, missing));
                self.first = low;
                self.busy_ns.resize((high - low + 1) as usize, 0);
                return;
            }
            self.halve();
        }
    }

    fn halve(&mut self) {
        let mut merged = Vec::with_capacity(self.busy_ns.len() / 2 + 1);
        let base = self.first / 2;
        for (index, &busy) in self.busy_ns.iter().enumerate() {
            let bucket = ((self.first + index as u64) / 2 - base) as usize;
            if bucket == merged.len() {
                merged.push(0);
            }
            merged[bucket] = busy.saturating_add(merged[bucket]);
        }
        self.first = base;
        self.width_ns *= 2;
        self.busy_ns = merged;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn an_interval_is_spread_over_its_buckets() {
        let mut series = BusySeries::default();
        series.add(Time(MS / 2), Time(2 * MS), 2);
        let shares = series.shares(Time(0), Time(3 * MS), 4);
        assert_eq!(shares, [0.25, 0.5, 0.0]);
    }

    #[test]
    fn an_earlier_interval_may_come_later() {
        let mut series = BusySeries::default();
        series.add(Time(9 * MS), Time(10 * MS), 1);
        series.add(Time(7 * MS), Time(8 * MS), 1);
        assert_eq!(series.shares(Time(7 * MS), Time(10 * MS), 1), [1.0, 0.0, 1.0]);
    }

    proptest! {
        #[test]
        fn two_series_together_are_one(
            intervals in prop::collection::vec(
                (any::<bool>(), 0u64..1 << 36, 1u64..1 << 34, 1u32..8), 1..40
            )
        ) {
            let (mut one, mut other) = (BusySeries::default(), BusySeries::default());
            let mut both = BusySeries::default();
            for &(is_one, start, length, slots) in &intervals {
                let part = if is_one { &mut one } else { &mut other };
                part.add(Time(start), Time(start + length), slots);
                both.add(Time(start), Time(start + length), slots);
            }
            for part in [&one, &other] {
                let back = part.to_wire(usize::MAX).map(|stored| BusySeries::from_wire(&stored));
                prop_assert!(back.is_none_or(|back| back.as_ref() == Some(part)));
            }
            one.merge(other);
            prop_assert_eq!(one.busy_ns.iter().sum::<u64>(), both.busy_ns.iter().sum::<u64>());
            prop_assert_eq!(one.to_wire(8), both.to_wire(8));
        }

        #[test]
        fn no_busy_time_is_lost_and_buckets_stay_bounded(
            intervals in prop::collection::vec((0u64..1 << 45, 1u64..1 << 40, 1u32..8), 1..40)
        ) {
            let mut series = BusySeries::default();
            let mut total = 0;
            for &(start, length, slots) in &intervals {
                series.add(Time(start), Time(start + length), slots);
                total += length * u64::from(slots);
            }
            prop_assert_eq!(series.busy_ns.iter().sum::<u64>(), total);
            prop_assert!(series.busy_ns.len() <= BUCKETS_MAX);
            let shares = series.shares(Time(0), Time(1 << 46), 3);
            prop_assert!(shares.iter().all(|share| (0.0..=1.0).contains(share)));
        }
    }
}
