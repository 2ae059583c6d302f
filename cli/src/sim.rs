//! `starling sim`: a workflow on simulated nodes, with the report of a real run.

mod global;

use std::path::PathBuf;

use ::sim::{NetworkModel, Service, Simulation, SimulationOptions, Submit};
use analysis::{Cluster, LowerBounds, Network, PaperBound, PaperModel, RunReport};
use clap::{Args, ValueEnum};
use proto::Span;
use serde::Serialize;
use workloads::{Graph, Placement};

use crate::args::{LoadArgs, PlacementName, SubmitTo};
use crate::errors::{Done, Exit, Failure, plain};
use crate::run::check_fit;
use crate::tuning::TuningArgs;
use crate::units::Timespan;
use crate::workload::load;
use crate::{Context, story, summary, units};

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
    /// Transfers share each node's card fairly, or take their own time each
    #[arg(long, value_enum, default_value_t = NetworkName::Maxmin)]
    network: NetworkName,
    /// One way between two nodes, and between the client and a node
    #[arg(long, value_name = "DURATION", default_value = "100us")]
    latency: Timespan,
    /// Service times: a file made by 'starling bench calibrate', or zero [default: built in]
    #[arg(long, value_name = "FILE|zero")]
    service: Option<PathBuf>,
    /// The run is a function of its seed
    #[arg(long, value_name = "K", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    global: global::GlobalArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum NetworkName {
    /// Max-min fair sharing of full-duplex cards
    Maxmin,
    /// Latency and bandwidth for each transfer alone
    #[value(alias = "simple")]
    Flat,
}

/// The report of a run, and what only a simulator knows.
#[derive(Serialize)]
struct Shown<'r> {
    #[serde(flatten)]
    report: &'r RunReport,
    simulated: Simulated,
}

#[derive(Serialize)]
struct Simulated {
    seed: u64,
    network: &'static str,
    bandwidth_bytes_per_s: f64,
    latency_s: f64,
    /// When and on what the service times were measured.
    service: String,
    packets: u64,
    steps: u64,
    cpu_us_per_task: f64,
    /// Time the nodes' loops were busy: mean over the nodes, and the busiest.
    loop_busy_s: f64,
    loop_busy_max_s: f64,
}

pub(crate) fn run(context: &Context, args: &SimArgs) -> Done {
    let graph = load(context, &args.workflow, &args.load)?;
    if let Some(name) = args.global.scheduler {
        return global::run(context, args, &graph, name);
    }
    let options = options(context, args)?;
    check_fit(&graph, options.slots)?;
    let simulation = simulate(&graph, &options)?;
    let report = simulation.report();
    if context.output.json {
        context.output.json(&Shown { report: &report, simulated: told(&simulation, &options) })?;
    } else {
        context.output.bytes(text(&report, &told(&simulation, &options)).as_bytes())?;
    }
    Ok(if report.tasks.done == report.tasks.total { Exit::Ok } else { Exit::Failed })
}

/// Runs it, and fills in what the simulator itself cost and what cannot be beaten.
pub(crate) fn simulate(graph: &Graph, options: &SimulationOptions) -> Result<Simulation, Failure> {
    let mut simulation = ::sim::simulate(graph, options).map_err(|violation| {
        Failure::new(Exit::Failed, format!("the simulation broke off: {violation}"))
    })?;
    let slots = options.nodes.saturating_mul(options.slots);
    let facts = &mut simulation.facts;
    facts.client_cpu = story::own_cpu();
    facts.client_peak_rss_bytes = story::own_peak_rss_bytes();
    let cluster = Cluster::new(options.nodes, options.slots, network(&options.network));
    facts.bound_lower_s = LowerBounds::of(graph, &cluster).lower().as_secs_f64();
    facts.bound_paper_s = PaperBound::of(graph, &PaperModel::on(slots)).timespan_s;
    Ok(simulation)
}

/// The simulated network, as bounds count on it.
fn network(model: &NetworkModel) -> Network {
    match *model {
        NetworkModel::Flat { latency, bytes_per_s } => Network::Flat { bytes_per_s, latency },
        NetworkModel::MaxMin { latency, bytes_per_s } => Network::Shared { bytes_per_s, latency },
    }
}

fn options(context: &Context, args: &SimArgs) -> Result<SimulationOptions, Failure> {
    let settings = &context.settings;
    let nodes: u32 = settings.pick(args.nodes, "nodes")?;
    let slots: u32 = settings.pick_optional(args.slots, "slots")?.unwrap_or(1);
    let tuning = args.tuning.resolve(context)?;
    let latency = Span(u64::try_from(args.latency.0.as_nanos()).unwrap_or(u64::MAX));
    let bytes_per_s = tuning.bandwidth_bytes_per_s;
    let network = match args.network {
        NetworkName::Maxmin => NetworkModel::MaxMin { latency, bytes_per_s },
        NetworkName::Flat => NetworkModel::Flat { latency, bytes_per_s },
    };
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
        ..SimulationOptions::new(nodes, slots)
    })
}

fn service(args: &SimArgs) -> Result<Service, Failure> {
    let Some(path) = &args.service else { return Ok(Service::default()) };
    if path.as_os_str() == "zero" {
        return Ok(Service::zero());
    }
    let text = std::fs::read_to_string(path).map_err(|error| {
        Failure::refused(format!("{}: {}", path.display(), plain(&error)))
            .hint("name a file made by 'starling bench calibrate -o FILE', or zero")
    })?;
    Service::parse(&text).map_err(|error| Failure::refused(format!("{}: {error}", path.display())))
}

fn told(simulation: &Simulation, options: &SimulationOptions) -> Simulated {
    let tasks = simulation.facts.tasks.max(1) as f64;
    let busy = || simulation.loop_busy.iter().map(|busy| busy.as_secs_f64());
    Simulated {
        seed: options.seed,
        network: options.network.name(),
        bandwidth_bytes_per_s: options.network.bytes_per_s(),
        latency_s: options.network.latency().as_secs_f64(),
        service: options.service.label(),
        packets: simulation.packets,
        steps: simulation.steps,
        cpu_us_per_task: simulation.facts.client_cpu.as_secs_f64() * 1e6 / tasks,
        loop_busy_s: busy().sum::<f64>() / simulation.loop_busy.len() as f64,
        loop_busy_max_s: busy().fold(0.0, f64::max),
    }
}

fn text(report: &RunReport, told: &Simulated) -> String {
    let mut text = summary::text(report);
    let mut row = |key: &str, value: String| text.push_str(&format!("{key:12} {value}\n"));
    row(
        "network",
        format!(
            "{}, {}/s a node, latency {}",
            told.network,
            units::bytes(told.bandwidth_bytes_per_s as u64),
            units::seconds(told.latency_s)
        ),
    );
    row("service", told.service.clone());
    row(
        "nodes' loops",
        format!(
            "{} busy each, {} the busiest, {} packets",
            units::seconds(told.loop_busy_s),
            units::seconds(told.loop_busy_max_s),
            units::count(told.packets)
        ),
    );
    row("simulator", format!("{:.1} us of CPU a task", told.cpu_us_per_task));
    text
}
