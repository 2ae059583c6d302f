/*!
`starling eval paper`: repeats the paper's evaluation with one command. (`starling eval scale` is in
[`scaling`].)

[`EXPERIMENTS`] lists for each figure its points and its presentation. The points are command lines
of this program: the simulator, real runs, benchmarks, bounds. Points that figures share are run
once. One table lists all claims and whether they hold.

This module decides and measures nothing itself: every number is from the report of a listed
command.
*/

mod all_pairs;
mod dags;
mod field;
mod fig12;
mod launch;
mod noop;
mod overlap;
mod paper;
mod point;
mod policies;
mod ranking;
mod results;
mod scale;
mod scaling;
mod section;
mod stacking;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use analysis::chart::{Page, Table};
use clap::{Args, Subcommand};
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure};
use verb::units;

use self::point::{FigureSource, Point};
use self::results::{Outcome, Results, add_runs};
use self::scale::Scale;
use self::section::{Section, Verdict};

/// The time limit of a single run.
const PATIENCE: Duration = Duration::from_secs(600);

#[derive(Args, Debug)]
pub struct EvalArgs {
    #[command(subcommand)]
    what: EvalTarget,
}

#[derive(Subcommand, Debug)]
enum EvalTarget {
    /// The figures of the paper beside those of Starling: tables, CSV and one page with all charts
    Paper(PaperArgs),
    /// Weak scaling from one node to 100,000: where it breaks, and why; one page with all charts
    Scale(scaling::ScaleArgs),
}

#[derive(Args, Debug)]
struct PaperArgs {
    /// Directory for the page, the tables and the charts
    #[arg(short, long, value_name = "DIR", default_value = "starling-eval")]
    output: PathBuf,
    /// Only these figures, for example fig6a,table4
    #[arg(long, value_name = "FIGURES", value_delimiter = ',')]
    only: Vec<String>,
    /// Fractions of the scale: about a minute
    #[arg(long)]
    quick: bool,
    /// Skip everything that needs real node processes
    #[arg(long)]
    skip_real: bool,
    /// The first seed
    #[arg(long, value_name = "K", default_value_t = 1)]
    seed: u64,
    /// A folder of recorded workflows (WfFormat) [default: none, and they are left out]
    #[arg(long, value_name = "DIR")]
    workflows: Option<PathBuf>,
    /// Use existing reports of single runs in the output
    #[arg(long)]
    reuse: bool,
    /// Write the run record of each run into the output, which 'starling report --from FILE' shows
    #[arg(long)]
    records: bool,
}

/// The definition of a figure.
struct Experiment {
    id: &'static str,
    /// The points of the figure, each with the number of its repeats.
    points: fn(&Scale) -> Vec<(Point, u32)>,
    tell: fn(&Scale, &Results) -> Section,
}

const EXPERIMENTS: [Experiment; 12] = [
    Experiment { id: "fig5a", points: stacking::points_5a, tell: stacking::tell_5a },
    Experiment { id: "fig5b", points: stacking::points_5b, tell: stacking::tell_5b },
    Experiment { id: "fig6a", points: all_pairs::points_6a, tell: all_pairs::tell_6a },
    Experiment { id: "fig6b", points: all_pairs::points_6b, tell: all_pairs::tell_6b },
    Experiment { id: "fig7", points: all_pairs::points_7, tell: all_pairs::tell_7 },
    Experiment { id: "fig8", points: all_pairs::points_8, tell: all_pairs::tell_8 },
    Experiment { id: "fig9b", points: dags::points_9b, tell: dags::tell_9b },
    Experiment { id: "fig11", points: dags::points_11, tell: dags::tell_11 },
    Experiment { id: "fig12", points: fig12::points, tell: fig12::tell },
    Experiment { id: "table4", points: dags::points_table4, tell: dags::tell_table4 },
    Experiment { id: "fig13", points: noop::points, tell: noop::tell },
    Experiment { id: "field", points: field::points, tell: field::tell },
];
/// These experiments need more than the scale.
const RECORDED_ID: &str = "recorded";
const RANKING_ID: &str = "ranking";
const OVERLAP_ID: &str = "overlap";

