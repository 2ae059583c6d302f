//! The cost of a node failure for the users of the cluster.
//!
//! *Writes*: callers insert continuously, each on its own key. The home of the key is the failing
//! node, or that node has a replica of it, or neither. Each caller's longest insert around a kill
//! shows how long writes waited.
//!
//! *Tasks*: the same bag of sleeping tasks without kills, and with a kill in each interval. The
//! node is restarted a second later. The event logs show how soon its tasks run elsewhere. The
//! sleeps occupy slots and not CPUs, so that the machine is not the limit.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use client::{Client, ClientOptions, SubmitOptions};
use daemon::Clock;
use proto::{JobId, NodeId, PartitionId};
use scheduler::Tuning;
use verb::cluster::logs::Logs;
use verb::cluster::survival;
use verb::local::plan::{ClusterPlan, check_replicas};
use verb::local::processes::{self, NodeIdentity, NodeProcess, ProcessLifetime};

use super::latencies::Latencies;
use super::report::Report;
use super::reruns::Reruns;
use super::{BenchFailure, Resolved, Round, cluster};

/// A write that takes longer than this has failed.
const PATIENCE: Duration = Duration::from_secs(60);
/// The number of callers of each kind.
const CALLERS: usize = 4;
/// Callers run for this time before a kill, and for this time after it, until none of them waits.
const BEFORE: Duration = Duration::from_millis(500);
const AFTER: Duration = Duration::from_secs(6);
const PAUSE: Duration = Duration::from_millis(2);
const AWAY: Duration = Duration::from_secs(1);
const WHOLE_WITHIN: Duration = Duration::from_secs(120);

#[derive(Args, Clone, Debug)]
pub(super) struct FailoverArgs {
    /// Nodes of the cluster
    #[arg(long, default_value_t = 5)]
    nodes: u32,
    /// Slots of each node
    #[arg(long, default_value_t = 8)]
    slots: u32,
    /// Replicas of each partition
    #[arg(long, value_name = "R", default_value_t = 3)]
    #[arg(value_parser = verb::flags::replicas_parser())]
    replicas: u32,
    /// Number of kills while writes are measured
    #[arg(long, default_value_t = 20)]
    kills: u32,
    /// Number of measurements of the run of tasks, without kills and with them
    #[arg(long, default_value_t = 1)]
    rounds: u32,
    /// Tasks of a run
    #[arg(long, default_value_t = 72_000)]
    tasks: u64,
    /// Duration of a task's sleep
    #[arg(long, default_value_t = 50, value_name = "MILLISECONDS")]
    duration_ms: u32,
    /// Interval between kills while tasks are measured
    #[arg(long, default_value_t = 30, value_name = "SECONDS")]
    every_s: u32,
    /// Connections are not encrypted
    #[arg(long)]
    insecure: bool,
}

/// Node processes that are killed and restarted.
struct Nodes {
    dir: tempfile::TempDir,
    plan: ClusterPlan,
    processes: Vec<NodeProcess>,
    client: Client,
}

impl Drop for Nodes {
    fn drop(&mut self) {
        self.processes.iter_mut().for_each(NodeProcess::abandon);
    }
}

impl Nodes {
    async fn start(args: &FailoverArgs) -> anyhow::Result<Self> {
        let plan = ClusterPlan::new(args.nodes, args.slots, Tuning::default());
        let replicas = check_replicas(args.replicas, args.nodes).map_err(BenchFailure)?;
        let plan = ClusterPlan { replicas, insecure: args.insecure, ..plan };
        let dir = tempfile::Builder::new().prefix("starling-bench-").tempdir()?;
        let mut processes = Vec::new();
        for node in 0..plan.nodes {
            processes.push(
                processes::spawn(
                    dir.path(),
                    NodeIdentity::Member(node),
                    &plan,
                    ProcessLifetime::Ours,
                )
                .map_err(BenchFailure)?,
            );
        }
        processes::await_listening(dir.path(), &mut processes).await.map_err(BenchFailure)?;
        let options = ClientOptions { request_timeout: PATIENCE };
        let client = Client::connect_with(dir.path(), options).await?;
        let nodes = Self { dir, plan, processes, client };
        nodes.await_whole().await?;
        Ok(nodes)
    }

    fn dir(&self) -> &Path {
        self.dir.path()
    }

