//! `starling node`: one node in the foreground; or the nodes of an instance.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::{Args, Subcommand};
use daemon::instance::{DirLock, FailureFile, Instance};
use daemon::launcher::Launcher;
use daemon::{AddressSelector, Listen, NodeError, NodeHandle, NodeOptions, StartError};
use proto::NodeId;
use security::Token;
use verb::Context;
use verb::errors::{Done, Exit, Failure, plain};
use verb::flags::life::LifeArgs;
use verb::flags::needs::{OfferArgs, share};
use verb::flags::tuning::TuningArgs;
use verb::flags::{CapturedArgs, ScrubArgs, SlurmArgs, TimeoutArgs, parse_node};
use verb::path_templates::{self, Scope};
use verb::units::Timespan;

use crate::alloc;
use crate::cluster::node;
use crate::cluster::node::removal;
use crate::common::allocator;
use crate::local::hardware::{self, HardwareArgs};
use crate::local::launch_context;
use crate::web::beside_node::Page;

const CLAIM_LOOKED_AT_EVERY: Duration = Duration::from_secs(1);

#[derive(Args, Debug)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct NodeArgs {
    #[command(subcommand)]
    verb: Option<NodeVerb>,
    #[command(flatten)]
    start: StartArgs,
}

#[derive(Subcommand, Debug)]
enum NodeVerb {
    /// List the nodes of the instance
    List,
    /// Show the cpus, the memory and the GPUs that a node started here would offer, with the source
    /// of each figure and of each limit
    Hardware(HardwareArgs),
    /// Show one node's state
    Info {
        #[arg(value_parser = parse_node)]
        node: NodeId,
    },
    /// Change the scheduling and storage options of running nodes; all nodes unless some are named
    Set(SetArgs),
    /// Have nodes finish what runs and start nothing more; a restart ends the pause
    Pause {
        #[arg(value_parser = parse_node, required = true)]
        nodes: Vec<NodeId>,
    },
    /// Have paused nodes start tasks again
    Resume {
        #[arg(value_parser = parse_node, required = true)]
        nodes: Vec<NodeId>,
    },
    /// Have nodes transfer their data to the others and leave the cluster permanently
    Drain {
        #[arg(value_parser = parse_node, required = true)]
        nodes: Vec<NodeId>,
        /// Kill tasks with a signal that still run after this time; they run elsewhere; a leaving
        /// node keeps the earlier of two deadlines [default: the drain waits for them]
        #[arg(long, value_name = "DURATION")]
        deadline: Option<Timespan>,
        #[command(flatten)]
        timeout: TimeoutArgs,
    },
    /// Remove nodes that never come back, with the data that only they had; 'drain' loses none
    Remove {
        #[arg(value_parser = parse_node, required = true)]
        nodes: Vec<NodeId>,
        #[command(flatten)]
        timeout: TimeoutArgs,
    },
    /// Stop nodes; 'starling up' starts them again
    Stop {
        #[arg(value_parser = parse_node, required = true)]
        nodes: Vec<NodeId>,
    },
}

#[derive(Args, Debug)]
struct SetArgs {
    #[arg(value_parser = parse_node)]
    nodes: Vec<NodeId>,
    #[command(flatten)]
    tuning: TuningArgs,
}

