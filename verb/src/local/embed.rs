//! A cluster that lives as long as this verb: in this process, or with a process for each node.

use std::path::Path;
use std::time::Duration;

use daemon::{CapturedRoom, NodeHandle, NodeOptions};
use proto::NodeId;
use proto::limits::NODES_MAX;
use scheduler::{Policy, Tuning};

use crate::errors::{Failure, plain};
use crate::flags::ClusterArgs;
use crate::flags::needs::OfferPlan;
use crate::local::processes::{self, NodeIdentity, NodeProcess, ProcessLifetime};
use crate::local::run_dir::RunDir;
use crate::output::say;
use crate::settings::Settings;
use crate::units::{Bandwidth, number_of};

const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// The interval at which a run checks that its nodes are alive.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The options of the nodes, with flags and settings resolved.
#[derive(Clone, Debug)]
pub struct ClusterPlan {
    pub nodes: u32,
    /// The slots of each node.
    pub slots: u32,
    pub policy: Policy,
    pub bandwidth: Bandwidth,
    pub tuning: Tuning,
    /// The pools and labels of each node.
    pub offer: OfferPlan,
    /// Replicas of each partition.
    pub replicas: u32,
    /// The interval at which a node reads all of its records; `None`: never.
    pub scrub_every: Option<Duration>,
    pub captured: CapturedRoom,
    /// Tasks see nothing of a node's Slurm allocation.
    pub hides_slurm: bool,
    /// Without keys and encryption.
    pub insecure: bool,
}

/// The values of an existing instance.
#[derive(Clone, Copy, Debug)]
pub struct Present {
    pub nodes: u32,
    pub replicas: u32,
}

/// Nodes that outlive the command that starts them keep two replicas, once there are two nodes.
pub const REPLICAS_DEFAULT: u32 = 2;

/// The lifetime of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClusterLifetime {
    /// As long as one command: no node joins later.
    Run,
    /// Nodes may join and leave.
    Instance,
}

/// Checks that this number of nodes can keep the replicas.
pub fn check_replicas(replicas: u32, nodes: u32) -> Result<u32, Failure> {
    let most = nodes.min(proto::limits::COPIES_MAX);
    if (1..=most).contains(&replicas) {
        return Ok(replicas);
    }
    let nodes = number_of(u64::from(nodes), "node");
    let text = format!("{nodes} cannot keep {replicas} copies of each partition");
    Err(Failure::usage(text).hint(format!("--replicas is 1 to {most} here")))
}

/// Warns even with `--quiet`.
pub fn warn_insecure() {
    say("warning: --insecure: nothing is encrypted and no peer is authenticated: \
         any account of this machine can run commands as this user");
}

impl ClusterPlan {
    /// `present` overrides the settings if there is an instance already.
    pub fn resolve(
        settings: &Settings,
        args: &ClusterArgs,
        present: Option<Present>,
        lasts: ClusterLifetime,
    ) -> Result<Self, Failure> {
        let nodes: u32 =
            settings.pick(args.nodes.or_else(|| present.map(|it| it.nodes)), "nodes")?;
        let slots: Option<u32> = settings.pick_optional(args.slots, "slots")?;
        if nodes == 0 {
            return Err(Failure::usage("there is at least one node"));
        }
        if slots == Some(0) && lasts == ClusterLifetime::Run {
            return Err(Failure::usage("nodes of 0 slots run nothing")
                .hint("'starling up' and 'starling node' make such keepers"));
        }
        let slots = slots.unwrap_or_else(|| default_slots(nodes));
        let tuning = args.tuning.resolve(settings)?;
        let told = args.replicas.or_else(|| present.map(|it| it.replicas));
        let told: Option<u32> = settings.pick_optional(told, "replicas")?;
        let replicas = match lasts {
            ClusterLifetime::Run => check_replicas(told.unwrap_or(1), nodes)?,
            // Replicas without a node so far are made when nodes join.
            ClusterLifetime::Instance => {
                check_replicas(told.unwrap_or(REPLICAS_DEFAULT), NODES_MAX)?
            }
        };
        if args.insecure {
            warn_insecure();
        }
        let (insecure, scrub_every) = (args.insecure, args.scrub.resolve(settings)?);
        let captured = args.captured.resolve(settings)?;
        let plan = Self::new(nodes, slots, tuning);
        let hides_slurm = args.slurm.hides(settings)?;
        let offer = args.offer.resolve(settings)?;
        offer.offer(0, 1)?; // Before a node starts.
        Ok(Self { offer, insecure, replicas, scrub_every, captured, hides_slurm, ..plan })
    }

    pub fn new(nodes: u32, slots: u32, tuning: Tuning) -> Self {
        let bandwidth = Bandwidth { bytes_per_s: tuning.bandwidth_bytes_per_s };
        let policy = tuning.policy;
        let scrub_every = Some(Duration::from_nanos(proto::limits::SCRUB_INTERVAL.0));
        Self {
            nodes,
            slots,
            policy,
            bandwidth,
            tuning,
            offer: OfferPlan::default(),
            replicas: 1,
            scrub_every,
            captured: CapturedRoom::default(),
            hides_slurm: false,
            insecure: false,
        }
    }

