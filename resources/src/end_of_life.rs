//! The end of a node that is known before: of its allocation, or set by its user.

/// The largest margin.
const MARGIN_NS_MAX: u64 = 60_000_000_000;
/// The margin is this part of the node's life, so that short lives are not all margin.
const MARGIN_PART: u64 = 20;

/// The time at which a node ends, and the margin before it. Times are nanoseconds since the Unix
/// epoch.
///
/// A task with a time request starts only if it ends before the margin. The node leaves two margins
/// before its end, and stops what still runs half a margin before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EndOfLife {
    at_ns: u64,
    margin_ns: u64,
}

impl EndOfLife {
    /// The end of a node that starts now.
    #[must_use]
    pub fn of_life(now_ns: u64, at_ns: u64) -> Self {
        let margin_ns = (at_ns.saturating_sub(now_ns) / MARGIN_PART).min(MARGIN_NS_MAX);
        Self { at_ns, margin_ns }
    }
    /// The end as the map has it.
    #[must_use]
    pub fn from_parts(at_ns: u64, margin_ns: u64) -> Self {
        Self { at_ns, margin_ns }
    }
    #[must_use]
    pub fn at_ns(self) -> u64 {
        self.at_ns
    }
    #[must_use]
    pub fn margin_ns(self) -> u64 {
        self.margin_ns
    }
    /// The latest start of a task of this length.
    #[must_use]
    pub fn latest_start_ns(self, length_ns: u64) -> Option<u64> {
        self.at_ns.checked_sub(self.margin_ns)?.checked_sub(length_ns)
    }
    /// Whether a task of this length that starts now ends before the margin.
    #[must_use]
    pub fn fits(self, now_ns: u64, length_ns: u64) -> bool {
        self.latest_start_ns(length_ns).is_some_and(|latest| now_ns <= latest)
    }
    /// From this time on the node leaves.
    #[must_use]
    pub fn leaves_at_ns(self) -> u64 {
        self.at_ns.saturating_sub(self.margin_ns.saturating_mul(2))
    }
    /// At this time the node stops what still runs.
    #[must_use]
    pub fn stops_at_ns(self) -> u64 {
        self.at_ns.saturating_sub(self.margin_ns / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn the_margin_is_a_minute_or_a_part_of_a_short_life() {
        let long = EndOfLife::of_life(100 * S, 3700 * S);
        assert_eq!((long.margin_ns(), long.leaves_at_ns()), (60 * S, 3580 * S));
        assert_eq!(long.stops_at_ns(), 3670 * S);
        let short = EndOfLife::of_life(100 * S, 120 * S);
        assert_eq!((short.margin_ns(), short.leaves_at_ns()), (S, 118 * S));
        assert_eq!(EndOfLife::of_life(100, 50).margin_ns(), 0, "over before it began");
    }

    #[test]
    fn a_task_fits_up_to_the_margin() {
        let end = EndOfLife::of_life(0, 100 * S);
        assert_eq!(end.margin_ns(), 5 * S);
        assert!(end.fits(10 * S, 85 * S) && !end.fits(10 * S + 1, 85 * S));
        assert!(!end.fits(0, u64::MAX) && !end.fits(u64::MAX, 0) && end.fits(95 * S, 0));
    }
}
