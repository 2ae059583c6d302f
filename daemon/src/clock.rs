//! The one place where a node reads a clock.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use proto::Time;

/// Nanoseconds since the Unix epoch that never go back while the process lives: the wall clock is
/// read once, what follows comes from the monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    wall: Time,
    start: Instant,
}

impl Clock {
    #[must_use]
    pub fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // 64 bits of nanoseconds last until the year 2554.
        Self { wall: Time(wall.as_nanos() as u64), start: Instant::now() }
    }

    #[must_use]
    pub fn now(&self) -> Time {
        Time(self.wall.0.saturating_add(self.start.elapsed().as_nanos() as u64))
    }

    /// When `time` comes, as the runtime's timers want it. A past time is the start of the clock.
    #[must_use]
    pub fn instant(&self, time: Time) -> Instant {
        self.start + Duration::from_nanos(time.since(self.wall).0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proto::Span;

    #[test]
    fn instants_and_times_agree() {
        let clock = Clock::start();
        let first = clock.now();
        assert!(clock.now() >= first);
        let later = clock.instant(first + Span::from_secs(3));
        assert_eq!(later - clock.instant(first), Duration::from_secs(3));
        assert_eq!(clock.instant(Time::ZERO), clock.start);
    }
}
