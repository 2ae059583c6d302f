//! `hq worker`, but for its start: nodes of Starling, with the numbers and texts of the front.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use client::{Client, NodeId, host_name, now_ns};
use proto::wire;
use rustix::process::test_kill_process;
use serde_json::{Value, json};
use verb::errors::Failure;

use crate::args::{Form, WorkerVerb};
use crate::cluster::{Front, LOOK_PAUSE, MAP_TIMEOUT, START_TIMEOUT, is_up};
use crate::records::{self, Coupling, Pool, WorkerRecord};
use crate::words::{Selector, iso_time, span, time_of_day};
use crate::{table, worker_start};

/// The time that a node has to tell its state.
const STATE_TIMEOUT: Duration = Duration::from_secs(2);
/// The amounts of HyperQueue are counted in these parts.
const PARTS: f64 = 10_000.0;

/// The time for other nodes to take over the partitions of a stopped one.
const TAKE_OVER_TIMEOUT: Duration = Duration::from_secs(5);

const RUNNING: &str = "RUNNING";

/// Nodes that were started without the front have numbers from here on.
const OTHERS_FROM: u64 = 1_000_000;

/// A worker with its node.
struct Worker {
    record: WorkerRecord,
    node: Option<u32>,
    state: &'static str,
}

/// The workers, by number: those that were started through the front, and other nodes with slots
/// that are up.
async fn all(client: &Client) -> Result<Vec<Worker>, Failure> {
    let records = records::workers(client).await?;
    let map = client.raw().newest_map(MAP_TIMEOUT).await;
    let mut out = Vec::new();
    for record in records {
        let member = map.members.iter().rev().find(|member| record.is_of(member));
        if member.is_none() && !record.is_stopped && is_recent(&record) {
            continue;
        }
        let state = state(&record, member);
        out.push(Worker { node: member.map(|member| member.node), record, state });
    }
    let known: BTreeSet<u32> = out.iter().filter_map(|worker| worker.node).collect();
    let is_other = |it: &&wire::Member| is_up(it) && it.slots > 0 && !known.contains(&it.node);
    out.extend(map.members.iter().filter(is_other).map(Worker::of_other));
    Ok(out)
}

impl Worker {
    /// A node that was started without the front, such as by 'starling up'.
    fn of_other(member: &wire::Member) -> Self {
        let slots = f64::from(member.slots);
        let record = WorkerRecord {
            id: OTHERS_FROM + u64::from(member.node),
            pid: member.pid,
            machine: member.host.clone(),
            host: member.host.clone(),
            group: "default".to_owned(),
            resources: vec![("cpus".to_owned(), member.slots.to_string())],
            pools: vec![Pool { name: "cpus".to_owned(), amount: slots, groups: Vec::new() }],
            heartbeat: "N/A".to_owned(),
            ..WorkerRecord::default()
        };
        Self { record, node: Some(member.node), state: RUNNING }
    }
}

/// Why a node has left is not on record: what the worker was told to do counts.
fn state(record: &WorkerRecord, member: Option<&wire::Member>) -> &'static str {
    let lived_ns = now_ns().saturating_sub(record.started_ns);
    let has_left = member.is_none_or(|member| member.phase() == wire::MemberPhase::Removed);
    match member {
        Some(member) if is_up(member) => RUNNING,
        _ if record.is_stopped => "STOPPED",
        _ if record.time_limit_ns > 0 && lived_ns >= record.time_limit_ns => "TIME LIMIT REACHED",
        _ if record.idle_timeout_ns > 0 && has_left => "IDLE TIMEOUT",
        _ => "CONNECTION LOST",
    }
}

/// It may not have joined yet.
fn is_recent(record: &WorkerRecord) -> bool {
    let since = now_ns().saturating_sub(record.started_ns);
    let is_here = record.machine == host_name();
    let pid = i32::try_from(record.pid).ok().and_then(rustix::process::Pid::from_raw);
    let is_dead = is_here && pid.is_none_or(|pid| test_kill_process(pid).is_err());
    Duration::from_nanos(since) < START_TIMEOUT && !is_dead
}

/// The records of the workers that run.
pub(crate) async fn running(client: &Client) -> Result<Vec<WorkerRecord>, Failure> {
    let workers = all(client).await?.into_iter();
    Ok(workers.filter(|it| it.state == RUNNING).map(|it| it.record).collect())
}

/// The names of workers by their nodes.
pub(crate) async fn names(client: &Client) -> Result<BTreeMap<u32, String>, Failure> {
    let workers = all(client).await?.into_iter();
    Ok(workers.filter_map(|worker| Some((worker.node?, worker.record.host))).collect())
}

