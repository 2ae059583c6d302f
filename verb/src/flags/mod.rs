//! The verbs, and the arguments that several verbs share.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use daemon::CapturedRoom;

use crate::cluster::tuning::{OrderName, PolicyName, TuningArgs};
use crate::common::errors::Failure;
use crate::common::needs::OfferArgs;
use crate::common::settings::Settings;
use crate::common::units::{Factor, Size, Timespan};

/// Runs workflows on a cluster without a central node.
#[derive(Parser, Debug)]
#[command(name = "starling", version, propagate_version = true, max_term_width = 100)]
pub(crate) struct Cli {
    /// The instance's directory [env: STARLING_DIR]
    #[arg(long, global = true, value_name = "D", help_heading = "Everywhere")]
    pub(crate) dir: Option<PathBuf>,
    /// JSON on standard output
    #[arg(long, global = true, help_heading = "Everywhere")]
    pub(crate) json: bool,
    /// More messages on standard error
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Everywhere")]
    pub(crate) verbose: u8,
    /// Only errors on standard error
    #[arg(short, long, global = true, help_heading = "Everywhere")]
    pub(crate) quiet: bool,
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Run a workflow, or a command for each entry of a list, on a temporary cluster
    Run(crate::local::run::RunArgs),
    /// Start a local cluster in the background, or its missing nodes
    Up(crate::local::up::UpArgs),
    /// Stop the local cluster
    Down(crate::local::up::DownArgs),
    /// Run one node in the foreground; or list and stop nodes
    Node(Box<crate::local::node::NodeArgs>),
    /// Submit a command or a workflow to a running cluster
    Submit(crate::cluster::submit::SubmitArgs),
    /// Inside a task: make tasks, which exist once the task commits, awaits or is done
    Spawn(Box<crate::inside::spawn::SpawnArgs>),
    /// Inside a task: wait for tasks, without a slot
    Await(crate::inside::awaiting::AwaitArgs),
    /// Inside a task: make spawned tasks exist, and keep a state for another attempt
    Commit(crate::inside::commit::CommitArgs),
    /// Jobs: list, inspect, wait, follow, cancel, read output
    #[command(subcommand)]
    Job(crate::cluster::job::JobVerb),
    /// Tasks of a job: list, inspect, explain, cancel
    #[command(subcommand)]
    Task(crate::cluster::task::TaskVerb),
    /// The key-value store
    #[command(subcommand)]
    Kv(crate::cluster::kv::KvVerb),
    /// Tokens for joining from machines that do not share the directory
    #[command(subcommand)]
    Token(crate::cluster::token::TokenVerb),
    /// Workflow files: make, inspect, convert
    #[command(subcommand)]
    Workload(crate::workload::WorkloadVerb),
    /// Run a workflow on simulated nodes, at any scale
    Sim(crate::sim::SimArgs),
    /// Lower bounds on a workflow's makespan, and the paper's bound
    Bound(crate::bound::BoundArgs),
    /// Search a tree: count its nodes, or find the best solution
    Search(crate::search::SearchArgs),
    /// Search for faults with the simulator and its checkers
    Check(crate::check::CheckArgs),
    /// Measure performance
    Bench(crate::bench::BenchArgs),
    /// Evaluate: the figures of the paper beside those of Starling
    Eval(crate::eval::EvalArgs),
    /// Report a job's run as a page, text, JSON or CSV, or compare two runs
    Report(crate::report::ReportArgs),
    /// Write a job's run as a Chrome trace, which Perfetto opens
    Trace(crate::report::trace::TraceArgs),
    /// Serve a live page of the cluster, or of run records, to browsers of this machine
    Web(crate::web::WebArgs),
    /// Show the cluster in the terminal: nodes, jobs, kinds, stalls
    Top(crate::top::TopArgs),
    /// Print or serve metrics of all nodes for Prometheus
    Metrics(crate::web::metrics::MetricsArgs),
    /// Settings and their origins
    #[command(subcommand)]
    Config(crate::cluster::config::ConfigVerb),
    /// Check this machine and the instance: disk, keys, clock, limits, nodes
    Doctor(crate::local::doctor::DoctorArgs),
    /// List the examples that the program carries, or write one
    Example(crate::local::example::ExampleArgs),
    /// Write a small workflow file with comments, to begin with
    Init(crate::local::example::InitArgs),
    /// Print the completion script of a shell
    Completion(crate::generated::CompletionArgs),
    /// Print the manual page of a verb
    Man(crate::generated::ManArgs),
}

