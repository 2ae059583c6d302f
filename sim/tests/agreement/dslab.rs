//! Comparison with DSLab's own runs of its schedulers (`dag-demo`, direct transfers).

use std::collections::BTreeMap;

use sim::baselines::{
    Dls, Heft, Loads, Maker, ObjectSpec, Options, Problem, Reading, Routes, Scheduler, Wiring,
    WorkerSpec, run,
};
use workloads::{Graph, LoadOptions, load};

use crate::data;

/// A cluster of DSLab's: cores and speeds in Gflop/s; all links have 1000 MB/s and 100 us.
pub(crate) fn workers(system: &str) -> Option<Vec<WorkerSpec>> {
    let list: &[(u32, f64)] = match system {
        "cluster-het-4-32cores.yaml" => &[(4, 10.0), (4, 20.0), (8, 15.0), (16, 5.0)],
        "cluster-het-8-128cores.yaml" => &[
            (8, 10.0),
            (8, 15.0),
            (8, 20.0),
            (8, 12.5),
            (16, 15.0),
            (16, 11.25),
            (32, 5.0),
            (32, 7.5),
        ],
        "cluster-hom-4-32cores.yaml" => &[(8, 10.0); 4],
        "cluster-hom-8-128cores.yaml" => &[(16, 10.0); 8],
        "single-1core.yaml" => &[(1, 10.0)],
        "single-32cores.yaml" => &[(32, 10.0)],
        "single-128cores.yaml" => &[(128, 10.0)],
        _ => return None,
    };
    Some(list.iter().map(|&(cores, speed)| WorkerSpec { cores, speed }).collect())
}

/// Lengths are those on a machine of 1 Gflop/s.
fn graph(dag: &str) -> Option<Graph> {
    let path = data::find(dag)?;
    let options = LoadOptions { flops_per_s: 1e9, ..LoadOptions::default() };
    let mut graph = load(path, None, &options).ok()?;
    if dag.ends_with(".xml") {
        // The times of a DAX file are those of DSLab's reference machine of 10 Gflop/s.
        graph.scale_durations(10.0);
    }
    Some(graph)
}

fn makespan_s(problem: &Problem, wiring: Wiring, scheduler: &mut dyn Scheduler) -> f64 {
    let ran = run(problem, &Options::new(wiring), scheduler).expect("it ends");
    ran.makespan_ns as f64 / 1e9
}

/// All machines share one link. DSLab sends an object once for each reading task, not once for each
/// worker, which matters here. So each reader has its own object.
#[test]
fn heft_and_dls_need_what_dslabs_need_over_one_link() {
    let system = |system: &str| system.strip_suffix("-shared.yaml").map(|it| format!("{it}.yaml"));
    let one_link = |machines: usize| {
        let pairs = |cell: f64| vec![vec![cell; machines]; machines];
        Wiring::Routed(Routes {
            capacity: vec![1e9],
            links: vec![vec![vec![0]; machines]; machines],
            latency_ns: vec![vec![100_000; machines]; machines],
            flow_max: pairs(f64::INFINITY),
            weight: pairs(1.0),
        })
    };
    rows_agree(system, one_link, one_object_for_each_reader);
}

/// Each row of HEFT and DLS on a network without contention.
#[test]
fn heft_and_dls_need_what_dslabs_need() {
    let alone = |_| Wiring::Flat { latency_ns: 100_000, bytes_per_s: 1e9 };
    rows_agree(|system| Some(system.to_owned()), alone, |_| ());
}

/// `system` returns the cluster of a row, or `None` to skip it. `wiring` returns a network for a
/// number of machines.
#[expect(clippy::print_stdout, reason = "called by tests only")]
fn rows_agree(
    system: impl Fn(&str) -> Option<String>,
    wiring: impl Fn(usize) -> Wiring,
    change: impl Fn(&mut Problem),
) {
    let Some(rows) = data::rows("dslab_reference/makespans.csv") else { return };
    let (mut seen, mut outside) = (0, Vec::new());
    for row in rows {
        let Some(workers) = system(&row[1]).and_then(|it| workers(&it)) else { continue };
        let reading = Reading::Dslab;
        type Both = (Box<dyn Scheduler>, Box<dyn Scheduler>);
        let (mut scheduler, mut as_printed): Both = match row[2].as_str() {
            "HEFT" => (Box::new(Heft { reading }), Box::new(Heft::default())),
            "DLS" => (Box::new(Dls { reading }), Box::new(Dls::default())),
            _ => continue,
        };
        let Some(graph) = graph(&row[0]) else { continue };
        let mut problem = Problem::of(&graph, workers, Loads::AtOrigin).expect("it fits");
        problem.returns_outputs = true;
        if row[0].ends_with(".json") {
            on_recorded_machines(&mut problem, &graph, &row[0]);
        }
        change(&mut problem);
        let wiring = wiring(problem.workers.len() + 1);
        let ours = makespan_s(&problem, wiring.clone(), scheduler.as_mut());
        let printed = makespan_s(&problem, wiring, as_printed.as_mut());
        let theirs: f64 = row[3].parse().expect("a time");
        let ratio = ours / theirs;
        println!(
            "{} {} {}: {ours:.2} {theirs:.2} {ratio:.4}; as in the paper {:.4}",
            row[0],
            row[1],
            row[2],
            printed / theirs
        );
        if (ratio - 1.0).abs() > 0.001 {
            outside.push(format!("{} {} {}: {ratio:.4}", row[0], row[1], row[2]));
        }
        seen += 1;
    }
    println!("{seen} rows");
    assert!(outside.is_empty(), "{outside:#?}");
}

/// DSLab assumes that a recorded time is that of the recorded machine: flops = s x GHz.
fn on_recorded_machines(problem: &mut Problem, graph: &Graph, dag: &str) {
    let path = data::find(dag).expect("looked for before");
    let text = std::fs::read_to_string(path).expect("it can be read");
    let file: serde_json::Value = serde_json::from_str(&text).expect("it is JSON");
    let machines = file["workflow"]["machines"].as_array().expect("machines").iter();
    let speeds: BTreeMap<&str, f64> = machines
        .map(|it| {
            (
                it["nodeName"].as_str().expect("as it was written"),
                it["cpu"]["speed"].as_f64().expect("as it was written") / 1e3,
            )
        })
        .collect();
    let tasks = file["workflow"]["tasks"].as_array().expect("tasks").iter();
    let flops: BTreeMap<&str, f64> = tasks
        .map(|it| {
            let speed = speeds[it["machine"].as_str().expect("as it was written")];
            (
                it["name"].as_str().expect("as it was written"),
                it["runtime"].as_f64().expect("as it was written") * speed,
            )
        })
        .collect();
    for task in &mut problem.tasks {
        task.length_ns = (flops[graph.task_name(task.name).as_str()] * 1e9).round() as u64;
    }
}

fn one_object_for_each_reader(problem: &mut Problem) {
    for number in 0..problem.objects.len() {
        while problem.objects[number].travels && problem.objects[number].readers.len() > 1 {
            let reader = problem.objects[number].readers.pop().expect("there are two");
            let copy = problem.objects.len() as u32;
            let readers = vec![reader];
            problem.objects.push(ObjectSpec { readers, ..problem.objects[number].clone() });
            if let Maker::Task(maker) = problem.objects[number].maker {
                problem.tasks[maker as usize].outputs.push(copy);
            }
            let inputs = &mut problem.tasks[reader as usize].inputs;
            let at = inputs.iter().position(|&input| input as usize == number);
            inputs[at.expect("it reads it")] = copy;
        }
    }
}
