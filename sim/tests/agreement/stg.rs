//! Standard task graphs: 180 of them on 2, 4, 8 and 16 processors, with proven optima.

use std::collections::BTreeMap;

use analysis::{Cluster, LowerBounds, Network};
use proto::Span;
use scheduler::{Policy, Tuning};
use sim::baselines::{Loads, Options, Problem, SchedulerName, Wiring, run};
use sim::{CostModel, NetworkModel, SimulationOptions, simulate};
use workloads::{Graph, LoadOptions, Placement, load};

use crate::data;

const S_NS: f64 = 1e9;

/// A unit of time counts as a second. The optimum is between two whole numbers of units.
struct Row {
    graph: String,
    processors: u32,
    low: f64,
    high: f64,
}

fn reference() -> Option<Vec<Row>> {
    let rows = data::rows("stg/optimal.csv")?.into_iter();
    let row = |row: Vec<String>| Row {
        graph: format!("stg/{}", row[0]),
        processors: row[1].parse().expect("a number"),
        low: row[2].parse().expect("a number"),
        high: row[3].parse().expect("a number"),
    };
    Some(rows.map(row).collect())
}

fn graph(name: &str) -> Graph {
    let path = data::find(name).expect("it is there");
    load(path, None, &LoadOptions::default()).expect("it is a graph")
}

/// Our nodes when only tasks take time: one node with many slots, or many nodes with one.
fn nodes_s(graph: &Graph, nodes: u32, slots: u32, policy: Policy) -> f64 {
    let options = SimulationOptions {
        service: CostModel::zero(),
        placement: Placement::Graph,
        network: NetworkModel::Flat { latency: Span::ZERO, bytes_per_s: f64::INFINITY },
        tuning: Tuning { policy, ..Tuning::default() },
        ..SimulationOptions::new(nodes, slots)
    };
    simulate(graph, &options).expect("no demand is broken").makespan.as_secs_f64()
}

#[derive(Default)]
struct Ratios(BTreeMap<&'static str, (f64, f64, u32, u32)>);

impl Ratios {
    fn add(&mut self, name: &'static str, makespan: f64, row: &Row) {
        // Times are whole nanoseconds.
        assert!(makespan >= row.low - 1e-6, "{name} {} on {}", row.graph, row.processors);
        let ratio = makespan / row.high;
        let entry = self.0.entry(name).or_default();
        entry.0 += ratio;
        entry.1 = entry.1.max(ratio);
        entry.2 += u32::from(ratio < 1.001);
        entry.3 += 1;
    }

    #[expect(clippy::print_stdout, reason = "called by tests only")]
    fn print(&self) {
        for (name, (sum, most, optimal, of)) in &self.0 {
            let mean = sum / f64::from(*of);
            println!("{name:14} mean {mean:.4}, most {most:.3}, optimal {optimal} of {of}");
        }
    }
}

/// Every lower bound is at most the optimum, on all 720 pairs.
#[test]
fn no_lower_bound_is_above_an_optimum() {
    let Some(rows) = reference() else { return };
    let mut graphs: BTreeMap<String, Graph> = BTreeMap::new();
    let (mut equal, mut sum) = (0, 0.0);
    for row in &rows {
        let graph = graphs.entry(row.graph.clone()).or_insert_with(|| graph(&row.graph));
        let bounds = LowerBounds::of(graph, &Cluster::new(1, row.processors, Network::Free));
        for (name, bound) in bounds.named() {
            let bound = bound.0 as f64 / S_NS;
            assert!(bound <= row.high + 1e-9, "{name} {bound}: {} {}", row.graph, row.processors);
        }
        let lower = bounds.lower().0 as f64 / S_NS;
        sum += lower / row.high;
        // An optimum of whole units is at least the next whole number.
        equal += u32::from((lower - 1e-9).ceil() >= row.low);
    }
    println!("{} pairs: mean bound / optimum {:.4}", rows.len(), sum / rows.len() as f64);
    println!("the bound proves the optimum of {equal}");
    assert!(rows.is_empty() || equal as usize * 10 > rows.len() * 7);
}

/// List schedulers on all pairs: no makespan is below an optimum.
#[test]
fn list_schedulers_stay_at_or_above_the_optima() {
    let Some(rows) = reference() else { return };
    let mut graphs: BTreeMap<String, Graph> = BTreeMap::new();
    let mut ratios = Ratios::default();
    for row in &rows {
        let graph = graphs.entry(row.graph.clone()).or_insert_with(|| graph(&row.graph));
        let workers = Problem::alike(1, row.processors);
        let problem = Problem::of(graph, workers, Loads::OnWorkers).expect("it fits");
        let options = Options::new(Wiring::Flat { latency_ns: 0, bytes_per_s: 1e9 });
        for name in ["blevel", "tlevel", "dls", "etf", "mcp", "heft", "blevel-gt", "ws"] {
            let name = SchedulerName::parse(name).expect("there is one");
            let ran = run(&problem, &options, name.make().as_mut()).expect("it ends");
            ratios.add(name.name(), ran.makespan_ns as f64 / S_NS, row);
        }
    }
    ratios.print();
}

/// Our nodes on a ninth of the graphs; [`our_nodes_on_all`] runs all.
#[test]
fn our_nodes_stay_at_or_above_the_optima() {
    our_nodes(9);
}

#[test]
#[ignore = "all 180 graphs: some minutes"]
fn our_nodes_on_all() {
    our_nodes(1);
}

fn our_nodes(step: usize) {
    let Some(rows) = reference() else { return };
    let mut ratios = Ratios::default();
    let mut names: Vec<&str> = rows.iter().map(|row| row.graph.as_str()).collect();
    names.dedup();
    for name in names.into_iter().step_by(step) {
        let graph = graph(name);
        for row in rows.iter().filter(|row| row.graph == name) {
            let makespan = nodes_s(&graph, 1, row.processors, Tuning::default().policy);
            ratios.add("one node", makespan, row);
            let makespan = nodes_s(&graph, row.processors, 1, Tuning::default().policy);
            ratios.add("nodes, default", makespan, row);
            let makespan = nodes_s(&graph, row.processors, 1, Policy::Adaptive);
            ratios.add("nodes, adaptive", makespan, row);
        }
    }
    ratios.print();
}
