//! Counts of lengths, to an eighth.

use serde::Serialize;

use crate::attempt::{code, of_code};

/// Any number of lengths in at most 500 counts. Sum, number and maximum are exact.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Histogram {
    counts: Vec<u64>,
    pub number: u64,
    pub sum: u128,
    pub max: u64,
}

/// The figures of a histogram, in seconds.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Percentiles {
    pub mean_s: f64,
    pub p50_s: f64,
    pub p95_s: f64,
    pub p99_s: f64,
    pub max_s: f64,
}

impl Histogram {
    pub fn add(&mut self, value: u64) {
        let code = code(value) as usize;
        if self.counts.len() <= code {
            self.counts.resize(code + 1, 0);
        }
        self.counts[code] += 1;
        self.number += 1;
        self.sum += u128::from(value);
        self.max = self.max.max(value);
    }

    pub fn merge(&mut self, other: &Self) {
        if self.counts.len() < other.counts.len() {
            self.counts.resize(other.counts.len(), 0);
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|(sum, n)| *sum += n);
        self.number += other.number;
        self.sum += other.sum;
        self.max = self.max.max(other.max);
    }

    /// The smallest value of the class that contains this share of all values; 0 without values.
    #[must_use]
    pub fn quantile(&self, share: f64) -> u64 {
        let rank = ((self.number as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (code, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return of_code(code as u32).min(self.max);
            }
        }
        self.max
    }

    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.number == 0 { 0.0 } else { self.sum as f64 / self.number as f64 }
    }

    /// The spread around the mean, from the middles of the classes.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        if self.number == 0 {
            return 0.0;
        }
        let mean = self.mean();
        let squares = self.counts.iter().enumerate().filter(|(_, count)| **count > 0);
        let sum: f64 = squares
            .map(|(code, &count)| {
                let low = of_code(code as u32) as f64;
                let high = (of_code(code as u32 + 1) as f64).min(self.max as f64).max(low);
                count as f64 * ((low + high) / 2.0 - mean).powi(2)
            })
            .sum();
        (sum / self.number as f64).sqrt()
    }

    /// Of lengths in microseconds.
    #[must_use]
    pub fn percentiles(&self) -> Percentiles {
        let seconds = |us: u64| us as f64 / 1e6;
        Percentiles {
            mean_s: self.mean() / 1e6,
            p50_s: seconds(self.quantile(0.5)),
            p95_s: seconds(self.quantile(0.95)),
            p99_s: seconds(self.quantile(0.99)),
            max_s: seconds(self.max),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn quantiles_are_right_to_an_eighth(
            mut values in prop::collection::vec(0u64..1 << 40, 1..200), share in 0.0f64..=1.0
        ) {
            let mut histogram = Histogram::default();
            values.iter().for_each(|&value| histogram.add(value));
            values.sort_unstable();
            let rank = ((values.len() as f64 * share).ceil() as usize).max(1);
            let exact = values[rank - 1];
            let found = histogram.quantile(share);
            prop_assert!(found <= exact && exact - found <= exact / 8, "{found} {exact}");
            prop_assert_eq!(histogram.sum, values.iter().map(|&it| u128::from(it)).sum::<u128>());
        }
    }
}
