//! Comparison with Estee's own runs of its schedulers on its graphs.

use std::collections::BTreeMap;

use proto::Span;
use scheduler::{Policy, Tuning};
use sim::baselines::{Downloads, Loads, Options, Problem, SchedulerName, Wiring, run};
use sim::{CostModel, NetworkModel, SimulationOptions, simulate};
use workloads::{Graph, LoadOptions, Placement, load};

use crate::data;

const MIB: f64 = 1024.0 * 1024.0;

pub(crate) fn graph(name: &str) -> Graph {
    let path = data::find(name).expect("looked for before");
    let options = LoadOptions { recorded_cores: true, ..LoadOptions::default() };
    load(path, None, &options).expect("it is a graph")
}

pub(crate) fn options(network: &str) -> Options {
    let bytes_per_s = 128.0 * MIB;
    match network {
        "simple" => Options::new(Wiring::Flat { latency_ns: 0, bytes_per_s }),
        "maxmin" => Options {
            downloads: Downloads::FEW,
            ..Options::new(Wiring::MaxMin { latency_ns: 0, bytes_per_s })
        },
        other => panic!("no network {other}"),
    }
}

/// Our scheduler for Estee's name.
pub(crate) fn scheduler(name: &str) -> SchedulerName {
    let own = match name {
        "blevel" | "tlevel" | "dls" | "etf" | "mcp" | "tlevel-gt" => format!("{name}-estee"),
        _ => name.to_owned(),
    };
    SchedulerName::parse(&own).expect("each has its own")
}

/// One row of the reference: a cell of the study.
struct Row {
    file: String,
    cluster: String,
    network: String,
    scheduler: String,
    low_s: f64,
    high_s: f64,
}

fn reference() -> Option<Vec<Row>> {
    let rows = data::rows("estee/reference_makespans.csv")?.into_iter();
    let row = |mut row: Vec<String>| Row {
        low_s: row[5].parse().expect("a time"),
        high_s: row[6].parse().expect("a time"),
        scheduler: row.remove(4),
        network: row.remove(3),
        cluster: row.remove(1),
        file: row.remove(0),
    };
    Some(rows.map(row).collect())
}

impl Row {
    /// Our makespans in s by seed, sorted; one value without random choices.
    fn ours_s(&self, graph: &Graph, seeds: u64) -> Vec<f64> {
        let (workers, cores) = self.cluster.split_once('x').expect("8x4");
        let workers = Problem::alike(
            workers.parse().expect("as it was written"),
            cores.parse().expect("as it was written"),
        );
        let problem = Problem::of(graph, workers, Loads::OnWorkers).expect("it fits");
        let name = scheduler(&self.scheduler);
        let seeds = if name.draws() { seeds } else { 1 };
        let mut ours: Vec<f64> = (1..=seeds)
            .map(|seed| {
                let options = Options { seed, ..options(&self.network) };
                let ran = run(&problem, &options, name.make().as_mut()).expect("it ends");
                ran.makespan_ns as f64 / 1e9
            })
            .collect();
        ours.sort_by(f64::total_cmp);
        ours
    }
}

/// All 294 rows. A reference of three seeds is weak evidence for a random scheduler: one of its
/// rows may be a little outside. (`ws` on gridcat spreads by 25 %.)
#[test]
fn all_makespans_lie_where_estees_do() {
    const SEEDS: u64 = 5;
    let Some(rows) = reference() else { return };
    let mut graphs: BTreeMap<String, Graph> = BTreeMap::new();
    let mut inside: BTreeMap<(String, String), (u32, u32)> = BTreeMap::new();
    let mut outside = Vec::new();
    for row in &rows {
        let graph = graphs.entry(row.file.clone()).or_insert_with(|| graph(&row.file));
        let ours = row.ours_s(graph, SEEDS);
        let middle = ours[ours.len() / 2];
        let tally = inside.entry((row.network.clone(), row.scheduler.clone())).or_default();
        tally.1 += 1;
        if middle >= row.low_s * 0.95 && middle <= row.high_s * 1.05 {
            tally.0 += 1;
            continue;
        }
        let far = middle < row.low_s * 0.9 || middle > row.high_s * 1.1;
        assert!(!far && scheduler(&row.scheduler).draws(), "{}: {middle}", row.file);
        outside.push(format!(
            "{} {} {} {}: {middle:.1} of {:.1} to {:.1}, theirs {:.1} to {:.1}",
            row.file,
            row.cluster,
            row.network,
            row.scheduler,
            ours[0],
            ours[ours.len() - 1],
            row.low_s,
            row.high_s
        ));
    }
    for ((network, scheduler), (in_it, of)) in inside {
        println!("{network:7} {scheduler:10} {in_it:3} of {of:3} rows inside");
    }
    println!("outside: {outside:#?}");
    assert!(outside.len() <= 1, "{outside:#?}");
}

/// Our nodes on Montage, 8 x 4, flat network, beside the study's schedulers.
#[test]
fn our_nodes_stand_among_the_best_on_montage() {
    const FILE: &str = "estee/pegasus/montage.estee.json";
    let Some(rows) = reference() else { return };
    let graph = graph(FILE);
    let alike = |row: &&Row| row.file == FILE && row.cluster == "8x4" && row.network == "simple";
    let theirs: BTreeMap<&str, &Row> =
        rows.iter().filter(alike).map(|row| (row.scheduler.as_str(), row)).collect();
    for (name, row) in &theirs {
        println!("{name:10} {:6.1} to {:6.1}", row.low_s, row.high_s);
    }
    for policy in
        [Tuning::default().policy, Policy::Mdl, Policy::Flds, Policy::Adaptive, Policy::Eft]
    {
        let mut ours = ours_s(&graph, policy);
        ours.sort_by(f64::total_cmp);
        println!("{:10} {:6.1} to {:6.1}", policy.name(), ours[0], ours[ours.len() - 1]);
        let middle = ours[ours.len() / 2];
        assert!(middle <= theirs["ws"].high_s * 1.1, "{}: {middle}", policy.name());
        assert!(middle < theirs["dls"].low_s);
    }
}

/// Without service times and latency, as in the study.
fn ours_s(graph: &Graph, policy: Policy) -> Vec<f64> {
    let makespan = |seed| {
        let network = NetworkModel::Flat { latency: Span::ZERO, bytes_per_s: 128.0 * MIB };
        let options = SimulationOptions {
            seed,
            network,
            service: CostModel::zero(),
            placement: Placement::Graph,
            tuning: Tuning { policy, bandwidth_bytes_per_s: 128.0 * MIB, ..Tuning::default() },
            ..SimulationOptions::new(8, 4)
        };
        simulate(graph, &options).expect("no demand is broken").makespan.as_secs_f64()
    };
    (1..=5).map(makespan).collect()
}
