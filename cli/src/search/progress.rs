//! The progress of a search on stderr: one line that changes on a terminal, a line every 10 s
//! elsewhere.

use std::time::Duration;

use ::search::Goal;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use searcher::Snapshot;
use verb::output::{Output, say};
use verb::units;

/// The interval between two looks at the search.
pub(super) const EVERY: Duration = Duration::from_millis(100);
/// The interval between two lines where stderr is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Where the line goes.
#[derive(Debug)]
pub(super) struct Progress {
    bar: Option<ProgressBar>,
    is_quiet: bool,
    slots: usize,
    /// The time and the nodes of the last line.
    last: (Duration, u64),
    rate: f64,
}

impl Progress {
    pub(super) fn new(output: &Output, slots: usize) -> Self {
        let bar = output.progress.then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
            bar.set_style(ProgressStyle::with_template("{msg}").expect("it is well formed"));
            bar
        });
        Self { bar, is_quiet: output.quiet, slots, last: (Duration::ZERO, 0), rate: 0.0 }
    }

    /// `elapsed`: the time with that before the slots ran. `optimum`: the goal and the value of the
    /// incumbent, of a search that has one.
    pub(super) fn show(
        &mut self,
        snapshot: &Snapshot,
        elapsed: Duration,
        optimum: Option<(Goal, Option<i64>)>,
    ) {
        let (then, nodes) = self.last;
        let every = if self.bar.is_some() { Duration::from_secs(1) } else { LINE_EVERY };
        let is_due = snapshot.wall.saturating_sub(then) >= every;
        if is_due {
            let seconds = (snapshot.wall - then).as_secs_f64();
            self.rate = (snapshot.tally.nodes - nodes) as f64 / seconds;
            self.last = (snapshot.wall, snapshot.tally.nodes);
        }
        if let Some(bar) = &self.bar {
            if self.rate == 0.0 {
                self.rate = snapshot.tally.nodes as f64 / snapshot.wall.as_secs_f64().max(1e-3);
            }
            bar.set_message(line(snapshot, elapsed, optimum, self.rate, self.slots));
        } else if is_due && !self.is_quiet {
            say(&line(snapshot, elapsed, optimum, self.rate, self.slots));
        }
    }

    /// Removes the line.
    pub(super) fn end(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn line(
    snapshot: &Snapshot,
    elapsed: Duration,
    optimum: Option<(Goal, Option<i64>)>,
    rate: f64,
    slots: usize,
) -> String {
    let mut parts = vec![units::seconds(elapsed.as_secs_f64())];
    if let Some((goal, best)) = optimum {
        let known = bound(goal, best, snapshot.bound);
        let text =
            |value: Option<i64>| value.map_or_else(|| "-".to_owned(), |value| value.to_string());
        parts.push(format!("incumbent {}", text(best)));
        parts.push(format!("bound {}", text(known)));
        if let Some(gap) = gap(best, known) {
            parts.push(format!("gap {}", units::percent(gap)));
        }
    }
    parts.push(format!("{} nodes", units::count(snapshot.tally.nodes)));
    parts.push(format!("{} nodes/s", units::count(rate as u64)));
    parts.push(format!("{} splits", units::count(snapshot.splits)));
    parts.push(format!("efficiency {} of {slots}", units::percent(snapshot.efficiency)));
    parts.join(", ")
}

/// The value that no solution can beat: the better of the incumbent and the bound of the open
/// nodes. None: nothing is known yet.
pub(super) fn bound(goal: Goal, best: Option<i64>, open: Option<i64>) -> Option<i64> {
    let open = open.filter(|open| *open != goal.ideal());
    match (best, open) {
        (Some(best), Some(open)) => Some(goal.better(best, open)),
        (None, open) => open,
        (Some(_), None) => None,
    }
}

/// The distance of the bound from the incumbent, as a share of the incumbent.
pub(super) fn gap(best: Option<i64>, bound: Option<i64>) -> Option<f64> {
    let (best, bound) = (best?, bound?);
    let distance = best.abs_diff(bound) as f64;
    if best == bound {
        Some(0.0)
    } else if best == 0 {
        None
    } else {
        Some(distance / best.unsigned_abs() as f64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_never_past_the_incumbent() {
        assert_eq!(bound(Goal::Minimise, Some(10), Some(8)), Some(8));
        assert_eq!(bound(Goal::Minimise, Some(10), Some(12)), Some(10));
        assert_eq!(bound(Goal::Maximise, Some(10), Some(12)), Some(12));
        assert_eq!(bound(Goal::Minimise, Some(10), Some(i64::MIN)), None);
        assert_eq!(bound(Goal::Minimise, None, Some(8)), Some(8));
    }

    #[test]
    fn the_gap_is_a_share_of_the_incumbent() {
        assert_eq!(gap(Some(10), Some(8)), Some(0.2));
        assert_eq!(gap(Some(-10), Some(-8)), Some(0.2));
        assert_eq!(gap(Some(0), Some(0)), Some(0.0));
        assert_eq!(gap(Some(0), Some(3)), None);
        assert_eq!(gap(None, Some(3)), None);
    }
}
