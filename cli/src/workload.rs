//! `starling workload`: workflow files without running them.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure};
use verb::flags::{Cores, LoadArgs, PlacementName};
use verb::units;
use workloads::{Graph, OutputFormat, Placement, Spread};

#[derive(Subcommand, Debug)]
pub(crate) enum WorkloadVerb {
    /// Write a generated workflow to a file
    Make {
        /// For example fan-out:tasks=1000,degree=10,duration=50ms
        generator: String,
        /// The file; its ending (.json, .toml, .dot) determines the format
        #[arg(short, long, value_name = "FILE")]
        output: PathBuf,
        /// The format, regardless of the ending
        #[arg(long, value_enum, value_name = "FORMAT")]
        to: Option<FileFormat>,
    },
    /// Count the parts of a workflow
    Info {
        workflow: String,
        /// Also: the balance and the cuts of its placement on this many homes
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(proto::limits::NODES_MAX)))]
        homes: Option<u32>,
        /// How tasks are spread over homes [default: graph]
        #[arg(long, requires = "homes")]
        placement: Option<PlacementName>,
        #[command(flatten)]
        load: LoadArgs,
    },
    /// Write a workflow in another format
    Convert {
        workflow: String,
        #[arg(long, value_enum, value_name = "FORMAT")]
        to: FileFormat,
        /// The file [default: standard output]
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        #[command(flatten)]
        load: LoadArgs,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum FileFormat {
    Wfformat,
    Toml,
    Dot,
}

impl From<FileFormat> for OutputFormat {
    fn from(format: FileFormat) -> Self {
        match format {
            FileFormat::Wfformat => Self::WfFormat,
            FileFormat::Toml => Self::Toml,
            FileFormat::Dot => Self::Dot,
        }
    }
}

/// Reads a workflow, by the flags and settings.
pub(crate) fn load(context: &Context, workflow: &str, args: &LoadArgs) -> Result<Graph, Failure> {
    if args.speed.0 <= 0.0 {
        return Err(Failure::usage("--speed: a slot that computes nothing never ends")
            .hint("give flop/s of one slot, for example 1e9"));
    }
    let options = workloads::LoadOptions {
        recorded_cores: args.cores == Cores::Recorded,
        flops_per_s: args.speed.0,
        job: args.only_job.clone(),
        is_strict: args.strict,
    };
    let mut graph = workloads::load(workflow, args.format, &options)?;
    for warning in graph.warnings() {
        context.output.note(&format!("warning: {warning}"));
    }
    let scale = context.settings.pick(args.scale, "scale")?;
    if scale.0 != 1.0 {
        graph.scale_durations(scale.0);
    }
    Ok(graph)
}

/// Warns if all following times are of tasks without durations.
pub(crate) fn warn_without_durations(context: &Context, graph: &Graph) {
    if !graph.has_durations() {
        context.output.note(&format!("warning: {WITHOUT_DURATIONS}"));
    }
}

const WITHOUT_DURATIONS: &str =
    "the workflow gives no durations: each task counts as one that takes no time";

pub(crate) fn run(context: &Context, verb: &WorkloadVerb) -> Done {
    match verb {
        WorkloadVerb::Make { generator, output, to } => {
            let graph = workloads::load(
                generator,
                Some(workloads::Format::Generator),
                &workloads::LoadOptions::default(),
            )?;
            let format = to.map(OutputFormat::from).or_else(|| OutputFormat::of_path(output));
            let format = format.ok_or_else(|| {
                Failure::usage(format!("{}: its ending names no format", output.display()))
                    .hint("end it in .json, .toml or .dot, or give --to")
            })?;
            write(output, &graph, format)
        }
        WorkloadVerb::Info { workflow, homes, placement, load: args } => {
            let graph = load(context, workflow, args)?;
            let name = context.settings.pick(*placement, "placement")?;
            let placement = match name {
                PlacementName::Hash => Placement::Hash,
                PlacementName::Graph => Placement::Graph,
            };
            let spread = homes.map(|homes| ShownSpread::of(&graph.spread(placement, homes), name));
            info(context, &graph, spread)
        }
        WorkloadVerb::Convert { workflow, to, output, load: args } => {
            let graph = load(context, workflow, args)?;
            match output {
                Some(path) => write(path, &graph, (*to).into()),
                None => {
                    let text = workloads::write(&graph, (*to).into());
                    context.output.bytes(text.as_bytes()).map(|()| Exit::Ok)
                }
            }
        }
    }
}

fn write(path: &Path, graph: &Graph, format: OutputFormat) -> Done {
    let failed = |error: std::io::Error| Failure::file(path, &error);
    let mut file = BufWriter::new(File::create(path).map_err(failed)?);
    workloads::write_to(graph, format, &mut file).map_err(failed)?;
    file.flush().map_err(failed)?;
    Ok(Exit::Ok)
}

#[derive(Serialize)]
struct WorkloadRow {
    name: String,
    tasks: u64,
    edges: u64,
    roots: u64,
    sinks: u64,
    depth: u64,
    level_width_max: u64,
    fan_in_max: u64,
    fan_out_max: u64,
    cpus_max: u32,
    work_s: f64,
    critical_path_s: f64,
    files: u64,
    bytes_produced: u64,
    external_files: u64,
    external_bytes: u64,
    /// The arrival of the last task, if not all arrive at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    last_release_s: Option<f64>,
    /// True if the file has the duration of any task.
    durations_known: bool,
    notes: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spread: Option<ShownSpread>,
}

#[derive(Serialize)]
struct ShownSpread {
    homes: u32,
    placement: String,
    tasks_most: u64,
    tasks_mean: f64,
    work_most_over_mean: f64,
    edges: u64,
    edges_cut: u64,
    bytes: u64,
    bytes_cut: u64,
}

impl ShownSpread {
    fn of(spread: &Spread, placement: PlacementName) -> Self {
        let value = placement.to_possible_value();
        Self {
            homes: spread.homes,
            placement: value.map_or_else(String::new, |value| value.get_name().to_owned()),
            tasks_most: spread.tasks_most,
            tasks_mean: spread.tasks_mean,
            work_most_over_mean: spread.work_most_over_mean,
            edges: spread.edges,
            edges_cut: spread.edges_cut,
            bytes: spread.bytes,
            bytes_cut: spread.bytes_cut,
        }
    }

    fn rows(&self) -> Vec<Vec<String>> {
        let row = |key: &str, value: String| vec![key.to_owned(), value];
        let mean = format!("{:.1}", self.tasks_mean);
        let cut = |cut: String, all: String| format!("{cut} of {all}");
        vec![
            row("homes", format!("{} (placement {})", self.homes, self.placement)),
            row("most tasks at one", cut(units::count(self.tasks_most), mean + " on average")),
            row("most work at one", format!("{:.3} of the mean", self.work_most_over_mean)),
            row("edges between homes", cut(units::count(self.edges_cut), units::count(self.edges))),
            row("bytes between homes", cut(units::bytes(self.bytes_cut), units::bytes(self.bytes))),
        ]
    }
}

fn info(context: &Context, graph: &Graph, spread: Option<ShownSpread>) -> Done {
    let info = graph.info();
    let last_release_ns = graph.indices().map(|task| graph.release_ns(task)).max().unwrap_or(0);
    let last_release_s = (last_release_ns > 0).then_some(last_release_ns as f64 / 1e9);
    let mut notes = graph.notes().to_vec();
    if !graph.has_durations() {
        notes.push(WITHOUT_DURATIONS.to_owned());
    }
    let shown = WorkloadRow {
        name: info.name,
        tasks: info.tasks,
        edges: info.edges,
        roots: info.roots,
        sinks: info.sinks,
        depth: info.depth,
        level_width_max: info.level_width_max,
        fan_in_max: info.fan_in_max,
        fan_out_max: info.fan_out_max,
        cpus_max: info.cpus_max,
        work_s: info.work_ns as f64 / 1e9,
        critical_path_s: info.critical_path_ns as f64 / 1e9,
        files: info.files,
        bytes_produced: info.bytes_produced,
        external_files: info.external_files,
        external_bytes: info.external_bytes,
        last_release_s,
        durations_known: graph.has_durations(),
        notes,
        spread,
    };
    if context.output.json {
        context.output.json(&shown)?;
        return Ok(Exit::Ok);
    }
    let row = |key: &str, value: String| vec![key.to_owned(), value];
    let files = |count, size| format!("{} ({})", units::count(count), units::bytes(size));
    let mut rows = vec![
        row("name", shown.name),
        row("tasks", units::count(shown.tasks)),
        row("edges", units::count(shown.edges)),
        row("roots", units::count(shown.roots)),
        row("sinks", units::count(shown.sinks)),
        row("depth", units::count(shown.depth)),
        row("widest level", units::count(shown.level_width_max)),
        row("largest fan-in", units::count(shown.fan_in_max)),
        row("largest fan-out", units::count(shown.fan_out_max)),
        row("most slots", shown.cpus_max.to_string()),
        row("work", units::seconds(shown.work_s)),
        row("critical path", units::seconds(shown.critical_path_s)),
        row("files written", files(shown.files, shown.bytes_produced)),
        row("files from outside", files(shown.external_files, shown.external_bytes)),
    ];
    rows.extend(shown.last_release_s.map(|s| row("last arrival", units::seconds(s))));
    rows.extend(shown.spread.iter().flat_map(ShownSpread::rows));
    rows.extend(shown.notes.into_iter().map(|note| row("note", note)));
    context.output.table(&["", ""], &rows)?;
    Ok(Exit::Ok)
}
