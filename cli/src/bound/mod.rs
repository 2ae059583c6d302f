//! `starling bound`: lower bounds on a makespan, and the paper's bound.

mod figures;
mod measurements;
mod plot;
mod published;
mod tasks;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use analysis::bounds::Form;
use analysis::{Cluster, Network};
use clap::{Args, ValueEnum};
use figures::{Assumed, Figures};
use proto::Span;
use proto::limits::{NODES_MAX, SLOTS_MAX};
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure};
use verb::flags::LoadArgs;
use verb::output::say;
use verb::units;
use verb::units::{Bandwidth, Factor, Timespan};
use workloads::Graph;
use workloads::generate::{Implicit, is_generator};

use crate::views::{jobs, reports};
use crate::workload::{load, warn_without_durations};

/// Above this number of tasks a benchmark shape is calculated without storing it.
const STORED_TASKS_MAX: u64 = 2_000_000;

#[derive(Args, Debug)]
pub(crate) struct BoundArgs {
    /// A workflow file, or a generator such as fan-out:preset=table3,slots=200
    #[arg(required_unless_present_any = ["published", "run"])]
    workflow: Option<String>,
    /// Nodes of the cluster [default: 1, or the run's]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(NODES_MAX)))]
    nodes: Option<u32>,
    /// Slots of each node [default: 1, or the run's]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(SLOTS_MAX)))]
    slots: Option<u32>,
    /// Bandwidth of each node's link [default: 1Gbit]
    #[arg(long, value_name = "B")]
    bandwidth: Option<Bandwidth>,
    /// Latency of each transfer [default: 0s]
    #[arg(long, value_name = "L")]
    latency: Option<Timespan>,
    /// Cost of transfers in the true bounds [default: maxmin; free with --run]
    #[arg(long, value_name = "NETWORK")]
    network: Option<NetworkName>,
    /// Forms of the paper's bound: paper (as printed), all, lower (none), or names
    #[arg(long, value_name = "MODEL", value_delimiter = ',', default_value = "paper")]
    model: Vec<Model>,
    /// Bytes of a task's specification, which the paper does not give
    #[arg(long, value_name = "BYTES", default_value_t = 200)]
    spec_bytes: u32,
    /// Write a row for each task: its earliest start, and that of the paper's form
    #[arg(long, value_name = "FILE")]
    tasks: Option<PathBuf>,
    /// Draw throughput against slots
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
    /// Compare with a job of the cluster (its number) or with a file that 'run --json' wrote
    #[arg(long, value_name = "RUN")]
    run: Option<String>,
    /// The four benchmark graphs at 128K slots in all forms, beside the published figures
    #[arg(long, conflicts_with_all = ["workflow", "run", "tasks", "nodes", "slots", "model"])]
    published: bool,
    #[command(flatten)]
    load: LoadArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum NetworkName {
    /// All transfers into a node share its link, and so do all out of it
    Maxmin,
    /// Each transfer has the full bandwidth
    Flat,
    /// Transfers cost nothing, because the network is unknown
    Free,
}

/// The forms of the paper's bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Model {
    All,
    Lower,
    Form(Form),
}

impl std::str::FromStr for Model {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            "lower" => Ok(Self::Lower),
            "paper" => Ok(Self::Form(Form::Printed)),
            name => name.parse().map(Self::Form),
        }
    }
}

fn forms(models: &[Model]) -> Vec<Form> {
    let mut forms: Vec<Form> = models
        .iter()
        .flat_map(|model| match model {
            Model::All => Form::ALL.to_vec(),
            Model::Lower => Vec::new(),
            Model::Form(form) => vec![*form],
        })
        .collect();
    forms.sort_unstable();
    forms.dedup();
    forms
}

/// A finished run, with the facts for a comparison with a bound.
#[derive(Debug)]
struct FinishedRun {
    run: String,
    workflow: Option<String>,
    nodes: u32,
    /// The slots of all nodes.
    slots: u32,
    makespan_s: f64,
    /// The durations of its commands, by task names.
    took: HashMap<String, Span>,
}

/// The run compared with its bounds.
#[derive(Clone, Debug, Serialize)]
struct Compared {
    run: String,
    makespan_s: f64,
    /// 1: optimal.
    share_of_lower: f64,
    share_of_paper: f64,
}