/// The arguments of a node in the foreground.
#[derive(Args, Debug)]
struct StartArgs {
    /// Address of a node of the cluster: joins it as an additional node, or with --rank as a
    /// founding node if the directory is not shared
    #[arg(long, value_name = "ADDR")]
    join: Option<String>,
    /// The token of 'starling token make': gets the cluster's keys, once. All users of a machine
    /// can read a command line, but not the environment [env: STARLING_TOKEN]
    #[arg(long, value_name = "TOKEN", requires = "join")]
    token: Option<Token>,
    /// Address at which to listen, by which the other nodes reach this one. Or 'auto' (auto:PORT):
    /// all addresses of this machine, which the others try in turn [default: 127.0.0.1:0; auto with
    /// --join by an address of a network, and with --rendezvous under a launcher, unless all ranks
    /// are known to be on one machine]
    #[arg(long, value_name = "ADDR")]
    listen: Option<Listen>,
    /// Of all addresses only those of these interfaces or networks: hsn0,ib0,10.1.0.0/16
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    interface: Vec<AddressSelector>,
    /// No keys: connections are not encrypted, and every user of this machine may use the cluster
    #[arg(long)]
    insecure: bool,
    /// A directory in which nodes that a launcher starts find each other; 'starling down' ends them
    #[arg(long, value_name = "DIR")]
    rendezvous: Option<PathBuf>,
    /// Nodes of the cluster, or of this launch with --rendezvous in a directory that has a cluster
    /// [default: those of the launcher, else 1]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    expect: Option<u32>,
    /// This node's place, from 0 [default: that of the launcher, else the first free one]
    #[arg(long, value_name = "R")]
    rank: Option<u32>,
    /// Executing threads; 0 makes a keeper, which keeps replicas, votes and runs no tasks [default:
    /// one for each CPU]
    #[arg(long, value_parser = clap::value_parser!(u32).range(..=i64::from(proto::limits::SLOTS_MAX)))]
    slots: Option<u32>,
    #[command(flatten)]
    offer: OfferArgs,
    #[command(flatten)]
    life: LifeArgs,
    /// This node's place among the nodes that 'up' starts on this machine, which share its memory
    #[arg(long, value_name = "AT/OF", hide = true, default_value = "0/1", value_parser = share)]
    share: (usize, usize),
    /// Maximum wait for the other nodes
    #[arg(long, value_name = "DURATION", default_value = "60s")]
    deadline: Timespan,
    /// Directory of the node's state; {rank}, {host} and $VAR stand for this node's own [default:
    /// under the instance's directory]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Partitions of the key space, a power of two; fixed when the cluster is made
    #[arg(long, value_name = "P")]
    partitions: Option<u32>,
    /// Replicas of each partition, once there are R nodes; then R-1 of them may fail at once. Fixed
    /// when the cluster is made; with 1 no node can join [default: those of the cluster; 2 for a
    /// new one]
    #[arg(long, value_name = "R", value_parser = verb::flags::replicas_parser())]
    replicas: Option<u32>,
    /// Serve the live page of the cluster at this address of loopback; port 0 takes a free one
    #[arg(long, value_name = "ADDR")]
    web: Option<SocketAddr>,
    #[command(flatten)]
    slurm: SlurmArgs,
    #[command(flatten)]
    scrub: ScrubArgs,
    #[command(flatten)]
    captured: CapturedArgs,
    #[command(flatten)]
    tuning: TuningArgs,
    /// Never become the owner of the cluster's allocations (see 'starling alloc'), also where this
    /// machine may submit batch jobs
    #[arg(long)]
    no_alloc: bool,
    /// Leave the terminal's session
    #[arg(long, hide = true)]
    detach: bool,
    /// Stop when standard input ends
    #[arg(long, hide = true)]
    with_parent: bool,
}

pub(crate) fn run(context: &Context, args: NodeArgs) -> Done {
    match args.verb {
        None => {
            allocator::return_memory();
            start(context, args.start)
        }
        Some(NodeVerb::Hardware(args)) => hardware::run(context, args),
        Some(NodeVerb::List) => node::list(context),
        Some(NodeVerb::Info { node }) => node::info(context, node),
        Some(NodeVerb::Set(args)) => node::set::set(context, &args.nodes, &args.tuning),
        Some(NodeVerb::Pause { nodes }) => node::set::pause(context, &nodes, true),
        Some(NodeVerb::Resume { nodes }) => node::set::pause(context, &nodes, false),
        Some(NodeVerb::Drain { nodes, deadline, timeout }) => {
            let timeout: Option<Timespan> =
                context.settings.pick_optional(timeout.timeout, "timeout")?;
            let deadline = deadline.map(|deadline| deadline.0);
            removal::drain(context, &nodes, deadline, timeout.map(|timeout| timeout.0))
        }
        Some(NodeVerb::Remove { nodes, timeout }) => {
            let timeout = timeout.timeout.map(|timeout| timeout.0);
            removal::remove(context, &nodes, timeout)
        }
        Some(NodeVerb::Stop { nodes }) => node::stop(context, &nodes),
    }
}

