//! `starling up` and `starling down`: a local cluster of processes in the background.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use clap::Args;
use client::{Client, ClientError, ClientOptions, Instance};
use proto::NodeId;
use rustix::process::Signal;
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure};
use verb::flags::ClusterArgs;
use verb::local::plan::{ClusterLifetime, ClusterPlan, Present};
use verb::local::processes::{self, NodeIdentity, NodeProcess, ProcessLifetime};
use verb::units::number_of;

use crate::local::differing::{Differing, Running};
use crate::local::growth::{self, AwaitedNodes, Launch};
use crate::local::member_slots::MemberSlots;
use crate::local::remote_nodes::{self, RemoteNode};
use crate::local::saved_settings;
use crate::report::keep;

/// The time for nodes to stop by themselves, and then after a request to terminate.
const STOP_WITHIN: Duration = Duration::from_secs(30);
const TERMINATE_WITHIN: Duration = Duration::from_secs(5);
/// How long an `up` waits for another one of the same directory.
const START_LOCK_TIMEOUT: Duration = Duration::from_secs(120);
const READY_TIMEOUT: Duration = Duration::from_secs(30);
const SEEN_TIMEOUT: Duration = Duration::from_secs(5);
const LOOK_TIMEOUT: Duration = Duration::from_secs(1);

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
    /// Nodes of the instance that were not started.
    away: Vec<u32>,
    /// Of these, the nodes with the only replicas of some partitions, and the number of these
    /// partitions.
    waits_for: Vec<u32>,
    waiting_partitions: usize,
    /// Of these, the voters, if without them there is no majority.
    votes_missing: Vec<u32>,
}

/// A node that loses its store may take this long to end.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Waits until each node of the launch answers.
async fn await_answers(context: &Context, launch: &Launch, missing: &[u32]) -> Result<(), Failure> {
    let client = context.connect().await?;
    let mut answered = Vec::new();
    for node in client.nodes().into_iter().filter(|node| !launch.away.contains(&node.0)) {
        // A node that the others have declared failed may be away.
        if !client.is_given_up(node) || missing.contains(&node.0) {
            answered.push((node, await_answer(&client, node).await?));
        }
    }
    await_seen(&client, &answered).await;
    Ok(())
}

pub(crate) fn up(context: &Context, args: &UpArgs) -> Done {
    let dir = context.dir()?;
    if dir.exists() && !dir.is_dir() {
        return Err(Failure::refused(format!("{} is not a directory", dir.display()))
            .hint("name a directory with --dir; one that is not there is made"));
    }
    let instance = Instance::new(&dir);
    let present = present(&instance, args)?;
    // An instance knows its number; a flag may ask for fewer nodes, or more.
    let told = match present {
        Some(_) => saved_settings::with_remembered(context, &dir)?,
        None => context.clone(),
    };
    let wanted = args.cluster.nodes.filter(|_| present.is_some());
    let mut cluster = args.cluster.clone();
    cluster.nodes = cluster.nodes.filter(|_| present.is_none());
    let plan = ClusterPlan::resolve(&told.settings, &cluster, present, ClusterLifetime::Instance)?;
    if let Some(present) = present.filter(|present| present.replicas != plan.replicas) {
        let (dir, copies) = (dir.display(), present.replicas);
        let text = format!("{dir} has a cluster with --replicas {copies}");
        return Err(Failure::refused(text).hint("leave out --replicas, or give another --dir"));
    }
    make_private(&dir)?;
    let lock = lock_starts(context, &dir)?;
    if present.is_none() && instance.cluster().is_ok() {
        drop(lock);
        return up(context, args); // The other `up` has made the cluster.
    }
    end_nodes_without_state(&dir)?;
    let running = |node: &u32| {
        instance.address(*node).is_some_and(|address| processes::is_node(address.pid, &dir))
    };
    let launch = Launch::of(&instance, plan.nodes, wanted, running, plan.replicas)?;
    let missing: Vec<u32> = launch.nodes.iter().copied().filter(|node| !running(node)).collect();
    let running: Vec<Running> = launch
        .nodes
        .iter()
        .filter(|node| running(node))
        .filter_map(|&node| instance.address(node))
        .map(|address| Running::of(&address))
        .collect();
    let members = MemberSlots {
        asked: plan.slots,
        is_flag: args.cluster.slots.is_some(),
        joins: launch.new > 0,
        last: saved_settings::slots(&dir)?,
        default: verb::local::plan::default_slots(plan.nodes),
    };
    let slots_of = |node: u32| match present {
        Some(_) => members.of(instance.is_keeper(node), instance.has_state(node)),
        None => plan.slots,
    };
    let plans =
        missing.iter().map(|&node| (node, ClusterPlan { slots: slots_of(node), ..plan.clone() }));
    let plans: Vec<(u32, ClusterPlan)> = plans.collect();
    let (joined, waiting) = verb::block_on(start(context, &dir, &plan, &launch, &plans))?;
    let differing = Differing::of(context, &running, &args.cluster, &plan);
    let mut differing = verb::block_on(differing)?;
    // Where nodes join, the flag is for these.
    if members.is_flag && !members.joins && present.is_some() {
        let started = plans.iter().map(|(node, plan)| (*node, plan.slots));
        differing.add_started(&started.collect::<Vec<_>>(), plan.slots);
    }
    if plans.is_empty() && joined.is_empty() {
        differing.refuse()?;
    }
    differing.notes().iter().for_each(|note| context.output.note(note));
    if plan.slots > 0 || present.is_none() {
        saved_settings::write(&dir, &plan)?; // Keepers are remembered one by one.
    }
    let started = missing.into_iter().chain(joined).collect();
    tell(context, &dir, launch, started, waiting)
}

