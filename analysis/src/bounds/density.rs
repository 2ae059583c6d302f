//! The bound of Fernandez and Bussell (1973): work that must be done inside an interval.
//!
//! Take a schedule that ends `late` after the longest path L. A task with head e and tail t runs
//! inside [e, L - t + late]. In every such schedule the interval [a, b + late] contains at least
//! the work R(a, b). This is the work that cannot be moved out of [a, b] while all tasks stay in
//! their windows [e, L - t]. So m slots need m (b - a + late) >= R(a, b), for every a and b. Any
//! choice of intervals gives a bound. The intervals between ends of windows give the strongest one.

/// A task with its window, in nanoseconds. `end_ns` is the latest end that does not delay the path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Window {
    pub start_ns: u64,
    pub end_ns: u64,
    pub duration_ns: u64,
    pub slots: u32,
}

/// The maximum number of task-interval pairs that are examined; they take a fraction of a second.
const VISITS_MAX: usize = 20_000_000;
/// The number of interval ends per start, if not all can be examined.
const ENDS_AIM: u64 = 1 << 12;
/// The minimum number of starts, for any number of tasks.
const STARTS_MIN: usize = 2;

/// The minimum delay after `path_ns` of every schedule on `slots` slots.
pub(super) fn late_ns(windows: &[Window], path_ns: u64, slots: u32) -> u64 {
    let mut ends: Vec<u64> =
        windows.iter().flat_map(|window| [window.start_ns, window.end_ns]).collect();
    ends.sort_unstable();
    ends.dedup();
    if windows.len().saturating_mul(ends.len()) <= VISITS_MAX {
        let late = |start: &u64| Profile::over_list(&ends, *start, windows).late_ns(slots);
        return ends.iter().map(late).max().unwrap_or(0);
    }
    // Too many intervals: examines some starts with many ends each, in both directions of time.
    let starts_max = (VISITS_MAX / 2 / windows.len()).max(STARTS_MIN);
    let forth = some_starts(&ends, starts_max, path_ns, windows, slots);
    let mirrored: Vec<Window> = windows.iter().map(|window| window.mirrored(path_ns)).collect();
    let mut ends: Vec<u64> = ends.iter().map(|end| path_ns - end).collect();
    ends.reverse();
    forth.max(some_starts(&ends, starts_max, path_ns, &mirrored, slots))
}

fn some_starts(
    ends: &[u64],
    starts_max: usize,
    path_ns: u64,
    windows: &[Window],
    slots: u32,
) -> u64 {
    let step = ends.len().div_ceil(starts_max).max(1);
    let late = |start: &u64| Profile::over_grid(path_ns, *start, windows).late_ns(slots);
    ends.iter().step_by(step).map(late).max().unwrap_or(0)
}

impl Window {
    /// The same window with time reversed from the end of the path.
    fn mirrored(&self, path_ns: u64) -> Self {
        Self { start_ns: path_ns - self.end_ns, end_ns: path_ns - self.start_ns, ..*self }
    }

    /// The start of the growth in b of this task's work in [a, b], and its amount. It grows by one
    /// nanosecond per nanosecond.
    fn ramp(&self, a: u64) -> (u64, u64) {
        let leftmost_ns = (self.start_ns + self.duration_ns).saturating_sub(a);
        ((self.end_ns - self.duration_ns).max(a), leftmost_ns.min(self.duration_ns))
    }
}

/// The work R(a, b) for one a and many b. It is a sum of ramps, each stored as its two bends at the
/// first b at or after them.
#[derive(Debug)]
struct Profile<'e> {
    a: u64,
    ends: Ends<'e>,
    /// The slots that begin or end a ramp before each b, and the sum of slots times the bend's
    /// time.
    bends: Vec<(i64, i128)>,
}

#[derive(Clone, Copy, Debug)]
enum Ends<'e> {
    List(&'e [u64]),
    /// Multiples of a power of two.
    Grid {
        shift: u32,
    },
}

impl<'e> Profile<'e> {
    fn over_list(ends: &'e [u64], a: u64, windows: &[Window]) -> Self {
        Self::new(Ends::List(ends), ends.len(), a, windows)
    }

