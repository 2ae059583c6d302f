//! No-op throughput: figure 13.

use analysis::chart::{Axis, Chart};

use super::paper;
use super::point::{Point, SEED};
use super::results::{Results, Spread};
use super::scale::{SLOTS, Scale};
use super::section::{Claim, Grid, Section, Unit, Verdict};

fn real(scale: &Scale, nodes: u32) -> Point {
    let tasks = u64::from(scale.noop_tasks_per_process) * u64::from(nodes);
    Point::bench(&["noop", "--processes", "--nodes", &nodes.to_string()])
        .with(&["--slots", &SLOTS.to_string(), "--tasks", &tasks.to_string()])
        .with(&["--rounds", &scale.rounds.max(1).to_string()])
}

fn simulated(scale: &Scale, nodes: u32) -> Point {
    let tasks = u64::from(scale.noop_tasks_per_instance) * u64::from(nodes);
    Point::simulated(&format!("bag:tasks={tasks},body=noop,seed={SEED}"), nodes, SLOTS)
}

pub(super) fn points(scale: &Scale) -> Vec<(Point, u32)> {
    // The benchmark makes its own rounds.
    let real = scale.processes.iter().map(|&nodes| (real(scale, nodes), 1));
    let many = scale.instances.iter();
    let many = many.map(|&nodes| (simulated(scale, nodes), scale.seeds_of_curves));
    real.chain(many).collect()
}

/// Median, least and most, as the benchmark prints them.
fn rate(results: &Results, point: &Point) -> Option<Spread> {
    let at = |path: &str| results.median(point, path);
    Some(Spread { median: at("/per_s/median")?, min: at("/per_s/min")?, max: at("/per_s/max")? })
}

pub(super) fn tell(scale: &Scale, results: &Results) -> Section {
    let mut section = Section::new("fig13", "Figure 13: no-op tasks a second");
    section.text(format!(
        "The paper: \"sleep 0\", 16,000 tasks an instance, 2 threads, nothing persisted, 64 \
         virtual machines. Here nothing is switched off: the log is written and synced. Real: 1 to \
         8 node processes share the 2 CPUs of one machine, {} tasks a node (more than the paper, \
         so that a round lasts long enough to be measured), so the rate cannot grow with the \
         nodes: what must not grow is the CPU time of a task. Simulated: every node has its own \
         CPU, with service times as calibrated on this machine; {} tasks a node.",
        scale.noop_tasks_per_process, scale.noop_tasks_per_instance,
    ));
    section.grid(real_grid(scale, results));
    section.grid(simulated_grid(scale, results));
    section.chart("fig13", &chart(scale, results), "Tasks a second against nodes.");
    section.claim(flat_claim(scale, results));
    section.claim(rate_claim(scale, results));
    let points: Vec<Point> = points(scale).into_iter().map(|(point, _)| point).collect();
    section.missing(results, &points);
    section
}

fn real_grid(scale: &Scale, results: &Results) -> Grid {
    let columns = [
        ("node processes", None),
        ("tasks", None),
        ("rate", Some(Unit::PerSecond)),
        ("CPU a task, all processes", Some(Unit::Microseconds)),
        ("of it the client's", Some(Unit::Microseconds)),
    ];
    let mut grid = Grid::new("fig13-real", &columns);
    for &nodes in scale.processes {
        let point = real(scale, nodes);
        let tasks = u64::from(scale.noop_tasks_per_process) * u64::from(nodes);
        grid.row(vec![
            nodes.into(),
            tasks.to_string().into(),
            rate(results, &point).into(),
            results.at(&point, "/cpu_us_per_task").into(),
            results.at(&point, "/client_cpu_us_per_task/median").into(),
        ]);
    }
    grid
}

