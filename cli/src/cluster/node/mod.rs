//! `starling node list | info | stop`.

mod measurements;
mod pools;
mod records;
pub(crate) mod removal;
pub(crate) mod set;
pub(crate) mod token;

use client::{Client, ClientError};
use kvs::membership::awaited;
use proto::NodeId;
use proto::wire::{self, NodeState};
use serde::Serialize;
use verb::Context;
use verb::cluster::survival::{PATIENCE, Survival, survival};
use verb::errors::{Done, Exit, Failure};
use verb::flags::tuning;
use verb::units;

use crate::cluster::node::measurements::Measured;
use crate::cluster::node::pools::Pools;
use crate::cluster::node::records::Records;

#[derive(Clone, Default, Serialize)]
pub(crate) struct NodeList {
    /// Every partition is served and has all its replicas, so do results and uploads, and enough
    /// nodes vote. With one replica: every node is up.
    pub(crate) fully_replicated: bool,
    /// Any nodes up to this number may fail permanently at once.
    pub(crate) losses_survived: usize,
    /// Nodes that are down and have the only replicas of some partitions, and the number of these
    /// partitions.
    pub(crate) waits_for: Vec<u32>,
    waiting_partitions: usize,
    pub(crate) nodes: Vec<NodeRow>,
}

impl NodeList {
    pub(crate) fn of(
        map: &wire::ClusterMap,
        states: &[(NodeId, Result<NodeState, ClientError>)],
    ) -> Self {
        let nodes: Vec<NodeRow> = states.iter().map(|(node, it)| row(map, *node, it)).collect();
        let Survival { is_fully_replicated: fully_replicated, losses: losses_survived } =
            survival(map, states);
        let waits = awaited(map);
        let (waits_for, waiting_partitions) = (waits.nodes.into_iter().collect(), waits.partitions);
        Self { fully_replicated, losses_survived, waits_for, waiting_partitions, nodes }
    }

    /// The partitions that wait for nodes, in words.
    pub(crate) fn waits(&self) -> Option<String> {
        let nodes: Vec<String> = self.waits_for.iter().map(|node| format!("n{node}")).collect();
        let held = units::number_of(self.waiting_partitions as u64, "partition");
        (!nodes.is_empty()).then(|| {
            format!(
                "warning: {held} wait for {}: no other node has a copy; start them ('starling up', \
                 or a launch of all ranks), then 'starling node drain {}' takes them away and \
                 loses nothing",
                nodes.join(", "),
                nodes.join(" ")
            )
        })
    }
}

#[derive(Clone, Serialize)]
pub(crate) struct NodeRow {
    pub(crate) id: u32,
    pub(crate) incarnation: u32,
    /// The first of the addresses.
    addr: String,
    addrs: Vec<String>,
    /// The name of its machine; empty: unknown.
    pub(crate) host: String,
    pid: u32,
    pub(crate) state: &'static str,
    /// The others have declared it failed. Otherwise a down node may only not answer this client.
    given_up: bool,
    /// The others wait far longer for its answers than for each other's, and assign it nothing new.
    pub(crate) slow: bool,
    /// True for a node without slots: it keeps replicas and votes, and runs nothing.
    pub(crate) keeper: bool,
    /// True for a node that starts no task before 'starling node resume'.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) paused: bool,
    /// When the node ends, in seconds since 1970; `None`: not known.
    ends_at: Option<u64>,
    /// True if the node votes on the map.
    votes: bool,
    /// Partitions that it is home of.
    pub(crate) homes: usize,
    /// Tasks with outputs on that node and on too few others.
    lacking_copies: u64,
    pub(crate) slots: u32,
    pub(crate) ready_local: u64,
    pub(crate) ready_shared: u64,
    pub(crate) running: u64,
    pub(crate) waiting: u64,
    #[serde(flatten)]
    offer: Pools,
}

