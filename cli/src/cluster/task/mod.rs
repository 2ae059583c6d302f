//! `starling task`: the tasks of one job.

mod asked;
mod failures;
mod list;

use std::collections::HashMap;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use client::Client;
use proto::wire::TaskPhase::{TaskFailed, TaskSkipped};
use proto::wire::{self, TaskState};
use proto::{JobId, LocalId, Span, Time};
use serde::Serialize;
use verb::Context;
use verb::cluster::logs::Logs;
use verb::errors::{Done, Exit, Failure};
use verb::terminal_text::shown;
use verb::units;

use crate::alloc::offers;
use crate::cluster::task::asked::Asked;
use crate::cluster::task::failures::Cause;
use crate::cluster::task::list::ListArgs;
use crate::common::selector::Selector;
use crate::report::offline;
use crate::views::jobs;
use crate::views::task_rows::{TaskRow, state_word};

/// Of more tasks, `task info` shows command and cause only where a task did not end well.
const CAUSES_MAX: usize = 1000;
/// The maximum of missing parents that an explanation names.
const PARENTS_NAMED_MAX: usize = 8;

#[derive(Subcommand, Debug)]
pub(crate) enum TaskVerb {
    /// List the tasks of a job
    List(ListArgs),
    /// Show tasks one by one
    Info(Named),
    /// Explain why a task does not run, or where it ran and why there
    Explain(ExplainArgs),
    /// Cancel tasks that have not ended, and all tasks that wait for them
    Cancel(Named),
}

#[derive(Args, Debug)]
pub(crate) struct Named {
    /// The job: last, or its number
    job: Selector,
    /// Names or ids (see 'starling task list'), separated by commas [default: all]
    tasks: Option<String>,
}

#[derive(Args, Debug)]
pub(crate) struct ExplainArgs {
    #[command(flatten)]
    named: Named,
    /// Read a run record instead of a cluster: a file, the directory of a run, or one of runs
    #[arg(long, value_name = "DIR|FILE")]
    from: Option<PathBuf>,
}

#[derive(Serialize)]
pub(crate) struct Explained {
    task: TaskRow,
    lines: Vec<String>,
    #[serde(flatten)]
    cause: Cause,
    missing_parents: Vec<String>,
}

/// A task with its command, what it asked for, and the cause of a bad end.
#[derive(Serialize)]
struct TaskInfo {
    #[serde(flatten)]
    row: TaskRow,
    #[serde(flatten)]
    asked: Asked,
    #[serde(flatten)]
    cause: Cause,
}

pub(crate) async fn one_job(client: &Client, selector: &Selector) -> Result<JobId, Failure> {
    match jobs::select(client, selector).await?[..] {
        [job] => Ok(job),
        _ => Err(Failure::usage("tasks are of one job: name one")),
    }
}

/// The tasks of a list of names and ids, in its order; without a list all of the job.
pub(crate) async fn find(
    client: &Client,
    job: JobId,
    text: Option<&str>,
) -> Result<Vec<TaskState>, Failure> {
    let mut all = Vec::new();
    let Some(text) = text.filter(|text| *text != "all") else {
        client.raw().tasks(job, |task| all.push(task)).await?;
        all.sort_unstable_by_key(|task| task.local);
        return Ok(all);
    };
    let wanted: Vec<&str> = text.split(',').map(str::trim).filter(|one| !one.is_empty()).collect();
    if wanted.is_empty() {
        return Err(Failure::usage("no task is named").hint("leave the list out for all tasks"));
    }
    // A single id is found without reading all other tasks.
    if let [one] = wanted[..]
        && let Ok(local) = one.parse::<LocalId>()
    {
        let explained = client.raw().explain(job, local).await?;
        return Ok(explained.task.into_iter().collect());
    }
    let mut found: HashMap<&str, Vec<TaskState>> = HashMap::new();
    let mut entries: HashMap<&str, Vec<TaskState>> = HashMap::new();
    let see = |task: TaskState| {
        let id = LocalId(task.local).to_string();
        if let Some(one) = wanted.iter().find(|one| **one == id || **one == task.name) {
            found.entry(one).or_default().push(task);
        } else if let Some(entry) = task.entry
            && let Some(one) = wanted.iter().find(|one| has_entry(one, entry))
        {
            entries.entry(one).or_default().push(task);
        }
    };
    client.raw().tasks(job, see).await?;
    for one in wanted {
        // A name precedes an entry of an array.
        let tasks = match found.remove(one) {
            Some(tasks) => tasks,
            None => of_one_array(one, entries.remove(one).unwrap_or_default())?,
        };
        if tasks.is_empty() {
            if let Some(text) = client.raw().job(job).await?.thinned_text() {
                return Err(Failure::refused(text)
                    .hint(format!("'starling job info {}' still sums it up", job.0)));
            }
            return Err(Failure::refused(format!("job {}: no task '{one}'", job.0))
                .hint(format!("'starling task list {}' shows its tasks", job.0)));
        }
        all.extend(tasks);
    }
    Ok(all)
}