pub(crate) fn run(front: &Front, verb: WorkerVerb) -> Result<ExitCode, Failure> {
    match verb {
        WorkerVerb::Start(args) => worker_start::run(front, &args),
        WorkerVerb::Hwdetect { no_hyper_threading } => {
            worker_start::hwdetect(front, no_hyper_threading)
        }
        WorkerVerb::DeploySsh(args) => worker_start::deploy(front, &args),
        verb => verb::block_on(async {
            let client = front.connect().await?;
            match verb {
                WorkerVerb::List { all, filter } => list(front, &client, all, filter).await?,
                WorkerVerb::Info { workers } => info(front, &client, &workers).await?,
                WorkerVerb::Stop { workers } => stop(front, &client, &workers).await?,
                WorkerVerb::Address { worker } => {
                    let found = all(&client).await?;
                    let found = found.iter().find(|it| it.record.id == worker);
                    let text = found.map_or("worker not found", |it| &it.record.host);
                    front.context.output.line(text)?;
                }
                WorkerVerb::Wait { count } => {
                    let running = |workers: &[Worker]| {
                        workers.iter().filter(|it| it.state == RUNNING).count()
                    };
                    while running(&all(&client).await?) < count {
                        tokio::time::sleep(LOOK_PAUSE).await;
                    }
                }
                WorkerVerb::Start(_) | WorkerVerb::Hwdetect { .. } | WorkerVerb::DeploySsh(_) => {}
            }
            Ok(ExitCode::SUCCESS)
        }),
    }
}

async fn list(
    front: &Front,
    client: &Client,
    is_all: bool,
    filter: Option<String>,
) -> Result<(), Failure> {
    let filter = filter.as_deref().map(str::to_lowercase);
    let is_shown = |worker: &&Worker| match filter.as_deref() {
        Some("offline") => worker.state != RUNNING,
        None if is_all => true,
        _ => worker.state == RUNNING,
    };
    let workers = all(client).await?;
    let shown: Vec<&Worker> = workers.iter().filter(is_shown).collect();
    match front.form {
        Form::Quiet => {
            for worker in shown {
                front.context.output.line(&format!("{} {}", worker.record.id, worker.state))?;
            }
            Ok(())
        }
        Form::Json => {
            let rows: Vec<Value> = shown.into_iter().map(|worker| json(worker, None)).collect();
            front.context.output.raw_line(&Value::from(rows).to_string())
        }
        Form::Cli => {
            let header = ["ID", "State", "Hostname", "Resources", "Manager", "Manager Job ID"];
            let rows: Vec<Vec<String>> = shown.into_iter().map(row).collect();
            front.context.output.text(&table::horizontal(&header, &rows))
        }
    }
}

fn manager(of: &WorkerRecord) -> (String, String) {
    of.manager.clone().unwrap_or_else(|| ("None".to_owned(), "N/A".to_owned()))
}

fn row(worker: &Worker) -> Vec<String> {
    let of = &worker.record;
    let pools = of.resources.iter().map(|(name, text)| format!("{name} {text}"));
    let pools = pools.collect::<Vec<_>>().join("; ");
    let (manager, job) = manager(of);
    vec![of.id.to_string(), worker.state.to_owned(), of.host.clone(), pools, manager, job]
}

async fn info(front: &Front, client: &Client, selector: &Selector) -> Result<(), Failure> {
    let workers = all(client).await?;
    let present: Vec<u64> = workers.iter().map(|worker| worker.record.id).collect();
    let mut rows = Vec::new();
    for id in selector.pick(&present) {
        let Some(worker) = workers.iter().find(|worker| worker.record.id == id) else {
            front.context.output.line(&format!("Worker {id} not found"))?;
            continue;
        };
        let running = worker.node.filter(|_| worker.state == RUNNING);
        let state = match running {
            Some(node) => client.raw().node_state(NodeId(node), STATE_TIMEOUT).await.ok(),
            None => None,
        };
        match front.form {
            Form::Json => rows.push(json(worker, state.as_ref())),
            _ => {
                let text = table::vertical(&info_rows(worker, state.as_ref()));
                front.context.output.text(&text)?;
            }
        }
    }
    match front.form {
        Form::Json => front.context.output.raw_line(&Value::from(rows).to_string()),
        _ => Ok(()),
    }
}

/// The numbers of assigned and of running tasks.
fn tasks(state: &wire::NodeState) -> (u64, u64) {
    (state.ready_local + state.ready_shared + state.running, state.running)
}

fn optional_span(ns: u64) -> String {
    if ns == 0 { "None".to_owned() } else { span(ns) }
}

fn info_rows(worker: &Worker, state: Option<&wire::NodeState>) -> Vec<(&'static str, String)> {
    let of = &worker.record;
    let is_coupled = |name: &str| of.couplings.iter().any(|it| it.ends().any(|end| end.0 == name));
    let pool = |(name, text): &(String, String)| {
        format!("{name}: {text}{}", if is_coupled(name) { " [coupled]" } else { "" })
    };
    let pools: Vec<String> = of.resources.iter().map(pool).collect();
    let runtime = state.map(tasks).map_or_else(String::new, |(assigned, running)| {
        let running =
            if running > 0 { format!("; running tasks: {running}") } else { String::new() };
        format!("assigned tasks: {assigned}{running}")
    });
    let (manager, job) = manager(of);
    let is_known = of.started_ns > 0;
    let started = if is_known { time_of_day(of.started_ns) } else { "N/A".to_owned() };
    vec![
        ("Worker", of.id.to_string()),
        ("State", worker.state.to_owned()),
        ("Hostname", of.host.clone()),
        ("Started", started),
        ("Resources", pools.join("\n")),
        ("Time Limit", optional_span(of.time_limit_ns)),
        ("Idle timeout", optional_span(of.idle_timeout_ns)),
        ("Process pid", of.pid.to_string()),
        ("Group", of.group.clone()),
        ("Heartbeat", of.heartbeat.clone()),
        ("Working directory", of.work_dir.clone()),
        ("Manager", manager),
        ("Manager Job ID", job),
        ("Runtime Info", runtime),
    ]
}

