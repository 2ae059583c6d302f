/*!
`starling eval scale`: the limits of scaling, and their causes.

Weak scaling on simulated nodes, from one up to a given number. The curves show efficiency,
throughput and the share of the true lower bound. They cover the four benchmark DAGs, task lengths,
policies, and submission of everything to one node. Each point is one `starling sim`. Its report is
kept, so that an interrupted study continues. For each curve the page names the point at which it
breaks and the measured cause ([`causes`]).
*/

mod causes;
mod curves;

use std::path::PathBuf;
use std::time::{Duration, Instant};

use analysis::chart::Page;
use clap::Args;
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure};
use verb::units;
use verb::units::Timespan;

use self::curves::{FAMILIES, Family};
use super::launch;
use super::results::{Outcome, Results, add_runs};
use super::section::Section;

/// The time limit of a single run.
const PATIENCE: Duration = Duration::from_secs(3600);

#[derive(Args, Debug)]
pub(super) struct ScaleArgs {
    /// Directory for the page, the tables, the charts and the reports of single points
    #[arg(short, long, value_name = "DIR", default_value = "starling-scale")]
    output: PathBuf,
    /// Only these: lengths, policies, worst
    #[arg(long, value_name = "CURVES", value_delimiter = ',')]
    only: Vec<String>,
    /// Up to 1,000 nodes and two task lengths: within five minutes
    #[arg(long)]
    quick: bool,
    /// Clusters of at most this many nodes
    #[arg(long, value_name = "N", default_value_t = 100_000,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(proto::limits::NODES_MAX)))]
    nodes_max: u32,
    /// Begin no further point after this; the next call makes the missing ones
    #[arg(long, value_name = "DURATION")]
    budget: Option<Timespan>,
    /// Repeat points that have a report in the output already
    #[arg(long)]
    fresh: bool,
    /// Write the run record of each run into the output, which 'starling report --from FILE' shows
    #[arg(long)]
    records: bool,
    /// The seed of graphs and runs
    #[arg(long, value_name = "K", default_value_t = 1)]
    seed: u64,
}

/// The size of the study.
#[derive(Clone, Debug)]
struct Size {
    nodes: Vec<u32>,
    /// Task lengths as a user writes them, shortest first.
    lengths: &'static [&'static str],
    tasks_per_slot: u32,
}

const NODES: [u32; 6] = [1, 10, 100, 1_000, 10_000, 100_000];
const QUICK_NODES_MAX: u32 = 1_000;

impl Size {
    fn new(args: &ScaleArgs) -> Self {
        let most = if args.quick { args.nodes_max.min(QUICK_NODES_MAX) } else { args.nodes_max };
        let mut nodes: Vec<u32> = NODES.into_iter().filter(|&nodes| nodes <= most).collect();
        if !args.quick && nodes.last() != Some(&most) {
            nodes.push(most);
        }
        match args.quick {
            true => Self { nodes, lengths: &["10ms", "1s"], tasks_per_slot: 10 },
            false => {
                Self { nodes, lengths: &["1ms", "10ms", "100ms", "1s", "10s"], tasks_per_slot: 20 }
            }
        }
    }

    /// Up to this number of nodes.
    fn up_to(&self, most: u32) -> impl Iterator<Item = u32> + '_ {
        self.nodes.iter().copied().filter(move |&nodes| nodes <= most)
    }
}

pub(super) fn run(context: &Context, args: &ScaleArgs) -> Done {
    let families = families(args)?;
    let size = Size::new(args);
    let began = Instant::now();
    let plan = launch::Plan {
        dir: args.output.clone(),
        reuse: !args.fresh,
        records: args.records,
        first_seed: args.seed,
        patience: PATIENCE,
        budget: args.budget.map(|Timespan(budget)| budget),
    };
    let points = families.iter().flat_map(|family| (family.points)(&size));
    let points = points.map(|point| (point, 1)).collect();
    let results = verb::block_on(launch::run(context, &plan, &points))?;
    let sections: Vec<Section> =
        families.iter().map(|family| (family.tell)(&size, &results)).collect();
    let told = ScalingReport::new(args, points.len(), &results, began.elapsed().as_secs_f64());
    write(args, &told, &sections)?;
    if context.output.json {
        context.output.json(&told)?;
    } else {
        let tables: Vec<String> = sections.iter().map(Section::markdown).collect();
        context.output.bytes(tables.join("\n").as_bytes())?;
    }
    let page = args.output.join("index.html");
    context.output.note(&format!("{}: {}", told.progress(), page.display()));
    Ok(if told.failed > 0 { Exit::Failed } else { Exit::Ok })
}