/// True if `17` or `3-20` includes this entry of an array.
fn has_entry(wanted: &str, entry: u64) -> bool {
    let (first, last) = wanted.split_once('-').unwrap_or((wanted, wanted));
    match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) => (first..=last).contains(&entry),
        _ => false,
    }
}

/// The tasks of an entry in their order; refused if several arrays have such an entry.
fn of_one_array(wanted: &str, mut tasks: Vec<TaskState>) -> Result<Vec<TaskState>, Failure> {
    tasks.sort_by_key(|task| task.entry);
    let twice = tasks.windows(2).find(|pair| pair[0].entry == pair[1].entry);
    match twice {
        Some([one, other]) => {
            let names = format!("'{}' and '{}'", one.name, other.name);
            Err(Failure::refused(format!("'{wanted}' is an entry of several arrays: {names}"))
                .hint("name the tasks"))
        }
        _ => Ok(tasks),
    }
}

pub(crate) fn run(context: &Context, verb: &TaskVerb) -> Done {
    match verb {
        TaskVerb::List(args) if args.from.is_some() => return list::offline(context, args),
        TaskVerb::Explain(ExplainArgs { named, from: Some(from) }) => {
            return offline::explain(context, from, &named.job, named.tasks.as_deref());
        }
        _ => {}
    }
    verb::block_on(async {
        let client = context.connect().await?;
        let named = match verb {
            TaskVerb::List(args) => return list::run(context, &client, args).await,
            TaskVerb::Explain(ExplainArgs { named, .. })
            | TaskVerb::Info(named)
            | TaskVerb::Cancel(named) => named,
        };
        let job = one_job(&client, &named.job).await?;
        let found = find(&client, job, named.tasks.as_deref()).await?;
        match verb {
            TaskVerb::List(_) => unreachable!("handled above"),
            TaskVerb::Info(_) => {
                let all = found.len() <= CAUSES_MAX;
                for task in &found {
                    let tells = all || matches!(task.phase(), TaskFailed | TaskSkipped);
                    info(context, &client, job, task, tells).await?;
                }
                Ok(Exit::Ok)
            }
            TaskVerb::Explain(_) => {
                for task in &found {
                    explain(context, &client, job, task).await?;
                }
                Ok(Exit::Ok)
            }
            TaskVerb::Cancel(_) => {
                let tasks: Vec<LocalId> = found.iter().map(|task| LocalId(task.local)).collect();
                if named.tasks.is_none() {
                    let text = "name the tasks to cancel";
                    let hint = format!("'starling job cancel {}' cancels the whole job", job.0);
                    return Err(Failure::usage(text).hint(hint));
                }
                let answer = client.cancel(job, &tasks).await?;
                if let Some(&unknown) = answer.unknown.first() {
                    let text = format!("job {}: no task '{}'", job.0, unknown);
                    return Err(Failure::refused(text));
                }
                crate::cluster::job::tell_cancelled(context, job, &answer)?;
                Ok(Exit::Ok)
            }
        }
    })
}