    fn over_grid(path_ns: u64, a: u64, windows: &[Window]) -> Self {
        let shift = (path_ns / ENDS_AIM).max(1).ilog2();
        Self::new(Ends::Grid { shift }, (path_ns >> shift) as usize + 2, a, windows)
    }

    fn new(ends: Ends<'e>, count: usize, a: u64, windows: &[Window]) -> Self {
        let mut profile = Self { a, ends, bends: vec![(0, 0); count + 1] };
        for window in windows {
            let (start, rise_ns) = window.ramp(a);
            if rise_ns > 0 {
                profile.bend(start, i64::from(window.slots));
                profile.bend(start + rise_ns, -i64::from(window.slots));
            }
        }
        profile
    }

    fn bend(&mut self, at: u64, slots: i64) {
        let index = match self.ends {
            Ends::List(ends) => ends.partition_point(|end| *end < at),
            Ends::Grid { shift } => (at.div_ceil(1 << shift)) as usize,
        };
        // A bend beyond the last b has no effect.
        if let Some((count, moment)) = self.bends.get_mut(index) {
            *count += slots;
            *moment += i128::from(slots) * i128::from(at);
        }
    }

    fn late_ns(&self, slots: u32) -> u64 {
        let (mut count, mut moment, mut late) = (0_i64, 0_i128, 0_i128);
        for (index, bend) in self.bends.iter().enumerate() {
            count += bend.0;
            moment += bend.1;
            let b = match self.ends {
                Ends::List(ends) => ends.get(index).copied(),
                Ends::Grid { shift } => Some((index as u64) << shift),
            };
            let Some(b) = b.filter(|b| *b > self.a) else { continue };
            let work = i128::from(count) * i128::from(b) - moment;
            let room = i128::from(slots) * i128::from(b - self.a);
            late = late.max((work - room) / i128::from(slots));
        }
        late as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition: for every interval, the minimum part of every task inside it.
    fn by_definition(windows: &[Window], slots: u32) -> u64 {
        let mut ends: Vec<u64> = windows.iter().flat_map(|w| [w.start_ns, w.end_ns]).collect();
        ends.sort_unstable();
        let part = |w: &Window, a: u64, b: u64| {
            let left = (w.start_ns + w.duration_ns).saturating_sub(a);
            let right = b.saturating_sub(w.end_ns - w.duration_ns);
            w.duration_ns.min(left).min(right).min(b - a) * u64::from(w.slots)
        };
        let mut late = 0;
        for &a in &ends {
            for &b in ends.iter().filter(|b| **b > a) {
                let work: u64 = windows.iter().map(|w| part(w, a, b)).sum();
                late = late.max(work.saturating_sub(u64::from(slots) * (b - a)) / u64::from(slots));
            }
        }
        late
    }

    fn window() -> impl Strategy<Value = Window> {
        (0_u64..40, 0_u64..20, 0_u64..20, 1_u32..3).prop_map(
            |(start_ns, duration_ns, slack, slots)| Window {
                start_ns,
                end_ns: start_ns + duration_ns + slack,
                duration_ns,
                slots,
            },
        )
    }

    proptest! {
        #[test]
        fn ramps_are_the_least_parts(
            windows in prop::collection::vec(window(), 1..12),
            slots in 1_u32..4,
        ) {
            let path_ns = windows.iter().map(|w| w.end_ns).max().unwrap();
            prop_assert_eq!(late_ns(&windows, path_ns, slots), by_definition(&windows, slots));
        }

        #[test]
        fn intervals_on_a_grid_are_never_stronger_and_find_the_area(
            windows in prop::collection::vec(window(), 1..12),
            slots in 1_u32..4,
        ) {
            let path_ns = windows.iter().map(|w| w.end_ns).max().unwrap();
            let all = by_definition(&windows, slots);
            let mut some = Profile::over_grid(path_ns, 0, &windows).late_ns(slots);
            let mirrored: Vec<Window> = windows.iter().map(|w| w.mirrored(path_ns)).collect();
            some = some.max(Profile::over_grid(path_ns, 0, &mirrored).late_ns(slots));
            prop_assert!(some <= all, "{some} > {all}");
            let work: u64 = windows.iter().map(|w| w.duration_ns * u64::from(w.slots)).sum();
            let area = work / u64::from(slots);
            prop_assert!(some + path_ns >= area, "{some} + {path_ns} < {area}");
        }
    }
}