fn simulated_grid(scale: &Scale, results: &Results) -> Grid {
    let columns = [
        ("system", None),
        ("nodes", None),
        ("rate", Some(Unit::PerSecond)),
        ("messages a task", Some(Unit::Count)),
    ];
    let mut grid = Grid::new("fig13-simulated", &columns);
    for &nodes in scale.instances {
        let point = simulated(scale, nodes);
        let messages = results.spread(&point, |report| {
            let of = |path: &str| report.pointer(path)?.as_f64();
            Some(of("/messages")? / of("/tasks/total")?)
        });
        let rate = results.at(&point, "/throughput_per_s");
        grid.row(vec!["Starling, simulated".into(), nodes.into(), rate.into(), messages.into()]);
    }
    for (name, rate) in [
        ("MATRIX, paper", paper::MATRIX_PER_S),
        ("CloudKon, paper", paper::CLOUDKON_PER_S),
        ("Sparrow, paper", paper::SPARROW_PER_S),
    ] {
        grid.row(vec![name.into(), 64_u32.into(), Some(rate).into(), None::<f64>.into()]);
    }
    grid
}

fn chart(scale: &Scale, results: &Results) -> Chart {
    let line = |nodes: &[u32], of: &dyn Fn(u32) -> Option<f64>| -> Vec<(f64, f64)> {
        nodes.iter().filter_map(|&nodes| Some((f64::from(nodes), of(nodes)?))).collect()
    };
    let one_machine = line(scale.processes, &|nodes| {
        rate(results, &real(scale, nodes)).map(|spread| spread.median)
    });
    let many = line(scale.instances, &|nodes| {
        results.median(&simulated(scale, nodes), "/throughput_per_s")
    });
    Chart::new("No-op tasks", Axis::new("nodes").log(), Axis::new("tasks a second").log())
        .line("simulated, a machine a node", &many)
        .line("real, all on one machine", &one_machine)
        .points("MATRIX, paper", &[(64.0, paper::MATRIX_PER_S)])
        .points("CloudKon, paper", &[(64.0, paper::CLOUDKON_PER_S)])
        .points("Sparrow, paper", &[(64.0, paper::SPARROW_PER_S)])
}

fn flat_claim(scale: &Scale, results: &Results) -> Claim {
    let several = scale.processes.iter().filter(|&&nodes| nodes >= 2);
    let cpu: Option<Vec<f64>> =
        several.map(|&nodes| results.median(&real(scale, nodes), "/cpu_us_per_task")).collect();
    let (ours, verdict) = match cpu.as_deref() {
        None | Some([]) => {
            (results.why(&real(scale, *scale.processes.last().unwrap_or(&1))), Verdict::Absent)
        }
        Some(cpu) => {
            let mean = cpu.iter().sum::<f64>() / cpu.len() as f64;
            let off = cpu.iter().map(|us| (us / mean - 1.0).abs() * 100.0).fold(0.0, f64::max);
            let shown: Vec<String> = cpu.iter().map(|us| format!("{us:.2}")).collect();
            let text = format!("{} us, at most {off:.0} % off their mean", shown.join(", "));
            (text, Verdict::of(off <= paper::ASKED_NOOP_WITHIN_PERCENT))
        }
    };
    Claim {
        what: "no-op tasks: CPU a task from 2 to 8 node processes".to_owned(),
        paper: "not measured".to_owned(),
        asked: "flat within 15 %".to_owned(),
        ours,
        verdict,
    }
}

fn rate_claim(scale: &Scale, results: &Results) -> Claim {
    let nodes = scale.instances.last().copied().unwrap_or(1);
    let point = simulated(scale, nodes);
    let rate = results.at(&point, "/throughput_per_s");
    Claim {
        what: format!("no-op tasks/s, {nodes} nodes simulated with calibrated service times"),
        paper: "67K at 64 instances (CloudKon 13K, Sparrow 7.3K)".to_owned(),
        asked: "shown".to_owned(),
        ours: rate.map_or_else(
            || results.why(&point),
            |spread| format!("{}/s", Unit::PerSecond.spread(spread)),
        ),
        verdict: if rate.is_some() { Verdict::Shown } else { Verdict::Absent },
    }
}
