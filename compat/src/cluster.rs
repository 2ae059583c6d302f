//! `hq server` and `hq worker`: nodes of Starling.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use client::{Client, NodeId, host_name, now_ns};
use proto::wire;
use proto::wire::MemberPhase;
use proto::wire::map_command::Body;
use verb::Context;
use verb::errors::{Failure, plain};

use crate::args::{Form, ServerVerb, WorkerArgs, WorkerVerb};
use crate::records::{self, WorkerRecord};
use crate::table;
use crate::words::{Selector, span};

const MAP_TIMEOUT: Duration = Duration::from_secs(2);
/// The time for a node that starts to answer.
const START_TIMEOUT: Duration = Duration::from_secs(15);
const LOOK_PAUSE: Duration = Duration::from_millis(50);

/// What every verb has.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) context: Context,
    pub(crate) form: Form,
}

impl Front {
    /// A client of the instance. A node that is about to start is waited for.
    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            match self.context.connect().await {
                Ok(client) => return Ok(client),
                Err(failure) if Instant::now() > deadline || !self.is_starting() => {
                    return Err(failure);
                }
                Err(_) => tokio::time::sleep(LOOK_PAUSE).await,
            }
        }
    }

    fn is_starting(&self) -> bool {
        let text = std::fs::read_to_string(self.pid_file()).unwrap_or_default();
        let pid = text.trim().parse().ok().and_then(rustix::process::Pid::from_raw);
        pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
    }

    fn pid_file(&self) -> PathBuf {
        self.context.dir_path().unwrap_or_default().join("hq-server.pid")
    }

    /// This program with the instance's directory; it takes the place of this process.
    fn become_node(&self, arguments: &[String]) -> Result<ExitCode, Failure> {
        let program = std::env::current_exe().map_err(|error| {
            Failure::lost(format!("cannot find this program: {}", plain(&error)))
        })?;
        let dir = verb::path_templates::escape(&self.context.dir_path()?);
        let mut command = Command::new(program);
        command.arg0("starling").arg("--dir").arg(dir).arg("node").args(arguments);
        let error = command.exec();
        Err(Failure::lost(format!("the node does not start: {}", plain(&error))))
    }
}

pub(crate) fn server(front: &Front, verb: &ServerVerb) -> Result<ExitCode, Failure> {
    match verb {
        ServerVerb::Start { .. } => {
            let dir = front.context.dir()?;
            std::fs::create_dir_all(&dir).map_err(|error| Failure::file(&dir, &error))?;
            let file = front.pid_file();
            std::fs::write(&file, std::process::id().to_string())
                .map_err(|error| Failure::file(&file, &error))?;
            let words = ["--slots", "0", "--rank", "0", "--expect", "1", "--replicas", "2"];
            front.become_node(&words.map(str::to_owned))
        }
        ServerVerb::Stop => verb::block_on(async {
            let client = front.connect().await?;
            let map = client.raw().newest_map(MAP_TIMEOUT).await;
            let mut nodes: Vec<&wire::Member> = map.members.iter().filter(|it| is_up(it)).collect();
            nodes.sort_unstable_by_key(|member| std::cmp::Reverse(member.node));
            for member in nodes {
                client.stop_node(NodeId(member.node), false).await?;
            }
            Ok(ExitCode::SUCCESS)
        }),
        ServerVerb::Info => verb::block_on(async {
            let client = front.connect().await?;
            let map = client.raw().newest_map(MAP_TIMEOUT).await;
            let first =
                map.members.iter().find(|member| member.keeper).or_else(|| map.members.first());
            let pid = first.map_or(0, |member| member.pid);
            // Of the number of the cluster, which stays.
            let uid = format!("{:06x}", map.cluster & 0xff_ffff);
            if front.form == Form::Json {
                let info = serde_json::json!({ "server_uid": uid, "pid": pid });
                front.context.output.raw_line(&info.to_string())?;
                return Ok(ExitCode::SUCCESS);
            }
            let dir = front.context.dir()?.display().to_string();
            front.context.output.text(&table::vertical(&[
                ("Server UID", uid),
                ("Server directory", dir),
                ("Client host", host_name()),
                ("Worker host", host_name()),
                ("Pid", pid.to_string()),
                ("Version", env!("CARGO_PKG_VERSION").to_owned()),
            ]))?;
            Ok(ExitCode::SUCCESS)
        }),
        ServerVerb::Wait { timeout } => verb::block_on(async {
            let deadline = Instant::now() + timeout.0;
            while let Err(failure) = front.context.connect().await {
                if Instant::now() > deadline {
                    let waited = span(timeout.0.as_nanos() as u64);
                    let text = format!("Timeout after {waited}: Could not connect to server");
                    return Err(Failure::lost(text).because(&failure.message));
                }
                tokio::time::sleep(LOOK_PAUSE).await;
            }
            Ok(ExitCode::SUCCESS)
        }),
    }
}

fn is_up(member: &wire::Member) -> bool {
    matches!(member.phase(), MemberPhase::Up | MemberPhase::Leaving)
}