/// The arguments for the nodes of a cluster.
#[derive(Args, Clone, Debug)]
pub(crate) struct ClusterArgs {
    /// Nodes of the cluster. Of an existing one: how many of its nodes run; if it has fewer, new
    /// ones join [default: 1, or all existing ones]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(proto::limits::NODES_MAX)))]
    pub(crate) nodes: Option<u32>,
    /// Executing threads of each node; 0 makes keepers, which keep replicas, vote and run no tasks.
    /// On an existing instance this applies to joining nodes; if none joins, it gives stopped
    /// keepers slots again [default: as before; else a share of the CPUs]
    #[arg(long, short_alias = 'j',
          value_parser = clap::value_parser!(u32).range(..=i64::from(proto::limits::SLOTS_MAX)))]
    pub(crate) slots: Option<u32>,
    #[command(flatten)]
    pub(crate) offer: OfferArgs,
    /// Replicas of each partition, once there are R nodes; then R-1 of them may fail at once. With
    /// 1 no node can join [default: 2; 1 for a run]
    #[arg(long, value_name = "R", value_parser = replicas_parser())]
    pub(crate) replicas: Option<u32>,
    #[command(flatten)]
    pub(crate) scrub: ScrubArgs,
    #[command(flatten)]
    pub(crate) captured: CapturedArgs,
    #[command(flatten)]
    pub(crate) slurm: SlurmArgs,
    /// No keys: connections are not encrypted, and every user of this machine may use the cluster
    #[arg(long)]
    pub(crate) insecure: bool,
    // The last one: its heading is for all arguments that follow.
    #[command(flatten)]
    pub(crate) tuning: TuningArgs,
}

/// `--scrub-every 24h`.
#[derive(Args, Clone, Debug)]
pub(crate) struct ScrubArgs {
    /// The interval at which a node reads all of its records, to find damage on disk; 0: never
    /// [default: 24h]
    #[arg(long, value_name = "DURATION")]
    scrub_every: Option<Timespan>,
}

impl ScrubArgs {
    pub(crate) fn is_given(&self) -> bool {
        self.scrub_every.is_some()
    }

    /// `None`: never. With what the settings say where no flag is given.
    pub(crate) fn resolve(&self, settings: &Settings) -> Result<Option<Duration>, Failure> {
        let every: Option<Timespan> = settings.pick_optional(self.scrub_every, "scrub_every")?;
        Ok(every.map(|every| every.0).filter(|every| !every.is_zero()))
    }

    /// The flags with which another process gets the same value.
    pub(crate) fn flags(every: Option<Duration>) -> [String; 2] {
        let every = every.unwrap_or_default();
        ["--scrub-every".to_owned(), format!("{}ns", every.as_nanos())]
    }
}

/// `--slurm hide`.
#[derive(Args, Clone, Debug)]
pub(crate) struct SlurmArgs {
    /// Whether tasks see the Slurm allocation of the node; then srun in a task starts a step of it
    /// [default: keep]
    #[arg(long, value_name = "keep|hide")]
    slurm: Option<Slurm>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Slurm {
    Keep,
    Hide,
}

impl std::str::FromStr for Slurm {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "keep" => Ok(Self::Keep),
            "hide" => Ok(Self::Hide),
            _ => Err("it is 'keep' or 'hide'".to_owned()),
        }
    }
}

impl SlurmArgs {
    pub(crate) fn is_given(&self) -> bool {
        self.slurm.is_some()
    }

    /// Whether it is hidden, with what the settings say where no flag is given.
    pub(crate) fn hides(&self, settings: &Settings) -> Result<bool, Failure> {
        Ok(settings.pick(self.slurm, "slurm")? == Slurm::Hide)
    }

    /// The flag with which another process gets the same value.
    pub(crate) fn flags(hides: bool) -> [String; 2] {
        ["--slurm".to_owned(), if hides { "hide" } else { "keep" }.to_owned()]
    }
}

/// `--captured-limit 1GiB --captured-store 20GiB`.
#[derive(Args, Clone, Debug)]
pub(crate) struct CapturedArgs {
    /// The limit of a task's output, both streams together; a task that prints more is killed and
    /// fails; 0: the limit of its node [default: 1GiB]
    #[arg(long, value_name = "SIZE")]
    captured_limit: Option<Size>,
    /// Space on a node for the output of tasks: the oldest output is removed first [default: a
    /// quarter of its store]
    #[arg(long, value_name = "SIZE")]
    captured_store: Option<Size>,
}