fn start(context: &Context, args: StartArgs) -> Done {
    executor::private::keep_files_private();
    if args.detach {
        // Fails only for the leader of a session, which is the wanted state.
        let _ = rustix::process::setsid();
    }
    let dir = match &args.rendezvous {
        Some(dir) => {
            let scope = Scope { flag: "--rendezvous", rank: Err(path_templates::ALL_SHARE) };
            let dir = path_templates::expand(dir, scope)?;
            verb::settings::check_owner(&dir, rustix::process::geteuid().as_raw())?;
            std::path::absolute(&dir).map_err(|error| Failure::file(&dir, &error))?
        }
        None => context.dir()?,
    };
    let told = launch_context::LaunchOptions { rank: args.rank, expect: args.expect };
    let launcher =
        args.rendezvous.is_some().then(|| launch_context::find(told)).transpose()?.flatten();
    let page = args.web.map(Page::bind).transpose()?;
    let (with_parent, no_alloc) = (args.with_parent, args.no_alloc);
    let is_together = args.rendezvous.is_some();
    let (rank, launch) = (args.rank, launcher.as_ref().map(|found| found.launch.clone()));
    let rank = rank.or_else(|| launcher.as_ref().map(|found| found.rank)).filter(|_| is_together);
    let (size, elsewhere) = (size(&args, launcher.as_ref()), args.state_dir.is_some());
    let (options, claim) = options_of(context, args, &dir, launcher).inspect_err(|failure| {
        let rank = rank.map(|rank| Rank { rank, size, elsewhere });
        note_failure(&dir, rank, launch.unwrap_or_default(), failure);
    })?;
    let of = if options.grow { String::new() } else { format!(" of {}", options.expect) };
    let handle = daemon::start(options)?;
    let (node, address) = (handle.node(), handle.listens_on());
    context.output.note(&format!("node {node}{of} listens on {address}"));
    if let Some(page) = page {
        context.output.note(&format!("the live page: {}", page.url()));
        page.serve(Context::new(context.output, context.settings.clone(), Some(dir.clone())))?;
    }
    alloc::learn::start(&dir, node.0);
    if !no_alloc {
        alloc::owner::start(&dir, node.0, handle.incarnation().0, verb::output::say);
    }
    live(handle, with_parent, claim)
}

/// Reports to the waiting ranks the reason why this one does not start.
fn note_failure(dir: &Path, rank: Option<Rank>, launch: String, failure: &Failure) {
    let Some(rank) = rank else { return };
    let Ok(instance) = Instance::open(dir) else { return };
    let node = match rank.next_launch(dir) {
        Ok(Some(next)) => next.node,
        Ok(None) => Some(NodeId(rank.rank)),
        Err(_) => None,
    };
    let Some(node) = node else { return };
    let reason = failure.message.clone();
    instance.note_failure(node, Some(&FailureFile { launch, reason }));
}

/// The token in the environment. Inside a task the variable has another meaning.
fn token_of_environment() -> Result<Option<Token>, Failure> {
    let is_task = std::env::var_os(client::DOOR_VARIABLE).is_some();
    let text = std::env::var("STARLING_TOKEN").ok().filter(|text| !text.is_empty() && !is_task);
    let token = text.map(|text| text.parse::<Token>()).transpose();
    token.map_err(|error| Failure::usage(format!("STARLING_TOKEN: {error}")))
}

