//! The time of all slots, divided by cause.

use serde::Serialize;

use crate::view::{FETCHING, LOST, READY, View, WORKING};

/// The number of steps of the series.
const STEPS_MAX: u64 = 256;

/// Slot time by cause, in seconds or as a series of shares. An idle slot has the first cause that
/// applies to its node in that step of time:
///
/// * `fetching`: a task of the node waits for its inputs.
/// * `starting`: a task is in a ready queue of the node and has not started.
/// * `elsewhere`: tasks are ready on other nodes only, and were not stolen.
/// * `nothing_ready`: no task is ready on any node, so the graph is the cause.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Shares {
    pub working: f64,
    /// Attempts that failed, were cancelled, or were stopped.
    pub lost: f64,
    pub fetching: f64,
    pub starting: f64,
    pub elsewhere: f64,
    pub nothing_ready: f64,
    /// The events of the node are missing.
    pub unknown: f64,
}

/// The names of the causes and their words, in the order of [`Shares::all`].
pub const CAUSES: [(&str, &str); 7] = [
    ("working", "working"),
    ("lost", "lost: attempts that did not succeed"),
    ("fetching", "idle: inputs were being fetched"),
    ("starting", "idle: a ready task had not started"),
    ("elsewhere", "idle: tasks were ready on other nodes only"),
    ("nothing_ready", "idle: no task was ready"),
    ("unknown", "unknown: events are missing"),
];

impl Shares {
    #[must_use]
    pub fn all(&self) -> [f64; 7] {
        let Self { working, lost, fetching, starting, elsewhere, nothing_ready, unknown } = *self;
        [working, lost, fetching, starting, elsewhere, nothing_ready, unknown]
    }

    fn add(&mut self, other: &Self, factor: f64) {
        self.working += other.working * factor;
        self.lost += other.lost * factor;
        self.fetching += other.fetching * factor;
        self.starting += other.starting * factor;
        self.elsewhere += other.elsewhere * factor;
        self.nothing_ready += other.nothing_ready * factor;
        self.unknown += other.unknown * factor;
    }
}

/// The causes over a run.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Causes {
    /// The sums, in seconds of slot time. Together they are `slots * window_s`.
    pub seconds: Shares,
    pub slots: u64,
    pub window_s: f64,
    pub step_s: f64,
    /// The number of busy and idle slots in each step.
    pub series: Vec<Shares>,
}

impl Causes {
    /// Of a run between two times. `missing`: slots of nodes without events.
    #[must_use]
    pub fn of(view: &View, (from_us, to_us): (u64, u64), missing: u64) -> Self {
        let window_us = to_us.saturating_sub(from_us);
        if window_us == 0 {
            return Self::default();
        }
        let widths = view.nodes.sums.values().flat_map(|node| {
            [&node.busy].map(|it| it.width_us()).into_iter().chain([node.waits.width_us()])
        });
        let mut width_us = widths.max().unwrap_or(1_000);
        let steps = |width_us: u64| to_us.div_ceil(width_us) - from_us / width_us;
        while steps(width_us) > STEPS_MAX {
            width_us *= 2;
        }
        let (first, steps) = (from_us / width_us, steps(width_us) as usize);
        let rows = rows(view, (first, width_us), steps);
        let slots: u64 = rows.iter().map(|row| row.slots).sum::<u64>() + missing;
        let mut causes = Self {
            slots,
            window_s: window_us as f64 / 1e6,
            step_s: width_us as f64 / 1e6,
            ..Self::default()
        };
        for step in 0..steps {
            let number = first + step as u64;
            let start = (number * width_us).max(from_us);
            let length_us = ((number + 1) * width_us).min(to_us) - start;
            let shares = at_step(&rows, step, length_us, missing);
            causes.seconds.add(&shares, length_us as f64 / 1e6);
            causes.series.push(shares);
        }
        causes
    }
}

/// The series of a node, or of several neighbours.
struct Row {
    slots: u64,
    busy: Vec<[u64; 2]>,
    waits: Vec<[u64; 2]>,
    /// Attempts for each one in detail.
    factor: f64,
}

fn rows(view: &View, (first, width_us): (u64, u64), steps: usize) -> Vec<Row> {
    let factor = match view.detailed {
        0 => 0.0,
        detailed => view.attempts() as f64 / detailed as f64,
    };
    let mut slots = std::collections::BTreeMap::new();
    for (&node, &of_node) in &view.slots {
        use crate::groups::{Coarsen, NodeKey};
        *slots.entry(NodeKey(node).at(view.nodes.level)).or_insert(0) += u64::from(of_node);
    }
    let default = crate::view::NodeView::default();
    let keys: std::collections::BTreeSet<_> = slots.keys().chain(view.nodes.sums.keys()).collect();
    let row = |key| {
        let node = view.nodes.sums.get(key).unwrap_or(&default);
        Row {
            slots: slots.get(key).copied().unwrap_or(0),
            busy: node.busy.between(first, width_us, steps),
            waits: node.waits.between(first, width_us, steps),
            factor,
        }
    };
    keys.into_iter().map(row).collect()
}

