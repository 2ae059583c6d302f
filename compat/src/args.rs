//! The arguments, by the names of HyperQueue.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use verb::directives::{self, Directives, Script};
use verb::errors::Failure;
use verb::units::Timespan;

use crate::alloc::args::AllocVerb;
use crate::records::Way;
use crate::times;
use crate::words::{Ids, Selector};

/// The command line of HyperQueue for a Starling cluster.
#[derive(Parser, Debug)]
#[command(name = "hq", version, max_term_width = 100)]
pub(crate) struct Hq {
    /// The instance's directory [default: that of Starling]
    #[arg(long, global = true, value_name = "DIR", env = "HQ_SERVER_DIR")]
    pub(crate) server_dir: Option<PathBuf>,
    /// The form of the output
    #[arg(long, global = true, value_enum, default_value_t, env = "HQ_OUTPUT_MODE")]
    pub(crate) output_mode: Form,
    /// No effect: the output has no colours
    #[arg(long, global = true, value_name = "WHEN", hide = true)]
    pub(crate) colors: Option<String>,
    /// No effect
    #[arg(long, global = true, hide = true)]
    pub(crate) debug: bool,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, ValueEnum)]
pub(crate) enum Form {
    #[default]
    Cli,
    Json,
    Quiet,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Submit a job
    Submit(Box<SubmitArgs>),
    /// Jobs
    Job {
        #[command(subcommand)]
        verb: JobVerb,
    },
    /// Tasks of jobs
    Task {
        #[command(subcommand)]
        verb: TaskVerb,
    },
    /// The output of jobs that were submitted with --stream
    OutputLog {
        directory: PathBuf,
        #[command(subcommand)]
        verb: LogVerb,
    },
    /// The first node, which runs no tasks
    Server {
        #[command(subcommand)]
        verb: ServerVerb,
    },
    /// Queues of a batch system, from which workers come when tasks wait
    Alloc {
        #[command(subcommand)]
        verb: AllocVerb,
    },
    /// Nodes that run tasks
    Worker {
        #[command(subcommand)]
        verb: WorkerVerb,
    },
}

