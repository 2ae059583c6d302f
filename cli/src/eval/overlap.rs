//! The same work, nodes, slots and policy in the simulator and with real processes: how far apart
//! are they?

use analysis::chart::{Axis, Chart};
use serde_json::Value;

use super::paper;
use super::point::Point;
use super::policies::{Choice, DEFAULT, FLDS};
use super::results::{Results, Spread, number};
use super::scale::Scale;
use super::section::{Cell, Claim, Grid, Section, Unit, Verdict};

const WAIT_MAX: &str = "10s";
/// What the loopback of this machine carries between two processes, about.
const LOOPBACK: [&str; 6] = ["--network", "flat", "--bandwidth", "8Gbit", "--latency", "50us"];

/// A point that can be had both ways.
struct Pair {
    name: &'static str,
    workload: String,
    nodes: u32,
    slots: u32,
    choice: Choice,
    real_bytes: bool,
}

impl Pair {
    fn real(&self) -> Point {
        let point = self.choice.on(Point::real(&self.workload, self.nodes, self.slots), WAIT_MAX);
        let data = if self.real_bytes { "real" } else { "virtual" };
        let point = point.with(&["--data", data]);
        if self.real_bytes { point } else { point.with(&["--bandwidth", "1Gbit"]) }
    }

    fn simulated(&self) -> Point {
        // Sizes alone wait as long as the bytes would, one transfer not hindering another.
        let network: &[&str] = match self.real_bytes {
            true => &LOOPBACK,
            false => &["--network", "flat", "--bandwidth", "1Gbit", "--latency", "50us"],
        };
        let point = Point::simulated_over(network, &self.workload, self.nodes, self.slots);
        self.choice.on(point, WAIT_MAX)
    }
}

fn pairs(scale: &Scale) -> Vec<Pair> {
    let seed = scale.seed;
    let (tasks, files, volumes) = if scale.quick { (60, 6, 4) } else { (800, 20, 40) };
    let pair = |name, workload, nodes, slots| Pair {
        name,
        workload,
        nodes,
        slots,
        choice: DEFAULT,
        real_bytes: false,
    };
    let bytes = |pair: Pair| Pair { real_bytes: true, ..pair };
    let uniform = "duration=uniform(0,100ms)";
    vec![
        pair("bag of 50 ms", format!("bag:tasks={tasks},duration=50ms,seed={seed}"), 2, 4),
        pair("BOT", format!("bag:tasks={tasks},{uniform},seed={seed}"), 4, 2),
        pair(
            "Pipeline, sizes alone",
            format!("pipeline:tasks={tasks},length=10,{uniform},output=1MB,seed={seed}"),
            4,
            2,
        ),
        bytes(pair(
            "FanOut, real bytes",
            format!("fan-out:tasks={tasks},degree=10,{uniform},output=1MB,seed={seed}"),
            4,
            2,
        )),
        bytes(pair(
            "FanIn, real bytes",
            format!("fan-in:tasks={tasks},degree=10,{uniform},output=1MB,seed={seed}"),
            4,
            2,
        )),
        bytes(pair(
            "all-pairs, real bytes",
            format!("all-pairs:files={files},size=2MB,duration=100ms,seed={seed}"),
            4,
            2,
        )),
        Pair {
            choice: FLDS,
            ..bytes(pair(
                "all-pairs under FLDS, real bytes",
                format!("all-pairs:files={files},size=2MB,duration=100ms,seed={seed}"),
                4,
                2,
            ))
        },
        bytes(pair(
            "image stacking, real bytes",
            format!("image-stacking:tasks={tasks},files={},seed={seed}", (tasks / 10).max(2)),
            4,
            4,
        )),
        bytes(pair(
            "fMRI-shaped, real bytes",
            format!("fmri:volumes={volumes},duration=50ms,output=200kB,seed={seed}"),
            4,
            2,
        )),
    ]
}

pub(super) fn points(scale: &Scale) -> Vec<(Point, u32)> {
    let both = |pair: &Pair| [(pair.real(), scale.rounds), (pair.simulated(), scale.seeds)];
    pairs(scale).iter().flat_map(both).collect()
}

/// Real over simulated, less one.
fn difference(real: Option<Spread>, simulated: Option<Spread>) -> Option<f64> {
    Some(real?.median / simulated?.median - 1.0)
}

fn first_start(report: &Value) -> Option<f64> {
    number(report, "/first_start_s")
}

/// The run without what comes before its first task.
fn after_first_start(report: &Value) -> Option<f64> {
    Some(number(report, "/makespan_s")? - first_start(report)?)
}