/// Runs `starling eval`.
pub fn run(context: &Context, args: &EvalArgs) -> Done {
    match &args.what {
        EvalTarget::Paper(args) => run_paper(context, args),
        EvalTarget::Scale(args) => scaling::run(context, args),
    }
}

fn run_paper(context: &Context, args: &PaperArgs) -> Done {
    let evaluation = Evaluation::new(args)?;
    if let Some(text) = evaluation.left_out(args.workflows.as_deref()) {
        context.output.note(&format!("note: {text}"));
    }
    let began = Instant::now();
    let plan = launch::Plan {
        dir: args.output.clone(),
        reuse: args.reuse,
        records: args.records,
        first_seed: args.seed,
        patience: PATIENCE,
        budget: None,
    };
    let results = verb::block_on(launch::run(context, &plan, &evaluation.points()))?;
    let sections = evaluation.tell(&results);
    let took_s = began.elapsed().as_secs_f64();
    write(&args.output, args, &evaluation, &sections, &results, took_s)?;
    let table = claims(&sections);
    if context.output.json {
        context.output.json(&EvaluationReport::new(args, &sections, &results, took_s))?;
    } else {
        context.output.bytes(table.markdown().as_bytes())?;
    }
    let page = args.output.join("index.html");
    context.output.note(&format!("{}: {}", units::seconds(took_s), page.display()));
    let failed = results.all().any(|outcome| outcome.report.is_err());
    Ok(if failed { Exit::Failed } else { Exit::Ok })
}

/// The selected figures and their scale.
struct Evaluation {
    scale: Scale,
    only: Vec<String>,
    skip_real: bool,
    recorded: Vec<PathBuf>,
}

impl Evaluation {
    fn new(args: &PaperArgs) -> Result<Self, Failure> {
        let known: Vec<&str> = EXPERIMENTS
            .iter()
            .map(|experiment| experiment.id)
            .chain([RECORDED_ID, RANKING_ID, OVERLAP_ID])
            .collect();
        if let Some(name) = args.only.iter().find(|name| !known.contains(&name.as_str())) {
            return Err(Failure::usage(format!("--only: no figure '{name}'"))
                .hint(format!("known are {}", known.join(", "))));
        }
        let scale = if args.quick { Scale::quick(args.seed) } else { Scale::full(args.seed) };
        if let Some(folder) = args.workflows.as_ref().filter(|folder| !folder.is_dir()) {
            return Err(Failure::refused(format!("{}: no such folder", folder.display()))
                .hint("--workflows takes a folder with WfFormat files"));
        }
        let folder = args.workflows.as_deref();
        let recorded =
            folder.map_or_else(Vec::new, |folder| field::recorded(folder, scale.recorded_max));
        Ok(Self { scale, only: args.only.clone(), skip_real: args.skip_real, recorded })
    }

    /// Why wanted recorded workflows are left out, if they are.
    fn left_out(&self, folder: Option<&Path>) -> Option<String> {
        let is_wanted = self.wants(RECORDED_ID) || self.wants(RANKING_ID);
        if !is_wanted || !self.recorded.is_empty() {
            return None;
        }
        let reason = match folder {
            Some(folder) => format!("{} has none", folder.display()),
            None => "no folder is given with --workflows".to_owned(),
        };
        Some(format!("without recorded workflows: {reason}"))
    }

    fn wants(&self, id: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|name| name == id)
    }

    /// Every point once, with the maximum of repeats that a figure wants.
    fn points(&self) -> BTreeMap<Point, u32> {
        let mut points: BTreeMap<Point, u32> = BTreeMap::new();
        let wanted = EXPERIMENTS.iter().filter(|experiment| self.wants(experiment.id));
        let mut all: Vec<(Point, u32)> =
            wanted.flat_map(|experiment| (experiment.points)(&self.scale)).collect();
        if self.wants(RECORDED_ID) {
            all.extend(field::recorded_points(&self.scale, &self.recorded));
        }
        if self.wants(RANKING_ID) {
            all.extend(ranking::points(&self.scale, &self.recorded));
        }
        if self.wants(OVERLAP_ID) && !self.skip_real {
            all.extend(overlap::points(&self.scale));
        }
        for (point, repeats) in all {
            if point.arm == FigureSource::Real && self.skip_real {
                continue;
            }
            let known = points.entry(point).or_default();
            *known = (*known).max(repeats);
        }
        points
    }

    fn tell(&self, results: &Results) -> Vec<Section> {
        let wanted = EXPERIMENTS.iter().filter(|experiment| self.wants(experiment.id));
        let mut sections: Vec<Section> =
            wanted.map(|experiment| (experiment.tell)(&self.scale, results)).collect();
        if self.wants(RECORDED_ID) {
            sections.push(field::tell_recorded(results, &self.recorded));
        }
        if self.wants(RANKING_ID) {
            sections.push(ranking::tell(&self.scale, results, &self.recorded));
        }
        if self.wants(OVERLAP_ID) && !self.skip_real {
            sections.push(overlap::tell(&self.scale, results));
        }
        sections
    }
}

