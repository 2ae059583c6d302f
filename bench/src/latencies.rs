//! Latencies of many calls in bounded memory: a histogram with three significant digits.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Longer latencies count as this one.
const LONGEST: Duration = Duration::from_secs(3600);
const SIGNIFICANT_DIGITS: u8 = 3;

#[derive(Debug, Clone)]
pub(super) struct Latencies(Histogram<u64>);

impl Default for Latencies {
    fn default() -> Self {
        let bounds = Histogram::new_with_bounds(1, nanoseconds(LONGEST), SIGNIFICANT_DIGITS);
        Self(bounds.expect("the bounds are constants"))
    }
}

impl Latencies {
    pub(super) fn record(&mut self, latency: Duration) {
        self.0.saturating_record(nanoseconds(latency).max(1));
    }

    pub(super) fn extend(&mut self, other: &Self) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    pub(super) fn calls(&self) -> u64 {
        self.0.len()
    }

    /// The latency that `percent` of the calls do not exceed. None without a call.
    pub(super) fn percentile(&self, percent: f64) -> Option<Duration> {
        let known = self.calls() > 0;
        known.then(|| Duration::from_nanos(self.0.value_at_percentile(percent)))
    }

    pub(super) fn longest(&self) -> Option<Duration> {
        self.percentile(100.0)
    }
}

/// At most `LONGEST`, which fits.
fn nanoseconds(latency: Duration) -> u64 {
    latency.min(LONGEST).as_nanos() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(milliseconds: impl Iterator<Item = u64>) -> Latencies {
        let mut latencies = Latencies::default();
        milliseconds.for_each(|number| latencies.record(Duration::from_millis(number)));
        latencies
    }

    fn assert_near(found: Option<Duration>, expected_ms: f64) {
        let found_ms = found.expect("there are calls").as_secs_f64() * 1e3;
        assert!((found_ms / expected_ms - 1.0).abs() < 0.001, "{found_ms} for {expected_ms}");
    }

    #[test]
    fn percentiles_have_three_digits() {
        let latencies = of(1..=1000);
        assert_near(latencies.percentile(50.0), 500.0);
        assert_near(latencies.percentile(99.0), 990.0);
        assert_near(latencies.longest(), 1000.0);
        assert_eq!(latencies.calls(), 1000);
    }

    #[test]
    fn parts_add_up_to_the_whole() {
        let (mut even, odd) = (of((2..=1000).step_by(2)), of((1..=999).step_by(2)));
        even.extend(&odd);
        let whole = of(1..=1000);
        for percent in [1.0, 50.0, 99.0, 100.0] {
            assert_eq!(even.percentile(percent), whole.percentile(percent), "{percent}");
        }
    }

    #[test]
    fn no_calls_have_no_percentile_and_extremes_are_kept_within_bounds() {
        assert_eq!(Latencies::default().percentile(50.0), None);
        let mut latencies = Latencies::default();
        latencies.record(Duration::ZERO);
        latencies.record(Duration::MAX);
        assert_eq!(latencies.percentile(1.0), Some(Duration::from_nanos(1)));
        assert_near(latencies.longest(), LONGEST.as_secs_f64() * 1e3);
    }
}