pub(crate) fn run(context: &Context, args: &BoundArgs) -> Done {
    if args.published {
        let assumed = assumed(context, args, None)?;
        return published::run(context, &assumed, args.plot.as_deref());
    }
    let ran = args.run.as_deref().map(|run| ran(context, run)).transpose()?;
    let workflow = match (&args.workflow, &ran) {
        (Some(workflow), _) => workflow.clone(),
        (None, Some(FinishedRun { workflow: Some(name), .. })) if is_generator(name) => {
            name.clone()
        }
        _ => {
            return Err(Failure::usage("the run does not tell where its workflow is")
                .hint("name the workflow's file before --run"));
        }
    };
    let assumed = assumed(context, args, ran.as_ref())?;
    let mut work = Work::read(context, &workflow, args)?;
    if let (Work::Stored(graph), Some(ran)) = (&mut work, &ran) {
        let unknown = graph.measure_commands(|name| ran.took.get(name).copied());
        if unknown > 0 {
            let (run, unknown) = (&ran.run, units::count(unknown));
            say(&format!(
                "warning: {run} does not tell what {unknown} commands took: they count 0"
            ));
        }
    }
    let figures = match &work {
        Work::Stored(graph) => Figures::of_graph(&workflow, graph, &assumed),
        Work::Implicit(shape) => Figures::of_shape(&workflow, shape, &assumed),
    };
    let compared = ran.map(|ran| Compared {
        share_of_lower: figures.lower_s / ran.makespan_s,
        share_of_paper: figures.paper_s / ran.makespan_s,
        makespan_s: ran.makespan_s,
        run: ran.run,
    });
    figures::print(context, figures, compared)?;
    if let (Some(path), Work::Stored(graph)) = (&args.tasks, &work) {
        tasks::write(path, graph, &assumed)?;
    }
    if let Some(path) = &args.plot {
        write(path, &plot::against_slots(&workflow, &work, &assumed))?;
    }
    Ok(Exit::Ok)
}

/// A workflow for the calculation.
#[derive(Debug)]
enum Work {
    Stored(Box<Graph>),
    Implicit(Implicit),
}

impl Work {
    fn read(context: &Context, workflow: &str, args: &BoundArgs) -> Result<Self, Failure> {
        if args.load.format.is_none()
            && is_generator(workflow)
            && let Some(shape) = shape(workflow)?
            && shape.tasks() > STORED_TASKS_MAX
        {
            if args.tasks.is_some() {
                let most = units::count(STORED_TASKS_MAX);
                return Err(Failure::refused(format!("--tasks writes at most {most} rows"))
                    .hint("give the generator fewer tasks"));
            }
            let scale: Factor = context.settings.pick(args.load.scale, "scale")?;
            if scale.0 != 1.0 {
                return Err(Failure::refused("--scale needs a workflow that is stored")
                    .hint("write the durations into the generator's text"));
            }
            return Ok(Self::Implicit(shape));
        }
        let graph = load(context, workflow, &args.load)?;
        warn_without_durations(context, &graph);
        Ok(Self::Stored(Box::new(graph)))
    }

    fn tasks(&self) -> u64 {
        match self {
            Self::Stored(graph) => graph.len() as u64,
            Self::Implicit(shape) => shape.tasks(),
        }
    }
}

/// Parses a benchmark shape.
fn shape(text: &str) -> Result<Option<Implicit>, Failure> {
    Implicit::parse(text).map_err(|error| Failure {
        exit: Exit::Refused,
        message: error.to_string(),
        hint: error.hint(),
    })
}

fn assumed(
    context: &Context,
    args: &BoundArgs,
    ran: Option<&FinishedRun>,
) -> Result<Assumed, Failure> {
    let bandwidth: Bandwidth = context.settings.pick(args.bandwidth, "bandwidth")?;
    let bytes_per_s = bandwidth.bytes_per_s;
    let latency = Span(args.latency.map_or(0, |latency| latency.0.as_nanos() as u64));
    let default = if ran.is_some() { NetworkName::Free } else { NetworkName::Maxmin };
    let network = match args.network.unwrap_or(default) {
        NetworkName::Maxmin => Network::Shared { bytes_per_s, latency },
        NetworkName::Flat => Network::Flat { bytes_per_s, latency },
        NetworkName::Free => Network::Free,
    };
    let nodes = args.nodes.or_else(|| ran.map(|ran| ran.nodes)).unwrap_or(1).max(1);
    let of_node = |ran: &FinishedRun| ran.slots.div_ceil(ran.nodes.max(1));
    let slots = args.slots.or_else(|| ran.map(of_node)).unwrap_or(1).max(1);
    Ok(Assumed {
        cluster: Cluster::new(nodes, slots, network),
        bandwidth_bytes_per_s: bytes_per_s,
        spec_bytes: f64::from(args.spec_bytes),
        forms: forms(&args.model),
    })
}