/// The table of claims.
fn claims(sections: &[Section]) -> Table {
    let header = ["figure", "what", "paper", "asked", "ours", "verdict"];
    let rows = sections.iter().flat_map(|section| {
        section.claims.iter().map(move |claim| {
            [
                section.id.to_owned(),
                claim.what.clone(),
                claim.paper.clone(),
                claim.asked.clone(),
                claim.ours.clone(),
                claim.verdict.word().to_owned(),
            ]
        })
    });
    rows.fold(Table::new(&header), |table, row| table.row(&row))
}

fn write(
    dir: &Path,
    args: &PaperArgs,
    evaluation: &Evaluation,
    sections: &[Section],
    results: &Results,
    took_s: f64,
) -> Result<(), Failure> {
    let mut files: Vec<(String, String)> = sections.iter().flat_map(Section::files).collect();
    files.push(("claims.csv".to_owned(), claims(sections).csv()));
    files.push(("index.html".to_owned(), page(args, evaluation, sections, results, took_s)));
    let tables: Vec<String> = sections.iter().map(Section::markdown).collect();
    files.push(("tables.md".to_owned(), claims(sections).markdown() + "\n" + &tables.join("\n")));
    let json = serde_json::to_string(&EvaluationReport::new(args, sections, results, took_s))
        .expect("numbers and strings always serialise");
    files.push(("results.json".to_owned(), json + "\n"));
    for (name, text) in files {
        let path = dir.join(name);
        std::fs::write(&path, text).map_err(|error| Failure::file(&path, &error))?;
    }
    Ok(())
}

fn page(
    args: &PaperArgs,
    evaluation: &Evaluation,
    sections: &[Section],
    results: &Results,
    took_s: f64,
) -> String {
    let outcomes: Vec<&Outcome> = results.all().collect();
    let reused = outcomes.iter().filter(|outcome| outcome.reused).count();
    let failed = outcomes.iter().filter(|outcome| outcome.report.is_err()).count();
    let mut page = Page::new("The paper's evaluation, again")
        .text(
            "Wang et al., \"Load-balanced and locality-aware scheduling for data-intensive \
             workloads at extreme scales\": its figures beside ours. Simulated points run the very \
             code of the nodes under virtual time; real points are node processes on this machine.",
        )
        .list(&[
            format!("{}, {}", launch::date(), machine()),
            version(),
            format!("service times of simulated points: {}", sim::CostModel::default().label()),
            format!("command: {}", command(args)),
            format!("the default policy: {}", default_policy(results)),
            format!(
                "{} runs in {}; {failed} failed, {reused} taken from before",
                outcomes.len(),
                units::seconds(took_s)
            ),
            format!(
                "each figure: median over the repeats, with least and most where they differ; \
                 simulated points that a claim rests on have {} seeds, real ones {} runs",
                evaluation.scale.seeds, evaluation.scale.rounds
            ),
        ]);
    if args.quick {
        page = page.note("Quick: fractions of the paper's scale. These are not the results.");
    }
    if args.skip_real {
        page = page.note("Real processes were left out (--skip-real).");
    }
    page = page.heading("What was asked for").table(&claims(sections));
    for section in sections {
        page = section.put(page);
    }
    page = page.heading("What cannot be had, and why").list(&NOT_TO_BE_HAD);
    add_runs(page, &outcomes).html()
}