    async fn await_whole(&self) -> anyhow::Result<()> {
        let deadline = Instant::now() + WHOLE_WITHIN;
        while self.plan.replicas > 1 && !survival::is_fully_replicated(&self.client).await {
            anyhow::ensure!(Instant::now() < deadline, "the replicas do not become complete again");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    async fn start_again(&mut self, victim: usize) -> anyhow::Result<()> {
        let node = victim as u32;
        let process = processes::spawn(
            self.dir(),
            NodeIdentity::Member(node),
            &self.plan,
            ProcessLifetime::Ours,
        )
        .map_err(BenchFailure)?;
        self.processes[victim] = process;
        let dir = self.dir.path().to_owned();
        processes::await_listening(&dir, &mut self.processes).await.map_err(BenchFailure)?;
        Ok(())
    }

    /// Keys of partitions with replicas that satisfy `stands`.
    fn keys(&self, stands: impl Fn(&[u32]) -> bool) -> Vec<Vec<u8>> {
        let map = self.client.raw().map();
        let partitions = map.partitions.len() as u32;
        let fits = |key: &Vec<u8>| {
            let PartitionId(at) = kvs::key_partition(key, partitions);
            stands(&map.partitions[at as usize].replicas)
        };
        // Bounded: with few partitions there may be none that fits.
        let all = (0..100_000_u32).map(|number| format!("failover-{number}").into_bytes());
        all.filter(fits).take(CALLERS).collect()
    }
}

pub(super) async fn run(args: &FailoverArgs) -> anyhow::Result<Report> {
    let resolved = Resolved {
        nodes: args.nodes,
        slots: args.slots,
        tasks: args.tasks,
        rounds: args.rounds,
        processes: true,
        replicas: args.replicas,
        insecure: args.insecure,
    };
    let mut report = Report::new("failover", resolved);
    let mut nodes = Nodes::start(args).await?;
    let mut waits = InsertDelays::default();
    for kill in 0..args.kills {
        report.add(around_a_kill(&mut nodes, (kill % args.nodes) as usize, &mut waits).await?);
    }
    let mut reruns = Reruns::default();
    for _ in 0..args.rounds {
        report.add(tasks_with_kills(&mut nodes, args, &mut reruns).await?);
    }
    waits.add_to(&mut report, args.kills);
    add_reruns(&mut report, &reruns);
    Ok(report)
}

/// The longest inserts of all callers around all kills.
#[derive(Default)]
struct InsertDelays {
    home: Latencies,
    copy: Latencies,
    apart: Latencies,
    errors: u64,
}

impl InsertDelays {
    fn add_to(&self, report: &mut Report, kills: u32) {
        let lists = [("home", &self.home), ("copy", &self.copy), ("apart", &self.apart)];
        for (name, latencies) in lists {
            if let Some(percentiles) = percentiles(latencies) {
                report.note(format!(
                    "{name}: longest insert of a caller around a kill, {percentiles} ({} callers \
                     over {kills} kills)",
                    latencies.calls()
                ));
            }
        }
        report.note(format!("{} inserts failed", self.errors));
    }
}

fn add_reruns(report: &mut Report, reruns: &Reruns) {
    let lists = [
        ("their homes give them a further attempt", &reruns.noticed),
        ("they wait for a slot elsewhere", &reruns.placed),
        ("they start there", &reruns.rerun),
    ];
    for (what, latencies) in lists {
        if let Some(percentiles) = percentiles(latencies) {
            report.note(format!(
                "tasks that ran on a killed node, until {what}: {percentiles} ({} tasks)",
                latencies.calls()
            ));
        }
    }
}

/// The 50th and the 99th percentile in milliseconds.
fn percentiles(latencies: &Latencies) -> Option<String> {
    let ms = |percent| Some(latencies.percentile(percent)?.as_secs_f64() * 1e3);
    Some(format!("p50 {:.0} ms, p99 {:.0} ms", ms(50.0)?, ms(99.0)?))
}

/// The callers of one kind.
struct Callers {
    stop: Arc<AtomicBool>,
    tasks: tokio::task::JoinSet<(Duration, u64)>,
}

impl Callers {
    fn start(client: &Client, keys: Vec<Vec<u8>>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = tokio::task::JoinSet::new();
        for key in keys {
            let (kv, is_over) = (client.kv(), Arc::clone(&stop));
            tasks.spawn(async move {
                let (mut longest, mut errors) = (Duration::ZERO, 0);
                while !is_over.load(Ordering::Relaxed) {
                    let start = Instant::now();
                    errors += u64::from(kv.insert(&key, b"value").await.is_err());
                    longest = longest.max(start.elapsed());
                    tokio::time::sleep(PAUSE).await;
                }
                (longest, errors)
            });
        }
        Self { stop, tasks }
    }

    /// The longest insert of each caller, and the number of all failed inserts.
    async fn end(mut self) -> anyhow::Result<(Latencies, u64)> {
        self.stop.store(true, Ordering::Relaxed);
        let (mut longest, mut errors) = (Latencies::default(), 0);
        while let Some(caller) = self.tasks.join_next().await {
            let (took, failed) = caller?;
            longest.record(took);
            errors += failed;
        }
        Ok((longest, errors))
    }
}

async fn around_a_kill(
    nodes: &mut Nodes,
    victim: usize,
    waits: &mut InsertDelays,
) -> anyhow::Result<Round> {
    let node = victim as u32;
    let home = nodes.keys(|replicas| replicas.first() == Some(&node));
    let copy = nodes.keys(|replicas| replicas[1..].contains(&node));
    let apart = nodes.keys(|replicas| !replicas.contains(&node));
    let callers = [home, copy, apart].map(|keys| Callers::start(&nodes.client, keys));
    tokio::time::sleep(BEFORE).await;
    nodes.processes[victim].abandon();
    tokio::time::sleep(AFTER).await;
    let mut round = Round::new();
    let [home, copy, apart] = callers;
    let lists = [
        ("home_wait_ms", home, &mut waits.home),
        ("copy_wait_ms", copy, &mut waits.copy),
        ("apart_wait_ms", apart, &mut waits.apart),
    ];
    for (name, callers, all) in lists {
        let (longest, errors) = callers.end().await?;
        round.extend(longest.longest().map(|most| (name, most.as_secs_f64() * 1e3)));
        all.extend(&longest);
        waits.errors += errors;
    }
    nodes.start_again(victim).await?;
    nodes.await_whole().await?;
    Ok(round)
}

async fn tasks_with_kills(
    nodes: &mut Nodes,
    args: &FailoverArgs,
    reruns: &mut Reruns,
) -> anyhow::Result<Round> {
    let clock = Clock::start();
    let text = format!("bag:tasks={},body=sleep,duration={}ms", args.tasks, args.duration_ms);
    let (_, without_s) = run_to_the_end(nodes.client.clone(), text.clone()).await?;
    let every = Duration::from_secs(args.every_s.into());
    let start = Instant::now();
    let mut run = tokio::spawn(run_to_the_end(nodes.client.clone(), text));
    let mut kills = 0_u32;
    let mut killed = Vec::new();
    let (job, with_s) = loop {
        let next = tokio::time::sleep_until((start + every * kills + every / 2).into());
        tokio::select! {
            ended = &mut run => break ended??,
            () = next => {}
        }
        let victim = (kills % args.nodes) as usize;
        killed.push((clock.now(), NodeId(victim as u32)));
        nodes.processes[victim].abandon();
        tokio::time::sleep(AWAY).await;
        nodes.start_again(victim).await?;
        kills += 1;
    };
    nodes.await_whole().await?;
    reruns.kills(&killed);
    let logs = Logs::read(&nodes.client, job, None).await.map_err(BenchFailure)?;
    logs.for_each(|entry| {
        reruns.see(entry);
        Ok(())
    })
    .map_err(BenchFailure)?;
    let tasks = args.tasks as f64;
    Ok(vec![
        ("tasks_per_s", tasks / without_s),
        ("tasks_per_s_with_kills", tasks / with_s),
        ("kills_while_running", f64::from(kills)),
        ("rate_left", without_s / with_s),
    ])
}

/// Runs a job; returns it with its duration in seconds.
async fn run_to_the_end(client: Client, text: String) -> anyhow::Result<(JobId, f64)> {
    let graph = cluster::generate(&text)?;
    let start = Instant::now();
    let handle = client.submit(&graph, SubmitOptions::default()).await?;
    let end = client.raw().wait_job(handle.job, |_| {}).await?;
    let done = end.sum.as_ref().map_or(0, |sum| sum.done);
    anyhow::ensure!(done == graph.len() as u64, "{done} of {} tasks done", graph.len());
    Ok((handle.job, start.elapsed().as_secs_f64()))
}
