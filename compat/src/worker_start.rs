//! The start of workers: what a machine offers, here or on the hosts of a file.

use std::ffi::OsString;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use client::{host_name, now_ns};
use proto::wire;
use proto::wire::MemberPhase;
use proto::wire::map_command::Body;
use serde::Deserialize;
use verb::errors::{Failure, plain};
use verb::flags::needs::group_label;

use crate::args::{DeployArgs, Form, OfferArgs, WorkerArgs};
use crate::cluster::{Front, MAP_TIMEOUT, is_up};
use crate::records::{self, Coupling, Pool, WorkerRecord};
use crate::task::SUMS;
use crate::words::span;
use crate::{NAME, workers};

/// HyperQueue has memory in this unit, by this name.
const MEMORY: (&str, f64) = ("mem", 1_048_576.0);
/// The variables of batch systems: one that is set in a job, and its number.
const MANAGERS: [(&str, &str, &str); 2] =
    [("PBS", "PBS_ENVIRONMENT", "PBS_JOBID"), ("SLURM", "SLURM_JOB_ID", "SLURM_JOB_ID")];

/// The group of workers without another one. Their nodes have no group of Starling.
const DEFAULT_GROUP: &str = "default";

/// The answer of `starling node hardware --json`.
#[derive(Deserialize)]
struct Hardware {
    pools: Vec<FoundPool>,
    couplings: Vec<Coupling>,
}

#[derive(Deserialize)]
struct FoundPool {
    name: String,
    amount: f64,
    #[serde(default)]
    groups: Vec<Vec<String>>,
    source: String,
}

impl FoundPool {
    fn is_given(&self) -> bool {
        self.source == "--resource"
    }
}

fn hardware(front: &Front, own: &[String], is_physical: bool) -> Result<Hardware, Failure> {
    let mut command = front.node_command()?;
    command.args(["hardware", "--json", "--cores"]);
    command.arg(if is_physical { "physical" } else { "logical" });
    for pool in own {
        command.args(["--resource", pool]);
    }
    let ran = command.output();
    let ran = ran.map_err(|error| Failure::lost(format!("no hardware: {}", plain(&error))))?;
    if !ran.status.success() {
        let text = String::from_utf8_lossy(&ran.stderr).into_owned();
        let line = text.lines().next().unwrap_or_default();
        return Err(Failure::usage(line.strip_prefix("error: ").unwrap_or(line)));
    }
    let wrong = |error| Failure::lost(format!("no hardware: {error}"));
    serde_json::from_slice(&ran.stdout).map_err(wrong)
}

/// The pools with HyperQueue's names, cpus first.
fn pools(found: Vec<FoundPool>, is_wanted: impl Fn(&str) -> bool) -> Vec<Pool> {
    let given: Vec<String> =
        found.iter().filter(|it| it.is_given()).map(|it| it.name.clone()).collect();
    let mut pools: Vec<Pool> = Vec::new();
    for found in found {
        let is_given = found.is_given();
        let (name, unit) = match found.name.as_str() {
            "memory" if !is_given => (MEMORY.0.to_owned(), MEMORY.1),
            _ => (found.name, 1.0),
        };
        if is_given || (is_wanted(&name) && !given.contains(&name)) {
            let amount = if unit > 1.0 { (found.amount / unit).floor() } else { found.amount };
            pools.push(Pool { name, amount, groups: found.groups });
        }
    }
    pools.sort_by_key(|pool| (pool.name != "cpus", pool.name.clone()));
    pools
}

impl Pool {
    /// The sizes of its groups: `2x3`, `1x1 1x2`, `10`.
    fn size(&self) -> String {
        let mut sizes: Vec<usize> = self.groups.iter().map(Vec::len).collect();
        if sizes.len() < 2 {
            return self.amount.to_string();
        }
        sizes.sort_unstable();
        let runs = sizes.chunk_by(|a, b| a == b);
        runs.map(|run| format!("{}x{}", run.len(), run[0])).collect::<Vec<_>>().join(" ")
    }

