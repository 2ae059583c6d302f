//! A cluster for one benchmark, and the resources that it has used so far.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Context;
use client::{Client, SubmitOptions};
use proto::wire;
use rustix::time::{ClockId, clock_gettime};
use scheduler::Tuning;
use verb::local::embed;
use verb::local::plan::{ClusterPlan, check_replicas, warn_insecure};
use workloads::Graph;

use super::{BenchFailure, Resolved};

/// The timeout of a node's answer; after it the node is not measured.
const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Debug)]
pub(super) struct Cluster {
    // In this order: the client is dropped before the nodes.
    client: Client,
    nodes: embed::Cluster,
}

/// CPU time so far, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cpu {
    client_ns: u64,
    nodes_ns: u64,
}

impl Cpu {
    pub(super) fn since_us(&self, before: &Self) -> f64 {
        let total = |cpu: &Self| cpu.client_ns + cpu.nodes_ns;
        (total(self) - total(before)) as f64 / 1e3
    }
    pub(super) fn client_since_us(&self, before: &Self) -> f64 {
        (self.client_ns - before.client_ns) as f64 / 1e3
    }
}

/// The time at which a finished job was accepted.
#[derive(Debug)]
pub(super) struct JobTimes {
    pub(super) accepted: Instant,
}

impl Cluster {
    pub(super) async fn start(setting: Resolved) -> anyhow::Result<Self> {
        let plan = ClusterPlan::new(setting.nodes, setting.slots, Tuning::default());
        let replicas = check_replicas(setting.replicas, setting.nodes).map_err(BenchFailure)?;
        let plan = ClusterPlan { insecure: setting.insecure, replicas, ..plan };
        if plan.insecure {
            warn_insecure();
        }
        let nodes = embed::Cluster::start(&plan, setting.processes).await.map_err(BenchFailure)?;
        let client = Client::connect(nodes.dir()).await?;
        Ok(Self { client, nodes })
    }

    pub(super) fn client(&self) -> &Client {
        &self.client
    }

    /// Submits, waits for the end, and refuses to measure a failed job.
    pub(super) async fn run(
        &self,
        graph: &Graph,
        options: SubmitOptions,
    ) -> anyhow::Result<JobTimes> {
        let handle = self.client.submit(graph, options).await?;
        let accepted = Instant::now();
        let end = self.client.raw().wait_job(handle.job, |_| {}).await?;
        let done = end.sum.as_ref().map_or(0, |sum| sum.done);
        let failure = end.sum.iter().flat_map(|sum| &sum.failures).next();
        let why = failure.map(|failure| failure.error.as_str()).unwrap_or_default();
        anyhow::ensure!(done == graph.len() as u64, "{done} of {} tasks done: {why}", graph.len());
        Ok(JobTimes { accepted })
    }

    pub(super) async fn node_states(&self) -> anyhow::Result<Vec<wire::NodeState>> {
        let states = self.client.raw().node_states(PATIENCE).await;
        states.into_iter().map(|(_, state)| state.map_err(Into::into)).collect()
    }

    /// The CPU time of all processes. Nodes in this process are part of the client's figure.
    pub(super) async fn cpu(&self) -> anyhow::Result<Cpu> {
        let nodes_ns = match self.nodes.is_one_process() {
            true => 0,
            false => self.node_states().await?.iter().map(|state| state.cpu_ns).sum(),
        };
        let used = clock_gettime(ClockId::ProcessCPUTime);
        let client_ns = used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64;
        Ok(Cpu { client_ns, nodes_ns })
    }

    /// The processes of the nodes, each once.
    pub(super) async fn pids(&self) -> anyhow::Result<BTreeSet<u32>> {
        let pid = |state: wire::NodeState| {
            state.member.map(|member| member.pid).context("a node did not send its id")
        };
        self.node_states().await?.into_iter().map(pid).collect()
    }

    /// The present resident memory of the nodes' processes.
    pub(super) async fn resident_bytes(&self) -> anyhow::Result<u64> {
        self.pids().await?.into_iter().map(resident_bytes).sum()
    }
}

/// The graph of a generator's text.
pub(super) fn generate(text: &str) -> anyhow::Result<Graph> {
    workloads::generate(text).with_context(|| text.to_owned())
}

fn resident_bytes(pid: u32) -> anyhow::Result<u64> {
    let path = format!("/proc/{pid}/smaps_rollup");
    let text = std::fs::read_to_string(&path).with_context(|| path.clone())?;
    let line = text.lines().find(|line| line.starts_with("Rss:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)).and_then(|n| n.parse().ok());
    let kib: u64 = kib.with_context(|| format!("{path} says no resident size"))?;
    Ok(kib * 1024)
}
