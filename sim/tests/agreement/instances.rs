//! WfInstances: recorded workflows on machines like those of the recordings.

use std::path::{Path, PathBuf};

use analysis::Bounds;
use proto::Span;
use scheduler::Tuning;
use sim::baselines::{Loads, Options, Problem, SchedulerName, Wiring, run};
use sim::{CostModel, NetworkModel, SimulationOptions, simulate};
use workloads::{Graph, LoadOptions, Placement, load};

use crate::data;

/// Larger ones take minutes.
const TASKS_MAX: usize = 320;

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    let entries = std::fs::read_dir(folder).expect("it can be read");
    for entry in entries {
        let path = entry.expect("it can be read").path();
        if path.is_dir() {
            files(&path, found);
        } else {
            found.push(path);
        }
    }
}

/// The number of machines in the file, and the least number of cores of any of them. Each machine
/// becomes a node with this number.
fn machines(path: &Path) -> Option<(u32, u32)> {
    let file: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()?;
    let list = ["/workflow/execution/machines", "/workflow/machines"];
    let machines = list.iter().find_map(|at| file.pointer(at))?.as_array()?;
    let cores = |machine: &serde_json::Value| {
        let cpu = machine.get("cpu")?;
        let count = cpu.get("coreCount").or_else(|| cpu.get("count"))?;
        count.as_u64()
    };
    let cores = machines.iter().filter_map(cores).min()?;
    Some((machines.len().max(1) as u32, (cores.max(1)) as u32))
}

/// No run is below the critical path, or below the work divided by all cores. Covers our nodes and
/// global schedulers.
#[test]
fn recorded_workflows_take_no_less_than_they_must() {
    let Some(folder) = data::find("wfinstances") else { return };
    let mut found = Vec::new();
    files(&folder, &mut found);
    found.sort();
    let mut seen = 0;
    for path in found {
        let name = path.file_name().expect("it is a file").to_string_lossy().into_owned();
        let Some((nodes, slots)) = machines(&path) else { continue };
        let Ok(graph) = load(&path, None, &LoadOptions::default()) else { continue };
        if graph.len() > TASKS_MAX {
            continue;
        }
        let lower = Bounds::of(&graph, nodes * slots).lower();
        let nodes_span = on_nodes(&graph, nodes, slots);
        assert!(nodes_span >= lower, "{name}: {nodes_span:?} below {lower:?}");
        let heft_span = globally(&graph, nodes, slots, SchedulerName::Heft);
        let ws_span = globally(&graph, nodes, slots, SchedulerName::WorkStealing);
        assert!(heft_span >= lower && ws_span >= lower, "{name}");
        let ratio = |span: Span| span.as_secs_f64() / lower.as_secs_f64().max(1e-9);
        println!(
            "{name:55} {nodes} x {slots:3}: nodes {:.3}, heft {:.3}, ws {:.3} of the bound",
            ratio(nodes_span),
            ratio(heft_span),
            ratio(ws_span)
        );
        seen += 1;
    }
    assert!(seen > 5, "only {seen} instances name their machines");
}

fn on_nodes(graph: &Graph, nodes: u32, slots: u32) -> Span {
    let options = SimulationOptions {
        service: CostModel::zero(),
        placement: Placement::Graph,
        network: NetworkModel::MaxMin { latency: Span::ZERO, bytes_per_s: 1.25e9 },
        tuning: Tuning { bandwidth_bytes_per_s: 1.25e9, ..Tuning::default() },
        ..SimulationOptions::new(nodes, slots)
    };
    simulate(graph, &options).expect("no demand is broken").makespan
}

fn globally(graph: &Graph, nodes: u32, slots: u32, name: SchedulerName) -> Span {
    let problem = Problem::of(graph, Problem::alike(nodes, slots), Loads::OnWorkers);
    let options = Options::new(Wiring::MaxMin { latency_ns: 0, bytes_per_s: 1.25e9 });
    let ran = run(&problem.expect("it fits"), &options, name.make().as_mut()).expect("it ends");
    Span(ran.makespan_ns)
}
