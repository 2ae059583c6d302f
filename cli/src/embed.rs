//! A cluster that lives as long as this verb: in this process, or one process a node.

use std::path::Path;
use std::time::Duration;

use daemon::{NodeHandle, NodeOptions};
use proto::NodeId;
use scheduler::{Policy, Tuning};

use crate::Context;
use crate::args::ClusterArgs;
use crate::errors::{Failure, plain};
use crate::output::say;
use crate::processes::{self, Life, NodeProcess};
use crate::units::Bandwidth;

const STOP_PATIENCE: Duration = Duration::from_secs(20);
/// How often a run looks whether its nodes are still there.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// What nodes are made of, with flags and settings resolved.
#[derive(Clone, Debug)]
pub(crate) struct ClusterPlan {
    pub(crate) nodes: u32,
    /// Of each node.
    pub(crate) slots: u32,
    pub(crate) policy: Policy,
    pub(crate) bandwidth: Bandwidth,
    pub(crate) tuning: Tuning,
    /// Without keys and encryption.
    pub(crate) insecure: bool,
}

/// However quiet a command is meant to be.
pub(crate) fn warn_insecure() {
    say("warning: --insecure: nothing is encrypted and nobody is asked who it is: \
         whoever has an account on this machine can run commands as this user");
}

impl ClusterPlan {
    /// `nodes` overrides what the settings say, where an instance has a number already.
    pub(crate) fn resolve(
        context: &Context,
        args: &ClusterArgs,
        nodes: Option<u32>,
    ) -> Result<Self, Failure> {
        let settings = &context.settings;
        let nodes: u32 = settings.pick(args.nodes.or(nodes), "nodes")?;
        let slots: Option<u32> = settings.pick_optional(args.slots, "slots")?;
        if nodes == 0 || slots == Some(0) {
            return Err(Failure::usage("nodes and slots are at least 1"));
        }
        let slots = slots.unwrap_or_else(|| default_slots(nodes));
        let tuning = args.tuning.resolve(context)?;
        let replicas: u32 = settings.pick(args.replicas, "replicas")?;
        if replicas != 1 {
            let text = format!("{replicas} copies of each partition: this version keeps one");
            return Err(Failure::refused(text).hint("leave out --replicas"));
        }
        if args.insecure {
            warn_insecure();
        }
        Ok(Self { insecure: args.insecure, ..Self::new(nodes, slots, tuning) })
    }

    pub(crate) fn new(nodes: u32, slots: u32, tuning: Tuning) -> Self {
        let bandwidth = Bandwidth { bytes_per_s: tuning.bandwidth_bytes_per_s };
        Self { nodes, slots, policy: tuning.policy, bandwidth, tuning, insecure: false }
    }

    pub(crate) fn total_slots(&self) -> u32 {
        self.nodes.saturating_mul(self.slots)
    }
}

/// Each node's share of the machine's CPUs.
pub(crate) fn default_slots(nodes: u32) -> u32 {
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
    (cpus / nodes).max(1)
}

/// A cluster in a temporary directory. Dropping it ends the nodes and removes the directory.
#[derive(Debug)]
pub(crate) struct Cluster {
    // In this order: the nodes end before their directory goes.
    nodes: Nodes,
    dir: tempfile::TempDir,
}

#[derive(Debug)]
enum Nodes {
    Here(Vec<NodeHandle>),
    Processes(Vec<NodeProcess>),
}

impl Drop for Nodes {
    fn drop(&mut self) {
        match self {
            Self::Here(handles) => {
                handles.iter().for_each(NodeHandle::request_stop);
                for handle in handles.drain(..) {
                    if let Err(error) = handle.join() {
                        say(&format!("warning: {error}"));
                    }
                }
            }
            Self::Processes(processes) => {
                processes.iter_mut().for_each(NodeProcess::release);
                processes.iter_mut().for_each(|process| process.wait(STOP_PATIENCE));
            }
        }
    }
}

impl Cluster {
    pub(crate) async fn start(plan: &ClusterPlan, as_processes: bool) -> Result<Self, Failure> {
        Self::start_prepared(plan, as_processes, |_| Ok(())).await
    }

    /// As [`Self::start`], in a directory where something is before the nodes are.
    pub(crate) async fn start_prepared(
        plan: &ClusterPlan,
        as_processes: bool,
        prepare: impl FnOnce(&Path) -> anyhow::Result<()>,
    ) -> Result<Self, Failure> {
        let dir = tempfile::Builder::new().prefix("starling-run-").tempdir().map_err(|error| {
            Failure::refused(format!("cannot make a temporary directory: {}", plain(&error)))
                .hint("set TMPDIR to a directory with space")
        })?;
        prepare(dir.path()).map_err(|error| Failure::refused(format!("{error:#}")))?;
        if as_processes {
            let mut cluster = Self { nodes: Nodes::Processes(Vec::new()), dir };
            let Nodes::Processes(started) = &mut cluster.nodes else { unreachable!("just made") };
            for node in 0..plan.nodes {
                started.push(processes::spawn(cluster.dir.path(), node, plan, Life::Ours)?);
            }
            processes::await_listening(cluster.dir.path(), started).await?;
            return Ok(cluster);
        }
        let base = NodeOptions {
            slots: plan.slots,
            tuning: plan.tuning,
            insecure: plan.insecure,
            ..NodeOptions::new(dir.path(), NodeId(0), plan.nodes)
        };
        // The directory goes along: an interrupt must not remove it under nodes that start.
        let start = move || daemon::start_all(&base).map(|nodes| (nodes, dir));
        let started = tokio::task::spawn_blocking(start).await;
        let (nodes, dir) = started.expect("starting does not panic")?;
        Ok(Self { nodes: Nodes::Here(nodes), dir })
    }

    /// Comes back when a node has ended by itself, with the reason.
    pub(crate) async fn lost_node(&mut self) -> Failure {
        loop {
            let ended = match &mut self.nodes {
                Nodes::Here(handles) => {
                    let ended = handles.iter().position(NodeHandle::is_finished);
                    ended.map(|at| match handles.swap_remove(at).join() {
                        Err(error) => error.into(),
                        Ok(()) => Failure::lost("a node of the run has stopped"),
                    })
                }
                Nodes::Processes(started) => started.iter_mut().find_map(NodeProcess::ended),
            };
            if let Some(failure) = ended {
                return failure;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Ends the nodes while this runtime goes on: their streams to us must be able to end.
    pub(crate) async fn stop(self) {
        let stopped = tokio::task::spawn_blocking(move || drop(self)).await;
        stopped.expect("stopping does not panic");
    }

    pub(crate) fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Whether all nodes share this process.
    pub(crate) fn is_one_process(&self) -> bool {
        matches!(self.nodes, Nodes::Here(_))
    }
}
