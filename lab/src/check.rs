//! `starling check`: the simulator with faults and all checkers.

use std::collections::BTreeMap;
use std::time::Instant;

use clap::Args;
use proto::mutants::FoundBy;
use serde::Serialize;
use sim::{Mutant, Scenario};
use verb::Context;
use verb::errors::{Done, Exit, Failure};
use verb::flags::DataKind;
use verb::output::say;
use verb::units;

use crate::campaign::CampaignArgs;

#[derive(Args, Debug)]
pub struct CheckArgs {
    /// Number of seeds [default: 2000, or 1 with --seed]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: Option<u64>,
    /// The first seed
    #[arg(long, value_name = "K")]
    seed: Option<u64>,
    /// Plant a seeded bug; the check must find it and exit 1
    #[arg(long, value_name = "NAME", value_parser = parse_mutant)]
    mutant: Option<Mutant>,
    /// Threads [default: one for each CPU]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    threads: Option<u32>,
    /// Kill and stop real nodes while trees of known size run, instead of simulating
    #[arg(long, conflicts_with_all = ["seeds", "mutant", "threads"])]
    processes: bool,
    /// With --processes: kill at least this many nodes
    #[arg(long, requires = "processes", default_value_t = 20, value_name = "N")]
    kills: u64,
    /// With --processes: nodes of the cluster
    #[arg(long, requires = "processes", default_value_t = 3, value_name = "N",
        value_parser = clap::value_parser!(u32).range(1..=64))]
    nodes: u32,
    /// With --processes: replicas of each partition; with R of them up to R-1 nodes at a time lose
    /// their disks too, or stay away
    #[arg(long, requires = "processes", default_value_t = 1, value_name = "R",
        value_parser = verb::flags::replicas_parser())]
    replicas: u32,
    /// With --processes: the workload, a generator or a workflow file
    #[arg(
        long,
        requires = "processes",
        value_name = "WORKLOAD",
        default_value = "uts:tree=tiny,duration=5ms"
    )]
    workload: String,
    /// With --processes: write and move real bytes, and compare the kept files of each run with
    /// those of an undisturbed run
    #[arg(long, requires = "processes", default_value = "virtual")]
    data: DataKind,
}

/// Mutants that have other names now.
const FORMER_NAMES: [(&str, &str); 2] = [
    ("staged-for-good", "staged-never-requeued"),
    ("thief-tells-nobody", "thief-reports-to-no-owner"),
];

fn parse_mutant(text: &str) -> Result<Mutant, String> {
    let former = FORMER_NAMES.iter().find(|(former, _)| *former == text);
    let text = former.map_or(text, |(_, name)| name);
    let known = || Mutant::every().map(Mutant::name).collect::<Vec<_>>().join(", ");
    let found = Mutant::every().find(|mutant| mutant.name() == text);
    found.ok_or_else(|| format!("unknown mutant; known are {}", known()))
}

#[derive(Default, Serialize)]
struct Checked {
    seeds: u64,
    failed: Vec<FailedSeed>,
    faults: BTreeMap<&'static str, u64>,
    /// Keys of the store with a checked history, keys with too many operations for a check, and
    /// keys for which the search for an order was given up.
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
    /// `None` in a scenario.
    #[serde(skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    #[serde(rename = "story", skip_serializing_if = "Option::is_none")]
    scenario: Option<&'static str>,
    checker: String,
    message: String,
}

impl FailedSeed {
    fn text(&self) -> String {
        let (checker, message) = (&self.checker, &self.message);
        match (self.seed, self.scenario) {
            (_, Some(scenario)) => format!("the scenario '{scenario}': {checker}: {message}"),
            (seed, None) => format!("seed {}: {checker}: {message}", seed.unwrap_or_default()),
        }
    }
}

