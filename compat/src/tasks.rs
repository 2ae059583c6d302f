//! `hq task`, and the tasks of a job.

use std::collections::BTreeMap;
use std::process::ExitCode;

use client::{Attempt, Client, ClientError, NodeId, StreamFilter, StreamPiece};
use proto::wire::TaskPhase;
use proto::{JobId, LocalId, wire};
use verb::errors::Failure;

use crate::args::{Form, TaskVerb};
use crate::cluster::Front;
use crate::jobs::{self, Job};
use crate::records::{self, JobRecord, Submission, Way};
use crate::task::REASON;
use crate::words::{Ids, Selector, span, time_of_day};
use crate::{explain, json, table, workers};

/// The maximum number of failed tasks of a job with a reason that is looked up.
const EXPLAINED_MAX: usize = 100;

/// A task as the front shows it.
#[derive(Clone, Debug)]
pub(crate) struct TaskRow {
    pub(crate) id: u64,
    pub(crate) state: &'static str,
    /// The name of its first worker, or of all, a line each.
    pub(crate) worker: String,
    pub(crate) started_ns: u64,
    pub(crate) ended_ns: u64,
    pub(crate) error: String,
    pub(crate) has_started: bool,
    pub(crate) local: LocalId,
    /// The node that ran the last attempt.
    node: Option<NodeId>,
    attempt: Attempt,
    job: u64,
    instance: u64,
}

impl TaskRow {
    /// A path with the placeholders of the task.
    pub(crate) fn path(&self, template: &str) -> String {
        template
            .replace("%{TASK_ID}", &self.id.to_string())
            .replace("%{JOB_ID}", &self.job.to_string())
            .replace("%{INSTANCE_ID}", &self.instance.to_string())
    }
}

/// The tasks of a job, by number.
pub(crate) async fn rows(client: &Client, job: &Job) -> Result<Vec<TaskRow>, Failure> {
    let mut states: Vec<wire::TaskState> = Vec::new();
    client.raw().tasks(job.id, |task| states.push(task)).await?;
    // A list of jobs has no failures.
    let full = client.raw().job(job.id).await?;
    let workers: BTreeMap<u32, String> = workers::names(client).await?;
    let failures: BTreeMap<u64, wire::Failure> = full
        .sum
        .unwrap_or_default()
        .failures
        .into_iter()
        .map(|failure| (failure.local, failure))
        .collect();
    let (mut rows, mut unexplained) = (Vec::new(), Vec::new());
    for task in states {
        let state = match task.phase() {
            TaskPhase::Waiting | TaskPhase::Ready => "WAITING",
            TaskPhase::RunningTask => "RUNNING",
            TaskPhase::TaskDone => "FINISHED",
            TaskPhase::TaskFailed => "FAILED",
            TaskPhase::TaskCancelled | TaskPhase::TaskSkipped => job.cancelled_word(),
        };
        let mut error = String::new();
        if state == "FAILED" {
            let failure = failures.get(&task.local);
            if failure.is_none() && unexplained.len() < EXPLAINED_MAX {
                unexplained.push(task.clone());
            }
            let code = wire::Failure { exit_code: task.exit_code, ..wire::Failure::default() };
            error = reason(failure.unwrap_or(&code));
        }
        let has_started = matches!(state, "RUNNING" | "FINISHED" | "FAILED");
        let worker = match task.placed && has_started {
            true => workers.get(&task.node).cloned().unwrap_or_else(|| format!("n{}", task.node)),
            false => String::new(),
        };
        let attempt = Attempt(task.attempt).to_string();
        let last = attempt.rsplit('.').next().and_then(|last| last.parse::<u64>().ok());
        rows.push(TaskRow {
            id: task.entry.unwrap_or(0),
            state,
            worker,
            started_ns: task.started_ns,
            ended_ns: task.ended_ns,
            error,
            local: LocalId(task.local),
            node: task.placed.then_some(NodeId(task.node)),
            attempt: Attempt(task.attempt),
            job: job.id.0,
            instance: last.unwrap_or(1).saturating_sub(1),
            has_started,
        });
    }
    if !unexplained.is_empty() {
        let of = |row: &&TaskRow| unexplained.iter().any(|task| task.local == row.local.0);
        let wanted: Vec<&TaskRow> = rows.iter().filter(of).collect();
        let printed = printed(client, job.id, &wanted, true).await;
        for row in &mut rows {
            let tail = printed.last.get(&row.local).map_or(&[][..], |bytes| bytes);
            if let Some(text) = own_reason(tail) {
                row.error = text;
            }
        }
    }
    rows.sort_unstable_by_key(|row| row.id);
    Ok(rows)
}

/// The tasks of a job, by number, with all workers of tasks that have several.
pub(crate) async fn rows_with_workers(
    client: &Client,
    job: &Job,
    record: &JobRecord,
) -> Result<Vec<TaskRow>, Failure> {
    let mut rows = rows(client, job).await?;
    for row in rows.iter_mut().filter(|row| row.has_started) {
        if record.of_task(row.id).is_some_and(|of| of.nodes > 0)
            && let Some(hosts) = records::hosts(client, job.id, row.id).await?
        {
            row.worker = hosts.join("\n");
        }
    }
    Ok(rows)
}

