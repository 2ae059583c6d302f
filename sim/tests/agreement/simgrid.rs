//! Comparison with the assertions of SimGrid's own tests of its examples.
//!
//! In SimGrid's default network (LV08: Velho, Legrand, "Accuracy study and improvement of network
//! simulation in the SimGrid framework", 2009) a transfer waits 13.01 latencies of its route. Then
//! it shares 0.97 of each link.

use std::collections::BTreeMap;

use sim::baselines::{
    Assignment, Loads, Maker, ObjectSpec, Options, Problem, Routes, Scheduler, TaskSpec, Update,
    View, Wiring, WorkerSpec, run,
};
use workloads::{Graph, LoadOptions, load};

use crate::data;

const LATENCY_FACTOR: f64 = 13.01;
const BANDWIDTH_FACTOR: f64 = 0.97;

/// The printed start, end and host of an activity.
struct Printed {
    start_s: f64,
    end_s: f64,
    host: usize,
}

/// `[10.0->20.0] 'name' executed on node-3.simgrid.org`, after the time of printing.
fn executions(text: &str) -> BTreeMap<String, Printed> {
    let read = |line: &str| {
        let (_, rest) = line.split_once("INFO] [")?;
        let (times, rest) = rest.split_once("] '")?;
        let (name, rest) = rest.split_once("' executed on node-")?;
        let (start, end) = times.split_once("->")?;
        let (host, _) = rest.split_once('.')?;
        let (start_s, end_s) = (start.parse().ok()?, end.parse().ok()?);
        Some((name.to_owned(), Printed { start_s, end_s, host: host.parse().ok()? }))
    };
    text.lines().filter_map(read).collect()
}

/// 100 hosts of 1 Gflop/s. Split duplex links of 125 MB/s and 50 us lead to a backbone of 2.25 GB/s
/// and 500 us.
fn cluster() -> Routes {
    const HOSTS: usize = 100;
    let backbone = 2 * HOSTS as u32;
    let mut capacity = vec![125e6 * BANDWIDTH_FACTOR; 2 * HOSTS];
    capacity.push(2.25e9 * BANDWIDTH_FACTOR);
    let way = |from: usize, to: usize| match from == to {
        true => Vec::new(),
        false => vec![from as u32, backbone, (HOSTS + to) as u32],
    };
    let table = |cell: f64| vec![vec![cell; HOSTS]; HOSTS];
    let latency_ns = (600e3 * LATENCY_FACTOR).round() as u64;
    Routes {
        capacity,
        links: (0..HOSTS).map(|from| (0..HOSTS).map(|to| way(from, to)).collect()).collect(),
        latency_ns: vec![vec![latency_ns; HOSTS]; HOSTS],
        flow_max: table(f64::INFINITY),
        weight: table(1.0),
    }
}

/// Assigns every task to its host of the original run, at the start.
struct There(Vec<Assignment>);

impl Scheduler for There {
    fn schedule(&mut self, _: &View<'_>, _: &Update, _: &mut sim::SimRng) -> Vec<Assignment> {
        std::mem::take(&mut self.0)
    }
}

/// Equal to 10^-6 of the time, or to the last printed digit.
fn same(ours_ns: u64, printed_s: f64) -> bool {
    let ours_s = ours_ns as f64 / 1e9;
    (ours_s - printed_s).abs() <= 1e-6 * printed_s.max(1.0)
}

#[test]
fn a_graph_of_dot_takes_what_simgrid_says() {
    let Some(path) = data::find("simgrid/dag.dot") else { return };
    let printed = data::find("simgrid/expected_dag-from-dot.txt").expect("it is beside");
    let printed = executions(&std::fs::read_to_string(printed).expect("it can be read"));
    let graph = load(path, None, &LoadOptions::default()).expect("it is a graph");
    let workers = vec![WorkerSpec { cores: 1, speed: 1.0 }; 100];
    let mut problem = Problem::of(&graph, workers, Loads::OnWorkers).expect("it fits");
    let names: Vec<String> = problem.tasks.iter().map(|it| graph.task_name(it.name)).collect();
    let number = |name: &str| names.iter().position(|it| it == name).expect("it is there");
    // SimGrid places tasks without a child before the one named end.
    let end = number("end");
    for task in 0..problem.tasks.len() {
        if task != end && problem.reads(task).next().is_none() {
            let object = problem.objects.len() as u32;
            let order = ObjectSpec::new(0, Maker::Task(task as u32));
            problem.objects.push(ObjectSpec { travels: false, readers: vec![end as u32], ..order });
            problem.tasks[task].outputs.push(object);
            problem.tasks[end].inputs.push(object);
        }
    }
    let place = |(task, name): (usize, &String)| Assignment::new(task, printed[name].host);
    let mut there = There(names.iter().enumerate().map(place).collect());
    let ran = run(&problem, &Options::new(Wiring::Routed(cluster())), &mut there).expect("it ends");
    assert_eq!(printed.len(), names.len());
    for (name, run) in names.iter().zip(&ran.tasks) {
        let it = &printed[name];
        println!("{name:5} {:12.6} {:12.6}", run.started_ns as f64 / 1e9, it.start_s);
        assert!(same(run.started_ns, it.start_s) && same(run.ended_ns, it.end_s), "{name}");
    }
    assert!(same(ran.makespan_ns, 110.047415));
}