    /// `[0,1]`, `[[0],[1]]`, `64`.
    fn definition(&self) -> String {
        let list = |group: &Vec<String>| format!("[{}]", group.join(","));
        match &self.groups[..] {
            [] => self.amount.to_string(),
            [group] => list(group),
            groups => format!("[{}]", groups.iter().map(list).collect::<Vec<_>>().join(",")),
        }
    }
}

impl Coupling {
    /// `cpus[0]:foo[0]`, and several of them.
    fn parse_list(text: &str) -> Result<Vec<Self>, Failure> {
        let one = |text: &str| {
            let (ends, weight) = text.split_once('=').unwrap_or((text, "256"));
            let (left, right) = ends.split_once(':')?;
            let weight = weight.trim().parse().ok()?;
            let coupling =
                Self { left: left.trim().to_owned(), right: right.trim().to_owned(), weight };
            let is_place = |text: &str| text.ends_with(']') && text.contains('[');
            (is_place(&coupling.left) && is_place(&coupling.right)).then_some(coupling)
        };
        let wrong = |text: &str| {
            Failure::usage(format!("'{text}' is not a coupling such as cpus[0]:gpus[0]"))
        };
        text.split(',').map(|text| one(text).ok_or_else(|| wrong(text))).collect()
    }

    pub(crate) fn ends(&self) -> impl Iterator<Item = (&str, usize)> {
        [self.left(), self.right()].into_iter()
    }
    pub(crate) fn left(&self) -> (&str, usize) {
        place(&self.left)
    }
    pub(crate) fn right(&self) -> (&str, usize) {
        place(&self.right)
    }

    fn check(&self, pools: &[Pool]) -> Result<(), Failure> {
        for (name, group) in self.ends() {
            let Some(pool) = pools.iter().find(|pool| pool.name == name) else {
                return Err(Failure::usage(format!("Resource not found: {name}")));
            };
            if pool.groups.len() < 2 {
                let text = format!("Resource '{name}' has only a single group");
                return Err(Failure::usage(text));
            }
            if group >= pool.groups.len() {
                let text = format!("Invalid group id {group} for resource '{name}'");
                return Err(Failure::usage(text));
            }
        }
        Ok(())
    }
}

/// The pool and the group of `cpus[0]`.
fn place(text: &str) -> (&str, usize) {
    let (name, group) = text.split_once('[').unwrap_or((text, ""));
    (name, group.trim_end_matches(']').parse().unwrap_or(usize::MAX))
}

