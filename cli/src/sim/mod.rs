//! `starling sim`: a workflow on simulated nodes, with the report of a real run.

mod global;
mod network;
mod record;
mod report;

use std::path::PathBuf;
use std::str::FromStr;

use ::sim::{CostModel, NetworkModel, NodeFailures, Simulation, SimulationOptions, Submit};
use analysis::{Cluster, LowerBounds, Network, PaperBound, PaperModel, RunReport};
use clap::Args;
use proto::Span;
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure, plain};
use verb::flags::tuning::TuningArgs;
use verb::flags::{DataKind, LoadArgs, PlacementName, SubmitTo};
use verb::units::Timespan;
use workloads::{Graph, Placement};

use self::network::NetworkChoice;
use self::report::Simulated;
use crate::common::summary;
use crate::views::reports;
use crate::views::submission::check_fit;
use crate::workload::{load, warn_without_durations};

#[derive(Args, Debug)]
pub(crate) struct SimArgs {
    /// A workflow file, or a generator such as bag:tasks=1000,duration=50ms
    workflow: String,
    /// Nodes of the cluster [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(proto::limits::NODES_MAX)))]
    nodes: Option<u32>,
    /// Executing threads of each node [default: 1]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(proto::limits::SLOTS_MAX)))]
    slots: Option<u32>,
    #[command(flatten)]
    tuning: TuningArgs,
    #[command(flatten)]
    load: LoadArgs,
    /// How tasks are spread over partitions [default: graph]
    #[arg(long)]
    placement: Option<PlacementName>,
    /// Nodes the tasks are submitted to: best (all), worst (one), or n1,n2 [default: best]
    #[arg(long, value_name = "WHERE")]
    submit: Option<SubmitTo>,
    /// Transfers share each node's card fairly (maxmin), or take their own time each (flat), or
    /// share the racks' links as well (tree:racks=32,oversubscription=4)
    #[arg(long, value_name = "MODEL", default_value = "maxmin")]
    network: NetworkChoice,
    /// One-way latency between two nodes, and between the client and a node
    #[arg(long, value_name = "DURATION", default_value = "100us")]
    latency: Timespan,
    /// Service times: a file made by 'starling bench calibrate', or zero [default: built in]
    #[arg(long, value_name = "FILE|zero")]
    service: Option<PathBuf>,
    /// Whether bytes are only moved, or written and read as well, at the cost measured on this
    /// machine
    #[arg(long, default_value = "virtual")]
    data: DataKind,
    /// Nodes that fail and return or pause, such as kill=2,pause=1; back=5s and for=2s are the
    /// durations [default: none, 1s each]
    #[arg(long, value_name = "SPEC")]
    faults: Option<Faults>,
    /// The run is a function of its seed
    #[arg(long, value_name = "K", default_value_t = 1)]
    seed: u64,
    /// Write the record of the run, which 'starling report --from FILE' shows
    #[arg(long, value_name = "FILE", conflicts_with = "scheduler")]
    record: Option<PathBuf>,
    #[command(flatten)]
    global: global::GlobalArgs,
}

/// The report of a run, with the figures that only a simulator has.
#[derive(Serialize)]
struct SimReport<'r> {
    #[serde(flatten)]
    report: &'r RunReport,
    simulated: Simulated,
}

pub(crate) fn run(context: &Context, args: &SimArgs) -> Done {
    let graph = load(context, &args.workflow, &args.load)?;
    warn_without_durations(context, &graph);
    if let Some(name) = args.global.scheduler {
        return global::run(context, args, &graph, name);
    }
    let options = options(context, args)?;
    check_fit(&graph, options.slots)?;
    let mut simulation = simulate(&graph, &options)?;
    let report = simulation.report();
    let collected = simulation.collected.take();
    let recorded = match (&args.record, collected) {
        (Some(path), Some(collected)) => {
            record::write(path, collected, (&graph, &options), simulation.facts.ended, &report)
        }
        _ => Ok(()),
    };
    let simulated = Simulated::new(&simulation, &report, &options);
    if context.output.json {
        context.output.json_with_schema(&SimReport { report: &report, simulated })?;
    } else {
        context.output.bytes(text(&report, &simulated).as_bytes())?;
    }
    // The report is there even if its record could not be written.
    recorded?;
    Ok(if report.tasks.done == report.tasks.total { Exit::Ok } else { Exit::Failed })
}

