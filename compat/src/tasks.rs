//! `hq task`, and the tasks of a job.

use std::collections::BTreeMap;
use std::process::ExitCode;

use client::{Attempt, Client};
use proto::wire::TaskPhase;
use proto::{LocalId, wire};
use verb::errors::Failure;

use crate::args::{Form, TaskVerb};
use crate::cluster::{self, Front};
use crate::jobs::{self, Job};
use crate::records::{self, Submission};
use crate::table;
use crate::task::REASON;
use crate::words::{Ids, Selector, span};

/// The maximum of failed tasks of a job of which a reason is looked up.
const EXPLAINED_MAX: usize = 100;

/// A task as the front shows it.
#[derive(Clone, Debug)]
pub(crate) struct TaskRow {
    pub(crate) id: u64,
    pub(crate) state: &'static str,
    /// The name of its worker.
    pub(crate) worker: String,
    pub(crate) started_ns: u64,
    pub(crate) ended_ns: u64,
    pub(crate) error: String,
    job: u64,
    instance: u64,
    has_started: bool,
}

impl TaskRow {
    pub(crate) fn json(&self) -> serde_json::Value {
        let state = self.state.to_lowercase();
        serde_json::json!({ "id": self.id, "state": state, "error": self.error })
    }

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
    let workers: BTreeMap<u32, String> = cluster::names(client).await?;
    let failures: BTreeMap<u64, wire::Failure> = full
        .sum
        .unwrap_or_default()
        .failures
        .into_iter()
        .map(|failure| (failure.local, failure))
        .collect();
    let (mut rows, mut explained) = (Vec::new(), 0);
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
            error = match failures.get(&task.local) {
                Some(failure) => reason(failure),
                None => format!("Program terminated with exit code {}.", task.exit_code),
            };
            if !failures.contains_key(&task.local) && explained < EXPLAINED_MAX {
                explained += 1;
                let of = client.raw().explain(job.id, LocalId(task.local)).await?;
                error = of.lines.first().cloned().unwrap_or(error);
            }
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
            job: job.id.0,
            instance: last.unwrap_or(1).saturating_sub(1),
            has_started,
        });
    }
    rows.sort_unstable_by_key(|row| row.id);
    Ok(rows)
}

/// The reason of a failure in the words of HyperQueue.
fn reason(failure: &wire::Failure) -> String {
    let tail = String::from_utf8_lossy(&failure.stderr_tail).into_owned();
    if let Some(reason) = tail.lines().find_map(|line| line.strip_prefix(REASON)) {
        return reason.replace("\\n", "\n");
    }
    let error = &failure.error;
    if error.contains("time limit") {
        return "Time limit reached".to_owned();
    }
    if let Some(signal) = error.split("signal ").nth(1) {
        let number: String = signal.chars().take_while(char::is_ascii_digit).collect();
        let name = signal.split(['(', ')']).nth(1).unwrap_or("SIGKILL");
        return format!("Program terminated with exit code -1. Received signal {number} ({name}).");
    }
    match error.is_empty() || error.contains("exit") {
        true => format!("Program terminated with exit code {}.", failure.exit_code),
        false => error.clone(),
    }
}

pub(crate) fn resources(of: &Submission) -> String {
    let line = |(name, amount): &(String, String)| format!("{name}: {amount}");
    of.resources.iter().map(line).collect::<Vec<_>>().join("\n")
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
        for row in rows(client, job).await? {
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
        let rows = rows(client, &job).await?;
        for &id in &tasks.0 {
            let Some(row) = rows.iter().find(|row| row.id == id) else {
                front.context.output.line(&format!("WARN Task {id} not found"))?;
                continue;
            };
            let of = record.of_task(id).cloned().unwrap_or_default();
            if front.form == Form::Json {
                all_json.push(row.json());
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
            ]);
            front.context.output.text(&text)?;
        }
    }
    match front.form {
        Form::Json => front.context.output.raw_line(&serde_json::Value::from(all_json).to_string()),
        _ => Ok(()),
    }
}

/// `31.12.2026 23:59:59`, in UTC; 0: empty.
fn time_of_day(ns: u64) -> String {
    if ns == 0 {
        return String::new();
    }
    let seconds = ns / 1_000_000_000;
    let (days, rest) = ((seconds / 86_400) as i64, seconds % 86_400);
    // The civil calendar from the number of days, with years that begin in March.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let of_era = shifted.rem_euclid(146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{day:02}.{month:02}.{year} {hour:02}:{minute:02}:{second:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_have_dates() {
        assert_eq!(time_of_day(1_000_000_000), "01.01.1970 00:00:01");
        assert_eq!(time_of_day(1_709_251_199_000_000_000), "29.02.2024 23:59:59");
    }

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
        assert_eq!(reason(&failure("exit code 3", "hq-reason: a\\nb\n")), "a\nb");
    }
}
