//! The clock of a node. No other module reads one.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use proto::{Span, Time};
use rustix::time::{ClockId, clock_gettime};

/// Converts a span for the libraries of the shell.
pub(crate) fn duration(span: Span) -> Duration {
    Duration::from_nanos(span.0)
}

/// Nanoseconds since the Unix epoch that never go back during the life of the process. The wall
/// clock is read once; the clock since boot counts from there. That clock continues while the
/// machine is suspended. With the monotonic clock a node would take expired leases for valid ones
/// after a suspend.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    wall: Time,
    start: Duration,
}

impl Clock {
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "times are shown to people; no span depends on it"
    )]
    pub fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        // 64 bits of nanoseconds last until the year 2554.
        Self { wall: Time(wall.as_nanos() as u64), start: since_boot() }
    }

    #[must_use]
    pub fn now(&self) -> Time {
        let since = since_boot().saturating_sub(self.start);
        Time(self.wall.0.saturating_add(since.as_nanos() as u64))
    }

    /// Converts `time` to an instant for the runtime's timers; a past time is now. These timers
    /// stand still while the machine is suspended, so after each wake-up the caller reads this
    /// clock again.
    #[must_use]
    pub fn instant(&self, time: Time) -> Instant {
        Instant::now() + Duration::from_nanos(time.since(self.now()).0)
    }
}

fn since_boot() -> Duration {
    let time = clock_gettime(ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_and_times_agree() {
        let clock = Clock::start();
        let first = clock.now();
        assert!(clock.now() >= first);
        let before = Instant::now();
        let later = clock.instant(first + Span::from_secs(3));
        let after = Instant::now() + Duration::from_secs(3);
        assert!(later <= after && later + Duration::from_secs(2) > before + Duration::from_secs(3));
        assert!(clock.instant(Time::ZERO) >= before);
    }
}