/// A worker with its node.
struct Worker {
    record: WorkerRecord,
    node: Option<u32>,
    state: &'static str,
}

/// The workers that were started through the front, by number.
async fn all(client: &Client) -> Result<Vec<Worker>, Failure> {
    let records = records::workers(client).await?;
    let map = client.raw().newest_map(MAP_TIMEOUT).await;
    let mut out = Vec::new();
    for record in records {
        let member = map.members.iter().rev().find(|member| record.is_of(member));
        let state = match member {
            Some(member) if is_up(member) => "RUNNING",
            None if !record.is_stopped && is_recent(&record) => continue,
            _ if record.is_stopped => "STOPPED",
            _ => "CONNECTION LOST",
        };
        out.push(Worker { node: member.map(|member| member.node), record, state });
    }
    Ok(out)
}

/// It may not have joined yet.
fn is_recent(record: &WorkerRecord) -> bool {
    let since = now_ns().saturating_sub(record.started_ns);
    Duration::from_nanos(since) < START_TIMEOUT
}

/// The names of workers by their nodes.
pub(crate) async fn names(client: &Client) -> Result<BTreeMap<u32, String>, Failure> {
    let workers = all(client).await?.into_iter();
    Ok(workers.filter_map(|worker| Some((worker.node?, worker.record.host))).collect())
}

pub(crate) fn worker(front: &Front, verb: WorkerVerb) -> Result<ExitCode, Failure> {
    match verb {
        WorkerVerb::Start(args) => start(front, &args),
        WorkerVerb::Hwdetect => front.become_node(&["hardware".to_owned()]),
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
                        workers.iter().filter(|it| it.state == "RUNNING").count()
                    };
                    while running(&all(&client).await?) < count {
                        tokio::time::sleep(LOOK_PAUSE).await;
                    }
                }
                WorkerVerb::Start(_) | WorkerVerb::Hwdetect => {}
            }
            Ok(ExitCode::SUCCESS)
        }),
    }
}

/// Registers a worker, and becomes its node.
fn start(front: &Front, args: &WorkerArgs) -> Result<ExitCode, Failure> {
    let detects = args.detect_resources.as_deref() != Some("none");
    let mut pools: Vec<String> = Vec::new();
    match &args.cpus {
        Some(cpus) => pools.push(format!("cpus={cpus}")),
        None if detects => {}
        None => {
            return Err(Failure::usage(
                "You have to specify --cpus explicitly when opting out of CPU automatic detection",
            ));
        }
    }
    pools.extend(args.resource.iter().map(|text| text.replace('_', "")));
    if pools.iter().any(|pool| pool.replace(' ', "").starts_with("cpus=sum")) {
        return Err(Failure::usage("Resource kind `sum` cannot be used with CPUs"));
    }
    let slots = pools.first().and_then(|pool| cpus_of(pool.strip_prefix("cpus=")?));
    let host = args.hostname.clone().unwrap_or_else(host_name);
    let record = WorkerRecord {
        pid: std::process::id(),
        machine: host_name(),
        host,
        group: args.group.clone().unwrap_or_else(|| "default".to_owned()),
        resources: pools
            .iter()
            .filter_map(|pool| pool.split_once('='))
            .map(|(name, text)| (name.to_owned(), text.to_owned()))
            .collect(),
        heartbeat: args.heartbeat.clone(),
        work_dir: args.work_dir.clone().unwrap_or_default().display().to_string(),
        started_ns: now_ns(),
        ..WorkerRecord::default()
    };
    let by = verb::block_on(async {
        let client = front.connect().await?;
        let map = client.raw().newest_map(MAP_TIMEOUT).await;
        // Workers that were stopped through the front never return.
        let known = records::workers(&client).await?;
        let is_stopped = |member: &&wire::Member| {
            let stopped = known.iter().filter(|record| record.is_stopped);
            member.phase() == MemberPhase::Down && stopped.into_iter().any(|it| it.is_of(member))
        };
        for member in map.members.iter().filter(is_stopped) {
            let remove = wire::MemberRemove { node: member.node };
            let _ = client.raw().propose(Body::Remove(remove)).await;
        }
        let up = map.members.iter().find(|member| is_up(member));
        let by = up.map(|member| member.address.clone()).unwrap_or_default();
        records::add_worker(&client, record).await?;
        Ok(by.split(',').next().unwrap_or_default().to_owned())
    })?;
    let mut words = vec!["--join".to_owned(), by];
    if let Some(slots) = slots {
        words.extend(["--slots".to_owned(), slots.to_string()]);
    }
    for pool in pools {
        words.extend(["--resource".to_owned(), pool]);
    }
    front.become_node(&words)
}

/// The number of cpus of a pool's text.
fn cpus_of(text: &str) -> Option<u64> {
    if let Some((groups, size)) = text.split_once('x') {
        return Some(groups.trim().parse::<u64>().ok()? * size.trim().parse::<u64>().ok()?);
    }
    match text.contains('[') {
        true => Some(text.split(',').count() as u64),
        false => text.trim().parse().ok(),
    }
}