impl NodeRow {
    fn up(node: NodeId, state: &NodeState) -> Self {
        let member = state.member.clone().unwrap_or_default();
        let ends_at = ends_at(&member);
        let offer = Pools::of(&member, None);
        Self {
            id: node.0,
            incarnation: member.incarnation,
            addr: first(&member.address),
            addrs: each(&member.address),
            host: member.host,
            pid: member.pid,
            state: "up",
            given_up: false,
            slow: member.slow,
            keeper: member.keeper,
            paused: state.tuning.as_ref().is_some_and(|tuning| tuning.paused == Some(true)),
            ends_at,
            votes: false,
            homes: 0,
            lacking_copies: state.lacking_copies,
            slots: member.slots,
            ready_local: state.ready_local,
            ready_shared: state.ready_shared,
            running: state.running,
            waiting: state.waiting,
            offer,
        }
    }
    pub(crate) fn down(node: NodeId) -> Self {
        Self {
            id: node.0,
            incarnation: 0,
            addr: String::new(),
            addrs: Vec::new(),
            host: String::new(),
            pid: 0,
            state: "down",
            given_up: false,
            slow: false,
            keeper: false,
            paused: false,
            ends_at: None,
            votes: false,
            homes: 0,
            lacking_copies: 0,
            slots: 0,
            ready_local: 0,
            ready_shared: 0,
            running: 0,
            waiting: 0,
            offer: Pools::default(),
        }
    }
    /// A node that does not answer, in a cluster that agrees on its members.
    fn silent(member: &wire::Member) -> Self {
        let (incarnation, slots) = (member.incarnation, member.slots);
        let (addr, addrs) = (first(&member.address), each(&member.address));
        let host = member.host.clone();
        let (ends_at, offer) = (ends_at(member), Pools::of(member, None));
        let down = Self::down(NodeId(member.node));
        Self { incarnation, addr, addrs, host, slots, ends_at, offer, ..down }
    }
    fn told_address(&self) -> String {
        match self.addrs.len() {
            0 | 1 => self.addr.clone(),
            several => format!("{} and {} more", self.addr, several - 1),
        }
    }
    /// The rest of its life.
    fn told_end(&self) -> String {
        let now_s = units::now_s();
        self.ends_at.map_or_else(String::new, |at| units::seconds(at.saturating_sub(now_s) as f64))
    }
    fn cells(&self) -> Vec<String> {
        vec![
            format!("n{}", self.id),
            format!(
                "{}{}{}{}",
                self.state,
                if self.slow { ", slow" } else { "" },
                if self.keeper { ", keeper" } else { "" },
                if self.paused { ", paused" } else { "" }
            ),
            self.told_address(),
            self.pid.to_string(),
            self.slots.to_string(),
            self.homes.to_string(),
            units::count(self.running),
            units::count(self.ready_local),
            units::count(self.ready_shared),
            units::count(self.waiting),
            self.host.clone(),
            self.told_end(),
            self.offer.text(),
        ]
    }
}

/// The known end of a member, in seconds since 1970.
fn ends_at(member: &wire::Member) -> Option<u64> {
    let totals = resources::Totals::decode(&member.offer).ok()?;
    totals.end().map(|end| end.at_ns() / 1_000_000_000)
}

/// The addresses of a member.
fn each(list: &str) -> Vec<String> {
    security::race::each(list).filter(|it| !it.is_empty()).map(str::to_owned).collect()
}
fn first(list: &str) -> String {
    each(list).into_iter().next().unwrap_or_default()
}

async fn look(client: &Client) -> NodeList {
    let map = client.raw().newest_map(PATIENCE).await;
    let states = client.raw().node_states(PATIENCE).await;
    NodeList::of(&map, &states)
}

pub(crate) fn list(context: &Context) -> Done {
    verb::block_on(async {
        let client = context.connect().await?;
        let mut list = look(&client).await;
        pools::add_free(&client, &mut list.nodes).await;
        if context.output.json {
            context.output.json(&list)?;
        } else {
            let nodes = &list.nodes;
            let header = [
                "node", "state", "address", "pid", "slots", "homes", "running", "local", "shared",
                "waiting", "host", "ends in", "free",
            ];
            let rows: Vec<_> = nodes.iter().map(NodeRow::cells).collect();
            context.output.table(&header, &rows)?;
            if let Some(line) = list.waits() {
                context.output.note(&line);
            }
        }
        Ok(Exit::Ok)
    })
}

