//! `starling up` and `starling down`: a local cluster of processes in the background.

use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use client::{Client, ClientError, ClientOptions, Instance};
use rustix::process::Signal;
use serde::Serialize;

use crate::Context;
use crate::args::ClusterArgs;
use crate::embed::{ClusterPlan, Lasts, Present};
use crate::errors::{Done, Exit, Failure};
use crate::processes::{self, Life, NodeProcess};
use crate::remembered;
use crate::units::number_of;

/// How long nodes may take to stop by themselves, and then after a request to terminate.
const STOP_WITHIN: Duration = Duration::from_secs(30);
const TERMINATE_WITHIN: Duration = Duration::from_secs(5);
const READY_PATIENCE: Duration = Duration::from_secs(30);

#[derive(Args, Debug)]
pub(crate) struct UpArgs {
    #[command(flatten)]
    cluster: ClusterArgs,
}

#[derive(Args, Debug)]
pub(crate) struct DownArgs {}

#[derive(Serialize)]
struct Up {
    dir: String,
    nodes: u32,
    started: Vec<u32>,
}

/// A node that loses its store may take as long to end.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// Waits until each node answers.
async fn await_answers(context: &Context, missing: &[u32]) -> Result<(), Failure> {
    let client = context.connect().await?;
    for node in client.nodes() {
        // One that is looked after elsewhere may be away.
        if !client.is_given_up(node) || missing.contains(&node.0) {
            await_answer(&client, node).await?;
        }
    }
    Ok(())
}

