//! Queues of the front and of Starling. A queue of the front with the number 3 is Starling's queue
//! `hq-3`; `starling alloc` does the work.

use std::path::PathBuf;

use client::Client;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use verb::errors::{Failure, plain};

use crate::alloc::args::{QueueArgs, State, System};
use crate::cluster::Front;
use crate::records::QueueRecord;
use crate::words::span;

/// Starling's queue of a dry run.
pub(super) const DRY_RUN: &str = "hq-dry-run";

/// The name of Starling's queue.
pub(super) fn name_of(id: u64) -> String {
    format!("hq-{id}")
}

/// A queue, by `starling alloc info --json`.
#[derive(Deserialize)]
pub(super) struct Info {
    pub(super) queue: Queue,
}

#[derive(Deserialize)]
pub(super) struct Queue {
    pub(super) config: Config,
    pub(super) intents: Vec<Allocation>,
}

#[derive(Deserialize)]
pub(super) struct Config {
    pub(super) system: String,
    pub(super) time_limit_s: u64,
    pub(super) max_nodes_per_alloc: u32,
    pub(super) max_nodes: Option<u32>,
    pub(super) backlog: u32,
    pub(super) arguments: Vec<String>,
    pub(super) paused: bool,
}

#[derive(Deserialize)]
pub(super) struct Allocation {
    pub(super) number: u64,
    pub(super) nodes: u32,
    phase: String,
    /// Its number in the batch system; empty: it has none yet.
    #[serde(default)]
    pub(super) job: String,
    pub(super) queued_ms: u64,
    pub(super) started_ms: u64,
    pub(super) ended_ms: u64,
    #[serde(default)]
    how: Option<String>,
}

impl Allocation {
    /// `None`: the batch system has not taken it.
    pub(super) fn state(&self) -> Option<State> {
        if self.job.is_empty() {
            return None;
        }
        match self.phase.as_str() {
            "queued" | "intended" => Some(State::Queued),
            "running" => Some(State::Running),
            "refused" => None,
            _ => Some(match self.how.as_deref() {
                // A batch job at its time limit has done what it could.
                Some("completed" | "time_limit") => State::Finished,
                _ => State::Failed,
            }),
        }
    }
}

/// Runs `starling alloc`, and returns its output.
pub(super) fn run(front: &Front, words: &[String]) -> Result<Vec<u8>, Failure> {
    let mut command = front.starling_command()?;
    command.args(["--json", "alloc"]).args(words);
    let ran = command.output();
    let ran = ran.map_err(|error| Failure::lost(format!("starling alloc: {}", plain(&error))))?;
    if ran.status.success() {
        return Ok(ran.stdout);
    }
    let text = String::from_utf8_lossy(&ran.stderr).into_owned();
    let line = text.lines().find_map(|line| line.strip_prefix("error: "));
    let failure = Failure::refused(line.or_else(|| text.lines().next()).unwrap_or("it failed"));
    match text.lines().find_map(|line| line.strip_prefix("hint: ")) {
        Some(hint) => Err(failure.hint(hint)),
        None => Err(failure),
    }
}

fn call<T: DeserializeOwned>(front: &Front, words: &[String]) -> Result<T, Failure> {
    let out = run(front, words)?;
    serde_json::from_slice(&out)
        .map_err(|error| Failure::lost(format!("starling alloc {}: {error}", words.join(" "))))
}

pub(super) fn words<const N: usize>(words: [&str; N]) -> Vec<String> {
    words.map(str::to_owned).to_vec()
}

pub(super) fn info(front: &Front, id: u64) -> Result<Queue, Failure> {
    call::<Info>(front, &words(["info", &name_of(id)])).map(|info| info.queue)
}

