//! The curves: their points and their presentation.

use analysis::chart::{Axis, Chart};

use super::Size;
use super::causes::{BROKEN_BELOW, bound_share, sentence};
use crate::eval::paper::{DAGS, Dag};
use crate::eval::point::{Point, SEED};
use crate::eval::policies::{ADAPTIVE, Choice, EFT, FLDS, MDL, MLB, RLDS};
use crate::eval::results::Results;
use crate::eval::scale::SLOTS;
use crate::eval::section::{Grid, Section, Unit};

/// Curves that are shown together.
#[derive(Debug)]
pub(super) struct Family {
    pub(super) id: &'static str,
    pub(super) points: fn(&Size) -> Vec<Point>,
    pub(super) tell: fn(&Size, &Results) -> Section,
}

pub(super) const FAMILIES: [Family; 3] = [
    Family { id: "lengths", points: |size| all(&lengths(size)), tell: tell_lengths },
    Family { id: "policies", points: |size| all(&policies(size)), tell: tell_policies },
    Family { id: "worst", points: |size| all(&worst(size)), tell: tell_worst },
];

/// Policies are compared with data, which takes the simulator longer.
const POLICIES_NODES_MAX: u32 = 1_000;
/// One home accepts and gives away everything.
const WORST_NODES_MAX: u32 = 10_000;
const WAIT_MAX: &str = "10s";

/// One line of a chart.
#[derive(Debug)]
struct Curve {
    name: String,
    points: Vec<(u32, Point)>,
}

fn all(curves: &[Curve]) -> Vec<Point> {
    curves.iter().flat_map(|curve| curve.points.iter().map(|(_, point)| point.clone())).collect()
}

/// The benchmark DAGs without data, for each task length.
fn lengths(size: &Size) -> Vec<Curve> {
    let curve = |dag: &Dag, length: &str| Curve {
        name: format!("{}, {length}", dag.name),
        points: size
            .nodes
            .iter()
            .map(|&nodes| {
                let workload = workload(size, dag, nodes, &format!("duration={length}"));
                (nodes, Point::simulated(&workload, nodes, SLOTS))
            })
            .collect(),
    };
    let of = |dag: &'static Dag| size.lengths.iter().map(move |length| curve(dag, length));
    DAGS.iter().flat_map(of).collect()
}

/// The benchmark DAGs of table 3 with their data, for each policy.
fn policies(size: &Size) -> Vec<Curve> {
    let data = "duration=uniform(0,100ms),output=uniform(0,10MB)";
    let curve = |dag: &Dag, choice: Choice| Curve {
        name: format!("{}, {}", dag.name, choice.label),
        points: size
            .up_to(POLICIES_NODES_MAX)
            .map(|nodes| {
                let point = Point::simulated(&workload(size, dag, nodes, data), nodes, SLOTS);
                (nodes, choice.on(point, WAIT_MAX))
            })
            .collect(),
    };
    let choices = [EFT, FLDS, MDL, MLB, RLDS, ADAPTIVE];
    DAGS.iter().flat_map(|dag| choices.into_iter().map(move |choice| curve(dag, choice))).collect()
}

/// A bag submitted to one node: all other nodes must steal.
fn worst(size: &Size) -> Vec<Curve> {
    let bag = &DAGS[0];
    let curve = |length: &&str| Curve {
        name: format!("{} to one node, {length}", bag.name),
        points: size
            .up_to(WORST_NODES_MAX)
            .map(|nodes| {
                let workload = workload(size, bag, nodes, &format!("duration={length}"));
                let point = Point::simulated(&workload, nodes, SLOTS);
                (nodes, point.with(&["--submit", "worst"]))
            })
            .collect(),
    };
    size.lengths.iter().map(curve).collect()
}

fn workload(size: &Size, dag: &Dag, nodes: u32, rest: &str) -> String {
    let tasks = u64::from(size.tasks_per_slot) * u64::from(nodes) * u64::from(SLOTS);
    format!("{}:tasks={tasks}{},{rest},seed={SEED}", dag.generator, dag.shape)
}

fn tell_lengths(size: &Size, results: &Results) -> Section {
    let mut section = Section::new("lengths", "Task lengths");
    section.text(format!(
        "The four benchmark DAGs without data, {} tasks a slot, default policy. 100 % is the true \
         lower bound: work over slots, or the longest path.",
        size.tasks_per_slot
    ));
    for dag in &DAGS {
        let curves: Vec<Curve> = lengths(size)
            .into_iter()
            .filter(|curve| curve.name.starts_with(&format!("{}, ", dag.name)))
            .collect();
        charts(&mut section, &format!("lengths-{}", dag.generator), dag.name, &curves, results);
    }
    tables(&mut section, ["lengths", "lengths-breaks"], &lengths(size), results);
    section
}