fn row(map: &wire::ClusterMap, node: NodeId, state: &Result<NodeState, ClientError>) -> NodeRow {
    use wire::MemberPhase::{Down, Joining, Leaving, Removed, Up};
    let member = kvs::membership::member(map, node).filter(|_| map.copies > 1);
    let mut row = match (state, member) {
        (Ok(state), _) => NodeRow::up(node, state),
        (Err(_), Some(member)) => NodeRow::silent(member),
        (Err(_), None) => NodeRow::down(node),
    };
    let is_its_home = |entry: &&wire::PartitionEntry| entry.replicas.first() == Some(&node.0);
    row.homes = map.partitions.iter().filter(is_its_home).count();
    row.votes = map.copies > 1 && map.voters.contains(&node.0);
    row.slow = member.is_some_and(|member| member.slow);
    row.keeper = member.is_some_and(|member| member.keeper);
    row.given_up = member.is_some_and(|member| !kvs::membership::is_serving(map, member.node));
    // A silent node is down for this client, whatever the others think.
    row.state = match member.map(wire::Member::phase) {
        Some(Joining) => "joining",
        Some(Down) => "down",
        Some(Leaving) => "leaving",
        Some(Removed) => "removed",
        Some(Up) | None => row.state,
    };
    row
}

#[derive(Serialize)]
pub(crate) struct NodeInfo {
    #[serde(flatten)]
    row: NodeRow,
    policy: String,
    steals_tried: u64,
    steals_won: u64,
    steals_tasks: u64,
    pushes: u64,
    messages: u64,
    reconciler_wakeups: u64,
    stalls: u64,
    stalled_jobs: u64,
    cpu_s: f64,
    peak_rss_bytes: u64,
    #[serde(flatten)]
    records: Records,
    data: NodeData,
    measured: Measured,
    /// For a leaving node: the objects that other nodes do not have yet.
    leaving_objects: u64,
    leaving_bytes: u64,
    tuning: tuning::TuningReport,
}

/// The objects of one node, and the reads of its tasks since it started.
#[derive(Serialize)]
struct NodeData {
    bytes_stored: u64,
    copies: u64,
    bytes_copied: u64,
    bytes_evicted: u64,
    bytes_moved: u64,
    bytes_read_local: u64,
    /// Bytes found here over bytes read.
    locality_hit_rate: f64,
    /// Reads of an object by a task that needed no transfer of their own, over all reads.
    cache_hit_rate: f64,
    /// The same over reads of objects made on other nodes.
    strict_cache_hit_rate: f64,
}

impl NodeData {
    fn of(state: &NodeState) -> Self {
        let share =
            |part: u64, whole: u64| if whole == 0 { 0.0 } else { part as f64 / whole as f64 };
        let (inputs, made_here, copied) = (state.inputs, state.inputs_local, state.inputs_copied);
        Self {
            bytes_stored: state.stored_bytes,
            copies: state.copies,
            bytes_copied: state.copied_bytes,
            bytes_evicted: state.evicted_bytes,
            bytes_moved: state.bytes_moved,
            bytes_read_local: state.bytes_read_local,
            locality_hit_rate: share(
                state.bytes_read_local,
                state.bytes_read_local.saturating_add(state.bytes_moved),
            ),
            cache_hit_rate: share(made_here + copied, inputs),
            strict_cache_hit_rate: share(copied, inputs.saturating_sub(made_here)),
        }
    }

    fn rows(&self) -> [Vec<String>; 4] {
        let row = |key: &str, value: String| vec![key.to_owned(), value];
        let (bytes, percent) = (units::bytes, |share: f64| format!("{:.0} %", 100.0 * share));
        [
            row("objects", format!("{} stored", bytes(self.bytes_stored))),
            row(
                "copies",
                format!(
                    "{}, {}; {} evicted so far",
                    units::count(self.copies),
                    bytes(self.bytes_copied),
                    bytes(self.bytes_evicted)
                ),
            ),
            row(
                "read",
                format!(
                    "{} here, {} brought from other nodes",
                    bytes(self.bytes_read_local),
                    bytes(self.bytes_moved)
                ),
            ),
            row(
                "hits",
                format!(
                    "{} of bytes, {} of reads, {} of reads of objects of other nodes",
                    percent(self.locality_hit_rate),
                    percent(self.cache_hit_rate),
                    percent(self.strict_cache_hit_rate)
                ),
            ),
        ]
    }
}

