//! `starling sim --scheduler`: the same workflow under a scheduler that sees everything, in a model
//! without nodes.

use std::str::FromStr;

use ::sim::baselines::{
    Downloads, GlobalRun, Info, Loads, Options, Problem, SchedulerName, Wiring, simulate_global,
};
use analysis::{Cluster, LowerBounds, Network, PaperBound, PaperModel, RunReport};
use clap::{Args, ValueEnum};
use proto::Span;
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure};
use verb::flags::DataKind;
use verb::units;
use verb::units::Timespan;
use workloads::Graph;

use super::SimArgs;
use super::network::NetworkChoice;
use crate::common::summary;
use crate::views::reports;

/// The decision time of a delayed scheduler, as in Estee's study.
const DECISION_BEHIND_MSD: Span = Span::from_millis(50);

#[derive(Args, Debug)]
pub(crate) struct GlobalArgs {
    /// A scheduler that sees the whole graph and cluster, instead of the nodes' own
    #[arg(long, value_name = "NAME", value_parser = scheduler_name,
        conflicts_with_all = ["policy", "placement", "submit", "service"])]
    pub(super) scheduler: Option<SchedulerName>,
    /// Advance knowledge of lengths and sizes: exact, one mean, or the user's declaration (or the
    /// mean of the kind)
    #[arg(long, value_enum, value_name = "MODE", default_value_t = InfoName::Exact,
        requires = "scheduler")]
    info: InfoName,
    /// Minimum interval between decisions [default: at every event]
    #[arg(long, value_name = "DURATION", requires = "scheduler")]
    msd: Option<Timespan>,
    /// Delay until a decision takes effect [default: 50ms with --msd, 0 without]
    #[arg(long, value_name = "DURATION", requires = "scheduler")]
    decision: Option<Timespan>,
    /// Objects a worker fetches at a time, and of those from one source: N/M, or unlimited
    /// [default: unlimited; 4/2 with --network maxmin]
    #[arg(long, value_name = "N/M", requires = "scheduler")]
    downloads: Option<DownloadsArg>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum InfoName {
    Exact,
    Mean,
    User,
}

fn scheduler_name(text: &str) -> Result<SchedulerName, String> {
    SchedulerName::parse(text).ok_or_else(|| {
        let known: Vec<&str> = SchedulerName::ALL.into_iter().map(SchedulerName::name).collect();
        format!("no such scheduler; there are {}", known.join(", "))
    })
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct DownloadsArg(Downloads);

impl FromStr for DownloadsArg {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "unlimited" {
            return Ok(Self(Downloads::UNLIMITED));
        }
        let (all, one) = text.split_once('/').unwrap_or((text, text));
        let number = |text: &str| match text.parse() {
            Ok(number) if number > 0 => Ok(number),
            _ => Err(format!("'{text}' is no number above 0; write 4/2, 4 or unlimited")),
        };
        Ok(Self(Downloads { at_once: number(all)?, per_source: number(one)? }))
    }
}

#[derive(Serialize)]
struct GlobalReport<'r> {
    #[serde(flatten)]
    report: &'r RunReport,
    simulated: Simulated,
}

/// The figures that only this simulator has.
#[derive(Serialize)]
struct Simulated {
    seed: u64,
    scheduler: &'static str,
    info: &'static str,
    msd_s: f64,
    decision_s: f64,
    network: &'static str,
    bandwidth_bytes_per_s: f64,
    latency_s: f64,
    /// The number of the scheduler's decisions.
    decisions: u64,
    transfers: u64,
    cpu_us_per_task: f64,
}