#[derive(Args, Clone, Debug)]
pub(crate) struct SubmitArgs {
    #[arg(long)]
    pub(crate) name: Option<String>,
    #[arg(long)]
    pub(crate) cwd: Option<String>,
    #[arg(long, value_name = "NAME=VALUE", value_parser = variable)]
    pub(crate) env: Vec<(String, String)>,
    #[arg(long)]
    pub(crate) stdout: Option<String>,
    #[arg(long)]
    pub(crate) stderr: Option<String>,
    /// Starling packs the output by itself; then this only leaves the files out
    #[arg(long, value_name = "DIR")]
    pub(crate) stream: Option<String>,
    #[arg(long)]
    pub(crate) array: Option<Ids>,
    #[arg(long, conflicts_with = "from_json")]
    pub(crate) each_line: Option<PathBuf>,
    #[arg(long)]
    pub(crate) from_json: Option<PathBuf>,
    #[arg(long, value_name = "AMOUNT")]
    pub(crate) cpus: Option<String>,
    #[arg(long, value_name = "NAME=AMOUNT")]
    pub(crate) resource: Vec<String>,
    /// Each task holds this number of whole workers at once
    #[arg(long, value_name = "N", conflicts_with_all = ["cpus", "resource"],
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) nodes: Option<u32>,
    #[arg(long, allow_negative_numbers = true, default_value_t = 0)]
    pub(crate) priority: i32,
    #[arg(long, value_parser = times::parse)]
    pub(crate) time_limit: Option<Timespan>,
    #[arg(long, value_parser = times::parse)]
    pub(crate) time_request: Option<Timespan>,
    /// Shown only: it orders the variants of one task, of which a file may give several
    #[arg(long)]
    pub(crate) weight: Option<f64>,
    #[arg(long)]
    pub(crate) max_fails: Option<u64>,
    #[arg(long, default_value = "5")]
    pub(crate) crash_limit: String,
    #[arg(long, value_enum)]
    pub(crate) pin: Option<Pin>,
    #[arg(long)]
    pub(crate) task_dir: bool,
    /// Give the standard input of this command to each task
    #[arg(long)]
    pub(crate) stdin: bool,
    #[arg(long)]
    pub(crate) wait: bool,
    /// Add the tasks to an open job
    #[arg(long, value_name = "JOB")]
    pub(crate) job: Option<Selector>,
    #[arg(long, value_enum, default_value_t = Where::Auto)]
    pub(crate) directives: Where,
    /// The command of each task
    #[arg(trailing_var_arg = true, required = true)]
    pub(crate) command: Vec<String>,
    /// What the standard input had.
    #[arg(skip)]
    pub(crate) input: Option<Vec<u8>>,
    /// In the place of --cpus, --resource and --weight.
    #[arg(skip)]
    pub(crate) ways: Vec<Way>,
    /// The tasks have values.
    #[arg(skip)]
    pub(crate) has_entries: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Where {
    Auto,
    File,
    Stdin,
    Off,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Pin {
    Taskset,
    Omp,
}

const MARKER: &str = "#HQ";

impl SubmitArgs {
    /// A command without options.
    pub(crate) fn plain(command: &[String]) -> Result<Self, Failure> {
        let head = ["hq", "submit", "--directives=off", "--"].map(str::to_owned);
        let parsed = Hq::try_parse_from(head.iter().chain(command));
        match parsed.map(|hq| hq.verb) {
            Ok(Verb::Submit(args)) => Ok(*args),
            Ok(_) | Err(_) => Err(Failure::usage("a task has no command")),
        }
    }

    pub(crate) fn directives_of(&self, input: Option<&[u8]>) -> Result<Script, Failure> {
        let script = self.command.first().map(PathBuf::from).unwrap_or_default();
        let mode = match (self.directives, input) {
            (Where::Auto, _) => Directives::Auto,
            (Where::File, _) => Directives::File,
            (Where::Off, _) => Directives::Off,
            (Where::Stdin, Some(input)) => {
                return directives::of_text(MARKER, "standard input", input);
            }
            (Where::Stdin, None) => {
                let text = "You have to use `--stdin` when you specify `--directives=stdin`";
                return Err(Failure::usage(text));
            }
        };
        directives::of_script(mode, MARKER, &script)
    }
}

fn variable(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').unwrap_or((text, ""));
    match name {
        "" => Err(format!("'{text}' names no variable")),
        name => Ok((name.to_owned(), value.to_owned())),
    }
}

#[derive(Subcommand, Debug)]
pub(crate) enum JobVerb {
    Submit(Box<SubmitArgs>),
    /// Submit the tasks of a job definition file
    SubmitFile {
        path: PathBuf,
        /// Add the tasks to an open job
        #[arg(long, value_name = "JOB")]
        job: Option<Selector>,
    },
    List {
        #[arg(long)]
        all: bool,
        #[arg(long, value_delimiter = ',')]
        filter: Vec<String>,
        #[arg(long, short)]
        verbose: bool,
    },
    Summary,
    Info {
        jobs: Selector,
    },
    Cancel {
        jobs: Selector,
        /// Kept with the job
        #[arg(long)]
        reason: Option<String>,
    },
    Wait {
        jobs: Selector,
        #[arg(long)]
        without_close: bool,
    },
    Open {
        #[arg(long)]
        name: Option<String>,
        #[arg(long)]
        max_fails: Option<u64>,
    },
    Close {
        jobs: Selector,
    },
    Forget {
        jobs: Selector,
        #[arg(long, value_delimiter = ',', default_value = "finished,failed,canceled")]
        filter: Vec<String>,
    },
    Cat {
        jobs: Selector,
        #[arg(value_enum)]
        stream: Stream,
        #[arg(long)]
        tasks: Option<Ids>,
        #[arg(long, value_delimiter = ',')]
        task_status: Vec<String>,
        #[arg(long)]
        print_task_header: bool,
    },
    TaskIds {
        jobs: Selector,
        #[arg(long, value_delimiter = ',')]
        filter: Vec<String>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

#[derive(Subcommand, Debug)]
pub(crate) enum LogVerb {
    Summary,
    /// The numbers of the jobs
    Jobs,
    /// Lines with job, task and stream in front
    Show {
        #[arg(long, value_enum)]
        channel: Option<Stream>,
    },
    Cat {
        job: u64,
        #[arg(value_enum)]
        stream: Stream,
        #[arg(long)]
        task: Option<Ids>,
    },
    /// The standard output of tasks as JSON
    Export {
        job: u64,
        #[arg(long)]
        task: Option<Ids>,
    },
}

#[derive(Subcommand, Debug)]
pub(crate) enum TaskVerb {
    List {
        jobs: Selector,
        #[arg(long, short)]
        verbose: bool,
    },
    Info {
        job: Selector,
        tasks: Ids,
    },
    /// The workers on which a task can run
    Explain {
        job: Selector,
        task: u64,
    },
}

#[derive(Subcommand, Debug)]
pub(crate) enum ServerVerb {
    /// Run the first node in the foreground
    Start {
        /// No effect: Starling keeps its records always
        #[arg(long, value_name = "FILE")]
        journal: Option<PathBuf>,
        /// The idle timeout of workers that have none of their own
        #[arg(long, value_parser = times::parse)]
        idle_timeout: Option<Timespan>,
    },
    Stop,
    Info,
    /// Wait until the nodes answer
    Wait {
        #[arg(long, default_value = "60s", value_parser = times::parse)]
        timeout: Timespan,
    },
}

#[derive(Subcommand, Debug)]
pub(crate) enum WorkerVerb {
    /// Run a node in the foreground
    Start(Box<WorkerArgs>),
    List {
        #[arg(long)]
        all: bool,
        #[arg(long)]
        filter: Option<String>,
    },
    Info {
        workers: Selector,
    },
    Stop {
        workers: Selector,
    },
    Address {
        worker: u64,
    },
    /// Wait until COUNT workers run
    Wait {
        count: usize,
    },
    /// What a worker of this machine would offer
    Hwdetect {
        #[arg(long)]
        no_hyper_threading: bool,
    },
    /// Start a worker on each host of a file, by ssh
    DeploySsh(Box<DeployArgs>),
}

#[derive(Args, Debug)]
pub(crate) struct DeployArgs {
    /// Print what the workers print
    #[arg(long)]
    pub(crate) show_output: bool,
    /// A line HOST or HOST:PORT for each worker
    pub(crate) hostfile: PathBuf,
    /// Arguments of 'hq worker start'
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<String>,
}

/// What a worker offers; also a worker of an allocation.
#[derive(Args, Clone, Debug)]
pub(crate) struct OfferArgs {
    #[arg(long)]
    pub(crate) cpus: Option<String>,
    #[arg(long)]
    pub(crate) resource: Vec<String>,
    #[arg(long)]
    pub(crate) coupling: Option<String>,
    #[arg(long)]
    pub(crate) group: Option<String>,
    #[arg(long)]
    pub(crate) detect_resources: Option<String>,
    /// One cpu for each core
    #[arg(long)]
    pub(crate) no_hyper_threading: bool,
}

#[derive(Args, Debug)]
pub(crate) struct WorkerArgs {
    #[command(flatten)]
    pub(crate) offer: OfferArgs,
    #[arg(long, value_parser = times::parse)]
    pub(crate) time_limit: Option<Timespan>,
    #[arg(long, value_parser = times::parse)]
    pub(crate) idle_timeout: Option<Timespan>,
    #[arg(long)]
    pub(crate) hostname: Option<String>,
    #[arg(long)]
    pub(crate) work_dir: Option<PathBuf>,
    /// No effect: there is no server to lose
    #[arg(long)]
    pub(crate) on_server_lost: Option<String>,
    #[arg(long, default_value = "8s", value_parser = times::parse)]
    pub(crate) heartbeat: Timespan,
    /// No effect: nodes hand tasks over by themselves
    #[arg(long, hide = true, value_parser = times::parse)]
    pub(crate) retract_check_interval: Option<Timespan>,
    #[arg(long)]
    pub(crate) manager: Option<String>,
}
