/*!
`starling bench`: each verb measures one thing in several rounds, and prints median, least and most.

Two contenders take turns within a round, so that other load on the machine affects both; their
ratio counts. A benchmark is no test: it does not fail because of a bad figure.
*/

mod calibrate;
mod call;
mod chain;
mod children;
mod cluster;
mod command;
mod copies;
mod failover;
mod kv;
mod latencies;
mod memory;
mod noop;
mod other_stores;
mod report;
mod reruns;
mod sleep;
mod submit;
mod transfer;
mod unary;

use clap::{Args, Subcommand};
use verb::Context;
use verb::errors::{Done, Exit, Failure};

use self::cluster::Cluster;
use self::report::{Report, Round};

#[derive(Args, Debug)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: Benchmark,
}

/// The benchmark.
#[derive(Subcommand, Debug)]
enum Benchmark {
    /// No-op tasks from the first byte of the submission to the last completion
    Noop(Setting),
    /// Sleeping tasks: the length of the run over the ideal
    Sleep(SleepArgs),
    /// A chain: time per hop, across nodes and on one, against a gRPC round trip
    Chain(Setting),
    /// `true` as a command, against the machine's own rate of starting it
    Command(Setting),
    /// Calls of a Python function that does nothing
    Call(Setting),
    /// Key-value operations, batched and single, beside an installed Redis. With several replicas
    /// one by one, beside etcd and Redis with as many
    Kv(KvArgs),
    /// Node failures: how long writes wait, and the remaining rate of tasks
    Failover(failover::FailoverArgs),
    /// Acceptance of tasks, which do not run
    Submit(Setting),
    /// Memory of waiting tasks, over all nodes
    Memory(Setting),
    /// The cost of a node's work: service times for the simulator
    Calibrate(calibrate::CalibrateArgs),
    /// Objects from node to node, 4 KiB to 1 GiB, against raw TCP or TLS of the same bytes
    Transfer(transfer::TransferArgs),
}

/// The arguments of all benchmarks. A missing flag gets the benchmark's own value.
#[derive(Args, Clone, Debug)]
struct Setting {
    /// Nodes of the cluster
    #[arg(long)]
    nodes: Option<u32>,
    /// Slots of each node
    #[arg(long)]
    slots: Option<u32>,
    /// Tasks (or hops, or operations) in a round
    #[arg(long)]
    tasks: Option<u64>,
    /// Number of rounds
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Run each node as a separate process
    #[arg(long)]
    processes: bool,
    /// Replicas of each partition
    #[arg(long, value_name = "R", default_value_t = 1)]
    #[arg(value_parser = verb::flags::replicas_parser())]
    replicas: u32,
    /// Connections are not encrypted, to show the cost of encryption
    #[arg(long)]
    insecure: bool,
}

#[derive(Args, Clone, Debug)]
struct SleepArgs {
    #[command(flatten)]
    setting: Setting,
    /// Duration of a task's sleep
    #[arg(long, default_value_t = 50, value_name = "MILLISECONDS")]
    duration_ms: u32,
}

#[derive(Args, Clone, Debug)]
struct KvArgs {
    #[command(flatten)]
    setting: Setting,
    /// Operations sent together
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,
    /// Concurrent callers
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    callers: u32,
    /// Bytes of a value
    #[arg(long, default_value_t = 132)]
    value_bytes: u32,
}

/// A setting with the benchmark's own values filled in.
#[derive(Clone, Copy, Default, Debug)]
struct Resolved {
    nodes: u32,
    slots: u32,
    tasks: u64,
    rounds: u32,
    processes: bool,
    replicas: u32,
    insecure: bool,
}

impl Setting {
    fn resolve(&self, nodes: u32, slots: u32, tasks: u64) -> Resolved {
        Resolved {
            nodes: self.nodes.unwrap_or(nodes),
            slots: self.slots.unwrap_or(slots),
            tasks: self.tasks.unwrap_or(tasks),
            rounds: self.rounds,
            processes: self.processes,
            replicas: self.replicas,
            insecure: self.insecure,
        }
    }
}

/// Runs one benchmark and prints its report.
pub fn run(context: &Context, args: &BenchArgs) -> Done {
    if let Benchmark::Transfer(args) = &args.what {
        let table = on_a_runtime(transfer::run(args)).map_err(failure)?;
        match context.output.json {
            true => context.output.raw_line(&table.to_json().map_err(failure)?)?,
            false => context.output.bytes(table.to_text().as_bytes())?,
        }
        return Ok(Exit::Ok);
    }
    let report = measure(args).map_err(failure)?;
    match context.output.json {
        true => context.output.raw_line(&report.to_json())?,
        false => context.output.bytes(report.to_text().as_bytes())?,
    }
    Ok(Exit::Ok)
}

fn measure(args: &BenchArgs) -> anyhow::Result<Report> {
    on_a_runtime(async {
        match &args.what {
            Benchmark::Noop(setting) => noop::run(setting).await,
            Benchmark::Sleep(args) => sleep::run(args).await,
            Benchmark::Chain(setting) => chain::run(setting).await,
            Benchmark::Command(setting) => command::run(setting).await,
            Benchmark::Call(setting) => call::run(setting).await,
            Benchmark::Kv(args) if args.setting.replicas > 1 => copies::run(args).await,
            Benchmark::Kv(args) => kv::run(args).await,
            Benchmark::Failover(args) => failover::run(args).await,
            Benchmark::Submit(setting) => submit::run(setting).await,
            Benchmark::Calibrate(args) => calibrate::run(args).await,
            Benchmark::Memory(setting) => memory::run(setting).await,
            Benchmark::Transfer(_) => unreachable!("it has a table of its own"),
        }
    })
}

/// Runs until the end, or until an interrupt.
fn on_a_runtime<T>(measured: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        tokio::select! {
            report = measured => report,
            () = verb::interrupted() => Err(BenchFailure(Failure::interrupted()).into()),
        }
    })
}

/// A failure with its exit code, as an error.
#[derive(Debug)]
struct BenchFailure(Failure);

impl std::fmt::Display for BenchFailure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.message)
    }
}
impl std::error::Error for BenchFailure {}

/// The exit code of the error's cause; a cause without one counts as the cluster's fault.
fn failure(error: anyhow::Error) -> Failure {
    let error = match error.downcast::<BenchFailure>() {
        Ok(BenchFailure(failure)) => return failure,
        Err(error) => error,
    };
    let error = match error.downcast::<client::ClientError>() {
        Ok(error) => return error.into(),
        Err(error) => error,
    };
    match error.downcast_ref::<workloads::GeneratorError>() {
        Some(_) => Failure::refused(format!("{error:#}")),
        None => Failure::lost(format!("{error:#}")),
    }
}