fn options_of(
    context: &Context,
    args: StartArgs,
    dir: &Path,
    launcher: Option<Launcher>,
) -> Result<(NodeOptions, Option<DirLock>), Failure> {
    let assignment = assignment(&args, dir, launcher.as_ref())?;
    let NodeAssignment { node, expect, grow, rank, awaited, further, state_dir, claim } =
        assignment;
    let tuning = args.tuning.resolve(&context.settings)?;
    if args.insecure {
        verb::local::plan::warn_insecure();
    }
    let slots = context.settings.pick_optional(args.slots, "slots")?;
    let (at, of) = args.share;
    let offer = args.offer.resolve(&context.settings)?;
    let slots = offer.slots(args.slots)?.or(slots);
    let offers = vec![offer.offer(at, of)?];
    let life = args.life.resolve()?;
    let replicas = replicas(context, &args, dir)?;
    let token = match (&args.join, args.token.clone()) {
        (Some(_), None) => token_of_environment()?,
        (_, token) => token,
    };
    let options = NodeOptions {
        state_dir,
        slots: slots.unwrap_or_else(|| launch_context::slots(context, launcher.as_ref())),
        listen: launch_context::listen(
            args.listen,
            &args.interface,
            launcher.as_ref(),
            args.join.as_deref().filter(|_| !args.insecure),
        )?,
        offers,
        end: life.end,
        idle_timeout: life.idle,
        tuning,
        partitions: args.partitions,
        replicas,
        scrub_every: args.scrub.resolve(&context.settings)?,
        captured: args.captured.resolve(&context.settings)?,
        say: |line| verb::output::say(line),
        join: args.join,
        grow,
        rank,
        awaited,
        further,
        token,
        hides_slurm: args.slurm.hides(&context.settings)?,
        insecure: args.insecure,
        deadline: args.deadline.0,
        launch: launcher.map(|found| found.launch).unwrap_or_default(),
        begin_together: args.rendezvous.is_some(),
        ..NodeOptions::new(dir, node, expect)
    };
    Ok((options, claim))
}

/// The node that this process becomes.
#[derive(Debug)]
struct NodeAssignment {
    node: NodeId,
    /// The founding nodes of the cluster.
    expect: u32,
    /// True for a new node, which gets a number from the cluster; `rank` will be this node in later
    /// launches.
    grow: bool,
    rank: Option<u32>,
    /// The nodes that are started together with it; `None`: all founding ones.
    awaited: Option<Vec<NodeId>>,
    further: Vec<NodeId>,
    state_dir: Option<PathBuf>,
    claim: Option<DirLock>,
}

/// The number of nodes that are started together, or make up the cluster.
fn size(args: &StartArgs, launcher: Option<&Launcher>) -> u32 {
    args.expect.or_else(|| launcher.map(|found| found.size)).unwrap_or(1)
}

fn assignment(
    args: &StartArgs,
    dir: &Path,
    launcher: Option<&Launcher>,
) -> Result<NodeAssignment, Failure> {
    let size = size(args, launcher);
    let joins = args.join.is_some() && args.expect.is_none() && args.rank.is_none();
    if joins && launcher.is_none() {
        let state_dir = state_dir(args, Err("the cluster gives the number later"))?;
        let (node, expect, grow) = (NodeId(0), size, true);
        let (rank, awaited, further, claim) = (None, None, Vec::new(), None);
        return Ok(NodeAssignment { node, expect, grow, rank, awaited, further, state_dir, claim });
    }
    let (place, claim) = rank(args, dir, launcher, size)?;
    let state_dir = state_dir(args, Ok(place))?;
    let (node, expect, grow) = (NodeId(place), size, false);
    let (rank, awaited, further) = (None, None, Vec::new());
    let first = NodeAssignment { node, expect, grow, rank, awaited, further, state_dir, claim };
    match args.rendezvous.is_some() && args.join.is_none() {
        true => first.in_next_launch(dir, place),
        false => Ok(first),
    }
}

/// The state directory that the user gave, if any; `{rank}` is the place in the launch.
fn state_dir(args: &StartArgs, rank: Result<u32, &str>) -> Result<Option<PathBuf>, Failure> {
    let scope = Scope { flag: "--state-dir", rank };
    args.state_dir.as_deref().map(|dir| path_templates::expand(dir, scope)).transpose()
}

/// A process of a launch.
#[derive(Clone, Copy, Debug)]
struct Rank {
    rank: u32,
    /// Ranks of the launch.
    size: u32,
    /// True if it has a state directory of its own.
    elsewhere: bool,
}