/// Captured output of tasks.
#[derive(Debug, Default)]
pub(crate) struct Printed {
    /// Of the last attempts.
    pub(crate) last: BTreeMap<LocalId, Vec<u8>>,
    /// The bytes of earlier attempts.
    pub(crate) superseded: BTreeMap<(LocalId, Attempt), usize>,
    /// The nodes that do not answer.
    pub(crate) away: Vec<NodeId>,
}

pub(crate) async fn printed(
    client: &Client,
    job: JobId,
    tasks: &[&TaskRow],
    stderr: bool,
) -> Printed {
    let mut by_node: BTreeMap<NodeId, Vec<&TaskRow>> = BTreeMap::new();
    for task in tasks {
        if let Some(node) = task.node {
            by_node.entry(node).or_default().push(task);
        }
    }
    let mut printed = Printed::default();
    for (node, tasks) in by_node {
        let attempts: BTreeMap<LocalId, Attempt> =
            tasks.iter().map(|task| (task.local, task.attempt)).collect();
        let filter = StreamFilter {
            tasks: attempts.keys().copied().collect(),
            stderr,
            ..Default::default()
        };
        let see = |piece: StreamPiece| {
            if piece.data.is_empty() || piece.stderr != stderr {
                return Ok(());
            }
            if attempts.get(&piece.task) == Some(&piece.attempt) {
                printed.last.entry(piece.task).or_default().extend_from_slice(&piece.data);
            } else {
                *printed.superseded.entry((piece.task, piece.attempt)).or_default() +=
                    piece.data.len();
            }
            Ok::<(), ClientError>(())
        };
        if client.streams(node, job, &filter, see).await.is_err() {
            printed.away.push(node);
        }
    }
    printed
}

/// The number of running tasks of a job.
pub(crate) async fn running(client: &Client, job: &Job) -> Result<u64, Failure> {
    let mut count = 0;
    if !job.is_ended() {
        let is_running = |task: &wire::TaskState| task.phase() == TaskPhase::RunningTask;
        client.raw().tasks(job.id, |task| count += u64::from(is_running(&task))).await?;
    }
    Ok(count)
}

/// The reason that the start of a command has left in the captured standard error.
fn own_reason(stderr: &[u8]) -> Option<String> {
    let text = String::from_utf8_lossy(stderr);
    let reason = text.lines().find_map(|line| line.strip_prefix(REASON))?;
    Some(reason.replace("\\n", "\n"))
}

/// The reason of a failure in the words of HyperQueue.
fn reason(failure: &wire::Failure) -> String {
    if let Some(reason) = own_reason(&failure.stderr_tail) {
        return reason;
    }
    let error = &failure.error;
    if error.contains("time limit") {
        return "Time limit reached".to_owned();
    }
    if let Some(signal) = error.split("signal ").nth(1) {
        let number: String = signal.chars().take_while(char::is_ascii_digit).collect();
        let name = signal.split(['(', ')', ';']).nth(1).unwrap_or("SIGKILL");
        return format!("Program terminated with exit code -1. Received signal {number} ({name}).");
    }
    match error.is_empty() || error.contains("exit") {
        true => format!("Program terminated with exit code {}.", failure.exit_code),
        false => error.clone(),
    }
}

/// The amounts of a task; variants have numbers.
pub(crate) fn resources(of: &Submission) -> String {
    let line = |(name, amount): &(String, String)| format!("{name}: {amount}");
    let lines = |way: &Way| -> Vec<String> {
        let weight = way.weight.map(|weight| format!("[weight: {weight}]"));
        way.amounts.iter().map(line).chain(weight).collect()
    };
    let ways = of.ways();
    if let [only] = &ways[..] {
        let nodes = (of.nodes > 0).then(|| format!("nodes: {}", of.nodes));
        return nodes.into_iter().chain(lines(only)).collect::<Vec<_>>().join("\n");
    }
    let variant = |(at, way): (usize, &Way)| {
        std::iter::once(format!("# Variant {}", at + 1)).chain(lines(way)).collect::<Vec<_>>()
    };
    ways.iter().enumerate().flat_map(variant).collect::<Vec<_>>().join("\n")
}

fn dependencies(of: &Submission, task: u64) -> String {
    let parents = of.deps.get(&task).into_iter().flatten();
    parents.map(ToString::to_string).collect::<Vec<_>>().join(",")
}

pub(crate) fn environment(of: &Submission) -> String {
    let line = |(name, value): &(String, String)| format!("{name}={value}");
    of.env.iter().map(line).collect::<Vec<_>>().join("\n")
}

pub(crate) fn pin(of: &Submission) -> String {
    match of.pin {
        Some(crate::args::Pin::Taskset) => "taskset".to_owned(),
        Some(crate::args::Pin::Omp) => "omp".to_owned(),
        None => "none".to_owned(),
    }
}

