//! The speed of a running job, and the range of its end.

use std::collections::VecDeque;

use verb::units::{count, seconds};

/// Samples in memory; every second one goes when there are more.
const SAMPLES_MAX: usize = 128;
/// The later half of the run has this number of parts, and their speeds are compared.
const PARTS: usize = 6;
/// Before this number of ended tasks the end is not known.
const ENDED_MIN: u64 = 4;
/// The range is at least this share wide to each side.
const SPREAD: f64 = 0.1;

/// The numbers of ended tasks over time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace {
    samples: VecDeque<(f64, u64)>,
}

impl Pace {
    /// Adds the number of ended tasks at a time since the start.
    pub(crate) fn push(&mut self, at_s: f64, ended: u64) {
        if self.samples.len() >= SAMPLES_MAX {
            let mut at = 0;
            self.samples.retain(|_| {
                at += 1;
                at % 2 == 1
            });
        }
        self.samples.push_back((at_s, ended));
    }

    /// The number of ended tasks at a time, between the samples.
    fn ended_at(&self, at_s: f64) -> f64 {
        let after = self.samples.partition_point(|&(time_s, _)| time_s < at_s);
        match (after.checked_sub(1).map(|at| self.samples[at]), self.samples.get(after)) {
            (Some((from, low)), Some(&(to, high))) if to > from => {
                low as f64 + (high - low) as f64 * (at_s - from) / (to - from)
            }
            (Some((_, ended)), _) => ended as f64,
            (None, Some(&(_, ended))) => ended as f64,
            (None, None) => 0.0,
        }
    }

    /// Ended tasks a second in the later half of the run.
    pub(crate) fn per_s(&self, now_s: f64) -> Option<f64> {
        let ended = self.ended_at(now_s) - self.ended_at(now_s / 2.0);
        (now_s > 0.0 && ended > 0.0).then(|| ended / (now_s / 2.0))
    }

    /// The seconds until the end of all tasks: with the fastest and with the slowest part of the
    /// later half of the run. `None`: not known.
    pub(crate) fn left_s(&self, now_s: f64, total: u64) -> Option<(f64, f64)> {
        let ended = self.samples.back().map_or(0, |&(_, ended)| ended);
        if ended < ENDED_MIN || ended >= total || now_s <= 0.0 {
            return None;
        }
        let part_s = now_s / 2.0 / PARTS as f64;
        let speed = |part: usize| {
            let from = now_s / 2.0 + part as f64 * part_s;
            (self.ended_at(from + part_s) - self.ended_at(from)) / part_s
        };
        let speeds: Vec<f64> = (0..PARTS).map(speed).collect();
        let fastest = speeds.iter().copied().fold(0.0, f64::max);
        let slowest = speeds.iter().copied().fold(f64::INFINITY, f64::min);
        if slowest <= 0.0 {
            return None;
        }
        let left = (total - ended) as f64;
        Some((left / fastest * (1.0 - SPREAD), left / slowest * (1.0 + SPREAD)))
    }

    /// For a progress line: `, 282/s, ends in 9.0 min to 14.0 min`.
    pub(crate) fn text(&self, now_s: f64, total: u64) -> String {
        let speed = match self.per_s(now_s) {
            None => String::new(),
            Some(per_s) if per_s >= 10.0 => format!(", {}/s", count(per_s.round() as u64)),
            Some(per_s) => format!(", {per_s:.2}/s"),
        };
        match self.left_s(now_s, total) {
            None => format!("{speed}, end not known"),
            Some((low, high)) => format!("{speed}, ends in {} to {}", seconds(low), seconds(high)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_is_in_the_range_of_the_speeds() {
        let mut pace = Pace::default();
        assert_eq!(pace.left_s(1.0, 10), None);
        for second in 0..=100_u32 {
            // 20 and 10 tasks a second, in turns of ten seconds.
            let turns = u64::from(second / 20) * 300;
            let rest = u64::from(second % 20);
            pace.push(second.into(), turns + if rest < 10 { rest * 20 } else { 100 + rest * 10 });
        }
        let (low, high) = pace.left_s(100.0, 3000).unwrap();
        assert!(low < 100.0 && high > 100.0 && low > 50.0 && high < 200.0, "{low} {high}");
        assert!((pace.per_s(100.0).unwrap() - 14.0).abs() < 0.1);
        assert_eq!(pace.left_s(100.0, 1500), None, "all have ended");
    }

    #[test]
    fn a_pause_makes_the_end_unknown() {
        let mut pace = Pace::default();
        for second in 0..10_u32 {
            pace.push(second.into(), u64::from(second) * 10);
        }
        assert!(pace.left_s(9.0, 1000).is_some());
        pace.push(20.0, 90);
        assert_eq!(pace.left_s(20.0, 1000), None, "nothing has ended for long");
        assert!(pace.text(20.0, 1000).ends_with(", end not known"));
    }

    #[test]
    fn memory_is_bounded() {
        let mut pace = Pace::default();
        (0..10_000_u32).for_each(|at| pace.push(at.into(), at.into()));
        assert!(pace.samples.len() <= SAMPLES_MAX);
        let (low, high) = pace.left_s(9999.0, 19_998).unwrap();
        assert!(low < 9999.0 && high > 9999.0, "{low} {high}");
    }
}