    pub fn total_slots(&self) -> u32 {
        self.nodes.saturating_mul(self.slots)
    }
}

/// Each node's share of the machine's CPUs.
pub fn default_slots(nodes: u32) -> u32 {
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get() as u32);
    (cpus / nodes).max(1)
}

/// A cluster in a temporary directory. Dropping it ends the nodes and removes the directory.
#[derive(Debug)]
pub struct Cluster {
    // In this order: the nodes end before their directory is removed.
    nodes: Nodes,
    dir: RunDir,
    /// Replicas of each partition.
    replicas: u32,
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
                processes.iter_mut().for_each(|process| process.wait(STOP_TIMEOUT));
            }
        }
    }
}

impl Cluster {
    pub async fn start(plan: &ClusterPlan, as_processes: bool) -> Result<Self, Failure> {
        Self::start_prepared(plan, as_processes, |_| Ok(())).await
    }

    /// As [`Self::start`], in a directory that `prepare` fills before the nodes start.
    pub async fn start_prepared(
        plan: &ClusterPlan,
        as_processes: bool,
        prepare: impl FnOnce(&Path) -> anyhow::Result<()>,
    ) -> Result<Self, Failure> {
        let dir = RunDir::new().map_err(|error| {
            let (below, plain) = (std::env::temp_dir(), plain(&error));
            let text = format!("cannot make a temporary directory in {}: {plain}", below.display());
            Failure::refused(text).hint("set TMPDIR to a directory that can be written")
        })?;
        prepare(dir.path()).map_err(|error| Failure::refused(format!("{error:#}")))?;
        if as_processes {
            let (nodes, replicas) = (Nodes::Processes(Vec::new()), plan.replicas);
            let mut cluster = Self { nodes, dir, replicas };
            let Nodes::Processes(started) = &mut cluster.nodes else { unreachable!("just made") };
            for node in 0..plan.nodes {
                started.push(processes::spawn(
                    cluster.dir.path(),
                    NodeIdentity::Member(node),
                    plan,
                    ProcessLifetime::Ours,
                )?);
            }
            processes::await_listening(cluster.dir.path(), started).await?;
            return Ok(cluster);
        }
        let base = NodeOptions {
            slots: plan.slots,
            offers: plan.offer.offers(plan.nodes)?,
            tuning: plan.tuning,
            insecure: plan.insecure,
            replicas: Some(plan.replicas),
            scrub_every: plan.scrub_every,
            captured: plan.captured,
            hides_slurm: plan.hides_slurm,
            say: |line| say(&format!("warning: {line}")),
            ..NodeOptions::new(dir.path(), NodeId(0), plan.nodes)
        };
        // The closure owns the directory: an interrupt must not remove it under starting nodes.
        let start = move || daemon::start_all(&base).map(|nodes| (nodes, dir));
        let started = tokio::task::spawn_blocking(start).await;
        let (nodes, dir) = started.expect("starting does not panic")?;
        Ok(Self { nodes: Nodes::Here(nodes), dir, replicas: plan.replicas })
    }

    /// Returns the reason when a node has ended by itself and the others cannot go on without it.
    /// Prints a warning for other ended nodes.
    pub async fn lost_node(&mut self) -> Failure {
        let mut spare = self.replicas - 1;
        loop {
            let ended = match &mut self.nodes {
                Nodes::Here(handles) => {
                    let ended = handles.iter().position(NodeHandle::is_finished);
                    ended.map(|at| match handles.swap_remove(at).join() {
                        Err(error) => error.into(),
                        Ok(()) => Failure::lost("a node of the run has stopped"),
                    })
                }
                Nodes::Processes(started) => {
                    let mut ended = started.iter_mut().enumerate();
                    let ended = ended.find_map(|(at, it)| it.ended().map(|failure| (at, failure)));
                    ended.map(|(at, failure)| {
                        started.swap_remove(at);
                        failure
                    })
                }
            };
            match ended {
                Some(failure) if spare == 0 => return failure,
                Some(failure) => {
                    spare -= 1;
                    say(&format!("warning: {}; the others go on without it", failure.message));
                }
                None => {}
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Keeps the directory after the end of the cluster.
    pub fn keep(&mut self) {
        self.dir.keep();
    }

    /// Ends the nodes while this runtime still runs, so that their streams to this process can end.
    pub async fn stop(self) {
        let stopped = tokio::task::spawn_blocking(move || drop(self)).await;
        stopped.expect("stopping does not panic");
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// True if all nodes share this process.
    pub fn is_one_process(&self) -> bool {
        matches!(self.nodes, Nodes::Here(_))
    }
}