/// The mean numbers of slots by cause in one step.
fn at_step(rows: &[Row], step: usize, length_us: u64, missing: u64) -> Shares {
    let mean = |us: u64| us as f64 / length_us.max(1) as f64;
    let ready_of = |row: &Row| mean(row.waits[step][READY]) * row.factor;
    let mut ready_left: f64 = rows.iter().map(ready_of).sum();
    let mut shares = Shares { unknown: missing as f64, ..Shares::default() };
    let mut idle_left = 0.0;
    for row in rows {
        let slots = row.slots as f64;
        let working = mean(row.busy[step][WORKING]).min(slots);
        let lost = mean(row.busy[step][LOST]).min(slots - working);
        let idle = slots - working - lost;
        let fetching = (mean(row.waits[step][FETCHING]) * row.factor).min(idle);
        let starting = ready_of(row).min(idle - fetching);
        ready_left -= starting;
        idle_left += idle - fetching - starting;
        shares.add(&Shares { working, lost, fetching, starting, ..Shares::default() }, 1.0);
    }
    shares.elsewhere = ready_left.clamp(0.0, idle_left.max(0.0));
    shares.nothing_ready = (idle_left - shares.elsewhere).max(0.0);
    shares
}

#[cfg(test)]
mod tests {
    use proto::{JobId, LocalId, Time};

    use super::*;
    use crate::attempt::{AttemptRow, Outcome};
    use crate::view::{Lens, Sampling};

    fn view(rows: &[AttemptRow], slots: &[u32]) -> View {
        let sampling = Sampling::default();
        let mut lens = Lens::new(JobId(1), Time(0), sampling, vec!["a".to_owned()], |_| 0);
        rows.iter().for_each(|row| lens.add(row));
        let mut view = lens.finish(None);
        view.slots = (0..).zip(slots.iter().copied()).collect();
        view
    }

    /// Node, slot, queued, fetched from, start, end in milliseconds.
    fn row(node: u32, slot: u32, times: [u64; 4], outcome: Outcome) -> AttemptRow {
        let [queued, fetching, start, end] = times.map(|ms| ms * 1_000);
        AttemptRow {
            node,
            slot,
            start_us: start,
            ran_us: end - start,
            wait_us: start - queued,
            fetch_us: start - fetching,
            task: LocalId(start + u64::from(slot)),
            outcome,
            ..AttemptRow::default()
        }
    }

    #[test]
    fn each_idle_slot_has_its_cause() {
        let rows = [
            row(0, 0, [0, 100, 100, 200], Outcome::Done),
            row(0, 0, [0, 200, 200, 300], Outcome::Failed),
            row(0, 1, [100, 150, 200, 300], Outcome::Done),
        ];
        let causes = Causes::of(&view(&rows, &[2, 1]), (0, 400_000), 1);
        let Shares { working, lost, fetching, starting, elsewhere, nothing_ready, unknown } =
            causes.seconds;
        let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
        assert!(near(working, 0.2) && near(lost, 0.1), "{causes:?}");
        // Slot 1 of node 0 waits for its inputs from 150 to 200 ms.
        assert!(near(fetching, 0.05), "{causes:?}");
        // Two tasks are ready at node 0 in the first 100 ms, then one or two.
        assert!(near(starting, 0.2 + 0.05), "{causes:?}");
        // Meanwhile a task waits there, and node 1 is idle.
        assert!(near(elsewhere, 0.1), "{causes:?}");
        assert!(near(unknown, 0.4), "{causes:?}");
        let sum: f64 = causes.seconds.all().iter().sum();
        assert!(near(sum, 4.0 * 0.4), "{sum} of all slots, {nothing_ready}");
    }

    #[test]
    fn a_short_run_long_after_the_origin_has_many_steps() {
        let rows = [row(0, 0, [10_000, 10_050, 10_050, 10_100], Outcome::Done)];
        let causes = Causes::of(&view(&rows, &[1]), (10_000_000, 10_100_000), 0);
        assert_eq!((causes.series.len(), causes.step_s), (100, 0.001));
        assert!((causes.seconds.working - 0.05).abs() < 1e-9);
        assert!((causes.seconds.starting - 0.05).abs() < 1e-9);
    }

    #[test]
    fn nothing_comes_of_nothing() {
        assert_eq!(Causes::of(&View::default(), (5, 5), 0), Causes::default());
        let idle = Causes::of(&view(&[], &[3]), (0, 1_000_000), 0);
        assert!((idle.seconds.nothing_ready - 3.0).abs() < 1e-9);
    }
}