/// Runs the simulation, and adds its own cost and the bounds.
pub(crate) fn simulate(graph: &Graph, options: &SimulationOptions) -> Result<Simulation, Failure> {
    let mut simulation = ::sim::simulate(graph, options).map_err(|violation| {
        Failure::new(Exit::Failed, format!("the simulation stopped: {violation}"))
    })?;
    let slots = options.nodes.saturating_mul(options.slots);
    let facts = &mut simulation.facts;
    facts.client_cpu = reports::own_cpu();
    facts.client_peak_rss_bytes = reports::own_peak_rss_bytes();
    let cluster = Cluster::new(options.nodes, options.slots, network(&options.network));
    facts.bound_lower_s = LowerBounds::of(graph, &cluster).lower().as_secs_f64();
    facts.bound_paper_s = PaperBound::of(graph, &PaperModel::on(slots)).timespan_s;
    Ok(simulation)
}

/// The simulated network in the form for bounds.
fn network(model: &NetworkModel) -> Network {
    match *model {
        NetworkModel::Flat { latency, bytes_per_s } => Network::Flat { bytes_per_s, latency },
        // Links between racks only reduce the capacity of the cards.
        NetworkModel::MaxMin { latency, bytes_per_s }
        | NetworkModel::Tree { latency, bytes_per_s, .. } => {
            Network::Shared { bytes_per_s, latency }
        }
    }
}

fn options(context: &Context, args: &SimArgs) -> Result<SimulationOptions, Failure> {
    let settings = &context.settings;
    let nodes: u32 = settings.pick(args.nodes, "nodes")?;
    let slots: u32 = settings.pick_optional(args.slots, "slots")?.unwrap_or(1);
    let tuning = args.tuning.resolve(&context.settings)?;
    let latency = Span(u64::try_from(args.latency.0.as_nanos()).unwrap_or(u64::MAX));
    let bytes_per_s = tuning.bandwidth_bytes_per_s;
    let network = args.network.model(nodes, latency, bytes_per_s)?;
    let placement = match settings.pick(args.placement, "placement")? {
        PlacementName::Hash => Placement::Hash,
        PlacementName::Graph => Placement::Graph,
    };
    let submit = match settings.pick(args.submit.clone(), "submit")?.0 {
        client::Submit::Best => Submit::Best,
        client::Submit::Worst => Submit::Worst,
        client::Submit::Nodes(chosen) => {
            let mut known = std::collections::BTreeSet::new();
            if let Some(node) = chosen.iter().find(|it| it.0 >= nodes || !known.insert(it.0)) {
                let text = format!("--submit: no node {node} among {nodes}, or named twice");
                return Err(Failure::usage(text).hint("nodes are numbered from n0"));
            }
            Submit::Nodes(chosen)
        }
    };
    let service = service(args)?;
    Ok(SimulationOptions {
        seed: args.seed,
        tuning,
        placement,
        submit,
        network,
        service,
        real_data: args.data == DataKind::Real,
        node_failures: node_failures(args, nodes)?,
        collects: args.record.is_some(),
        ..SimulationOptions::new(nodes, slots)
    })
}

/// `--faults` in the simulator's form.
#[derive(Clone, Copy, Debug)]
struct Faults(NodeFailures);

impl FromStr for Faults {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let span = |text: &str| {
            let Timespan(span) = text.parse()?;
            Ok(Span(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
        };
        NodeFailures::parse(text, span).map(Self).map_err(|error| error.to_string())
    }
}

fn node_failures(args: &SimArgs, nodes: u32) -> Result<NodeFailures, Failure> {
    let node_failures = args.faults.map(|Faults(node_failures)| node_failures).unwrap_or_default();
    let struck = node_failures.kills.saturating_add(node_failures.pauses);
    if struck > nodes {
        let text = format!("--faults: {struck} faults for {nodes} nodes");
        return Err(Failure::usage(text).hint("each fault strikes another node"));
    }
    Ok(node_failures)
}

fn service(args: &SimArgs) -> Result<CostModel, Failure> {
    let Some(path) = &args.service else { return Ok(CostModel::default()) };
    if path.as_os_str() == "zero" {
        return Ok(CostModel::zero());
    }
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::refused(format!("{}: {}", path.display(), plain(&error)))
            .hint("name a file made by 'starling bench calibrate -o FILE', or zero")
    })?;
    CostModel::parse(&text)
        .map_err(|error| Failure::refused(format!("{}: {error}", path.display())))
}

fn text(report: &RunReport, told: &Simulated) -> String {
    let mut text = summary::text(report);
    for (key, value) in told.rows() {
        text.push_str(&format!("{key:12} {value}\n"));
    }
    text
}