fn tell_policies(size: &Size, results: &Results) -> Section {
    let mut section = Section::new("policies", "Policies");
    section.text(format!(
        "The four benchmark DAGs of table 3 with their data (tasks of 50 ms, outputs of 5 MB on \
         the average), {} tasks a slot.",
        size.tasks_per_slot
    ));
    for dag in &DAGS {
        let curves: Vec<Curve> = policies(size)
            .into_iter()
            .filter(|curve| curve.name.starts_with(&format!("{}, ", dag.name)))
            .collect();
        charts(&mut section, &format!("policies-{}", dag.generator), dag.name, &curves, results);
    }
    tables(&mut section, ["policies", "policies-breaks"], &policies(size), results);
    section
}

fn tell_worst(size: &Size, results: &Results) -> Section {
    let mut section = Section::new("worst", "Everything submitted to one node");
    section.text(
        "A bag of which one node is home: what the others run they have stolen, from it or from \
         each other.",
    );
    charts(&mut section, "worst", "BOT to one node", &worst(size), results);
    tables(&mut section, ["worst", "worst-breaks"], &worst(size), results);
    section
}

/// Share of the bound, and throughput, against nodes.
fn charts(section: &mut Section, file: &str, title: &str, curves: &[Curve], results: &Results) {
    let x = || Axis::new("nodes").log();
    let y = Axis::new("percent of the true lower bound").from(0.0).to(100.0);
    let mut share = Chart::new(&format!("{title}: share of the bound"), x(), y);
    let y = Axis::new("tasks a second").log();
    let mut throughput = Chart::new(&format!("{title}: throughput"), x(), y);
    for curve in curves {
        share = share.line(&curve.name, &line(curve, results, "/simulated/bound_ratio", 100.0));
        let line = line(curve, results, "/throughput_per_s", 1.0);
        throughput = throughput.line(&curve.name, &line);
    }
    section.chart(&format!("{file}-bound"), &share, "Weak scaling, two slots a node.");
    section.chart(&format!("{file}-throughput"), &throughput, "Weak scaling, two slots a node.");
}

fn line(curve: &Curve, results: &Results, path: &str, scale: f64) -> Vec<(f64, f64)> {
    let at = |(nodes, point): &(u32, Point)| {
        Some((f64::from(*nodes), results.median(point, path)? * scale))
    };
    curve.points.iter().filter_map(at).collect()
}

/// The point and cause of each curve's break, then all figures.
fn tables(
    section: &mut Section,
    [points, breaks]: [&'static str; 2],
    curves: &[Curve],
    results: &Results,
) {
    let mut broken = Grid::new(
        breaks,
        &[("curve", None), ("breaks at", None), ("bound", Some(Unit::Percent)), ("cause", None)],
    );
    for curve in curves {
        let (at, share, cause) = breaks_at(curve, results);
        broken.row(vec![curve.name.as_str().into(), at.into(), share.into(), cause.into()]);
    }
    section.note(format!(
        "A curve breaks at the first cluster where it falls below {} % of the true lower bound.",
        BROKEN_BELOW * 100.0
    ));
    section.grid(broken);
    let mut grid = Grid::new(
        points,
        &[
            ("curve", None),
            ("nodes", None),
            ("makespan", Some(Unit::Seconds)),
            ("bound", Some(Unit::Percent)),
            ("efficiency", Some(Unit::Percent)),
            ("throughput", Some(Unit::PerSecond)),
            ("submission", Some(Unit::Seconds)),
            ("packets a task", Some(Unit::Count)),
            ("steals", Some(Unit::Count)),
            ("moved", Some(Unit::Gigabytes)),
            ("job home's loop", Some(Unit::Seconds)),
            ("busiest loop", Some(Unit::Seconds)),
            ("simulator, a task", Some(Unit::Microseconds)),
            ("simulator, bytes a node", Some(Unit::Count)),
        ],
    );
    for curve in curves {
        for (nodes, point) in &curve.points {
            let at = |path: &str| results.at(point, path).into();
            grid.row(vec![
                curve.name.as_str().into(),
                (*nodes).into(),
                at("/makespan_s"),
                at("/simulated/bound_ratio"),
                at("/efficiency"),
                at("/throughput_per_s"),
                at("/submit_s"),
                at("/simulated/packets_per_task"),
                at("/steals/won"),
                at("/data/bytes_moved"),
                at("/simulated/loop_busy_job_home_s"),
                at("/simulated/loop_busy_max_s"),
                at("/simulated/cpu_us_per_task"),
                at("/simulated/rss_bytes_per_node"),
            ]);
        }
    }
    section.grid(grid);
    section.missing(results, &all(curves));
}

fn breaks_at(curve: &Curve, results: &Results) -> (String, Option<f64>, String) {
    let mut last = None;
    for (nodes, point) in &curve.points {
        let Some(report) = results.reports(point).next() else { continue };
        let Some(share) = bound_share(report) else { continue };
        if share < BROKEN_BELOW {
            return (format!("{nodes} nodes"), Some(share), sentence(report));
        }
        last = Some((*nodes, share, report));
    }
    match last {
        Some((nodes, share, report)) => (
            format!("not up to {nodes}"),
            Some(share),
            format!("most lost to: {}", sentence(report)),
        ),
        None => ("not run".to_owned(), None, String::new()),
    }
}