/// A directory's mapping of the ranks of a launch.
#[derive(Debug)]
struct NextLaunch {
    instance: Instance,
    /// The founding nodes of its cluster.
    expect: u32,
    /// The node of this rank; `None`: a new one.
    node: Option<NodeId>,
    /// The nodes of all ranks.
    nodes: Vec<Option<NodeId>>,
}

impl Rank {
    /// `None`: the directory has no cluster with moving homes. Then each rank is the node with its
    /// number.
    fn next_launch(self, dir: &Path) -> Result<Option<NextLaunch>, Failure> {
        let cluster = match client::Instance::new(dir).cluster() {
            Ok(cluster) if cluster.replicas > 1 => cluster,
            Ok(_) | Err(client::ClientError::NoInstance { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let (instance, expect) = (Instance::open(dir)?, cluster.nodes);
        let size = self.size.max(self.rank.saturating_add(1)).min(proto::limits::NODES_MAX);
        let nodes = instance.nodes_of_ranks(size, expect, self.elsewhere);
        let node = nodes.get(self.rank as usize).copied().flatten();
        Ok(Some(NextLaunch { instance, expect, node, nodes }))
    }
}

impl NodeAssignment {
    /// A launch in a directory that has a cluster: it may have fewer ranks than nodes, or more.
    fn in_next_launch(self, dir: &Path, rank: u32) -> Result<Self, Failure> {
        let rank = Rank { rank, size: self.expect, elsewhere: self.state_dir.is_some() };
        let Some(next) = rank.next_launch(dir)? else { return Ok(self) };
        let (rank, NextLaunch { instance, expect, node, nodes }) = (rank.rank, next);
        // A node that joined later needs its former state.
        let has_state = |node: &NodeId| match &self.state_dir {
            Some(state) => node.0 < expect || state.join("late").exists(),
            None => true,
        };
        match node.filter(has_state) {
            Some(node) => {
                if node.0 != rank {
                    instance.note_rank(rank, node)?;
                }
                // A node that joined later may have lost its state, and then joins as another.
                let others = nodes.into_iter().flatten().filter(|&other| other != node);
                let (first, further) = others.partition(|other| other.0 < expect);
                Ok(Self { node, expect, awaited: Some(first), further, ..self })
            }
            // The cluster assigns its number.
            None => Ok(Self { node: NodeId(0), expect, grow: true, rank: Some(rank), ..self }),
        }
    }
}

/// The wanted replicas of the cluster; `None`: those it has.
fn replicas(context: &Context, args: &StartArgs, dir: &Path) -> Result<Option<u32>, Failure> {
    let is_made = args.join.is_some() || dir.join("cluster.json").exists();
    if args.replicas.is_none() && is_made {
        return Ok(None);
    }
    let told = context.settings.pick_optional(args.replicas, "replicas")?;
    let replicas = told.unwrap_or(verb::local::plan::REPLICAS_DEFAULT);
    verb::local::plan::check_replicas(replicas, proto::limits::NODES_MAX).map(Some)
}

/// Runs the node until it stops: by a client, by a signal, at the end of its parent, or because
/// another process took its place.
/// Whether a batch job of an allocation queue has started this node.
fn is_allocated() -> bool {
    std::env::var_os(allocation::backend::ALLOCATION_VARIABLE).is_some()
}

fn live(handle: NodeHandle, with_parent: bool, claim: Option<DirLock>) -> Done {
    let node = handle.node();
    let stopper = handle.stopper();
    if with_parent {
        let stopper = stopper.clone();
        std::thread::spawn(move || {
            // Any end of the input counts, even an error.
            let _ = std::io::copy(&mut std::io::stdin().lock(), &mut std::io::sink());
            stopper.stop();
        });
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::lost(format!("cannot wait: {}", plain(&error))))?;
    runtime.block_on(async {
        let mut life = tokio::task::spawn_blocking(move || -> Result<(), Failure> {
            match handle.wait_ready() {
                // Joining returns the reason if the node ended by itself.
                Ok(()) | Err(StartError::Stopped) => match handle.join() {
                    // In an allocation this is the good end: its batch job has completed.
                    Err(NodeError::Removed { .. }) if is_allocated() => Ok(()),
                    ended => Ok(ended?),
                },
                Err(error) => Err(error.into()),
            }
        });
        let (mut exit, mut is_taken) = (Exit::Ok, false);
        let ended = loop {
            tokio::select! {
                ended = &mut life => break ended,
                signal = stop_signal() => {
                    exit = signal;
                    stopper.stop();
                }
                () = taken(claim.as_ref()), if !is_taken => {
                    is_taken = true;
                    stopper.stop();
                }
            }
        };
        ended.expect("a node's panic is a value")?;
        match is_taken {
            true => Err(Failure::lost(format!(
                "node {node} stopped: another process has taken its place in the directory"
            ))),
            false => Ok(exit),
        }
    })
}

/// Returns when another process has replaced the beat of the claim by its own.
async fn taken(claim: Option<&DirLock>) {
    let Some(claim) = claim else { return std::future::pending().await };
    while !claim.is_taken() {
        tokio::time::sleep(CLAIM_LOOKED_AT_EVERY).await;
    }
}

/// Waits for a signal and returns its exit code.
async fn stop_signal() -> Exit {
    use tokio::signal::unix::{SignalKind, signal};
    let both = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()));
    let (Ok(mut interrupt), Ok(mut terminate)) = both else { return std::future::pending().await };
    tokio::select! {
        _ = interrupt.recv() => Exit::Interrupted,
        _ = terminate.recv() => Exit::Ok,
    }
}

/// This node's place, with the lock on a place that was not assigned.
fn rank(
    args: &StartArgs,
    dir: &Path,
    launcher: Option<&Launcher>,
    expect: u32,
) -> Result<(u32, Option<DirLock>), Failure> {
    if let Some(rank) = args.rank.or_else(|| launcher.map(|found| found.rank)) {
        return Ok((rank, None));
    }
    if expect == 1 {
        return Ok((0, None));
    }
    let instance = Instance::open(dir)?;
    for rank in 0..expect {
        let home = instance.node_dir(NodeId(rank));
        executor::private::own_dir(&home).map_err(|error| Failure::file(&home, &error))?;
        if let Some(lock) = DirLock::try_to_take(&home, "place")? {
            return Ok((rank, Some(lock)));
        }
    }
    let text = format!("all {expect} places in {} are taken", dir.display());
    Err(Failure::refused(text).hint("expect more nodes, or use another directory"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_failure_of_a_rank_is_noted_for_the_node_that_others_await() {
        let dir = tempfile::tempdir().unwrap();
        let cluster = r#"{"format":1,"cluster":"5","nodes":3,"partitions":64,"replicas":2}"#;
        std::fs::write(dir.path().join("cluster.json"), cluster).unwrap();
        // The first node has left: of two ranks the first is n2, since the second is n1.
        let member = |node| format!(r#"{{"node":{node},"incarnation":1,"address":""}}"#);
        let members = [member(1), member(2)].join(",");
        let members =
            format!(r#"{{"format":1,"epoch":9,"voters":[1],"members":[{members}],"left":[0]}}"#);
        std::fs::write(dir.path().join("members.json"), members).unwrap();

        let rank = Rank { rank: 0, size: 2, elsewhere: false };
        let next = rank.next_launch(dir.path()).unwrap().unwrap();
        assert_eq!(next.nodes, [Some(NodeId(2)), Some(NodeId(1))]);
        let failure = Failure::refused("no space");
        note_failure(dir.path(), Some(rank), "7.0".to_owned(), &failure);
        let instance = Instance::open(dir.path()).unwrap();
        let (noted, _) = instance.read_failure(NodeId(2)).unwrap();
        assert_eq!((noted.launch.as_str(), noted.reason.as_str()), ("7.0", "no space"));
        assert!(instance.read_failure(NodeId(1)).is_none());
        // If each rank has a state directory of its own, it cannot become another node.
        let apart = Rank { elsewhere: true, ..rank };
        let next = apart.next_launch(dir.path()).unwrap().unwrap();
        assert_eq!(next.nodes, [None, Some(NodeId(1))]);
    }
}
