//! The verbs, and the arguments of all of them.

use std::path::PathBuf;

use clap::{Parser, Subcommand};

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
    /// Inside a task: send events to other tasks of the job, and receive them
    #[command(subcommand)]
    Event(crate::inside::event::EventVerb),
    /// Inside a task on several nodes: run a command on another of its nodes
    Rsh(crate::inside::rsh::RshArgs),
    /// Variables of a job: values that its tasks share, inside a task or with --job
    #[command(subcommand)]
    Var(crate::inside::var::VarVerb),
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
    Token(crate::cluster::node::token::TokenVerb),
    /// Allocations of a batch system: nodes come when tasks wait for them
    #[command(subcommand)]
    Alloc(Box<crate::alloc::AllocVerb>),
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
    #[cfg(feature = "lab")]
    Check(lab::CheckArgs),
    /// Measure performance
    #[cfg(feature = "bench")]
    Bench(bench::BenchArgs),
    /// Evaluate: the figures of the paper beside those of Starling
    #[cfg(feature = "lab")]
    Eval(lab::EvalArgs),
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

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