pub(crate) fn hwdetect(front: &Front, is_physical: bool) -> Result<ExitCode, Failure> {
    let Hardware { pools: found, couplings } = hardware(front, &[], is_physical)?;
    let found = pools(found, |_| true);
    if front.form == Form::Json {
        let value = workers::json_pools(&found, &couplings);
        front.context.output.raw_line(&value.to_string())?;
        return Ok(ExitCode::SUCCESS);
    }
    for pool in found {
        front.context.output.line(&format!("{}: {}", pool.name, pool.definition()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a detected pool is used: `--detect-resources=cpus,gpus`.
fn is_detected(words: Option<&str>, name: &str) -> bool {
    let Some(words) = words.filter(|words| *words != "all") else { return true };
    words.split(',').any(|word| name == word || name.starts_with(&format!("{word}/")))
}

/// The pools of flags.
fn own_pools(args: &OfferArgs) -> Result<Vec<String>, Failure> {
    let cpus = args.cpus.iter().map(|cpus| format!("cpus={cpus}"));
    let own: Vec<String> =
        cpus.chain(args.resource.iter().map(|text| text.replace('_', ""))).collect();
    let has_cpus = own.iter().any(|pool| pool.trim_start().starts_with("cpus="));
    if !has_cpus && !is_detected(args.detect_resources.as_deref(), "cpus") {
        return Err(Failure::usage(
            "You have to specify --cpus explicitly when opting out of CPU automatic detection",
        ));
    }
    if own.iter().any(|pool| pool.replace(' ', "").starts_with("cpus=sum")) {
        return Err(Failure::usage("Resource kind `sum` cannot be used with CPUs"));
    }
    Ok(own)
}

/// The batch system of this process and its job.
fn manager(args: &WorkerArgs) -> Result<Option<(String, String)>, Failure> {
    let set = |name: &str| std::env::var(name).ok().filter(|text| !text.is_empty());
    let asked = args.manager.as_deref().unwrap_or("detect").to_lowercase();
    for (name, in_job, number) in MANAGERS {
        let is_asked = asked == name.to_lowercase();
        if !is_asked && asked != "detect" && asked != "auto" {
            continue;
        }
        match set(in_job).and_then(|_| set(number)) {
            Some(number) => return Ok(Some((name.to_owned(), number))),
            None if is_asked => {
                return Err(Failure::new(
                    verb::errors::Exit::Failed,
                    format!("--manager {asked}: there is no {in_job}, so this is no {name} job"),
                ));
            }
            None => {}
        }
    }
    Ok(None)
}

/// A worker that is about to start.
struct Prepared {
    record: WorkerRecord,
    /// The arguments of its node.
    words: Vec<String>,
    /// The names of its pools that are amounts.
    sums: String,
}

/// Registers a worker, and becomes its node.
pub(crate) fn run(front: &Front, args: &WorkerArgs) -> Result<ExitCode, Failure> {
    let Prepared { record, words, sums } = prepare(front, args)?;
    let by = register(front, record)?;
    front.become_node(&[vec!["--join".to_owned(), by], words].concat(), &sums)
}

/// Registers a worker of an allocation, and becomes its node: `command` with the arguments that it
/// does not have yet.
pub(crate) fn adopt(
    front: &Front,
    args: &WorkerArgs,
    command: &[OsString],
) -> Result<ExitCode, Failure> {
    let Prepared { record, words, sums } = prepare(front, args)?;
    register(front, record)?;
    let (program, given) = command.split_first().expect("clap requires it");
    let further = missing_of(&words, given);
    let error = Command::new(program).args(given).args(further).env(SUMS, sums).exec();
    Err(Failure::lost(format!("the node does not start: {}", plain(&error))))
}

/// The flags that a command does not have. Pools may be given several times, others once.
fn missing_of(words: &[String], given: &[OsString]) -> Vec<String> {
    let has = |pair: &[String]| {
        let value = |given: &[OsString]| {
            given[0] == pair[0].as_str()
                && (pair[0] != "--resource" || given[1] == pair[1].as_str())
        };
        let ends_before = pair[0] == "--time-limit" && given.iter().any(|it| it == "--ends-at");
        ends_before || given.windows(2).any(value)
    };
    words.chunks(2).filter(|pair| !has(pair)).flatten().cloned().collect()
}

/// Checks the flags of workers that start on other machines.
pub(crate) fn check(front: &Front, args: &OfferArgs) -> Result<(), Failure> {
    let own = own_pools(args)?;
    hardware(front, &own, args.no_hyper_threading)?;
    args.coupling.as_deref().map(Coupling::parse_list).transpose().map(drop)
}

fn prepare(front: &Front, args: &WorkerArgs) -> Result<Prepared, Failure> {
    let offer = &args.offer;
    let own = own_pools(offer)?;
    let detects = offer.detect_resources.as_deref();
    let found = hardware(front, &own, offer.no_hyper_threading)?;
    let pools = pools(found.pools, |name| is_detected(detects, name));
    let couplings = match &offer.coupling {
        Some(text) => Coupling::parse_list(text)?,
        None => Vec::new(),
    };
    couplings.iter().try_for_each(|coupling| coupling.check(&pools))?;
    let idle = args.idle_timeout.or_else(|| front.idle_timeout());
    let manager = manager(args)?;
    let group = manager.as_ref().map_or(DEFAULT_GROUP, |(_, number)| number);
    let ns = |time: Option<verb::units::Timespan>| time.map_or(0, |it| it.0.as_nanos() as u64);
    let record = WorkerRecord {
        pid: std::process::id(),
        machine: host_name(),
        host: args.hostname.clone().unwrap_or_else(host_name),
        group: offer.group.clone().unwrap_or_else(|| group.to_owned()),
        resources: pools.iter().map(|pool| (pool.name.clone(), pool.size())).collect(),
        heartbeat: span(ns(Some(args.heartbeat))),
        heartbeat_s: args.heartbeat.0.as_secs_f64(),
        time_limit_ns: ns(args.time_limit),
        idle_timeout_ns: ns(idle),
        on_server_lost: args.on_server_lost.clone().unwrap_or_else(|| "stop".to_owned()),
        work_dir: args.work_dir.clone().unwrap_or_default().display().to_string(),
        started_ns: now_ns(),
        manager,
        ..WorkerRecord::default()
    };
    let cpus = pools.iter().find(|pool| pool.name == "cpus");
    let mut words = match cpus.filter(|_| !own.is_empty()) {
        Some(cpus) => vec!["--slots".to_owned(), cpus.amount.to_string()],
        None => Vec::new(),
    };
    let mut flag = |name: &str, value: String| words.extend([name.to_owned(), value]);
    // Requests of HyperQueue name memory so.
    let is_own = own.iter().any(|pool| pool.starts_with(&format!("{}=", MEMORY.0)));
    let memory = pools.iter().find(|pool| pool.name == MEMORY.0 && !is_own);
    let memory = memory.map(|pool| format!("{}=sum({})", MEMORY.0, pool.amount));
    own.into_iter().chain(memory).for_each(|pool| flag("--resource", pool));
    for Coupling { left, right, weight } in &couplings {
        flag("--coupling", format!("{left}:{right}={weight}"));
    }
    // Starling finds the group of a batch job by itself.
    if let Some(group) = offer.group.as_ref().filter(|group| *group != DEFAULT_GROUP) {
        flag("--label", group_label(group));
    }
    if let Some(limit) = args.time_limit {
        flag("--time-limit", format!("{}ns", limit.0.as_nanos()));
    }
    if let Some(idle) = idle {
        flag("--idle-timeout", format!("{}ns", idle.0.as_nanos()));
    }
    let sums = pools.iter().filter(|pool| pool.groups.is_empty());
    let sums = sums.map(|pool| pool.name.as_str()).collect::<Vec<_>>().join(",");
    let record = WorkerRecord { pools, couplings, ..record };
    Ok(Prepared { record, words, sums })
}

/// Returns the address of a node to join.
fn register(front: &Front, record: WorkerRecord) -> Result<String, Failure> {
    verb::block_on(async {
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
    })
}

/// The words by which this program was called as `hq`.
fn own_name() -> Vec<OsString> {
    let called = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    let is_link = called.is_absolute() && called.file_name().is_some_and(|name| name == NAME);
    match is_link {
        true => vec![called.into()],
        false => vec![std::env::current_exe().unwrap_or(called).into(), NAME.into()],
    }
}

/// Runs a worker on each host of a file, and waits for them.
pub(crate) fn deploy(front: &Front, args: &DeployArgs) -> Result<ExitCode, Failure> {
    let hosts = hosts(&args.hostfile)?;
    let mut running = Vec::new();
    for host in &hosts {
        let mut ssh = Command::new("ssh");
        let (host, port) =
            host.split_once(':').map_or((host.as_str(), None), |(h, p)| (h, Some(p)));
        ssh.arg(host).args(["-t", "-t"]);
        if let Some(port) = port {
            ssh.args(["-p", port]);
        }
        ssh.arg("--").args(own_name()).args(["worker", "start"]).args(&args.arguments);
        ssh.stdin(Stdio::null());
        if !args.show_output {
            ssh.stdout(Stdio::null()).stderr(Stdio::null());
        }
        let started = ssh.spawn();
        let failed = |error| Failure::lost(format!("ssh to {host}: {}", plain(&error)));
        running.push((host, started.map_err(failed)?));
    }
    let mut failures = 0;
    for (host, mut ssh) in running {
        let ended = ssh.wait();
        let ended = ended.map_err(|error| Failure::lost(format!("ssh: {}", plain(&error))))?;
        if !ended.success() {
            failures += 1;
            let code = ended.code().unwrap_or(-1);
            let text = format!("ERROR {host}: Worker exited with code {code}");
            front.context.output.line(&text)?;
        }
    }
    match failures {
        0 => Ok(ExitCode::SUCCESS),
        _ => Ok(ExitCode::FAILURE),
    }
}

fn hosts(path: &Path) -> Result<Vec<String>, Failure> {
    let text = std::fs::read_to_string(path).map_err(|error| Failure::file(path, &error))?;
    let hosts: Vec<String> =
        text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect();
    match hosts.is_empty() {
        true => Err(Failure::refused(format!("{} names no host", path.display()))),
        false => Ok(hosts),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(groups: &[&[&str]]) -> Pool {
        let groups: Vec<Vec<String>> =
            groups.iter().map(|group| group.iter().map(|it| (*it).to_owned()).collect()).collect();
        let amount = groups.iter().map(Vec::len).sum::<usize>() as f64;
        Pool { name: "cpus".to_owned(), amount, groups }
    }

    #[test]
    fn pools_are_shown_by_their_groups() {
        assert_eq!(pool(&[&["0", "1"], &["2", "3"]]).size(), "2x2");
        assert_eq!(pool(&[&["10", "11", "12"], &["2"], &["0", "1"]]).size(), "1x1 1x2 1x3");
        assert_eq!(pool(&[&["1", "5"]]).size(), "2");
        let sum = Pool { amount: 0.5, ..Pool::default() };
        assert_eq!((sum.size(), sum.definition()), ("0.5".to_owned(), "0.5".to_owned()));
        assert_eq!(pool(&[&["1", "3"]]).definition(), "[1,3]");
        assert_eq!(pool(&[&["1"], &["3"]]).definition(), "[[1],[3]]");
    }

    #[test]
    fn memory_has_the_other_name_and_unit_where_it_is_found() {
        let found = |name: &str, source: &str| FoundPool {
            name: name.to_owned(),
            amount: 3.5 * MEMORY.1,
            groups: Vec::new(),
            source: source.to_owned(),
        };
        let names = |found: Vec<FoundPool>, words: Option<&str>| -> Vec<(String, f64)> {
            let pools = pools(found, |name| is_detected(words, name));
            pools.into_iter().map(|pool| (pool.name, pool.amount)).collect()
        };
        let all = || vec![found("memory", "/proc/meminfo"), found("gpus/nvidia", "CUDA")];
        assert_eq!(names(all(), Some("mem")), [("mem".to_owned(), 3.0)]);
        assert_eq!(names(all(), Some("gpus")).len(), 1);
        assert_eq!(names(all(), None).len(), 2);
        assert_eq!(names(all(), Some("none")).len(), 0);
        let given = vec![found("memory", "--resource")];
        assert_eq!(names(given, Some("none"))[0].0, "memory");
    }

    #[test]
    fn couplings_are_checked() {
        let pools = [pool(&[&["0"], &["1"]]), Pool { name: "foo".to_owned(), ..pool(&[&["0"]]) }];
        let check = |text: &str| -> Result<(), String> {
            let all = Coupling::parse_list(text).map_err(|failure| failure.message)?;
            all.iter().try_for_each(|it| it.check(&pools)).map_err(|failure| failure.message)
        };
        assert_eq!(check("cpus[0]:cpus[1],cpus[1]:cpus[0]=7"), Ok(()));
        assert!(check("bar[0]:cpus[0]").unwrap_err().contains("not found: bar"));
        assert!(check("cpus[0]:foo[0]").unwrap_err().contains("single group"));
        assert!(check("cpus[2]:cpus[0]").unwrap_err().contains("Invalid group id 2"));
        assert!(check("cpus:foo").is_err() && check("cpus[0]").is_err());
    }

    #[test]
    fn a_node_of_an_allocation_gets_the_arguments_that_it_lacks() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let given: Vec<OsString> =
            words("node --join a --ends-at 9 --slots 16 --resource x=sum(1)")
                .into_iter()
                .map(Into::into)
                .collect();
        let own = words("--slots 16 --resource cpus=2x8 --resource x=sum(1) --time-limit 9ns");
        assert_eq!(missing_of(&own, &given), words("--resource cpus=2x8"));
        assert_eq!(missing_of(&own, &[]), own);
    }
}