/// Two at a time would start the same nodes.
fn lock_starts(context: &Context, dir: &Path) -> Result<File, Failure> {
    let instance = daemon::instance::Instance::open(dir)?;
    if let Some(lock) = instance.lock_starts(Duration::ZERO)? {
        return Ok(lock);
    }
    context.output.note("another 'starling up' of this directory is under way: waiting for it");
    let lock = instance.lock_starts(START_LOCK_TIMEOUT)?;
    lock.ok_or_else(|| {
        let text = format!("another 'starling up' of {} is under way", dir.display());
        Failure::lost(text).hint("try again when it has ended")
    })
}

/// What the directory has already.
fn present(instance: &Instance, args: &UpArgs) -> Result<Option<Present>, Failure> {
    let cluster = match instance.cluster() {
        Ok(cluster) => cluster,
        Err(ClientError::NoInstance { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if args.cluster.insecure && !cluster.insecure {
        let text = format!("{} has a cluster with keys", instance.dir().display());
        return Err(Failure::refused(text).hint("leave out --insecure, or give another --dir"));
    }
    Ok(Some(Present { nodes: cluster.nodes, replicas: cluster.replicas }))
}

/// Starts the nodes of the instance that are to run, with a plan for each, then those that join:
/// the numbers of these, and what waits for nodes that are not started.
async fn start(
    context: &Context,
    dir: &Path,
    plan: &ClusterPlan,
    launch: &Launch,
    members: &[(u32, ClusterPlan)],
) -> Result<(Vec<u32>, AwaitedNodes), Failure> {
    let mut started = Started(Vec::new());
    let lost = without_state(dir, members);
    for (node, plan) in members {
        started.0.push(processes::spawn(
            dir,
            NodeIdentity::Member(*node),
            plan,
            ProcessLifetime::Own,
        )?);
    }
    processes::await_listening(dir, &mut started.0).await?;
    let missing: Vec<u32> = members.iter().map(|(node, _)| *node).collect();
    if let Err(failure) = await_answers(context, launch, &missing).await {
        // A node that ended after it listened reports the reason.
        tokio::time::sleep(END_TIMEOUT).await;
        let ended = started.0.iter_mut().find_map(NodeProcess::ended);
        return Err(ended.unwrap_or_else(|| growth::explain(failure, &lost)));
    }
    let joined = join_new(context, dir, plan, launch, &mut started).await?;
    started.stay();
    let waiting = match launch.away.is_empty() {
        true => AwaitedNodes::default(),
        false => growth::wait_for_losses(context, &launch.away).await?,
    };
    Ok((joined, waiting))
}

/// The nodes that have lost their state: the cluster has begun before.
fn without_state(dir: &Path, members: &[(u32, ClusterPlan)]) -> Vec<u32> {
    let has_begun = dir.join("begun").exists();
    let nodes = members.iter().map(|(node, _)| *node);
    nodes.filter(|&node| has_begun && !Instance::new(dir).has_state(node)).collect()
}

fn tell(
    context: &Context,
    dir: &Path,
    launch: Launch,
    started: Vec<u32>,
    waiting: AwaitedNodes,
) -> Done {
    let nodes = launch.nodes.len() as u32 + launch.new;
    if context.output.json {
        let (dir, away) = (dir.display().to_string(), launch.away);
        let (waits_for, waiting_partitions) = (waiting.nodes, waiting.partitions);
        let votes_missing = waiting.voters;
        let up = Up { dir, nodes, started, away, waits_for, waiting_partitions, votes_missing };
        context.output.json(&up)?;
    } else {
        let nodes = number_of(u64::from(nodes), "node");
        context.output.note(&format!("started {} of {nodes} in {}", started.len(), dir.display()));
        for line in waiting.lines(&launch) {
            context.output.note(&line);
        }
    }
    Ok(Exit::Ok)
}

/// New nodes join, one after another.
async fn join_new(
    context: &Context,
    dir: &Path,
    plan: &ClusterPlan,
    launch: &Launch,
    started: &mut Started,
) -> Result<Vec<u32>, Failure> {
    let mut joined = Vec::new();
    for _ in 0..launch.new {
        let client = context.connect().await?;
        let map = client.raw().newest_map(READY_TIMEOUT).await;
        let by = Instance::new(dir).address(launch.nodes[0]);
        let by = by.ok_or_else(|| Failure::lost("the node to join by has ended"))?;
        // Unless another node joins at this moment.
        let number = map.members.last().map_or(0, |last| last.node + 1);
        let identity = NodeIdentity::New { number, by: by.address };
        started.0.push(processes::spawn(dir, identity, plan, ProcessLifetime::Own)?);
        processes::await_listening(dir, &mut started.0).await?;
        let number = started.0.last().and_then(|process| process.number(dir)).unwrap_or(number);
        let client = context.connect().await?;
        let incarnation = await_answer(&client, NodeId(number)).await?;
        await_seen(&client, &[(NodeId(number), incarnation)]).await;
        joined.push(number);
    }
    Ok(joined)
}

/// Waits for an answer: a restarting node may be away for a moment. Returns its incarnation.
async fn await_answer(client: &Client, node: NodeId) -> Result<u32, ClientError> {
    let deadline = Instant::now() + READY_TIMEOUT;
    loop {
        match client.raw().node_state(node, READY_TIMEOUT).await {
            Err(ClientError::ClusterUnreachable(_)) if Instant::now() < deadline => {
                tokio::time::sleep(Duration::from_millis(20)).await;
                // A node that has just joined is missing in older maps.
                client.raw().newest_map(LOOK_TIMEOUT).await;
            }
            answer => return Ok(answer?.member.map_or(0, |member| member.incarnation)),
        }
    }
}

/// Waits for a while until the other nodes know that these incarnations are there: where no
/// majority agrees, they never do. A node that died a moment ago may still be listed as it was.
async fn await_seen(client: &Client, nodes: &[(NodeId, u32)]) {
    let deadline = Instant::now() + SEEN_TIMEOUT;
    let is_seen = |&(node, incarnation): &(NodeId, u32)| {
        let map = client.raw().map();
        let member = map.members.iter().find(|member| member.node == node.0);
        let is_listed = member.is_some_and(|member| member.incarnation >= incarnation);
        map.copies <= 1 || is_listed && !client.is_given_up(node)
    };
    while !nodes.iter().all(is_seen) && Instant::now() < deadline {
        tokio::time::sleep(Duration::from_millis(20)).await;
        client.raw().newest_map(LOOK_TIMEOUT).await;
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
    executor::private::make_dir(dir).map_err(|error| {
        Failure::file(dir, &error).hint("name a directory that you may make with --dir")
    })
}

pub(crate) fn down(context: &Context, _: &DownArgs) -> Done {
    let dir = context.dir()?;
    let instance = Instance::new(&dir);
    let (members, elsewhere) = listed(&instance, &dir);
    // Nodes with removed or damaged address files run all the same; no client finds them.
    let unlisted = processes::nodes_of(&dir).into_iter();
    let unlisted: Vec<u32> =
        unlisted.filter(|pid| !members.iter().any(|(_, known)| known == pid)).collect();
    let no_process = members.is_empty() && unlisted.is_empty();
    if no_process && elsewhere.is_empty() {
        instance.cluster()?;
        context.output.note("no node is running");
        return Ok(Exit::Ok);
    }
    signal(&unlisted, &dir, Signal::TERM);
    verb::block_on(async {
        let options = ClientOptions { request_timeout: Duration::from_secs(2) };
        let client = match members.is_empty() && elsewhere.is_empty() {
            true => None,
            false => Client::connect_with(&dir, options).await.ok(),
        };
        let (asked, silent) = match &client {
            Some(client) => remote_nodes::ask(client, elsewhere).await?,
            None => (Vec::new(), elsewhere),
        };
        let mut pids: Vec<u32> = members.iter().map(|(_, pid)| *pid).collect();
        match &client {
            Some(client) => {
                keep::before_stop(context, client, &dir).await;
                for (node, _) in &members {
                    client.stop_node(NodeId(*node), false).await?;
                }
            }
            // No node answers, but the processes can be signalled.
            None => signal(&pids, &dir, Signal::TERM),
        }
        pids.extend(unlisted);
        let are_gone = remote_nodes::gone(&asked, &instance, STOP_WITHIN);
        end(context, &pids, &dir).await?;
        if !are_gone.await {
            return Err(still_there());
        }
        remote_nodes::silence(&silent)?;
        if no_process && asked.is_empty() {
            context.output.note("no node is running");
        }
        Ok(Exit::Ok)
    })
}

/// The nodes that are processes here, with their numbers; and the others that have address files.
fn listed(instance: &Instance, dir: &Path) -> (Vec<(u32, u32)>, Vec<RemoteNode>) {
    let (mut pids, mut others) = (Vec::new(), Vec::new());
    for (node, file) in instance.addresses() {
        let host = remote_nodes::other_host(&file.host);
        match host.is_none() && processes::is_node(file.pid, dir) {
            true => pids.push((node, file.pid)),
            false => others.push(RemoteNode { node, incarnation: file.incarnation, host }),
        }
    }
    (pids, others)
}

/// Waits for the end of processes that were asked to stop, and makes it come.
async fn end(context: &Context, pids: &[u32], dir: &Path) -> Result<(), Failure> {
    if !gone(pids, dir, STOP_WITHIN).await {
        signal(pids, dir, Signal::TERM);
        if !gone(pids, dir, TERMINATE_WITHIN).await {
            context.output.note("warning: killing nodes that do not stop");
            signal(pids, dir, Signal::KILL);
        }
    }
    match gone(pids, dir, TERMINATE_WITHIN).await {
        true => Ok(()),
        false => Err(still_there()),
    }
}

fn still_there() -> Failure {
    Failure::lost("some nodes do not end").hint("see 'starling node list'")
}

/// Ends the nodes without a state directory, because it was removed. They notice it by themselves,
/// but another process may start the same node before that.
fn end_nodes_without_state(dir: &Path) -> Result<(), Failure> {
    let nodes = processes::nodes_of(dir).into_iter();
    let pids: Vec<u32> = nodes.filter(|&pid| processes::has_removed_state(pid, dir)).collect();
    if pids.is_empty() {
        return Ok(());
    }
    signal(&pids, dir, Signal::TERM);
    verb::block_on(async {
        if !gone(&pids, dir, TERMINATE_WITHIN).await {
            signal(&pids, dir, Signal::KILL);
        }
        match gone(&pids, dir, TERMINATE_WITHIN).await {
            true => Ok(()),
            false => Err(Failure::lost("a node with a removed directory does not end")
                .hint("see 'starling node list'")),
        }
    })
}

fn signal(pids: &[u32], dir: &Path, signal: Signal) {
    for pid in pids {
        processes::signal_node(*pid, dir, signal);
    }
}

async fn gone(pids: &[u32], dir: &Path, within: Duration) -> bool {
    let deadline = Instant::now() + within;
    while pids.iter().any(|pid| processes::is_node(*pid, dir)) {
        if Instant::now() >= deadline {
            return false;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    true
}
