//! Sums over time in a bounded number of buckets.

/// The number of buckets of a series. Beyond it neighbouring buckets merge and the width doubles.
const VIEW_BUCKETS_MAX: usize = 512;

/// The smallest width of a bucket, in microseconds.
const WIDTH_START_US: u64 = 1_000;

/// `N` sums for each bucket of time. The width of a bucket depends only on the earliest and the
/// latest time, not on the order of additions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Series<const N: usize> {
    width_us: u64,
    /// The number of the first bucket, which starts at `first * width_us`.
    first: u64,
    sums: Vec<[u64; N]>,
}

impl<const N: usize> Default for Series<N> {
    fn default() -> Self {
        Self { width_us: WIDTH_START_US, first: 0, sums: Vec::new() }
    }
}

impl<const N: usize> Series<N> {
    /// Adds the length of an interval to one sum of each of its buckets, `weight` times.
    pub fn add(&mut self, lane: usize, start_us: u64, end_us: u64, weight: u64) {
        if end_us <= start_us || weight == 0 {
            return;
        }
        self.reach(start_us, end_us);
        let mut at = start_us;
        while at < end_us {
            let bucket = at / self.width_us;
            let until = ((bucket + 1) * self.width_us).min(end_us);
            let sum = &mut self.sums[(bucket - self.first) as usize][lane];
            *sum = sum.saturating_add((until - at).saturating_mul(weight));
            at = until;
        }
    }

    pub fn merge(&mut self, other: &Self) {
        let Some(last) = (other.sums.len() as u64).checked_sub(1) else { return };
        let mut other = other.clone();
        self.reach(other.first * other.width_us, (other.first + last + 1) * other.width_us);
        while self.width_us < other.width_us {
            self.halve();
        }
        while other.width_us < self.width_us {
            other.halve();
        }
        for (bucket, sums) in (other.first..).zip(&other.sums) {
            add(&mut self.sums[(bucket - self.first) as usize], sums);
        }
    }

    #[must_use]
    pub fn width_us(&self) -> u64 {
        self.width_us
    }

    /// The sums in buckets of a width that is a multiple of that of the series. `first`: the number
    /// of the first one. Sums outside go to the first and the last bucket.
    #[must_use]
    pub fn between(&self, first: u64, width_us: u64, buckets: usize) -> Vec<[u64; N]> {
        let mut all = vec![[0; N]; buckets];
        let Some(last) = buckets.checked_sub(1) else { return all };
        for (bucket, sums) in (self.first..).zip(&self.sums) {
            let at = (bucket * self.width_us / width_us.max(1)).saturating_sub(first);
            add(&mut all[at.min(last as u64) as usize], sums);
        }
        all
    }

    /// The sum of each lane.
    #[must_use]
    pub fn totals(&self) -> [u64; N] {
        let mut totals = [0; N];
        self.sums.iter().for_each(|sums| add(&mut totals, sums));
        totals
    }

    /// Extends the buckets to cover the interval.
    fn reach(&mut self, start_us: u64, end_us: u64) {
        loop {
            let (low, high) = (start_us / self.width_us, (end_us - 1) / self.width_us);
            let (low, high) = match self.sums.len() as u64 {
                0 => (low, high),
                n => (low.min(self.first), high.max(self.first + n - 1)),
            };
            if high - low < VIEW_BUCKETS_MAX as u64 {
                if self.sums.is_empty() {
                    self.first = low;
                }
                let missing = (self.first - low) as usize;
                self.sums.splice(0..0, std::iter::repeat_n([0; N], missing));
                self.first = low;
                self.sums.resize((high - low + 1) as usize, [0; N]);
                return;
            }
            self.halve();
        }
    }

    fn halve(&mut self) {
        let base = self.first / 2;
        let mut halved: Vec<[u64; N]> = Vec::with_capacity(self.sums.len() / 2 + 1);
        for (bucket, sums) in (self.first..).zip(&self.sums) {
            let at = (bucket / 2 - base) as usize;
            if at == halved.len() {
                halved.push([0; N]);
            }
            add(&mut halved[at], sums);
        }
        self.first = base;
        self.width_us *= 2;
        self.sums = halved;
    }
}

fn add<const N: usize>(sums: &mut [u64; N], more: &[u64; N]) {
    sums.iter_mut().zip(more).for_each(|(sum, n)| *sum = sum.saturating_add(*n));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Part = Vec<(usize, u64, u64, u64)>;

    fn of(parts: &[&Part]) -> Series<2> {
        let mut series = Series::default();
        for &&(lane, start, length, weight) in
            parts.iter().flat_map(|part| part.iter()).collect::<Vec<_>>().iter()
        {
            series.add(lane, start, start + length, weight);
        }
        series
    }

    fn part() -> impl Strategy<Value = Part> {
        prop::collection::vec((0usize..2, 0u64..1 << 36, 0u64..1 << 34, 1u64..8), 0..20)
    }

    proptest! {
        #[test]
        fn merging_is_associative_and_commutative(a in part(), b in part(), c in part()) {
            let all = of(&[&a, &b, &c]);
            let (mut left, mut right) = (of(&[&a]), of(&[&c]));
            left.merge(&of(&[&b]));
            left.merge(&of(&[&c]));
            let mut inner = of(&[&b]);
            inner.merge(&of(&[&a]));
            right.merge(&inner);
            prop_assert_eq!(&left, &all);
            prop_assert_eq!(&right, &all);
            prop_assert!(all.sums.len() <= VIEW_BUCKETS_MAX);
        }

        #[test]
        fn nothing_is_lost(a in part()) {
            let series = of(&[&a]);
            let total: u64 = a.iter().map(|&(_, _, length, weight)| length * weight).sum();
            prop_assert_eq!(series.totals().iter().sum::<u64>(), total);
            let shown = series.between(series.first, series.width_us(), VIEW_BUCKETS_MAX);
            prop_assert_eq!(shown.iter().flatten().sum::<u64>(), total);
        }
    }
}
