//! The nodes of a cluster on this machine, by flags and settings.

use std::time::Duration;

use daemon::CapturedRoom;
use proto::limits::NODES_MAX;
use scheduler::{Policy, Tuning};

use crate::errors::Failure;
use crate::flags::ClusterArgs;
use crate::flags::life::LifePlan;
use crate::flags::needs::OfferPlan;
use crate::output::say;
use crate::settings::Settings;
use crate::units::{Bandwidth, number_of};

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
    pub life: LifePlan,
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
        let offer = args.offer.resolve(settings)?;
        let slots = offer.slots(args.slots)?.or(slots).unwrap_or_else(|| default_slots(nodes));
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
        offer.offer(0, 1)?; // Before a node starts.
        let life = args.life.resolve()?;
        Ok(Self { offer, life, insecure, replicas, scrub_every, captured, hides_slurm, ..plan })
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
            life: LifePlan::default(),
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