impl CapturedArgs {
    pub(crate) fn is_given(&self) -> bool {
        self.captured_limit.is_some() || self.captured_store.is_some()
    }

    /// With what the settings say where no flag is given.
    pub(crate) fn resolve(&self, settings: &Settings) -> Result<CapturedRoom, Failure> {
        let of_task: Option<Size> =
            settings.pick_optional(self.captured_limit, "captured_limit")?;
        let of_node: Option<Size> =
            settings.pick_optional(self.captured_store, "captured_store")?;
        Ok(CapturedRoom {
            task_bytes: of_task.map(|Size(bytes)| bytes).filter(|&bytes| bytes > 0),
            node_bytes: of_node.map(|Size(bytes)| bytes),
        })
    }

    /// The flags with which another process gets the same values.
    pub(crate) fn flags(room: CapturedRoom) -> Vec<String> {
        let of_task = room.task_bytes.unwrap_or(0);
        let mut flags = vec!["--captured-limit".to_owned(), format!("{of_task}B")];
        if let Some(of_node) = room.node_bytes {
            flags.extend(["--captured-store".to_owned(), format!("{of_node}B")]);
        }
        flags
    }
}

pub(crate) fn replicas_parser() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=i64::from(proto::limits::COPIES_MAX))
}

/// The arguments for reading a workflow.
#[derive(Args, Clone, Debug)]
pub(crate) struct LoadArgs {
    /// Kind of the file: wfformat, toml, dot, stg, estee, ... [default: by its content]
    #[arg(long, value_name = "KIND")]
    pub(crate) format: Option<workloads::Format>,
    /// Slots of recorded tasks: one, or as many as recorded
    #[arg(long, value_enum, value_name = "CORES", default_value_t = Cores::One)]
    pub(crate) cores: Cores,
    /// Flop/s of a slot, for formats that count flops; durations in seconds are unaffected
    #[arg(long, value_name = "F", default_value = "1e9")]
    pub(crate) speed: Factor,
    /// Only this job of a trace of many jobs
    #[arg(long, value_name = "JOB")]
    pub(crate) only_job: Option<String>,
    /// Refuse a file that breaks its format, even if its meaning is clear
    #[arg(long)]
    pub(crate) strict: bool,
    /// Multiplies recorded durations and modelled transfers; 0: neither waits [default: 1]
    #[arg(long, value_name = "X")]
    pub(crate) scale: Option<Factor>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Cores {
    One,
    Recorded,
}

/// The arguments for submitting a workflow.
#[derive(Args, Clone, Debug)]
pub(crate) struct PlaceArgs {
    /// Files of recorded tasks: real bytes, or only sizes [default: virtual]
    #[arg(long)]
    pub(crate) data: Option<DataKind>,
    /// How tasks are spread over partitions [default: graph]
    #[arg(long)]
    pub(crate) placement: Option<PlacementName>,
    /// Nodes the tasks are submitted to: best (all), worst (one), or n1,n2 [default: best]
    #[arg(long, value_name = "WHERE")]
    pub(crate) submit: Option<SubmitTo>,
    /// Fail a task when its node or spawner has died this often, whatever the cause: a number,
    /// never-restart (the first time) or unlimited [default: 3 deaths that the task may have
    /// caused]
    #[arg(long, value_name = "LIMIT")]
    pub(crate) crash_limit: Option<workloads::CrashLimit>,
    /// Tasks of the job, with those that its tasks make; beyond them the job stops [default:
    /// 100000000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) max_tasks: Option<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum DataKind {
    Real,
    Virtual,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum PlacementName {
    /// Even pieces of consecutive tasks
    Hash,
    /// Connected pieces: chains and subtrees stay together
    Graph,
}

/// Parses settings, which use the same words as the command line.
macro_rules! from_str_as_value {
    ($($name:ty),*) => {$(
        impl std::str::FromStr for $name {
            type Err = String;
            fn from_str(text: &str) -> Result<Self, String> {
                <$name as ValueEnum>::from_str(text, false)
            }
        }
    )*};
}
from_str_as_value!(PolicyName, OrderName, DataKind, PlacementName);

/// `best | worst | n1,n2`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SubmitTo(pub(crate) client::Submit);

impl std::str::FromStr for SubmitTo {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let nodes = match text {
            "best" => return Ok(Self(client::Submit::Best)),
            "worst" => return Ok(Self(client::Submit::Worst)),
            _ => text.split(',').map(parse_node).collect::<Result<Vec<_>, _>>(),
        };
        let nodes = nodes.map_err(|_| {
            format!("'{text}' is neither best, worst nor a list of nodes such as n0,n2")
        })?;
        Ok(Self(client::Submit::Nodes(nodes)))
    }
}

/// `n2` or `2`.
pub(crate) fn parse_node(text: &str) -> Result<proto::NodeId, String> {
    let number = text.strip_prefix('n').unwrap_or(text);
    number.parse().map(proto::NodeId).map_err(|_| format!("'{text}' is not a node such as n2"))
}

/// `--timeout 10m`.
#[derive(Args, Clone, Debug)]
pub(crate) struct TimeoutArgs {
    /// Give up after this long
    #[arg(long, value_name = "DURATION")]
    pub(crate) timeout: Option<Timespan>,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;
    use crate::common::errors::{Exit, usage_of_clap};

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn nodes_to_submit_to() {
        let nodes = |text: &str| text.parse::<SubmitTo>().map(|to| to.0);
        assert_eq!(nodes("best"), Ok(client::Submit::Best));
        let two = vec![proto::NodeId(0), proto::NodeId(2)];
        assert_eq!(nodes("n0,2"), Ok(client::Submit::Nodes(two)));
        assert!(nodes("middle").is_err());
    }

