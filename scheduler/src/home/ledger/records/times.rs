//! The times of a task's run, in eight bytes.

use proto::{Span, Time};

/// From this value on a duration is stored in milliseconds, with this bit set.
const COARSE: u32 = 1 << 31;
const US: u64 = 1_000;
const MS: u64 = 1_000_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Times {
    /// Milliseconds from the job's submission to the task's start, plus one; 0: not known.
    pub(in crate::home::ledger) start: u32,
    /// The duration in microseconds; a long one in milliseconds.
    pub(in crate::home::ledger) took: u32,
}

impl Times {
    /// The times of an attempt; `started` is 0 if it did not run.
    pub(crate) fn new(submitted: Time, started: Time, finished: Time) -> Self {
        if started == Time::ZERO {
            return Self::default();
        }
        let start = (started.since(submitted).0 / MS).min(u64::from(u32::MAX) - 1) as u32 + 1;
        let took = finished.since(started).0;
        let took = match took / US {
            us if us < u64::from(COARSE) => us as u32,
            _ => (took / MS).min(u64::from(COARSE) - 1) as u32 | COARSE,
        };
        Self { start, took }
    }

    pub(crate) fn is_known(self) -> bool {
        self.start > 0
    }

    /// Start and end, if they are known.
    pub(crate) fn since(self, submitted: Time) -> Option<(Time, Time)> {
        let start = u64::from(self.start.checked_sub(1)?);
        let took = match self.took {
            us if us < COARSE => u64::from(us) * US,
            ms => u64::from(ms & !COARSE) * MS,
        };
        let start = submitted + Span(start * MS);
        Some((start, start + Span(took)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn start_and_duration_come_back_as_exactly_as_they_are_kept() {
        let submitted = Time(100 * S);
        let kept = |started: u64, finished: u64| {
            Times::new(submitted, Time(started), Time(finished)).since(submitted)
        };
        let exact = (102 * S, 102 * S + 7_000);
        assert_eq!(kept(exact.0, exact.1), Some((Time(exact.0), Time(exact.1))));
        // A day, to the millisecond.
        let day = (103 * S, 103 * S + 86_400 * S + 5 * MS);
        assert_eq!(kept(day.0, day.1), Some((Time(day.0), Time(day.1))));
        assert_eq!(kept(0, 7), None, "it did not run");
        // The submitter's clock is ahead.
        assert_eq!(kept(99 * S, 99 * S + 1_000), Some((submitted, submitted + Span(1_000))));
        assert_eq!(size_of::<Times>(), 8);
    }
}
