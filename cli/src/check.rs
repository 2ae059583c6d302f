//! `starling check`: the simulator with faults and all checkers.

use std::collections::BTreeMap;
use std::time::Instant;

use clap::Args;
use scheduler::Mutant;
use serde::Serialize;

use crate::args::DataKind;
use crate::campaign::CampaignArgs;
use crate::errors::{Done, Exit};
use crate::output::say;
use crate::{Context, units};

#[derive(Args, Debug)]
pub(crate) struct CheckArgs {
    /// How many seeds [default: 2000, or 1 with --seed]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "K")]
    seed: Option<u64>,
    /// Plant a bug on purpose; the check must find it and exit 1
    #[arg(long, value_name = "NAME", value_parser = parse_mutant)]
    mutant: Option<Mutant>,
    /// Threads [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,
    /// Kill and stop real nodes while trees of known size run, instead of simulating
    #[arg(long, conflicts_with_all = ["seeds", "mutant", "threads"])]
    processes: bool,
    /// With --processes: kill at least so many nodes
    #[arg(long, requires = "processes", default_value_t = 20, value_name = "N")]
    kills: u64,
    /// With --processes: nodes of the cluster
    #[arg(long, requires = "processes", default_value_t = 3, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=64))]
    nodes: u32,
    /// With --processes: copies of each partition; with R of them up to R-1 nodes at a time lose
    /// their disks too, or stay away
    #[arg(long, requires = "processes", default_value_t = 1, value_name = "R",
        value_parser = crate::args::replicas_parser())]
    replicas: u32,
    /// With --processes: what runs, a generator or a workflow file
    #[arg(
        long,
        requires = "processes",
        value_name = "WORKLOAD",
        default_value = "uts:tree=tiny,duration=5ms"
    )]
    workload: String,
    /// With --processes: real bytes are written and moved, and what each run keeps is compared with
    /// what a run kept that nobody disturbed
    #[arg(long, requires = "processes", default_value = "virtual")]
    data: DataKind,
}

fn parse_mutant(text: &str) -> Result<Mutant, String> {
    let known = || Mutant::ALL.iter().map(|mutant| mutant.name()).collect::<Vec<_>>().join(", ");
    let found = Mutant::ALL.into_iter().find(|mutant| mutant.name() == text);
    found.ok_or_else(|| format!("unknown mutant; known are {}", known()))
}

#[derive(Serialize)]
struct Checked {
    seeds: u64,
    failed: Vec<FailedSeed>,
    faults: BTreeMap<&'static str, u64>,
    /// Keys of the store whose histories were to be checked, those with too many operations for
    /// that, and those where the search for an order was given up.
    keys: u64,
    keys_passed_over: u64,
    keys_undecided: u64,
    trace_hash: String,
    seeds_per_hour: f64,
    simulated_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    mutant: Option<&'static str>,
}

#[derive(Serialize)]
struct FailedSeed {
    seed: u64,
    checker: String,
    message: String,
}

pub(crate) fn run(context: &Context, args: &CheckArgs) -> Done {
    if args.processes {
        let campaign = CampaignArgs {
            seed: args.seed.unwrap_or(1),
            kills: args.kills,
            nodes: args.nodes,
            replicas: crate::embed::check_replicas(args.replicas, args.nodes)?,
            workload: &args.workload,
            real_data: args.data == DataKind::Real,
        };
        return crate::campaign::run(context, campaign);
    }
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let options = ::sim::CheckOptions {
        first_seed: args.seed.unwrap_or(1),
        seeds: args.seeds.unwrap_or_else(|| if args.seed.is_some() { 1 } else { 2000 }),
        mutant: args.mutant,
        threads: args.threads.map_or(cpus, |threads| threads as usize),
        stop_early: args.mutant.is_some(),
    };
    let began = Instant::now();
    let report = ::sim::check(&options);
    let took_s = began.elapsed().as_secs_f64().max(1e-9);
    let exit = if report.failed.is_empty() { Exit::Ok } else { Exit::Failed };
    let checked = Checked {
        seeds: report.seeds,
        failed: report
            .failed
            .into_iter()
            .map(|failed| FailedSeed {
                seed: failed.seed,
                checker: failed.checker,
                message: failed.message,
            })
            .collect(),
        faults: report.faults,
        keys: report.searched.keys,
        keys_passed_over: report.searched.passed_over,
        keys_undecided: report.searched.undecided,
        trace_hash: format!("{:016x}", report.trace_hash),
        seeds_per_hour: report.seeds as f64 / took_s * 3600.0,
        simulated_s: report.simulated.as_secs_f64(),
        mutant: args.mutant.map(Mutant::name),
    };
    for failed in &checked.failed {
        say(&format!("error: seed {}: {}: {}", failed.seed, failed.checker, failed.message));
    }
    if context.output.json {
        context.output.json(&checked)?;
    } else {
        context.output.bytes(text(&checked).as_bytes())?;
    }
    Ok(exit)
}

fn text(checked: &Checked) -> String {
    let faults: Vec<String> = checked
        .faults
        .iter()
        .map(|(kind, number)| format!("{} {kind}", units::count(*number)))
        .collect();
    format!(
        "{} seeds, {} failed\nsimulated    {}\nfaults       {}\n\
         keys         {} checked, {} passed over, {} undecided\n\
         rate         {} seeds an hour\n\
         trace hash   {}\n",
        units::count(checked.seeds),
        checked.failed.len(),
        units::seconds(checked.simulated_s),
        faults.join(", "),
        units::count(checked.keys - checked.keys_passed_over - checked.keys_undecided),
        units::count(checked.keys_passed_over),
        units::count(checked.keys_undecided),
        units::count(checked.seeds_per_hour as u64),
        checked.trace_hash,
    )
}
