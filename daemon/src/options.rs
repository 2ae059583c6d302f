//! The options of a node's start.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use proto::{NodeId, limits};
use resources::limits::CPUS_MAX;
use resources::{EndOfLife, Name, Offer, Pool};
use scheduler::Tuning;
use security::Token;

use crate::error::StartError;
use crate::lifecycle::instance;
use crate::rpc::ConnectionLimits;
use crate::rpc::listen_addresses::Listen;

/// The shortest interval between two scrubs of the store.
const SCRUB_INTERVAL_MIN: Duration = Duration::from_secs(1);

/// The limits on captured output of tasks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CapturedRoom {
    /// The limit of one task, which is killed when it prints more. `None`: the limit of its node.
    pub task_bytes: Option<u64>,
    /// The limit of all tasks on the node. `None`: a share of its store.
    pub node_bytes: Option<u64>,
}

impl Default for CapturedRoom {
    fn default() -> Self {
        Self { task_bytes: Some(limits::CAPTURED_TASK_BYTES_DEFAULT), node_bytes: None }
    }
}

/// The options of one node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The instance directory, created if missing.
    pub dir: PathBuf,
    /// The state directory of this node; `None`: under `dir`. Should be on a local disk if `dir` is
    /// on a shared file system.
    pub state_dir: Option<PathBuf>,
    /// The number of the node, from 0; a launcher's rank.
    pub node: NodeId,
    /// The number of founding nodes of the cluster.
    pub expect: u32,
    /// Executing threads ("cores"). With 0 the node is a keeper: it keeps replicas and votes, and
    /// runs nothing.
    pub slots: u32,
    /// The resources of each node of this process, by number; the last one counts for further
    /// nodes. The cpus of a node are replaced by its slots if their numbers differ. Empty: cpus
    /// alone.
    pub offers: Vec<Arc<Offer>>,
    /// When the node ends, if that is known. It leaves or stops in order before.
    pub end: Option<EndOfLife>,
    /// The node leaves in order after this time without work.
    pub idle_timeout: Option<Duration>,
    pub listen: Listen,
    /// The options of policy, stealing and object storage, until a client changes them. An
    /// unlimited store gets limits by the size of its file system.
    pub tuning: Tuning,
    /// `None`: by the number of nodes. Fixed when the cluster is made.
    pub partitions: Option<u32>,
    /// Replicas of each partition, once there are enough nodes. With `R` replicas no data is lost
    /// when `R - 1` nodes are lost. With one, no node can join. `None`: as the existing cluster, or
    /// one for a new cluster. Fixed when the cluster is made.
    pub replicas: Option<u32>,
    /// The address of a running node, which sends the cluster's identity and the other addresses,
    /// so that `dir` need not be shared. The cluster's keys must be in `dir`, or `token` gets them.
    /// The node takes the place `node` of the `expect` places, unless it `grow`s the cluster.
    pub join: Option<String>,
    /// The node joins as an additional one: the cluster gives it a number and its share. A node
    /// that has joined in this way from this directory takes its former place.
    pub grow: bool,
    /// The rank that will be this new node in later launches too.
    pub rank: Option<u32>,
    /// A token from a node that has the keys; unused once the keys are here.
    pub token: Option<Token>,
    /// No keys: nothing is encrypted, and callers are not authenticated. On loopback only.
    pub insecure: bool,
    /// The maximum wait for all nodes.
    pub deadline: Duration,
    /// The interval at which the node reads all of its records, to find damage that nothing else
    /// would; `None`: never.
    pub scrub_every: Option<Duration>,
    pub captured: CapturedRoom,
    /// Commands see nothing of the Slurm allocation that the node runs in.
    pub hides_slurm: bool,
    /// The program that runs commands for the node; `None`: this one.
    pub spawner_program: Option<PathBuf>,
    /// The launch of this process (see [`crate::launcher`]); empty: none. Addresses of other
    /// launches do not count when the cluster forms.
    pub launch: String,
    /// A launcher starts all nodes. This one waits for those of the same launch, even if it was
    /// part of a complete cluster before.
    pub begin_together: bool,
    /// The nodes of the launch that are started now; `None`: all founding nodes.
    pub awaited: Option<Vec<NodeId>>,
    /// Further nodes that are started now. They count only if votes are missing.
    pub further: Vec<NodeId>,
    /// The maximum number of connections.
    pub connection_limits: ConnectionLimits,
    /// Receives lines about the running node for its operator.
    pub say: fn(&str),
}