fn families(args: &ScaleArgs) -> Result<Vec<&'static Family>, Failure> {
    let known: Vec<&str> = FAMILIES.iter().map(|family| family.id).collect();
    if let Some(name) = args.only.iter().find(|name| !known.contains(&name.as_str())) {
        return Err(Failure::usage(format!("--only: no curves '{name}'"))
            .hint(format!("known are {}", known.join(", "))));
    }
    let wanted =
        |family: &&Family| args.only.is_empty() || args.only.iter().any(|name| name == family.id);
    Ok(FAMILIES.iter().filter(wanted).collect())
}

/// The study as JSON.
#[derive(Serialize)]
struct ScalingReport<'r> {
    schema: u32,
    date: String,
    machine: String,
    command: String,
    took_s: f64,
    points: usize,
    done: usize,
    failed: usize,
    runs: Vec<&'r Outcome>,
}

impl<'r> ScalingReport<'r> {
    fn new(args: &ScaleArgs, points: usize, results: &'r Results, took_s: f64) -> Self {
        let runs: Vec<&Outcome> = results.all().collect();
        let failed = runs.iter().filter(|outcome| outcome.report.is_err()).count();
        Self {
            schema: 1,
            date: launch::date(),
            machine: super::machine(),
            command: command(args),
            took_s,
            points,
            done: runs.len() - failed,
            failed,
            runs,
        }
    }

    fn progress(&self) -> String {
        let left = self.points - self.done - self.failed;
        let rest = match (self.failed, left) {
            (0, 0) => String::new(),
            (failed, left) => format!(", {failed} failed, {left} left for the next call"),
        };
        format!("{} of {} points{rest}, {}", self.done, self.points, units::seconds(self.took_s))
    }
}

fn command(args: &ScaleArgs) -> String {
    let mut words = vec!["starling eval scale".to_owned()];
    if !args.only.is_empty() {
        words.push(format!("--only {}", args.only.join(",")));
    }
    if args.quick {
        words.push("--quick".to_owned());
    }
    if args.nodes_max != NODES[NODES.len() - 1] {
        words.push(format!("--nodes-max {}", args.nodes_max));
    }
    if args.seed != 1 {
        words.push(format!("--seed {}", args.seed));
    }
    words.join(" ")
}

fn write(args: &ScaleArgs, told: &ScalingReport<'_>, sections: &[Section]) -> Result<(), Failure> {
    let mut files: Vec<(String, String)> = sections.iter().flat_map(Section::files).collect();
    files.push(("index.html".to_owned(), page(args, told, sections, &files)));
    let tables: Vec<String> = sections.iter().map(Section::markdown).collect();
    files.push(("tables.md".to_owned(), tables.join("\n")));
    let json = serde_json::to_string(told).expect("numbers and strings always serialise");
    files.push(("results.json".to_owned(), json + "\n"));
    for (name, text) in files {
        let path = args.output.join(name);
        std::fs::write(&path, text).map_err(|error| Failure::file(&path, &error))?;
    }
    Ok(())
}

fn page(
    args: &ScaleArgs,
    told: &ScalingReport<'_>,
    sections: &[Section],
    files: &[(String, String)],
) -> String {
    let mut page = Page::new("How far it goes")
        .text(
            "Weak scaling on simulated nodes: the very code of the nodes under virtual time, with \
             measured service times and a max-min fair network of 1 Gbit/s cards. Two slots a \
             node; the clock runs from the first byte of the submission to the client's knowledge \
             of the end.",
        )
        .list(&[
            format!("{}, {}", told.date, told.machine),
            format!("starling {}", env!("CARGO_PKG_VERSION")),
            format!("command: {}", told.command),
            told.progress(),
        ]);
    if args.quick {
        page = page.note("Quick: up to 1,000 nodes, two task lengths.");
    }
    for section in sections {
        page = section.put(page);
    }
    page = page.heading("The figures").text("As the CSV files beside this page hold them.");
    for (name, text) in files.iter().filter(|(name, _)| name.ends_with(".csv")) {
        page = page.subheading(name).code(text);
    }
    add_runs(page, &told.runs).html()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ScaleArgs,
    }

    fn args(line: &str) -> ScaleArgs {
        Line::try_parse_from(line.split_whitespace()).unwrap().args
    }

    #[test]
    fn sizes_follow_what_was_asked_for() {
        assert_eq!(Size::new(&args("scale")).nodes, NODES);
        assert_eq!(Size::new(&args("scale --quick")).nodes, [1, 10, 100, 1_000]);
        assert_eq!(Size::new(&args("scale --nodes-max 300")).nodes, [1, 10, 100, 300]);
        assert!(families(&args("scale --only lengths,worst")).is_ok_and(|found| found.len() == 2));
        let error = families(&args("scale --only widths")).unwrap_err().render();
        assert!(error.contains("no curves 'widths'"), "{error}");
    }

    #[test]
    fn no_point_is_in_two_families_twice() {
        let size = Size::new(&args("scale"));
        let all: Vec<_> = FAMILIES.iter().flat_map(|family| (family.points)(&size)).collect();
        let once: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(once.len(), all.len());
    }
}