#[test]
fn a_graph_with_a_cycle_is_refused() {
    let Some(folder) = data::find("simgrid") else { return };
    let cyclic = folder.join("dag_with_cycle.dot");
    if !cyclic.exists() {
        println!("skipped: no simgrid/dag_with_cycle.dot in the reference data");
        return;
    }
    load(cyclic, None, &LoadOptions::default()).expect_err("it has a cycle");
}

/// `[14.582104] [dag_scheduling/INFO] Schedule ID00010@mDiffFit on Host 26`.
fn decisions(text: &str) -> Vec<(f64, String, String)> {
    let read = |line: &str| {
        let (time, rest) = line.strip_prefix('[')?.split_once(']')?;
        let (name, host) = rest.split_once("Schedule ")?.1.split_once(" on ")?;
        let name = name.split('@').next()?;
        Some((time.parse().ok()?, name.to_owned(), host.trim().to_owned()))
    };
    text.lines().filter_map(read).collect()
}

/// The value of an XML attribute in a line.
fn quoted<'t>(line: &'t str, key: &str) -> Option<&'t str> {
    line.split_once(&format!("{key}=\""))?.1.split_once('"').map(|(value, _)| value)
}

/// Hosts with their speeds in Gflop/s, and the routes between them. A link carries both directions,
/// and the acknowledgements of a transfer use 0.05 of it on the way back (*cross traffic*). Shares
/// of a full link are inversely proportional to the latency and weight of all links of a route,
/// here to their number. On one host a transfer has 10 GB/s for itself.
fn seven_hosts(text: &str) -> (Vec<(String, f64)>, Routes) {
    let mut hosts = Vec::new();
    let mut links: Vec<String> = Vec::new();
    let mut ways: Vec<(String, String, Vec<u32>)> = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.starts_with("<host") {
            let speed = quoted(line, "speed").expect("a speed").trim_end_matches("Gf");
            let host = quoted(line, "id").expect("a name").to_owned();
            hosts.push((host, speed.parse().expect("a number")));
        } else if line.starts_with("<link ") {
            links.push(quoted(line, "id").expect("a name").to_owned());
        } else if line.starts_with("<route") {
            let end = |key: &str| quoted(line, key).expect("an end").to_owned();
            ways.push((end("src"), end("dst"), Vec::new()));
        } else if line.starts_with("<link_ctn") {
            let id = quoted(line, "id").expect("a name");
            let link = links.iter().position(|it| it == id).expect("it is there");
            ways.last_mut().expect("a route").2.push(link as u32);
        }
    }
    let count = hosts.len();
    let at = |name: &str| hosts.iter().position(|(host, _)| host == name).expect("it is there");
    let mut table = vec![vec![Vec::new(); count]; count];
    for (from, to, way) in ways {
        table[at(&from)][at(&to)] = way.clone();
        table[at(&to)][at(&from)] = way;
    }
    let each = |cell: &dyn Fn(usize) -> f64| -> Vec<Vec<f64>> {
        table.iter().map(|row| row.iter().map(|way| cell(way.len())).collect()).collect()
    };
    let latency_ns = each(&|length| length as f64 * 100e3 * LATENCY_FACTOR);
    let loopback = 10e9 * BANDWIDTH_FACTOR;
    let routes = Routes {
        capacity: vec![125e6 * BANDWIDTH_FACTOR / 1.05; links.len()],
        latency_ns: latency_ns
            .iter()
            .map(|row| row.iter().map(|&ns| ns.round() as u64).collect())
            .collect(),
        flow_max: each(&|length| if length == 0 { loopback } else { f64::INFINITY }),
        weight: each(&|length| 1.0 / length.max(1) as f64),
        links: table,
    };
    (hosts, routes)
}