    #[test]
    fn a_node_scrubs_at_the_given_interval() {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            scrub: ScrubArgs,
        }
        let every = |words: &[&str]| {
            let words = ["starling"].iter().chain(words);
            let line = Line::try_parse_from(words).unwrap();
            line.scrub.resolve(&Settings::none()).unwrap()
        };
        assert_eq!(every(&[]), Some(Duration::from_nanos(proto::limits::SCRUB_INTERVAL.0)));
        assert_eq!(every(&["--scrub-every", "0"]), None);
        for told in [None, Some(Duration::from_secs(90)), Some(Duration::from_nanos(7))] {
            let [flag, value] = ScrubArgs::flags(told);
            assert_eq!(every(&[&flag, &value]), told);
        }
    }

    #[test]
    fn output_limits_follow_the_flags() {
        #[derive(Parser)]
        struct Line {
            #[command(flatten)]
            captured: CapturedArgs,
        }
        let room = |words: &[String]| {
            let words = std::iter::once("starling").chain(words.iter().map(String::as_str));
            let line = Line::try_parse_from(words).unwrap();
            line.captured.resolve(&Settings::none()).unwrap()
        };
        assert_eq!(room(&[]), CapturedRoom::default());
        for told in [
            CapturedRoom::default(),
            CapturedRoom { task_bytes: None, node_bytes: Some(0) },
            CapturedRoom { task_bytes: Some(1), node_bytes: Some(1 << 40) },
        ] {
            assert_eq!(room(&CapturedArgs::flags(told)), told);
        }
    }

    /// Both lines of the error for a wrong command line.
    fn wrong(line: &str) -> String {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let error = Cli::try_parse_from(&words).unwrap_err();
        let failure = usage_of_clap(&error, &words[1..]);
        assert_eq!(failure.exit, Exit::Usage);
        failure.render()
    }

    #[test]
    fn wrong_usage_is_one_line_and_a_hint() {
        assert_eq!(
            wrong("starling run bag:tasks=1 --nodes 0"),
            "error: invalid value '0' for '--nodes <NODES>': 0 is not in 1..=1048576\n\
             hint: see 'starling run --help'\n"
        );
        assert_eq!(
            wrong("starling job lst"),
            "error: unrecognized subcommand 'lst'\n\
             hint: a similar subcommand exists: 'list'\n"
        );
        assert_eq!(
            wrong("starling run"),
            "error: the following required arguments were not provided: <WORKFLOW>\n\
             hint: usage: starling run <WORKFLOW> [-- <COMMAND>...]\n"
        );
        assert_eq!(
            wrong("starling run bag:tasks=1 --timeout soon"),
            "error: invalid value 'soon' for '--timeout <DURATION>': 'soon' is not a duration \
             such as 90s, 1h 30m or 50ms\n\
             hint: see 'starling run --help'\n"
        );
    }
}