/// The sizes of the groups of a pool: `2x3`, `1x1 1x2`, `10`.
fn pool_text(text: &str) -> String {
    let inner =
        |name: &str| text.trim().strip_prefix(name)?.trim().strip_prefix('(')?.strip_suffix(')');
    if let Some(sum) = inner("sum") {
        return sum.trim().to_owned();
    }
    if let Some((first, last)) = inner("range").and_then(|range| range.split_once('-')) {
        let number = |text: &str| text.trim().parse::<u64>().unwrap_or(0);
        return (number(last) + 1).saturating_sub(number(first)).to_string();
    }
    let Some(list) = text.trim().strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) else {
        return text.trim().to_owned();
    };
    if !list.contains('[') {
        return list.split(',').count().to_string();
    }
    let mut sizes: BTreeMap<usize, usize> = BTreeMap::new();
    for group in list.split(']').filter_map(|part| part.split_once('[')) {
        *sizes.entry(group.1.split(',').count()).or_default() += 1;
    }
    let sizes: Vec<String> = sizes.iter().map(|(size, count)| format!("{count}x{size}")).collect();
    sizes.join(" ")
}

fn resources_of(record: &WorkerRecord) -> Vec<(String, String)> {
    let mut all: Vec<(String, String)> =
        record.resources.iter().map(|(name, text)| (name.clone(), pool_text(text))).collect();
    all.sort_unstable_by_key(|(name, _)| (name != "cpus", name.clone()));
    all
}

async fn list(
    front: &Front,
    client: &Client,
    is_all: bool,
    filter: Option<String>,
) -> Result<(), Failure> {
    let filter = filter.as_deref().map(str::to_lowercase);
    let is_shown = |worker: &&Worker| match filter.as_deref() {
        Some("offline") => worker.state != "RUNNING",
        None if is_all => true,
        _ => worker.state == "RUNNING",
    };
    let workers = all(client).await?;
    let rows: Vec<Vec<String>> = workers
        .iter()
        .filter(is_shown)
        .map(|worker| {
            let of = &worker.record;
            let pools: Vec<String> =
                resources_of(of).into_iter().map(|(name, text)| format!("{name} {text}")).collect();
            let (id, state) = (of.id.to_string(), worker.state.to_owned());
            vec![id, state, of.host.clone(), pools.join("; "), "None".into(), "N/A".into()]
        })
        .collect();
    let header = ["ID", "State", "Hostname", "Resources", "Manager", "Manager Job ID"];
    front.context.output.text(&table::horizontal(&header, &rows))
}

async fn info(front: &Front, client: &Client, selector: &Selector) -> Result<(), Failure> {
    let workers = all(client).await?;
    let present: Vec<u64> = workers.iter().map(|worker| worker.record.id).collect();
    for id in selector.pick(&present) {
        let Some(worker) = workers.iter().find(|worker| worker.record.id == id) else {
            front.context.output.line(&format!("Worker {id} not found"))?;
            continue;
        };
        let of = &worker.record;
        let pools: Vec<String> =
            resources_of(of).into_iter().map(|(name, text)| format!("{name}: {text}")).collect();
        front.context.output.text(&table::vertical(&[
            ("Worker", id.to_string()),
            ("State", worker.state.to_owned()),
            ("Hostname", of.host.clone()),
            ("Resources", pools.join("\n")),
            ("Process pid", of.pid.to_string()),
            ("Group", of.group.clone()),
            ("Heartbeat", of.heartbeat.clone()),
            ("Working directory", of.work_dir.clone()),
            ("Manager", "None".to_owned()),
            ("Manager Job ID", "N/A".to_owned()),
        ]))?;
    }
    Ok(())
}

async fn stop(front: &Front, client: &Client, selector: &Selector) -> Result<(), Failure> {
    let workers = all(client).await?;
    let running = workers.iter().filter(|worker| worker.state == "RUNNING");
    let present: Vec<u64> = running.map(|worker| worker.record.id).collect();
    for id in selector.pick(&present) {
        let failed = |why: &str| format!("Stopping worker {id} failed; {why}");
        let text = match workers.iter().find(|worker| worker.record.id == id) {
            None => failed("worker not found"),
            Some(worker) if worker.state != "RUNNING" => failed("worker is already stopped"),
            Some(worker) => {
                records::stop_worker(client, id).await?;
                if let Some(node) = worker.node {
                    client.stop_node(NodeId(node), false).await?;
                }
                format!("Worker {id} stopped")
            }
        };
        front.context.output.line(&text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_are_shown_by_their_groups() {
        let table = [
            ("4x2", "4x2"),
            ("10", "10"),
            ("sum(1000)", "1000"),
            ("range(1-12)", "12"),
            ("[1,3,5,2]", "4"),
            ("[[100, 200, 300], [400, 500, 600]]", "2x3"),
            ("[[0, 1], [2], [10, 11, 12]]", "1x1 1x2 1x3"),
        ];
        for (text, expected) in table {
            assert_eq!(pool_text(text), expected, "{text}");
        }
        assert_eq!(
            (cpus_of("3x4"), cpus_of("[[1,2],[3]]"), cpus_of("8")),
            (Some(12), Some(3), Some(8))
        );
    }
}
