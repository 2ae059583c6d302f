//! What a node is told when it starts.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use proto::{NodeId, limits};
use scheduler::Tuning;
use security::Token;

use crate::error::StartError;
use crate::instance;
use crate::listen_addresses::Listen;

/// How many a node serves at a time; less than the default is for tests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ConnectionLimits {
    /// Connections for calls.
    pub connections: usize,
    /// Of these, those of clients and observers.
    pub client_connections: usize,
    /// Connections on which objects leave.
    pub data_connections: usize,
}

impl Default for ConnectionLimits {
    fn default() -> Self {
        Self {
            connections: limits::CONNECTIONS_MAX,
            client_connections: limits::CLIENT_CONNECTIONS_MAX,
            data_connections: limits::DATA_CONNECTIONS_MAX,
        }
    }
}

/// Room for what tasks print.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CapturedRoom {
    /// Of one task: it is killed when it prints more. `None`: as much as its node has room for.
    pub task_bytes: Option<u64>,
    /// Of all on the node. `None`: a share of its store.
    pub node_bytes: Option<u64>,
}

impl Default for CapturedRoom {
    fn default() -> Self {
        Self { task_bytes: Some(limits::CAPTURED_TASK_BYTES_DEFAULT), node_bytes: None }
    }
}

/// How to start one node.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The instance's directory; made when it is not there.
    pub dir: PathBuf,
    /// Where this node keeps its state; `None`: under `dir`. Set it to a local disk when `dir` is
    /// on a shared file system.
    pub state_dir: Option<PathBuf>,
    /// Its place, from 0; a launcher's rank.
    pub node: NodeId,
    /// How many nodes the cluster has.
    pub expect: u32,
    /// Executing threads ("cores").
    /// With none the node is a keeper: it keeps copies and votes, and runs nothing.
    pub slots: u32,
    pub listen: Listen,
    /// How it decides, steals and keeps objects, until a client tells it otherwise. A store that is
    /// not limited gets limits by the size of its file system.
    pub tuning: Tuning,
    /// `None`: by the number of nodes. Fixed when the cluster is made.
    pub partitions: Option<u32>,
    /// Copies of each partition, as soon as there are nodes for them: with `R` of them the loss of
    /// `R - 1` nodes costs nothing. With one no node can join. `None`: as the cluster has, and one
    /// where it is made now. Fixed when the cluster is made.
    pub replicas: Option<u32>,
    /// Address of a node that runs: the cluster and the others' addresses are asked of it, so that
    /// `dir` need not be shared. It must hold the cluster's keys, or `token` gets them. The node
    /// takes the place `node` of the `expect` places, unless it `grow`s the cluster.
    pub join: Option<String>,
    /// The node joins as one more than there are: the cluster gives it a number, and its share. One
    /// that has joined so from this directory before takes its place again.
    pub grow: bool,
    /// The rank that is to be this new node in later launches, too.
    pub rank: Option<u32>,
    /// What a node that has the keys made for this one; once the keys are here it is not used.
    pub token: Option<Token>,
    /// No keys: nothing is encrypted and everybody is believed. On loopback alone.
    pub insecure: bool,
    /// How long to wait until all nodes are there.
    pub deadline: Duration,
    /// How often it reads all of its records, to find damage that nobody else would; `None`: never.
    pub scrub_every: Option<Duration>,
    pub captured: CapturedRoom,
    /// Commands see nothing of the Slurm allocation that the node is in.
    pub hides_slurm: bool,
    /// The program that runs commands for the node, `None`: this one.
    pub spawner_program: Option<PathBuf>,
    /// The launch this process belongs to (see [`crate::launcher`]); empty: none. Addresses of
    /// other launches do not count when the cluster forms.
    pub launch: String,
    /// A launcher starts all nodes: this one waits until those of the same launch are there, also
    /// where it was part of a complete cluster before.
    pub begin_together: bool,
    /// Those of them that are started now; `None`: all first nodes.
    pub awaited: Option<Vec<NodeId>>,
    /// Further nodes that are started now: they count only where votes are missing.
    pub further: Vec<NodeId>,
    /// How many it serves at a time.
    pub connection_limits: ConnectionLimits,
    /// Told, one line each, what whoever looks after the node should know while it goes on.
    pub say: fn(&str),
}

impl NodeOptions {
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
        let least = Duration::from_nanos(limits::SCRUB_INTERVAL_MIN.0);
        if self.scrub_every.is_some_and(|every| every < least) {
            return refuse(format!("a node reads all of its records every {least:?} at most"));
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