/// `None`: Starling's queue was removed, or is about to be made.
pub(super) fn find(front: &Front, id: u64) -> Result<Option<Queue>, Failure> {
    match info(front, id) {
        Ok(queue) => Ok(Some(queue)),
        Err(failure) if failure.message.starts_with("there is no queue") => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// The answer of `starling alloc remove --json`.
#[derive(Deserialize)]
struct Removed {
    not_cancelled: Vec<String>,
}

/// Removes Starling's queue, and cancels its batch jobs.
pub(super) fn remove(front: &Front, name: &str) -> Result<(), Failure> {
    let removed: Removed = call(front, &words(["remove", name, "--running"]))?;
    for job in removed.not_cancelled {
        let text = format!("warning: allocation {job} was not cancelled");
        front.context.output.note(&text);
    }
    Ok(())
}

/// The record of a queue that is there.
pub(super) async fn known(client: &Client, id: u64) -> Result<QueueRecord, Failure> {
    let queues = crate::records::queues(client).await?;
    let known = queues.into_iter().find(|queue| queue.id == id);
    known.ok_or_else(|| Failure::refused(format!("Allocation queue {id} not found")))
}

/// The arguments of `starling alloc add` for a queue.
pub(super) fn add_words(
    front: &Front,
    name: &str,
    system: &System,
) -> Result<Vec<String>, Failure> {
    let args = system.args();
    let mut words = words(["add", system.name(), "--paused", "--name", name]);
    let mut flag = |name: &str, value: String| words.push(format!("{name}={value}"));
    flag("--time-limit", format!("{}s", args.time_limit.0.as_secs()));
    flag("--backlog", args.backlog.to_string());
    // HyperQueue accepts fewer workers in all than in one allocation.
    let most = args.max_worker_count.unwrap_or(u32::MAX).max(1);
    flag("--max-nodes-per-alloc", args.max_workers_per_alloc.min(most).to_string());
    flag("--idle-timeout", format!("{}s", args.idle_timeout.0.as_secs().max(1)));
    flag("--min-utilization", args.min_utilization.to_string());
    if let Some(limit) = args.worker_time_limit {
        flag("--node-time-limit", format!("{}s", limit.0.as_secs()));
    }
    if let Some(most) = args.max_worker_count {
        flag("--max-nodes", most.to_string());
    }
    if let Some(cpus) = args.offer.cpus.as_deref().and_then(cpus_of) {
        flag("--cpus", cpus.to_string());
    }
    // The words before the node carry cpus by groups (`--cpus` of the worker).
    let others = args.offer.resource.iter().filter(|text| !text.trim_start().starts_with("cpus="));
    others.for_each(|text| flag("--resource", text.replace('_', "")));
    let shell = [("--node-init", &args.worker_start_cmd), ("--node-fini", &args.worker_stop_cmd)];
    for (name, text) in shell {
        text.iter().for_each(|text| flag(name, text.clone()));
    }
    flag("--wrap", wrap(front, args)?);
    if !args.additional_args.is_empty() {
        words.push("--".to_owned());
        words.extend(args.additional_args.iter().cloned());
    }
    Ok(words)
}

/// The number of cpus of `8` or `2x4`.
fn cpus_of(text: &str) -> Option<u32> {
    match text.split_once('x') {
        Some((groups, cpus)) => {
            let (groups, cpus): (u32, u32) =
                (groups.trim().parse().ok()?, cpus.trim().parse().ok()?);
            groups.checked_mul(cpus)
        }
        None => text.trim().parse().ok(),
    }
}

/// The words before each node: the front adds the node as a worker.
fn wrap(front: &Front, args: &QueueArgs) -> Result<String, Failure> {
    let mut words: Vec<String> = own_words(front)?;
    words.extend(worker_flags(args));
    words.push("--".to_owned());
    let own = words.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    Ok(match &args.worker_wrap_cmd {
        Some(wrap) => format!("{wrap} {own}"),
        None => own,
    })
}

/// The flags of the workers of a queue.
fn worker_flags(args: &QueueArgs) -> Vec<String> {
    let mut words = Vec::new();
    let mut flag = |name: &str, value: &str| words.push(format!("{name}={value}"));
    let texts = [
        ("--cpus", &args.offer.cpus),
        ("--coupling", &args.offer.coupling),
        ("--group", &args.offer.group),
        ("--detect-resources", &args.offer.detect_resources),
    ];
    for (name, text) in texts {
        text.iter().for_each(|text| flag(name, text));
    }
    args.offer.resource.iter().for_each(|text| flag("--resource", text));
    flag("--on-server-lost", &args.on_server_lost);
    flag("--idle-timeout", &span(args.idle_timeout.0.as_nanos() as u64));
    if let Some(limit) = args.worker_time_limit {
        flag("--time-limit", &span(limit.0.as_nanos() as u64));
    }
    if args.offer.no_hyper_threading {
        words.push("--no-hyper-threading".to_owned());
    }
    words
}

/// `hq --server-dir DIR alloc worker` by this program.
fn own_words(front: &Front) -> Result<Vec<String>, Failure> {
    let path = |path: PathBuf| path.display().to_string();
    let program = std::env::current_exe()
        .map_err(|error| Failure::lost(format!("cannot find this program: {}", plain(&error))))?;
    let dir = path(verb::path_templates::escape(&front.context.dir_path()?));
    let words = [&path(program), crate::NAME, "--server-dir", &dir, "alloc", "worker"];
    Ok(words.map(str::to_owned).to_vec())
}

/// A word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,+@%".contains(c);
    match !word.is_empty() && word.chars().all(is_plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_counted_over_groups() {
        assert_eq!((cpus_of("8"), cpus_of("2x8"), cpus_of("[0,1]")), (Some(8), Some(16), None));
        assert_eq!(cpus_of("99999x99999"), None);
        assert_eq!((quoted("a b'c"), quoted("x=1")), (r"'a b'\''c'".to_owned(), "x=1".to_owned()));
    }

    #[test]
    fn an_allocation_has_the_state_of_its_batch_job() {
        let state = |phase: &str, job: &str, how: Option<&str>| {
            let text = serde_json::json!({
                "number": 1, "nodes": 1, "phase": phase, "job": job, "queued_ms": 0,
                "started_ms": 0, "ended_ms": 0, "how": how,
            });
            serde_json::from_value::<Allocation>(text).unwrap().state()
        };
        assert_eq!(state("intended", "", None), None);
        assert_eq!(state("queued", "7", None), Some(State::Queued));
        assert_eq!(state("running", "7", None), Some(State::Running));
        assert_eq!(state("ended", "7", Some("completed")), Some(State::Finished));
        assert_eq!(state("ended", "7", Some("out_of_memory")), Some(State::Failed));
        assert_eq!(state("unknown", "7", None), Some(State::Failed));
        assert_eq!(state("refused", "7", None), None);
    }
}