pub(crate) fn up(context: &Context, args: &UpArgs) -> Done {
    let dir = context.dir()?;
    let instance = Instance::new(&dir);
    let present = match instance.cluster() {
        Ok(cluster) => Some(Present { nodes: cluster.nodes, replicas: cluster.replicas }),
        Err(ClientError::NoInstance { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    // An instance knows its number; only a flag may contradict it, and is refused then.
    let told = match present {
        Some(_) => context.with_remembered(&dir)?,
        None => context.clone(),
    };
    let plan = ClusterPlan::resolve(&told, &args.cluster, present, Lasts::Instance)?;
    if let Some(present) = present.filter(|present| present.nodes != plan.nodes) {
        let nodes = number_of(u64::from(present.nodes), "node");
        let text = format!("{} has a cluster of {nodes}", dir.display());
        return Err(Failure::refused(text).hint("leave out --nodes, or give another --dir"));
    }
    if let Some(present) = present.filter(|present| present.replicas != plan.replicas) {
        let (dir, copies) = (dir.display(), present.replicas);
        let text = format!("{dir} has a cluster with --replicas {copies}");
        return Err(Failure::refused(text).hint("leave out --replicas, or give another --dir"));
    }
    make_private(&dir)?;
    end_ghosts(&dir)?;
    let running = |node: &u32| {
        instance.address(*node).is_some_and(|address| processes::is_node(address.pid, &dir))
    };
    let joined = instance.joined().into_iter().filter(|node| *node >= plan.nodes);
    let missing = (0..plan.nodes).chain(joined).filter(|&node| !instance.has_left(node));
    let missing: Vec<u32> = missing.filter(|node| !running(node)).collect();
    crate::block_on(async {
        let mut started = Started(Vec::new());
        for node in &missing {
            started.0.push(processes::spawn(&dir, *node, &plan, Life::Own)?);
        }
        processes::await_listening(&dir, &mut started.0).await?;
        if let Err(failure) = await_answers(context, &missing).await {
            // A node that ended after it listened says why.
            tokio::time::sleep(END_PATIENCE).await;
            let ended = started.0.iter_mut().find_map(NodeProcess::ended);
            return Err(ended.unwrap_or(failure));
        }
        started.stay();
        Ok(())
    })?;
    remembered::write(&dir, &plan)?;
    if context.output.json {
        let dir = dir.display().to_string();
        context.output.json(&Up { dir, nodes: plan.nodes, started: missing })?;
    } else {
        let (started, nodes, dir) = (missing.len(), u64::from(plan.nodes), dir.display());
        context.output.note(&format!("started {started} of {} in {dir}", number_of(nodes, "node")));
    }
    Ok(Exit::Ok)
}

/// A node that begins anew may be away for a moment.
async fn await_answer(client: &Client, node: proto::NodeId) -> Result<(), ClientError> {
    let deadline = Instant::now() + READY_PATIENCE;
    loop {
        match client.node_state(node, READY_PATIENCE).await {
            Err(ClientError::ClusterUnreachable(_)) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            answer => return answer.map(drop),
        }
    }
}

/// Nodes that come up. Unless they are told to stay they end with this: an error or an interrupt
/// must leave nothing behind half formed.
struct Started(Vec<NodeProcess>);

impl Started {
    fn stay(mut self) {
        self.0.clear();
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(NodeProcess::abandon);
    }
}

fn make_private(dir: &Path) -> Result<(), Failure> {
    executor::private::make_dir(dir).map_err(|error| Failure::file(dir, &error))
}

pub(crate) fn down(context: &Context, _: &DownArgs) -> Done {
    let dir = context.dir()?;
    let instance = Instance::new(&dir);
    let listed = instance.addresses().into_iter().map(|(node, address)| (node, address.pid));
    let mut pids: Vec<(u32, u32)> =
        listed.filter(|(_, pid)| processes::is_node(*pid, &dir)).collect();
    // Those whose files were removed run all the same, and answer no client.
    let strays: Vec<(u32, u32)> = processes::nodes_of(&dir)
        .into_iter()
        .filter(|(_, pid)| !pids.iter().any(|(_, known)| known == pid))
        .collect();
    if pids.is_empty() && strays.is_empty() {
        instance.cluster()?;
    }
    signal(&strays, &dir, Signal::TERM);
    if pids.is_empty() && strays.is_empty() {
        context.output.note("no node is running");
        return Ok(Exit::Ok);
    }
    crate::block_on(async {
        let options = ClientOptions { patience: Duration::from_secs(2) };
        match Client::connect_with(&dir, options).await {
            _ if pids.is_empty() => {}
            Ok(client) => {
                for (node, _) in &pids {
                    client.stop_node(proto::NodeId(*node), false).await?;
                }
            }
            // Nobody listens to us; the processes still can be asked.
            Err(_) => signal(&pids, &dir, Signal::TERM),
        }
        pids.extend(strays);
        if !gone(&pids, &dir, STOP_WITHIN).await {
            signal(&pids, &dir, Signal::TERM);
            if !gone(&pids, &dir, TERMINATE_WITHIN).await {
                context.output.note("warning: killing nodes that do not stop");
                signal(&pids, &dir, Signal::KILL);
            }
        }
        match gone(&pids, &dir, TERMINATE_WITHIN).await {
            true => Ok(Exit::Ok),
            false => Err(Failure::lost("some nodes do not end").hint("see 'starling node list'")),
        }
    })
}

/// Ends the nodes whose state directory was removed under them: they notice it by themselves, but
/// another process may be the same node before that.
fn end_ghosts(dir: &Path) -> Result<(), Failure> {
    let ghosts: Vec<(u32, u32)> = processes::nodes_of(dir)
        .into_iter()
        .filter(|(node, pid)| processes::is_ghost(*pid, dir, *node))
        .collect();
    if ghosts.is_empty() {
        return Ok(());
    }
    signal(&ghosts, dir, Signal::TERM);
    crate::block_on(async {
        if !gone(&ghosts, dir, TERMINATE_WITHIN).await {
            signal(&ghosts, dir, Signal::KILL);
        }
        match gone(&ghosts, dir, TERMINATE_WITHIN).await {
            true => Ok(()),
            false => Err(Failure::lost("a node whose directory was removed does not end")
                .hint("see 'starling node list'")),
        }
    })
}

fn signal(pids: &[(u32, u32)], dir: &Path, signal: Signal) {
    for (_, pid) in pids {
        processes::signal_node(*pid, dir, signal);
    }
}

async fn gone(pids: &[(u32, u32)], dir: &Path, within: Duration) -> bool {
    let deadline = Instant::now() + within;
    while pids.iter().any(|(_, pid)| processes::is_node(*pid, dir)) {
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    true
}