pub fn run(context: &Context, args: &CheckArgs) -> Done {
    if args.processes {
        let campaign = CampaignArgs {
            seed: args.seed.unwrap_or(1),
            kills: args.kills,
            nodes: args.nodes,
            replicas: verb::local::plan::check_replicas(args.replicas, args.nodes)?,
            workload: &args.workload,
            real_data: args.data == DataKind::Real,
        };
        return crate::campaign::run(context, campaign);
    }
    // With given seeds those are run.
    if let Some(mutant) = args.mutant.filter(|_| args.seed.is_none() && args.seeds.is_none())
        && let Some(scenario) = Scenario::about(mutant)
    {
        return run_scenario(context, mutant, scenario);
    }
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let options = sim::CheckOptions {
        first_seed: args.seed.unwrap_or(1),
        seeds: args.seeds.unwrap_or_else(|| if args.seed.is_some() { 1 } else { 2000 }),
        mutant: args.mutant,
        threads: args.threads.map_or(cpus, |threads| threads as usize),
        stop_early: args.mutant.is_some(),
    };
    let began = Instant::now();
    let report = sim::check(&options);
    let took_s = began.elapsed().as_secs_f64().max(1e-9);
    let exit = if report.failed.is_empty() { Exit::Ok } else { Exit::Failed };
    let checked = Checked {
        seeds: report.seeds,
        failed: report
            .failed
            .into_iter()
            .map(|failed| FailedSeed {
                seed: Some(failed.seed),
                scenario: None,
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
    say_all(context, &checked)?;
    if let Some(mutant) = args.mutant.filter(|_| checked.failed.is_empty()) {
        say(&format!(
            "hint: {} was not found{}",
            mutant.name(),
            found_elsewhere(mutant).map_or_else(
                || ": more seeds may do it ('--seeds')".to_owned(),
                |command| format!("; '{command}' finds it")
            )
        ));
    }
    Ok(exit)
}

/// The command of the test that finds a bug which shows only in one component, and not in whole
/// clusters.
fn found_elsewhere(mutant: Mutant) -> Option<&'static str> {
    match mutant.found_by() {
        FoundBy::Simulator => None,
        FoundBy::NodeTests => Some("cargo test -p starling-node mutant_of_one_side"),
        FoundBy::HomeTests => Some("cargo test -p starling-scheduler mutant_of_one_home"),
        FoundBy::TakeOverTests => Some("cargo test -p starling-scheduler mutant"),
    }
}

/// Runs the scenario of a mutant that seeds rarely show.
fn run_scenario(context: &Context, mutant: Mutant, scenario: Scenario) -> Done {
    let ended = scenario.run(Some(mutant));
    let failed = ended.err().map(|violation| FailedSeed {
        seed: None,
        scenario: Some(scenario.name),
        checker: violation.checker.to_owned(),
        message: violation.message,
    });
    let is_found = failed.is_some();
    let checked = Checked {
        failed: failed.into_iter().collect(),
        mutant: Some(mutant.name()),
        ..Checked::default()
    };
    if context.output.json {
        say_all(context, &checked)?;
    } else {
        checked.failed.iter().for_each(|failed| say(&format!("error: {}", failed.text())));
        let finds = if is_found { "finds it" } else { "does not find it" };
        let text = format!("{}: the scenario '{}' {finds}\n", mutant.name(), scenario.name);
        context.output.bytes(text.as_bytes())?;
    }
    if !is_found {
        say("hint: seeds may do it ('--seed 1 --seeds 10000')");
    }
    Ok(if is_found { Exit::Failed } else { Exit::Ok })
}

fn say_all(context: &Context, checked: &Checked) -> Result<(), Failure> {
    for failed in &checked.failed {
        say(&format!("error: {}", failed.text()));
        if let Some(seed) = failed.seed {
            let mutant = checked.mutant.map_or_else(String::new, |it| format!(" --mutant {it}"));
            say(&format!("hint: 'starling check --seeds 1 --seed {seed}{mutant}' shows it again"));
        }
    }
    if context.output.json {
        context.output.json(checked)
    } else {
        context.output.bytes(text(checked).as_bytes())
    }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_mutant_has_a_name_of_its_own_and_one_way_to_be_found() {
        let mut names = BTreeSet::new();
        for mutant in Mutant::every() {
            let name = mutant.name();
            assert!(names.insert(name), "two mutants are called {name}");
            assert_eq!(parse_mutant(name), Ok(mutant));
            // `sim/tests/mutants.rs` demands that seeds or a scenario find each of these.
            let here = mutant.found_by() == FoundBy::Simulator;
            assert!(here || Scenario::about(mutant).is_none(), "{name}");
        }
        assert!(sim::SCENARIOS.iter().all(|scenario| names.contains(scenario.about.name())));
        for (former, name) in FORMER_NAMES {
            assert_eq!(parse_mutant(former).map(Mutant::name), Ok(name));
        }
        assert!(parse_mutant("no-such-bug").unwrap_err().contains("reads-unleased"));
    }
}