/// The limits of this evaluation.
const NOT_TO_BE_HAD: [&str; 5] = [
    "Kodiak itself (100 machines with 2 cores, 8 GB and 1 GbE each) is not at our disposal: its \
     nodes and network are simulated at the paper's scale, under the nodes' own code; the paper \
     does not give the latency of its network, which is assumed.",
    "64 machines for figure 13: there is one. Real rates are of up to 8 node processes that share \
     its CPUs, so what is compared is the CPU time of a task; the rate on 64 is simulated.",
    "Falkon (data diffusion), Sparrow and CloudKon: they were not run, as neither the versions that \
     the paper compares with nor their clusters are here; its figures for them stand beside ours \
     and were measured on other machines.",
    "The numbers of the paper's curves (figures 5a, 6b, 7, 8, 9b and 11): its text quotes only single \
     ones, and those are shown. Files per locality of image stacking are recalled, not verified.",
    "The form of the bound behind table 4 and figure 12: the printed one does not give the published \
     figures, and no reading of it that was tried gives all four.",
];

/// The program that made the page, with the commit if the build has it.
fn version() -> String {
    let version = env!("CARGO_PKG_VERSION");
    match option_env!("STARLING_COMMIT") {
        Some(commit) => format!("starling {version}, commit {commit}"),
        None => format!("starling {version}"),
    }
}

fn command(args: &PaperArgs) -> String {
    let mut words = vec!["starling eval paper".to_owned()];
    if !args.only.is_empty() {
        words.push(format!("--only {}", args.only.join(",")));
    }
    for (given, flag) in [
        (args.quick, "--quick"),
        (args.skip_real, "--skip-real"),
        (args.reuse, "--reuse"),
        (args.records, "--records"),
    ] {
        if given {
            words.push(flag.to_owned());
        }
    }
    if args.seed != 1 {
        words.push(format!("--seed {}", args.seed));
    }
    if let Some(folder) = &args.workflows {
        words.push(format!("--workflows {}", folder.display()));
    }
    words.join(" ")
}

/// The policy of a simulated run without policy flags.
fn default_policy(results: &Results) -> String {
    let is_plain = |outcome: &&Outcome| {
        outcome.arm == FigureSource::Simulated && !outcome.command.contains("--policy")
    };
    let mut plain = results.all().filter(is_plain);
    let policy = plain.find_map(|outcome| outcome.report.as_ref().ok()?.get("policy")?.as_str());
    policy.unwrap_or("not run").to_owned()
}

/// The machine, as its kernel describes it.
fn machine() -> String {
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find_map(|line| line.strip_prefix("model name"));
    let model = model.map_or("", |line| line.trim_start_matches(['\t', ' ', ':']));
    let load = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    let load = load.split_whitespace().next().unwrap_or("unknown");
    format!("{cpus} CPUs ({model}), load average {load} at the end")
}

/// The evaluation as JSON.
#[derive(Serialize)]
struct EvaluationReport<'a> {
    schema: u32,
    date: String,
    machine: String,
    command: String,
    took_s: f64,
    claims: Vec<ClaimReport<'a>>,
    met: usize,
    missed: usize,
    runs: Vec<&'a Outcome>,
}

#[derive(Serialize)]
struct ClaimReport<'a> {
    figure: &'a str,
    what: &'a str,
    paper: &'a str,
    asked: &'a str,
    ours: &'a str,
    verdict: &'static str,
}

impl<'a> EvaluationReport<'a> {
    fn new(args: &PaperArgs, sections: &'a [Section], results: &'a Results, took_s: f64) -> Self {
        let all = || sections.iter().flat_map(|section| &section.claims);
        let count = |verdict| all().filter(|claim| claim.verdict == verdict).count();
        let claim = |section: &'a Section| {
            section.claims.iter().map(move |claim| ClaimReport {
                figure: section.id,
                what: &claim.what,
                paper: &claim.paper,
                asked: &claim.asked,
                ours: &claim.ours,
                verdict: claim.verdict.word(),
            })
        };
        Self {
            schema: 1,
            date: launch::date(),
            machine: machine(),
            command: command(args),
            took_s,
            claims: sections.iter().flat_map(claim).collect(),
            met: count(Verdict::Met),
            missed: count(Verdict::Missed),
            runs: results.all().collect(),
        }
    }
}