impl NodeOptions {
    /// The resources of this node, with as many cpus as slots.
    #[must_use]
    pub fn offer(&self) -> Option<Arc<Offer>> {
        let at = (self.node.0 as usize).min(self.offers.len().checked_sub(1)?);
        let offer = &self.offers[at];
        (self.slots > 0)
            .then(|| offer.with_cpus(self.slots).map_or_else(|| offer.clone(), Arc::new))
    }
    /// The reason why no command can be pinned to the cpus of its slots.
    #[must_use]
    pub fn pin_refusal(&self) -> Option<String> {
        let at = (self.node.0 as usize).min(self.offers.len().saturating_sub(1));
        let offer = self.offers.get(at);
        let cpus = offer.and_then(|offer| offer.pool(&Name::cpus())).and_then(Pool::amount);
        let cpus = cpus.map_or(0, |cpus| cpus.whole_part());
        let slots = u64::from(self.slots);
        let named = |number: u64, thing: &str| match number {
            1 => format!("1 {thing}"),
            _ => format!("{number} {thing}s"),
        };
        (slots > cpus).then(|| {
            format!("the node has {}, and knows {}", named(slots, "slot"), named(cpus, "cpu"))
        })
    }
    /// The resources of this node in the form of the map.
    #[must_use]
    pub fn offer_bytes(&self) -> Vec<u8> {
        node::offer_bytes(self.offer().as_deref(), self.slots, self.end)
    }

