//! A cluster that lives as long as this verb: in this process, or with a process for each node.

use std::path::Path;
use std::time::Duration;

use daemon::{NodeHandle, NodeOptions};
use proto::NodeId;

use crate::errors::{Exit, Failure, plain};
use crate::flags::life::LifePlan;
use crate::local::plan::ClusterPlan;
use crate::local::processes::{self, NodeIdentity, NodeProcess, ProcessLifetime};
use crate::local::run_dir::RunDir;
use crate::output::{as_warning, say};
use crate::units::now_ns;

const STOP_TIMEOUT: Duration = Duration::from_secs(20);
/// The interval at which a run checks that its nodes are alive.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A cluster in a temporary directory. Dropping it ends the nodes and removes the directory.
#[derive(Debug)]
pub struct Cluster {
    // In this order: the nodes end before their directory is removed.
    nodes: Nodes,
    dir: RunDir,
    /// Replicas of each partition.
    replicas: u32,
    life: LifePlan,
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
            let mut cluster = Self { nodes, dir, replicas, life: plan.life };
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
            end: plan.life.end,
            idle_timeout: plan.life.idle,
            tuning: plan.tuning,
            insecure: plan.insecure,
            replicas: Some(plan.replicas),
            scrub_every: plan.scrub_every,
            captured: plan.captured,
            hides_slurm: plan.hides_slurm,
            say: |line| say(&as_warning(line)),
            ..NodeOptions::new(dir.path(), NodeId(0), plan.nodes)
        };
        // The closure owns the directory: an interrupt must not remove it under starting nodes.
        let start = move || daemon::start_all(&base).map(|nodes| (nodes, dir));
        let started = tokio::task::spawn_blocking(start).await;
        let (nodes, dir) = started.expect("starting does not panic")?;
        Ok(Self { nodes: Nodes::Here(nodes), dir, replicas: plan.replicas, life: plan.life })
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
            let is_lost = ended.as_ref().is_some_and(|failure| failure.exit == Exit::Lost);
            // All nodes have one end.
            if is_lost && let Some(over) = self.life.over(now_ns()) {
                return over;
            }
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