const COLUMNS: [(&str, Option<Unit>); 12] = [
    ("work", None),
    ("cluster", None),
    ("real makespan", Some(Unit::Seconds)),
    ("simulated makespan", Some(Unit::Seconds)),
    ("real over simulated, less one", Some(Unit::Percent)),
    ("the same from the first start", Some(Unit::Percent)),
    ("real efficiency", Some(Unit::Percent)),
    ("simulated efficiency", Some(Unit::Percent)),
    ("real first start", Some(Unit::Milliseconds)),
    ("simulated first start", Some(Unit::Milliseconds)),
    ("real, read without a transfer", Some(Unit::Percent)),
    ("simulated, read without a transfer", Some(Unit::Percent)),
];

pub(super) fn tell(scale: &Scale, results: &Results) -> Section {
    let mut section =
        Section::new("overlap", "Real processes, and how far the simulator is from them");
    section.text(format!(
        "The same graph, nodes, slots and policy: node processes of this machine with sleeping \
         tasks, {} runs each, and the simulator, {} seeds each. Real bytes cross the loopback, \
         which the simulator takes as {} per transfer; \"sizes alone\" wait as long as 1 Gbit/s \
         would take, on both sides.",
        scale.rounds, scale.seeds, "8 Gbit/s",
    ));
    let mut grid = Grid::new("overlap", &COLUMNS);
    let mut all = Vec::new();
    let mut points = Vec::new();
    for pair in pairs(scale) {
        let (real, simulated) = (pair.real(), pair.simulated());
        let makespan = |point: &Point| results.at(point, "/makespan_s");
        let off = difference(makespan(&real), makespan(&simulated));
        all.push((pair.name, off));
        let both = |path: &str| {
            [Cell::from(results.at(&real, path)), Cell::from(results.at(&simulated, path))]
        };
        let mut cells = vec![
            pair.name.into(),
            format!("{} x {}, {}", pair.nodes, pair.slots, pair.choice.label).into(),
        ];
        cells.extend(both("/makespan_s"));
        cells.push(off.into());
        let later = |point: &Point| results.spread(point, after_first_start);
        cells.push(difference(later(&real), later(&simulated)).into());
        cells.extend(both("/efficiency"));
        cells.push(results.spread(&real, first_start).into());
        cells.push(results.spread(&simulated, first_start).into());
        cells.extend(both("/data/cache_hit_rate"));
        grid.row(cells);
        if pair.choice == FLDS
            && let Some(chart) = over_time(results, &real, &simulated)
        {
            let caption = format!("{} on {} x {} slots.", pair.name, pair.nodes, pair.slots);
            section.chart("overlap", &chart, &caption);
        }
        points.extend([real, simulated]);
    }
    section.grid(grid);
    section.note(
        "What is left: a sleep of this machine wakes late by some tens of microseconds, its CPUs \
         are shared by all nodes, their clients and whatever else runs, and a commit waits for a \
         disk whose syncs vary. Short runs feel the submission and the last acknowledgement most.",
    );
    section.claim(claim(&all));
    section.missing(results, &points);
    section
}

/// Busy slots of both.
fn over_time(results: &Results, real: &Point, simulated: &Point) -> Option<Chart> {
    let chart = Chart::new(
        "Utilization over time, real and simulated",
        Axis::new("seconds").from(0.0),
        Axis::new("busy slots, percent").from(0.0).to(100.0),
    );
    let real = results.utilization(real)?;
    Some(chart.line("real", &real).line("simulated", &results.utilization(simulated)?))
}

fn claim(all: &[(&str, Option<f64>)]) -> Claim {
    let known: Vec<(&str, f64)> =
        all.iter().filter_map(|(name, off)| Some((*name, (*off)?.abs() * 100.0))).collect();
    let worst = known.iter().copied().max_by(|one, other| one.1.total_cmp(&other.1));
    let within = |(_, off): &&(&str, f64)| *off <= paper::ASKED_OVERLAP_WITHIN_PERCENT;
    let (ours, verdict) = match worst {
        None => ("no point was had both ways".to_owned(), Verdict::Absent),
        Some((name, off)) => {
            let good = known.iter().filter(within).count();
            let text = format!("{good} of {} within 5 %; farthest {off:.1} %: {name}", all.len());
            (text, Verdict::of(good == all.len()))
        }
    };
    Claim {
        what: "simulated against real makespan on overlapping points".to_owned(),
        paper: "no simulation".to_owned(),
        asked: "within 5 % (an aim)".to_owned(),
        ours,
        verdict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_farthest_point_is_named() {
        let claim = claim(&[("a", Some(0.04)), ("b", Some(-0.2)), ("c", None)]);
        assert_eq!(claim.verdict, Verdict::Missed);
        assert_eq!(claim.ours, "1 of 3 within 5 %; farthest 20.0 %: b");
        let all_good = super::claim(&[("a", Some(0.04))]);
        assert_eq!(all_good.verdict, Verdict::Met);
    }
}