fn json(worker: &Worker, state: Option<&wire::NodeState>) -> Value {
    let of = &worker.record;
    let seconds = |ns: u64| if ns == 0 { Value::Null } else { json!(ns as f64 / 1e9) };
    let allocation =
        of.manager.as_ref().map(|(manager, id)| json!({ "manager": manager, "id": id }));
    let runtime = state.map(tasks).map(|(assigned, running)| {
        let tasks = json!({
            "assigned_tasks": assigned, "running_tasks": running, "is_reserved": false,
        });
        json!({ "SingleNodeTasks": tasks })
    });
    let address = state.and_then(|state| state.member.as_ref());
    json!({
        "id": of.id,
        "configuration": {
            "heartbeat_interval": of.heartbeat_s,
            "hostname": of.host,
            "group": of.group,
            "idle_timeout": seconds(of.idle_timeout_ns),
            "time_limit": seconds(of.time_limit_ns),
            "listen_address": address.map_or("", |member| &member.address),
            "work_dir": of.work_dir,
            "on_server_lost": of.on_server_lost,
            "min_utilization": 0.0,
            "resources": json_pools(&of.pools, &of.couplings),
        },
        "allocation": allocation,
        "started": (of.started_ns > 0).then(|| iso_time(of.started_ns)),
        "ended": null,
        "runtime_info": runtime,
        "last_task_started": null,
    })
}

pub(crate) fn json_pools(pools: &[Pool], couplings: &[Coupling]) -> Value {
    let pool = |pool: &Pool| match &pool.groups[..] {
        [] => json!({ "name": pool.name, "kind": "sum", "size": (pool.amount * PARTS) as u64 }),
        [values] => json!({ "name": pool.name, "kind": "list", "values": values }),
        groups => json!({ "name": pool.name, "kind": "groups", "groups": groups }),
    };
    let at = |name: &str| pools.iter().position(|pool| pool.name == name);
    let coupling = |coupling: &Coupling| {
        let [left, right] = [coupling.left(), coupling.right()];
        json!({
            "resource1_idx": at(left.0), "group1_idx": left.1,
            "resource2_idx": at(right.0), "group2_idx": right.1,
            "weight": coupling.weight,
        })
    };
    json!({
        "resources": pools.iter().map(pool).collect::<Vec<_>>(),
        "coupling": { "weights": couplings.iter().map(coupling).collect::<Vec<_>>() },
    })
}

async fn stop(front: &Front, client: &Client, selector: &Selector) -> Result<(), Failure> {
    let workers = all(client).await?;
    let running = workers.iter().filter(|worker| worker.state == RUNNING);
    let present: Vec<u64> = running.map(|worker| worker.record.id).collect();
    let (mut lines, mut stopped) = (Vec::new(), Vec::new());
    for id in selector.pick(&present) {
        let failed = |why: &str| format!("Stopping worker {id} failed; {why}");
        let text = match workers.iter().find(|worker| worker.record.id == id) {
            None => failed("worker not found"),
            Some(worker) if worker.state != RUNNING => failed("worker is already stopped"),
            Some(worker) => {
                if id < OTHERS_FROM {
                    records::stop_worker(client, id).await?;
                }
                stopped.extend(worker.node);
                format!("Worker {id} stopped")
            }
        };
        lines.push(text);
    }
    // After all records: these nodes may have the keys.
    for node in stopped {
        client.stop_node(NodeId(node), false).await?;
        others_have_taken_over(client, node).await;
    }
    lines.iter().try_for_each(|line| front.context.output.line(line))
}

/// Waits until the node is down and the others have its partitions with as many replicas as before,
/// so that the next one may stop.
async fn others_have_taken_over(client: &Client, node: u32) {
    let deadline = Instant::now() + TAKE_OVER_TIMEOUT;
    loop {
        let map = client.raw().newest_map(MAP_TIMEOUT).await;
        let up: Vec<u32> = map.members.iter().filter(|it| is_up(it)).map(|it| it.node).collect();
        let wanted = up.len().min(map.copies as usize);
        let is_served = map.partitions.iter().all(|partition| {
            let served = partition.replicas.iter().filter(|it| up.contains(it)).count();
            partition.active && served >= wanted
        });
        if (!up.contains(&node) && is_served) || Instant::now() > deadline {
            return;
        }
        tokio::time::sleep(LOOK_PAUSE).await;
    }
}