    /// Node `node` of `expect`, on loopback, with one slot for each CPU.
    #[must_use]
    pub fn new(dir: &Path, node: NodeId, expect: u32) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, |n| n.get() as u32);
        Self {
            dir: dir.to_path_buf(),
            state_dir: None,
            node,
            expect,
            slots: cpus,
            offers: Vec::new(),
            end: None,
            idle_timeout: None,
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into(),
            tuning: Tuning::default(),
            partitions: None,
            replicas: None,
            join: None,
            grow: false,
            rank: None,
            awaited: None,
            further: Vec::new(),
            token: None,
            insecure: false,
            deadline: Duration::from_secs(60),
            scrub_every: Some(Duration::from_nanos(limits::SCRUB_INTERVAL.0)),
            captured: CapturedRoom::default(),
            hides_slurm: false,
            spawner_program: None,
            launch: String::new(),
            begin_together: false,
            connection_limits: ConnectionLimits::default(),
            say: |_| {},
        }
    }

    pub(crate) fn state_path(&self) -> PathBuf {
        let inside = || instance::node_dir(&self.dir, self.node).join("state");
        self.state_dir.clone().unwrap_or_else(inside)
    }

    pub(crate) fn check(&self) -> Result<(), StartError> {
        let refuse = |what: String| Err(StartError::Options { what });
        if self.expect == 0 || self.expect > limits::NODES_MAX {
            return refuse(format!("a cluster has 1 to {} nodes", limits::NODES_MAX));
        }
        if self.grow && self.join.is_none() && !self.begin_together {
            return refuse(
                "a node that joins as a new one needs the address of another".to_owned(),
            );
        }
        if self.node.0 >= self.expect && !instance::has_joined(&self.state_path()) {
            let last = self.expect - 1;
            return refuse(format!("there is no node {} among 0 to {last}", self.node.0));
        }
        if self.slots > limits::SLOTS_MAX {
            return refuse(format!("a node has 0 to {} slots", limits::SLOTS_MAX));
        }
        if !self.offers.is_empty() && self.slots as usize > CPUS_MAX {
            return refuse(format!("a node with resources has at most {CPUS_MAX} slots"));
        }
        if let Some(partitions) = self.partitions {
            let enough = u64::from(self.expect);
            if !partitions.is_power_of_two()
                || partitions > limits::PARTITIONS_MAX
                || u64::from(partitions) < enough
            {
                return refuse(format!(
                    "the number of partitions is a power of two from {enough} to {}",
                    limits::PARTITIONS_MAX
                ));
            }
        }
        let copies = 1..=limits::COPIES_MAX;
        if self.replicas.is_some_and(|replicas| !copies.contains(&replicas)) {
            let most = limits::COPIES_MAX;
            return refuse(format!("a cluster keeps 1 to {most} copies of each partition"));
        }
        if self.scrub_every.is_some_and(|every| every < SCRUB_INTERVAL_MIN) {
            return refuse(format!(
                "a node reads all of its records every {SCRUB_INTERVAL_MIN:?} at most"
            ));
        }
        self.tuning.check().or_else(|error| refuse(error.to_string()))?;
        match self.listen {
            Listen::Auto { .. } if self.insecure => return Err(StartError::AutoInsecure),
            Listen::At(address) if self.insecure && !address.ip().is_loopback() => {
                return Err(StartError::NotLoopback { address });
            }
            Listen::At(address) if address.ip().is_unspecified() => {
                return Err(StartError::NoAddress { address });
            }
            _ => {}
        }
        if self.token.is_some() && (self.join.is_none() || self.insecure) {
            return refuse("a token is for joining a node over an encrypted connection".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proto::Span;

    use super::*;

    #[test]
    fn a_node_with_more_slots_than_cpus_pins_nothing() {
        let offer = |cpus: &str| {
            let pool = resources::parse_pool(cpus).unwrap();
            Arc::new(Offer::new(vec![pool], Vec::new()).unwrap())
        };
        let mut options = NodeOptions::new(Path::new("/nowhere"), NodeId(1), 2);
        options.offers = vec![offer("cpus=2"), offer("cpus=1")];
        options.slots = 1;
        assert_eq!(options.pin_refusal(), None);
        options.slots = 2;
        let refusal = options.pin_refusal();
        assert_eq!(refusal.as_deref(), Some("the node has 2 slots, and knows 1 cpu"));
    }

    #[test]
    fn impossible_options_are_refused() {
        let good = NodeOptions::new(Path::new("/nowhere"), NodeId(1), 2);
        good.check().unwrap();
        let refused = |change: &dyn Fn(&mut NodeOptions)| {
            let mut options = good.clone();
            change(&mut options);
            options.check().unwrap_err().to_string()
        };
        assert!(refused(&|o| o.expect = 0).contains("1 to"));
        assert!(refused(&|o| o.node = NodeId(2)).contains("no node 2 among 0 to 1"));
        assert!(refused(&|o| o.slots = limits::SLOTS_MAX + 1).contains("slots"));
        let cpus: Offer = Offer::new(Vec::new(), Vec::new()).unwrap();
        let many = |o: &mut NodeOptions| {
            (o.slots, o.offers) = (limits::SLOTS_MAX, vec![Arc::new(cpus.clone())]);
        };
        assert!(refused(&many).contains("at most 65535 slots"));
        assert!(refused(&|o| o.replicas = Some(0)).contains("1 to 5 copies"));
        assert!(refused(&|o| o.replicas = Some(6)).contains("1 to 5 copies"));
        assert!(refused(&|o| o.partitions = Some(3)).contains("power of two"));
        assert!(refused(&|o| o.partitions = Some(1)).contains("power of two"));
        assert!(refused(&|o| o.tuning.bandwidth_bytes_per_s = f64::NAN).contains("bandwidth"));
        assert!(refused(&|o| o.tuning.steal_interval_start = Span(u64::MAX)).contains("stealing"));
        let often = Some(Duration::from_millis(999));
        assert!(refused(&|o| o.scrub_every = often).contains("every 1s at most"));
        let listen: Listen = "10.0.0.1:7".parse().unwrap();
        NodeOptions { listen: listen.clone(), ..good.clone() }.check().unwrap();
        let insecure = |o: &mut NodeOptions| (o.listen, o.insecure) = (listen.clone(), true);
        assert!(refused(&insecure).contains("10.0.0.1:7"));
        let auto: Listen = "auto".parse().unwrap();
        NodeOptions { listen: auto.clone(), ..good.clone() }.check().unwrap();
        let insecure = |o: &mut NodeOptions| (o.listen, o.insecure) = (auto.clone(), true);
        assert!(refused(&insecure).contains("insecure"));
        let everywhere = "0.0.0.0:7".parse::<Listen>().unwrap();
        assert!(refused(&|o| o.listen = everywhere.clone()).contains("0.0.0.0:7"));
        let token: Token = "a1".repeat(64).parse().unwrap();
        assert!(refused(&|o| o.token = Some(token.clone())).contains("joining"));
    }
}