/// Prints one task and all its events; with `tells` its command, what it asked for, and the cause
/// of a bad end.
async fn info(
    context: &Context,
    client: &Client,
    job: JobId,
    task: &TaskState,
    tells: bool,
) -> Result<(), Failure> {
    let row = TaskRow::new(task);
    let (asked, cause) = match tells {
        true => {
            let live = client.raw().explain(job, LocalId(task.local)).await?;
            (Asked::of(&live), Cause::of(client, job, task, &live).await?)
        }
        false => (Asked::default(), Cause::default()),
    };
    if context.output.json {
        // The row has the exit code.
        let cause = cause.without_exit_code();
        return context.output.json(&TaskInfo { row, asked, cause });
    }
    let head = TaskRow::HEADER.iter().zip(row.cells());
    let mut text: String =
        head.map(|(key, value)| format!("{key:9} {}\n", shown(&value))).collect();
    if task.started_ns > 0 {
        let took = Time(task.ended_ns).since(Time(task.started_ns)).as_secs_f64();
        text.push_str(&format!("started   {}\n", Time(task.started_ns).utc()));
        text.push_str(&format!("ended     {} (after {took:.3} s)\n", Time(task.ended_ns).utc()));
    }
    if task.max_rss_kib > 0 {
        let (cpu, peak) = (Span(task.cpu_us * 1_000).as_secs_f64(), task.max_rss_kib << 10);
        text.push_str(&format!("used      {cpu:.3} s of CPU, {} of memory\n", units::bytes(peak)));
    }
    let lines = asked.line().into_iter().chain(cause.lines.iter().cloned());
    lines.for_each(|line| text.push_str(&format!("{}\n", shown(&line))));
    let entries = entries(client, job, LocalId(task.local)).await?;
    let lines = analysis::explain::explain(&entries, None, &analysis::explain::Rules::default());
    lines.iter().for_each(|line| text.push_str(&format!("{}\n", shown(line))));
    context.output.text(&text)
}

async fn entries(
    client: &Client,
    job: JobId,
    task: LocalId,
) -> Result<Vec<analysis::Entry>, Failure> {
    let logs = Logs::read(client, job, Some(task)).await?;
    entries_of(&logs, job, task)
}

/// The events of a task.
pub(crate) fn entries_of(
    logs: &Logs,
    job: JobId,
    task: LocalId,
) -> Result<Vec<analysis::Entry>, Failure> {
    let mut entries = Vec::new();
    logs.for_each(|entry| {
        let about = entry.event.task();
        if about.is_some_and(|about| about.job == job && about.local == task) {
            entries.push(*entry);
        }
        Ok(())
    })?;
    Ok(entries)
}

/// The explanation of a task.
pub(crate) async fn explained(
    client: &Client,
    job: JobId,
    task: &TaskState,
    entries: &[analysis::Entry],
) -> Result<Explained, Failure> {
    let local = LocalId(task.local);
    let live = client.raw().explain(job, local).await?;
    let rules = analysis::explain::Rules::default();
    let mut lines = analysis::explain::explain(entries, Some(&live), &rules);
    if let Some(needs) = &live.awaits_node {
        lines.extend(offers::explain(client, needs).await?);
    }
    if live.unbegun {
        let state = client.raw().job(job).await?;
        lines.extend(jobs::waits_line(&state).map(|line| format!("its job {line}")));
    }
    let cause = Cause::of(client, job, task, &live).await?;
    lines.extend(cause.lines.iter().cloned());
    for parent in live.missing_parents.iter().take(PARENTS_NAMED_MAX) {
        lines.push(parent_line(client, job, LocalId(*parent)).await?);
    }
    let missing_parents = live.missing_parents.iter().map(|id| LocalId(*id).to_string());
    let missing_parents = missing_parents.collect();
    Ok(Explained { task: TaskRow::new(task), lines, cause, missing_parents })
}

async fn explain(
    context: &Context,
    client: &Client,
    job: JobId,
    task: &TaskState,
) -> Result<(), Failure> {
    let local = LocalId(task.local);
    let entries = entries(client, job, local).await?;
    let explained = explained(client, job, task, &entries).await?;
    if context.output.json {
        return context.output.json(&explained);
    }
    let name = if task.name.is_empty() { local.to_string() } else { task.name.clone() };
    let name = shown(&name);
    let mut text = format!("task '{name}' ({local}) is {}\n", state_word(task.phase()));
    explained.lines.iter().for_each(|line| text.push_str(&format!("  {}\n", shown(line))));
    context.output.text(&text)
}

/// A missing parent by its name, and its state.
async fn parent_line(client: &Client, job: JobId, parent: LocalId) -> Result<String, Failure> {
    let wire::Explanation { task, .. } = client.raw().explain(job, parent).await?;
    let Some(task) = task else { return Ok(format!("parent {parent}: nothing is known of it")) };
    let place = if task.placed { format!(" on node n{}", task.node) } else { String::new() };
    Ok(format!("parent '{}' ({parent}) is {}{place}", task.name, state_word(task.phase())))
}