pub(crate) fn run(front: &Front, verb: &TaskVerb) -> Result<ExitCode, Failure> {
    verb::block_on(async {
        let client = front.connect().await?;
        match verb {
            TaskVerb::List { jobs, verbose } => list(front, &client, jobs, *verbose).await?,
            TaskVerb::Info { job, tasks } => info(front, &client, job, tasks).await?,
            TaskVerb::Explain { job, task } => {
                return explain::run(front, &client, job, *task).await;
            }
        }
        Ok(ExitCode::SUCCESS)
    })
}

fn makespan(row: &TaskRow) -> String {
    match row.started_ns > 0 && row.ended_ns > 0 {
        true => span(row.ended_ns.saturating_sub(row.started_ns)),
        false => "0s".to_owned(),
    }
}

async fn list(
    front: &Front,
    client: &Client,
    selector: &Selector,
    verbose: bool,
) -> Result<(), Failure> {
    let jobs = jobs::selected(front, &jobs::states(client).await?, selector)?;
    if front.form == Form::Json {
        let mut by_job = serde_json::Map::new();
        for job in &jobs {
            let record = records::job(client, job.id).await?;
            let rows = rows_with_workers(client, job, &record).await?;
            by_job.insert(job.id.0.to_string(), json::tasks(&rows, &record));
        }
        return front.context.output.raw_line(&serde_json::Value::from(by_job).to_string());
    }
    let has_jobs = jobs.len() > 1;
    let mut header = vec!["Task ID", "State", "Worker", "Makespan"];
    if has_jobs {
        header.insert(0, "Job ID");
    }
    if verbose {
        header.push("Error");
    }
    let mut lines = Vec::new();
    for job in &jobs {
        let record = records::job(client, job.id).await?;
        for row in rows_with_workers(client, job, &record).await? {
            let mut line = Vec::new();
            if has_jobs {
                line.push(job.id.0.to_string());
            }
            let id = row.id.to_string();
            line.extend([id, row.state.to_owned(), row.worker.clone(), makespan(&row)]);
            if verbose {
                line.push(row.error);
            }
            lines.push(line);
        }
    }
    front.context.output.text(&table::horizontal(&header, &lines))
}

async fn info(
    front: &Front,
    client: &Client,
    selector: &Selector,
    tasks: &Ids,
) -> Result<(), Failure> {
    let mut all_json = Vec::new();
    for job in jobs::selected(front, &jobs::states(client).await?, selector)? {
        let record = records::job(client, job.id).await?;
        let rows = rows_with_workers(client, &job, &record).await?;
        for &id in &tasks.0 {
            let Some(row) = rows.iter().find(|row| row.id == id) else {
                front.context.output.line(&format!("WARN Task {id} not found"))?;
                continue;
            };
            let of = record.of_task(id).cloned().unwrap_or_default();
            if front.form == Form::Json {
                all_json.push(json::task(row, Some(&of)));
                continue;
            }
            let path = |template: &Option<String>| match (template, row.has_started) {
                (Some(template), true) => row.path(template),
                _ => String::new(),
            };
            let limit = match of.time_limit_ns {
                0 => "None".to_owned(),
                ns => span(ns),
            };
            let text = table::vertical(&[
                ("Task ID", id.to_string()),
                ("State", row.state.to_owned()),
                ("Command", of.command.join("\n")),
                ("Environment", environment(&of)),
                ("Worker", row.worker.clone()),
                ("Start", time_of_day(row.started_ns)),
                ("End", time_of_day(row.ended_ns)),
                ("Makespan", makespan(row)),
                ("Workdir", path(&Some(of.cwd.clone()))),
                ("Stdout", path(&of.stdout)),
                ("Stderr", path(&of.stderr)),
                ("Error", row.error.clone()),
                ("Time limit", limit),
                ("Resources", resources(&of)),
                ("Priority", of.priority.to_string()),
                ("Pin", pin(&of)),
                ("Task dir", if of.task_dir { "yes" } else { "no" }.to_owned()),
                ("Crash limit", of.crash_limit.clone()),
                ("Dependencies", dependencies(&of, id)),
            ]);
            front.context.output.text(&text)?;
        }
    }
    match front.form {
        Form::Json => front.context.output.raw_line(&serde_json::Value::from(all_json).to_string()),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_in_the_words_of_the_other_program() {
        let failure = |error: &str, tail: &str| wire::Failure {
            error: error.to_owned(),
            stderr_tail: tail.as_bytes().to_vec(),
            exit_code: 3,
            ..wire::Failure::default()
        };
        let text = reason(&failure("exited with code 3", ""));
        assert_eq!(text, "Program terminated with exit code 3.");
        let killed = "Program terminated with exit code -1. Received signal 9 (SIGKILL).";
        assert_eq!(reason(&failure("killed by signal 9 (SIGKILL; out of memory?)", "")), killed);
        assert_eq!(reason(&failure("exit code 3", "hq-reason: a\\nb\n")), "a\nb");
    }
}
