//! `starling node list | info | stop`.

use std::time::Duration;

use client::ClientError;
use proto::NodeId;
use proto::wire::NodeState;
use serde::Serialize;

use crate::errors::{Done, Exit, Failure};
use crate::{Context, tuning, units};

/// How long a node may take before it counts as down.
pub(crate) const PATIENCE: Duration = Duration::from_secs(2);

#[derive(Serialize)]
struct NodeList {
    /// Every partition has all its copies: in this version, every node is up.
    fully_replicated: bool,
    nodes: Vec<NodeRow>,
}

#[derive(Serialize)]
struct NodeRow {
    id: u32,
    incarnation: u32,
    addr: String,
    pid: u32,
    state: &'static str,
    slots: u32,
    ready_local: u64,
    ready_shared: u64,
    running: u64,
    waiting: u64,
}

impl NodeRow {
    fn up(node: NodeId, state: &NodeState) -> Self {
        let member = state.member.clone().unwrap_or_default();
        Self {
            id: node.0,
            incarnation: member.incarnation,
            addr: member.address,
            pid: member.pid,
            state: "up",
            slots: member.slots,
            ready_local: state.ready_local,
            ready_shared: state.ready_shared,
            running: state.running,
            waiting: state.waiting,
        }
    }
    fn down(node: NodeId) -> Self {
        Self {
            id: node.0,
            incarnation: 0,
            addr: String::new(),
            pid: 0,
            state: "down",
            slots: 0,
            ready_local: 0,
            ready_shared: 0,
            running: 0,
            waiting: 0,
        }
    }
    fn cells(&self) -> Vec<String> {
        vec![
            format!("n{}", self.id),
            self.state.to_owned(),
            self.addr.clone(),
            self.pid.to_string(),
            self.slots.to_string(),
            units::count(self.running),
            units::count(self.ready_local),
            units::count(self.ready_shared),
            units::count(self.waiting),
        ]
    }
}

pub(crate) fn list(context: &Context) -> Done {
    crate::block_on(async {
        let client = context.connect().await?;
        let states = client.node_states(PATIENCE).await;
        let nodes: Vec<NodeRow> = states
            .iter()
            .map(|(node, state)| match state {
                Ok(state) => NodeRow::up(*node, state),
                Err(_) => NodeRow::down(*node),
            })
            .collect();
        let fully_replicated = nodes.iter().all(|node| node.state == "up");
        if context.output.json {
            context.output.json(&NodeList { fully_replicated, nodes })?;
        } else {
            let header = [
                "node", "state", "address", "pid", "slots", "running", "local", "shared", "waiting",
            ];
            let rows: Vec<_> = nodes.iter().map(NodeRow::cells).collect();
            context.output.table(&header, &rows)?;
        }
        Ok(Exit::Ok)
    })
}

#[derive(Serialize)]
struct NodeInfo {
    #[serde(flatten)]
    row: NodeRow,
    policy: String,
    steals_tried: u64,
    steals_won: u64,
    steals_tasks: u64,
    pushes: u64,
    messages: u64,
    reconciler_wakeups: u64,
    cpu_s: f64,
    peak_rss_bytes: u64,
    data: NodeData,
    tuning: tuning::Shown,
}

/// The objects of one node, and what its tasks have read since it started.
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
    /// The same over reads of objects made elsewhere.
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
                    "{} of bytes, {} of reads, {} of reads of what others made",
                    percent(self.locality_hit_rate),
                    percent(self.cache_hit_rate),
                    percent(self.strict_cache_hit_rate)
                ),
            ),
        ]
    }
}

pub(crate) fn info(context: &Context, node: NodeId) -> Done {
    crate::block_on(async {
        let client = context.connect().await?;
        known(&client, node)?;
        let state = client.node_state(node, PATIENCE).await?;
        let info = NodeInfo {
            row: NodeRow::up(node, &state),
            policy: state.policy.clone(),
            steals_tried: state.steals_tried,
            steals_won: state.steals_won,
            steals_tasks: state.steals_tasks,
            pushes: state.pushes,
            messages: state.messages,
            reconciler_wakeups: state.reconciler_wakeups,
            cpu_s: state.cpu_ns as f64 / 1e9,
            peak_rss_bytes: state.peak_rss_bytes,
            data: NodeData::of(&state),
            tuning: (&state.tuning.clone().unwrap_or_default()).into(),
        };
        if context.output.json {
            context.output.json(&info)?;
            return Ok(Exit::Ok);
        }
        let row = |key: &str, value: String| vec![key.to_owned(), value];
        let steals = format!(
            "{} of {}, {} tasks",
            units::count(info.steals_won),
            units::count(info.steals_tried),
            units::count(info.steals_tasks)
        );
        let rows = [
            row("node", format!("n{}", info.row.id)),
            row("address", info.row.addr.clone()),
            row("pid", info.row.pid.to_string()),
            row("incarnation", info.row.incarnation.to_string()),
            row("slots", info.row.slots.to_string()),
            row("policy", info.policy.clone()),
            row("running", units::count(info.row.running)),
            row("ready, local", units::count(info.row.ready_local)),
            row("ready, shared", units::count(info.row.ready_shared)),
            row("waiting", units::count(info.row.waiting)),
            row("steals", steals),
            row("pushes", units::count(info.pushes)),
            row("messages", units::count(info.messages)),
            row("woken late", units::count(info.reconciler_wakeups)),
            row("cpu", units::seconds(info.cpu_s)),
            row("memory", units::bytes(info.peak_rss_bytes)),
        ];
        let tuning = tuning::rows(&state.tuning.unwrap_or_default());
        context.output.table(&["", ""], &[rows.as_slice(), &info.data.rows(), &tuning].concat())?;
        Ok(Exit::Ok)
    })
}

fn known(client: &client::Client, node: NodeId) -> Result<(), Failure> {
    match client.nodes().contains(&node) {
        true => Ok(()),
        false => Err(Failure::refused(format!("no node {node} in this cluster"))
            .hint("'starling node list' shows its nodes")),
    }
}

pub(crate) fn stop(context: &Context, nodes: &[NodeId]) -> Done {
    crate::block_on(async {
        let client = context.connect().await?;
        for node in nodes {
            known(&client, *node)?;
        }
        for node in nodes {
            match client.stop_node(*node, false).await {
                // Already gone.
                Ok(()) | Err(ClientError::ClusterUnreachable(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Exit::Ok)
    })
}