pub(super) fn run(context: &Context, args: &SimArgs, graph: &Graph, name: SchedulerName) -> Done {
    if matches!(args.network, NetworkChoice::Tree(_)) || args.faults.is_some() {
        return Err(Failure::usage("--scheduler supports neither racks nor faults")
            .hint("leave out --scheduler, or take --network maxmin or flat and no --faults"));
    }
    if args.data == DataKind::Real {
        return Err(Failure::usage("--scheduler does not support tasks with real bytes")
            .hint("leave out --scheduler, or take --data virtual"));
    }
    let settings = &context.settings;
    let nodes: u32 = settings.pick(args.nodes, "nodes")?;
    let slots: u32 = settings.pick_optional(args.slots, "slots")?.unwrap_or(1);
    let bytes_per_s = args.tuning.resolve(&context.settings)?.bandwidth_bytes_per_s;
    let latency = span(args.latency);
    let options = options(args, latency, bytes_per_s);
    let refuse = |error: String| Failure::refused(format!("{}: {error}", args.workflow));
    let problem = Problem::of(graph, Problem::alike(nodes, slots), Loads::OnWorkers)
        .map_err(|error| refuse(error.to_string()))?;
    let mut run = simulate_global(graph, &problem, &options, name)
        .map_err(|error| Failure::new(Exit::Failed, format!("the simulation stopped: {error}")))?;
    let network = match args.network {
        NetworkChoice::Maxmin | NetworkChoice::Tree(_) => Network::Shared { bytes_per_s, latency },
        NetworkChoice::Flat => Network::Flat { bytes_per_s, latency },
    };
    let cluster = Cluster::new(nodes, slots, network);
    let facts = &mut run.facts;
    facts.client_cpu = reports::own_cpu();
    facts.client_peak_rss_bytes = reports::own_peak_rss_bytes();
    facts.bound_lower_s = LowerBounds::of(graph, &cluster).lower().as_secs_f64();
    let model = PaperModel::on(nodes.saturating_mul(slots));
    facts.bound_paper_s = PaperBound::of(graph, &model).timespan_s;
    let (report, told) = (run.report(), told(&run, &options, name, bytes_per_s, latency));
    if context.output.json {
        context.output.json_with_schema(&GlobalReport { report: &report, simulated: told })?;
    } else {
        context.output.bytes(text(&report, &told).as_bytes())?;
    }
    Ok(Exit::Ok)
}

fn span(timespan: Timespan) -> Span {
    Span(u64::try_from(timespan.0.as_nanos()).unwrap_or(u64::MAX))
}

fn options(args: &SimArgs, latency: Span, bytes_per_s: f64) -> Options {
    let latency_ns = latency.0;
    let wiring = match args.network {
        NetworkChoice::Maxmin | NetworkChoice::Tree(_) => {
            Wiring::MaxMin { latency_ns, bytes_per_s }
        }
        NetworkChoice::Flat => Wiring::Flat { latency_ns, bytes_per_s },
    };
    let global = &args.global;
    let downloads = match (global.downloads, args.network) {
        (Some(DownloadsArg(downloads)), _) => downloads,
        (None, NetworkChoice::Maxmin | NetworkChoice::Tree(_)) => Downloads::FEW,
        (None, NetworkChoice::Flat) => Downloads::UNLIMITED,
    };
    let msd = global.msd.map_or(Span::ZERO, span);
    let held_back = if msd > Span::ZERO { DECISION_BEHIND_MSD } else { Span::ZERO };
    Options {
        wiring,
        downloads,
        info: match global.info {
            InfoName::Exact => Info::Exact,
            InfoName::Mean => Info::Mean,
            InfoName::User => Info::User,
        },
        msd,
        decision: global.decision.map_or(held_back, span),
        seed: args.seed,
    }
}

fn told(
    run: &GlobalRun,
    options: &Options,
    name: SchedulerName,
    bytes_per_s: f64,
    latency: Span,
) -> Simulated {
    Simulated {
        seed: options.seed,
        scheduler: name.name(),
        info: options.info.name(),
        msd_s: options.msd.as_secs_f64(),
        decision_s: options.decision.as_secs_f64(),
        network: options.wiring.name(),
        bandwidth_bytes_per_s: bytes_per_s,
        latency_s: latency.as_secs_f64(),
        decisions: run.ran.decisions,
        transfers: run.ran.transfers,
        cpu_us_per_task: run.facts.client_cpu.as_secs_f64() * 1e6 / run.facts.tasks.max(1) as f64,
    }
}

fn text(report: &RunReport, told: &Simulated) -> String {
    let mut text = summary::text(report);
    let mut row = |key: &str, value: String| text.push_str(&format!("{key:12} {value}\n"));
    row(
        "network",
        format!(
            "{}, {}/s a worker, latency {}, {} transfers",
            told.network,
            units::bytes(told.bandwidth_bytes_per_s as u64),
            units::seconds(told.latency_s),
            units::count(told.transfers)
        ),
    );
    let held_back = match told.msd_s > 0.0 {
        true => format!(", at most every {}", units::seconds(told.msd_s)),
        false => String::new(),
    };
    row(
        "scheduler",
        format!(
            "{} that knows {}, asked {}{held_back}",
            told.scheduler,
            match told.info {
                "exact" => "the truth",
                "mean" => "means",
                _ => "what users say",
            },
            units::number_of(told.decisions, "time")
        ),
    );
    row("simulator", format!("{:.1} us of CPU a task", told.cpu_us_per_task));
    text
}
