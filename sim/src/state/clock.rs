//! The clock of a simulated machine. It is set when a process starts, and runs at its own pace.

use proto::{Span, Time};

/// The pace of true time.
pub(crate) const TRUE_PACE: u64 = 1_000;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    set_at: Time,
    showed: Time,
    /// In thousandths of true time.
    pace: u64,
}

impl Clock {
    pub(crate) fn new(set_at: Time, ahead: Span, pace: u64) -> Self {
        Self { set_at, showed: set_at + ahead, pace }
    }

    /// Stops the clock from `now` until the given time.
    pub(crate) fn stop(&mut self, now: Time, until: Time) {
        *self = Self { set_at: until.max(self.set_at), showed: self.shows(now), pace: self.pace };
    }

    pub(crate) fn shows(&self, now: Time) -> Time {
        self.showed + Span(now.since(self.set_at).0 * self.pace / TRUE_PACE)
    }

    /// The first true time at which the clock shows this time.
    pub(crate) fn true_time(&self, shown: Time) -> Time {
        if shown <= self.showed {
            return self.set_at;
        }
        self.set_at + Span((shown.since(self.showed).0 * TRUE_PACE).div_ceil(self.pace))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_shows_a_time_when_it_predicts() {
        for pace in [900, TRUE_PACE, 1_037, 1_100] {
            let clock = Clock::new(Time(5_000), Span(300), pace);
            assert_eq!(clock.shows(Time(5_000)), Time(5_300));
            for shown in (5_300..9_000).map(Time) {
                let at = clock.true_time(shown);
                assert!(clock.shows(at) >= shown && at >= Time(5_000), "{pace} {shown:?}");
                assert!(at == Time(5_000) || clock.shows(Time(at.0 - 1)) < shown);
            }
        }
        let mut stopped = Clock::new(Time(5_000), Span(300), TRUE_PACE);
        stopped.stop(Time(5_400), Time(6_000));
        stopped.stop(Time(5_500), Time(5_600));
        assert_eq!(
            [5_400, 5_999, 6_001].map(|at| stopped.shows(Time(at)).0),
            [5_700, 5_700, 5_701]
        );
        assert_eq!(stopped.true_time(Time(5_701)), Time(6_001));
        assert_eq!(Clock::new(Time(0), Span(0), 900).shows(Time(1_000_000)), Time(900_000));
        assert_eq!(Clock::new(Time(7), Span(0), 900).true_time(Time(3)), Time(7));
    }
}