impl NodeInfo {
    pub(crate) fn of(row: NodeRow, state: &NodeState) -> Self {
        Self {
            row,
            policy: state.policy.clone(),
            steals_tried: state.steals_tried,
            steals_won: state.steals_won,
            steals_tasks: state.steals_tasks,
            pushes: state.pushes,
            messages: state.messages,
            reconciler_wakeups: state.reconciler_wakeups,
            stalls: state.stalls,
            stalled_jobs: state.stalled_jobs,
            cpu_s: state.cpu_ns as f64 / 1e9,
            peak_rss_bytes: state.peak_rss_bytes,
            records: Records::of(state),
            data: NodeData::of(state),
            measured: Measured::of(state),
            leaving_objects: state.leaving_objects,
            leaving_bytes: state.leaving_bytes,
            tuning: (&state.tuning.clone().unwrap_or_default()).into(),
        }
    }

    fn rows(&self) -> [Vec<String>; 22] {
        let row = |key: &str, value: String| vec![key.to_owned(), value];
        let steals = format!(
            "{} of {}, {} tasks",
            units::count(self.steals_won),
            units::count(self.steals_tried),
            units::count(self.steals_tasks)
        );
        [
            row("node", format!("n{}", self.row.id)),
            row("host", self.row.host.clone()),
            row("address", self.row.addrs.join(", ")),
            row("slow", if self.row.slow { "yes" } else { "no" }.to_owned()),
            row("pid", self.row.pid.to_string()),
            row("incarnation", self.row.incarnation.to_string()),
            row("slots", self.row.slots.to_string()),
            row("free", self.row.offer.text()),
            row("ends in", self.row.told_end()),
            row("policy", self.policy.clone()),
            row("running", units::count(self.row.running)),
            row("ready, local", units::count(self.row.ready_local)),
            row("ready, shared", units::count(self.row.ready_shared)),
            row("waiting", units::count(self.row.waiting)),
            row("steals", steals),
            row("pushes", units::count(self.pushes)),
            row("messages", units::count(self.messages)),
            row("missed wake-ups repaired", units::count(self.reconciler_wakeups)),
            row("under-replicated outputs", units::count(self.row.lacking_copies)),
            row("stalled jobs", format!("{} now, {} in all", self.stalled_jobs, self.stalls)),
            row("cpu", units::seconds(self.cpu_s)),
            row("memory", units::bytes(self.peak_rss_bytes)),
        ]
    }
}

pub(crate) fn info(context: &Context, node: NodeId) -> Done {
    verb::block_on(async {
        let client = context.connect().await?;
        known(&client, node)?;
        let state = client.raw().node_state(node, PATIENCE).await?;
        let mut rows = [NodeRow::up(node, &state)];
        pools::add_free(&client, &mut rows).await;
        let [row] = rows;
        let info = NodeInfo::of(row, &state);
        if context.output.json {
            context.output.json(&info)?;
            return Ok(Exit::Ok);
        }
        let rows = info.rows();
        let tuning = tuning::rows(&state.tuning.unwrap_or_default());
        context.output.table(
            &["", ""],
            &[
                rows.as_slice(),
                &info.records.rows(),
                &info.data.rows(),
                &info.measured.rows(),
                &tuning,
            ]
            .concat(),
        )?;
        Ok(Exit::Ok)
    })
}

pub(crate) fn known(client: &Client, node: NodeId) -> Result<(), Failure> {
    match client.nodes().contains(&node) {
        true => Ok(()),
        false => Err(Failure::refused(format!("no node {node} in this cluster"))
            .hint("'starling node list' shows its nodes")),
    }
}

pub(crate) fn stop(context: &Context, nodes: &[NodeId]) -> Done {
    verb::block_on(async {
        let client = context.connect().await?;
        for node in nodes {
            known(&client, *node)?;
        }
        for node in nodes {
            match client.stop_node(*node, false).await {
                // The node has ended already.
                Ok(()) | Err(ClientError::ClusterUnreachable(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Exit::Ok)
    })
}
