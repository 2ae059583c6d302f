//! DSLab's own runs of its schedulers (`dag-demo`, direct transfers).

use std::collections::BTreeMap;

use sim::global::{
    Dls, Heft, Loads, Options, Problem, Reading, Scheduler, Wiring, WorkerSpec, run,
};
use workloads::{Graph, LoadOptions, load};

use crate::data;

/// A cluster of DSLab's: cores and speeds in Gflop/s; all have links of 1000 MB/s and 100 us.
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

/// Lengths are those of a machine of 1 Gflop/s.
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

fn makespan_s(problem: &Problem, scheduler: &mut dyn Scheduler) -> f64 {
    let wiring = Wiring::Flat { latency_ns: 100_000, bytes_per_s: 1e9 };
    let ran = run(problem, &Options::new(wiring), scheduler).expect("it ends");
    ran.makespan_ns as f64 / 1e9
}

/// Each row of HEFT and DLS on a network where transfers do not disturb one another.
#[test]
fn heft_and_dls_need_what_dslabs_need() {
    let Some(rows) = data::rows("dslab_reference/makespans.csv") else { return };
    let (mut seen, mut outside) = (0, Vec::new());
    for row in rows {
        let Some(workers) = workers(&row[1]) else { continue };
        let reading = Reading::Dslab;
        let mut scheduler: Box<dyn Scheduler> = match row[2].as_str() {
            "HEFT" => Box::new(Heft { reading }),
            "DLS" => Box::new(Dls { reading }),
            _ => continue,
        };
        let Some(graph) = graph(&row[0]) else { continue };
        let mut problem = Problem::of(&graph, workers, Loads::AtOrigin).expect("it fits");
        problem.returns_outputs = true;
        if row[0].ends_with(".json") {
            on_recorded_machines(&mut problem, &graph, &row[0]);
        }
        let ours = makespan_s(&problem, scheduler.as_mut());
        let theirs: f64 = row[3].parse().expect("a time");
        let ratio = ours / theirs;
        println!("{} {} {}: {ours:.2} {theirs:.2} {ratio:.4}", row[0], row[1], row[2]);
        if (ratio - 1.0).abs() > 0.01 {
            outside.push(format!("{} {} {}: {ratio:.4}", row[0], row[1], row[2]));
        }
        seen += 1;
    }
    println!("{seen} rows");
    assert!(outside.is_empty(), "{outside:#?}");
}

/// DSLab takes a recorded time for one of the machine that recorded it: flops = s x GHz.
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