/// A job of the cluster by its number, or the report of a run in a file.
fn ran(context: &Context, run: &str) -> Result<FinishedRun, Failure> {
    let Ok(job) = run.parse() else { return ran_of_file(Path::new(run)) };
    verb::block_on(async {
        let client = context.connect().await?;
        let state = client.raw().job(proto::JobId(job)).await?;
        let logs = verb::cluster::logs::Logs::read(&client, proto::JobId(job), None).await?;
        let fold = logs.fold(proto::JobId(job), None)?;
        let report = reports::report(&fold, &reports::facts(&state, logs.states.clone()), &state);
        if jobs::state_word(&state) != "finished" {
            let text = format!("job {job} is {}: its makespan is not comparable", report.state);
            return Err(Failure::refused(text).hint("compare a job that has finished"));
        }
        let took = measurements::durations(&client, proto::JobId(job), &logs).await?;
        Ok(FinishedRun {
            run: format!("job {job}"),
            workflow: Some(state.name),
            nodes: report.nodes,
            slots: report.slots,
            makespan_s: report.makespan_s,
            took,
        })
    })
}

fn ran_of_file(path: &Path) -> Result<FinishedRun, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::file(path, &error))?;
    let wrong = |what: &str| {
        Failure::refused(format!("{}: {what}", path.display()))
            .hint("'starling run --json' writes such a file")
    };
    let report: serde_json::Value =
        serde_json::from_str(text.trim()).map_err(|error| wrong(&error.to_string()))?;
    if report["state"] != "finished" {
        return Err(wrong("it is not the report of a run that finished"));
    }
    let number = |key: &str| report[key].as_f64().filter(|value| *value > 0.0);
    let missing = |key: &str| wrong(&format!("it has no '{key}' above 0"));
    let whole = |key: &str| number(key).map(|value| value as u32).ok_or_else(|| missing(key));
    Ok(FinishedRun {
        run: path.display().to_string(),
        workflow: report["name"].as_str().map(str::to_owned),
        nodes: whole("nodes")?,
        slots: whole("slots")?,
        makespan_s: number("makespan_s").ok_or_else(|| missing("makespan_s"))?,
        took: HashMap::new(),
    })
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    std::fs::write(path, text).map_err(|error| Failure::file(path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_are_forms_of_the_paper_or_words_for_several() {
        let forms_of = |text: &str| {
            let models: Result<Vec<Model>, String> = text.split(',').map(str::parse).collect();
            models.map(|models| forms(&models))
        };
        assert_eq!(forms_of("paper"), Ok(vec![Form::Printed]));
        assert_eq!(forms_of("lower"), Ok(vec![]));
        assert_eq!(forms_of("all,full"), Ok(Form::ALL.to_vec()));
        assert_eq!(forms_of("level,full"), Ok(vec![Form::Full, Form::Level]));
        assert!(forms_of("half").unwrap_err().contains("full-once"));
    }

    #[test]
    fn a_run_in_a_file_is_compared_only_when_it_finished() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.json");
        let read = |text: &str| {
            std::fs::write(&path, text).unwrap();
            ran_of_file(&path).map_err(|failure| failure.message)
        };
        let ran = read(r#"{"state":"finished","nodes":2,"slots":8,"makespan_s":2.5}"#).unwrap();
        assert_eq!((ran.nodes, ran.slots, ran.makespan_s), (2, 8, 2.5));
        let wrong = |text: &str| read(text).unwrap_err();
        let failed = wrong(r#"{"state":"failed","nodes":2,"slots":8,"makespan_s":2.5}"#);
        assert!(failed.ends_with("it is not the report of a run that finished"), "{failed}");
        let no_slots = wrong(r#"{"state":"finished","nodes":2,"makespan_s":2.5}"#);
        assert!(no_slots.ends_with("it has no 'slots' above 0"), "{no_slots}");
        assert!(wrong("no").contains("run.json: "));
    }

    #[test]
    fn large_shapes_have_the_figures_of_their_graphs() {
        let text = "fan-in:tasks=300,degree=4,duration=uniform(0,100ms),output=5MB";
        let assumed = Assumed {
            cluster: Cluster::new(3, 2, Network::Free),
            bandwidth_bytes_per_s: 125e6,
            spec_bytes: 200.0,
            forms: Form::ALL.to_vec(),
        };
        let graph = workloads::generate(text).unwrap();
        let stored = Figures::of_graph(text, &graph, &assumed);
        let implicit = Figures::of_shape(text, &shape(text).unwrap().unwrap(), &assumed);
        assert_eq!(stored.tasks, implicit.tasks);
        assert!((stored.paper_s - implicit.paper_s).abs() < 1e-9);
        assert_eq!(stored.forms.len(), 8);
        assert!(stored.lower_s >= implicit.lower_s, "a graph tells more");
        assert!(stored.lower_throughput_per_s <= implicit.lower_throughput_per_s);
        let plot =
            plot::against_slots(text, &Work::Implicit(shape(text).unwrap().unwrap()), &assumed);
        assert!(plot.contains("no schedule can beat") && plot.ends_with("</svg>\n"));
    }
}