/// One object for each reader of each file. `root` makes the files that no task writes, and `end`
/// reads those that no task reads. Tasks after these two call the scheduler at the times of
/// SimGrid's decisions.
fn montage(graph: &Graph, wakes_s: &[f64], hosts: &[(String, f64)]) -> Problem {
    let count = graph.len();
    let (root, end) = (count, count + 1);
    let mut tasks: Vec<TaskSpec> = graph
        .tasks()
        .map(|task| TaskSpec::new(task.index, 1, (task.duration_ns as f64 * 4.2).round() as u64))
        .collect();
    tasks.push(TaskSpec::new(root as u32, 1, 0));
    tasks.push(TaskSpec::new(end as u32, 1, 0));
    let mut objects: Vec<ObjectSpec> = Vec::new();
    let mut carry = |tasks: &mut Vec<TaskSpec>, from: usize, to: usize, bytes: u64| {
        let object = objects.len() as u32;
        tasks[from].outputs.push(object);
        tasks[to].inputs.push(object);
        let made = ObjectSpec::new(bytes, Maker::Task(from as u32));
        objects.push(ObjectSpec { travels_at_home: true, ..made });
    };
    for task in graph.tasks() {
        let number = task.index as usize;
        for edge in graph.parents(task.index).filter(|edge| edge.output > 0) {
            let bytes = graph.edge_bytes(edge.task, edge.output);
            carry(&mut tasks, edge.task as usize, number, bytes);
        }
        for file in &task.spec.externals {
            carry(&mut tasks, root, number, file.size_bytes);
        }
        for output in 0..task.spec.outputs.len() {
            let read = graph.children(task.index).any(|edge| edge.output == output as u32 + 1);
            if !read {
                carry(&mut tasks, number, end, graph.output_bytes(task.index, output));
            }
        }
    }
    for &wake_s in wakes_s.iter().filter(|wake_s| **wake_s > 0.0) {
        let release_ns = (wake_s * 1e9).round() as u64;
        tasks.push(TaskSpec { release_ns, ..TaskSpec::new(tasks.len() as u32, 1, 0) });
    }
    let workers = hosts.iter().map(|&(_, speed)| WorkerSpec { cores: 1, speed }).collect();
    Problem::by_hand(tasks, objects, workers)
}

/// Repeats the decisions of SimGrid's min-min at their times.
struct Replay {
    /// Time, task, worker.
    decisions: Vec<(u64, usize, usize)>,
    first_wake: usize,
    /// The times of calls that were no wake-up.
    happened_ns: Vec<u64>,
}

impl Scheduler for Replay {
    fn schedule(
        &mut self,
        view: &View<'_>,
        update: &Update,
        _: &mut sim::SimRng,
    ) -> Vec<Assignment> {
        if update.ready.iter().all(|task| (*task as usize) < self.first_wake) {
            self.happened_ns.push(view.now_ns);
        }
        let now = self.decisions.iter().take_while(|(at_ns, ..)| *at_ns <= view.now_ns).count();
        let due = self.decisions.drain(..now).map(|(_, task, at)| Assignment::new(task, at));
        let mut said: Vec<Assignment> = due.collect();
        // A wake-up task has length 0 and delays no other task.
        let wakes = update.ready.iter().filter(|task| **task as usize >= self.first_wake);
        said.extend(
            wakes.map(|&task| Assignment { priority: 1.0, ..Assignment::new(task as usize, 0) }),
        );
        said
    }
}

/// Repeats the decisions of SimGrid's min-min at their times. Tasks and transfers must then take
/// the same times as there, until the end. Each decision follows an end here, or the end of a
/// transfer's latency.
#[test]
fn montage_on_seven_hosts_takes_what_simgrid_says() {
    const MAKESPAN_S: f64 = 98.135796;
    let Some(folder) = data::find("simgrid") else { return };
    let text = |name: &str| std::fs::read_to_string(folder.join(name)).expect("it can be read");
    let (hosts, routes) = seven_hosts(&text("platform_simulacrum_7_hosts.xml"));
    let graph = load(folder.join("Montage_25.xml"), None, &LoadOptions::default());
    let graph = graph.expect("it is a graph");
    let printed = decisions(&text("expected_dag-scheduling.txt"));
    assert_eq!((hosts.len(), printed.len()), (7, graph.len() + 1));
    let wakes_s: Vec<f64> = printed.iter().map(|(at_s, ..)| *at_s).collect();
    let problem = montage(&graph, &wakes_s, &hosts);
    let names: Vec<String> = graph.indices().map(|task| graph.task_name(task)).collect();
    let task_of = |name: &str| match name {
        "end" => graph.len() + 1,
        _ => names.iter().position(|it| it.contains(name)).expect("it is there"),
    };
    let host_of = |name: &str| hosts.iter().position(|(host, _)| host == name).expect("it is");
    let decided = printed
        .iter()
        .map(|(at_s, task, host)| ((at_s * 1e9).round() as u64, task_of(task), host_of(host)));
    let mut replay = Replay {
        decisions: std::iter::once((0, graph.len(), 0)).chain(decided).collect(),
        first_wake: graph.len() + 2,
        happened_ns: Vec::new(),
    };
    let ran = run(&problem, &Options::new(Wiring::Routed(routes)), &mut replay).expect("it ends");
    println!("{:.6} s, SimGrid {MAKESPAN_S} s", ran.makespan_ns as f64 / 1e9);
    for (at_s, task, _) in &printed {
        let latency_s = 100e-6 * LATENCY_FACTOR;
        let near = replay.happened_ns.iter().chain(&[0]).any(|&ns| {
            (0..4).any(|links| {
                let it_s = ns as f64 / 1e9 + f64::from(links) * latency_s;
                (it_s - at_s).abs() <= 1e-6 * at_s.max(2.0)
            })
        });
        println!("{at_s:10.6} {task} {}", if near { "" } else { "unlike" });
        assert!(near, "{task} was decided upon at {at_s} s, when nothing happened here");
    }
    assert!(same(ran.makespan_ns, MAKESPAN_S));
}
