//! `starling job retry`: the next round of an ended job.

use clap::Args;
use client::{Client, ClientError};
use proto::wire::{JobState, TaskPhase, TaskState};
use proto::{JobId, LocalId};
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure, heard};
use verb::flags::TimeoutArgs;
use verb::units;

use crate::cluster::task::find;
use crate::common::selector::Selector;
use crate::views::jobs::{self, JobRow};
use crate::views::task_rows::state_word;
use crate::views::waiting::{self, Deadline};

#[derive(Args, Debug)]
pub(crate) struct RetryArgs {
    /// all, last, 5 or 1-3,7
    jobs: Selector,
    /// Only these: names or ids of failed, skipped or cancelled tasks, separated by commas; their
    /// parents must be done or named as well, otherwise they are skipped again
    tasks: Option<String>,
    /// All failed, skipped and cancelled tasks, which is the default
    #[arg(long, conflicts_with = "tasks")]
    failed: bool,
    /// Wait until it has ended; exit 1 if tasks failed again
    #[arg(long)]
    wait: bool,
    #[command(flatten)]
    timeout: TimeoutArgs,
}

#[derive(Serialize)]
struct RetryRow {
    job: String,
    round: u32,
    tasks: u64,
}

pub(crate) async fn run(context: &Context, client: &Client, args: &RetryArgs) -> Done {
    let timeout = context.settings.pick_optional(args.timeout.timeout, "timeout")?;
    let selected = jobs::select(client, &args.jobs).await?;
    if selected.len() > 1 && args.tasks.is_some() {
        return Err(Failure::usage("tasks are of one job: name one"));
    }
    if args.timeout.timeout.is_some() && !args.wait {
        return Err(Failure::usage("--timeout needs --wait"));
    }
    let selected = retryable(context, client, selected).await?;
    for job in &selected {
        open(context, client, job, args).await?;
    }
    if !args.wait {
        return Ok(Exit::Ok);
    }
    let (deadline, mut exit) = (Deadline::after(timeout), Exit::Ok);
    for before in selected {
        let job = JobId(before.job);
        let state = waiting::wait(context, client, job, 0, &deadline).await?;
        jobs::tell_failures(&context.output, client, &state).await;
        if context.output.json {
            heard(context.output.json(&JobRow::new(&state)))?;
        }
        if jobs::exit_of(&state) != Exit::Ok {
            exit = Exit::Failed;
        }
    }
    Ok(exit)
}

/// The states of the jobs to retry. Of several jobs, those with nothing to run again are left out
/// with a note. A job that has not ended refuses all of them, before any round is opened.
async fn retryable(
    context: &Context,
    client: &Client,
    jobs: Vec<JobId>,
) -> Result<Vec<JobState>, Failure> {
    let mut states = Vec::with_capacity(jobs.len());
    for job in jobs {
        states.push(client.raw().job(job).await?);
    }
    if states.len() < 2 {
        return Ok(states);
    }
    if let Some(open) = states.iter().find(|state| !client::raw::is_ended(state)) {
        let job = open.job;
        return Err(Failure::refused(format!("job {job} has not ended; no job was retried")).hint(
            format!(
                "'starling job wait {job}' waits for its end, 'starling job cancel {job}' ends it"
            ),
        ));
    }
    let mut again = Vec::new();
    for state in states {
        let why = match state.thinned_text().or_else(|| state.incomplete_text()) {
            Some(refused) => refused,
            None if not_done_count(&state) == 0 => "nothing to run again".to_owned(),
            None => {
                again.push(state);
                continue;
            }
        };
        context.output.note(&format!("job {}: {why}", state.job));
    }
    match again.is_empty() {
        true => Err(Failure::refused("none of these jobs has a task to run again")),
        false => Ok(again),
    }
}

fn not_done_count(state: &JobState) -> u64 {
    let counts = jobs::counts(state);
    counts.failed + counts.skipped + counts.cancelled
}

/// Opens the next round of a job.
async fn open(
    context: &Context,
    client: &Client,
    before: &JobState,
    args: &RetryArgs,
) -> Result<(), Failure> {
    let job = JobId(before.job);
    let tasks = match &args.tasks {
        Some(text) => not_done(job, &find(client, job, Some(text)).await?)?,
        None => Vec::new(),
    };
    let state = client.raw().retry(job, before.round(), &tasks).await;
    let state = state.map_err(|error| explain(error, job, before))?;
    let tasks = match tasks.len() as u64 {
        0 => not_done_count(before),
        named => named,
    };
    let round = state.round();
    if context.output.json {
        return context.output.json(&RetryRow { job: job.0.to_string(), round, tasks });
    }
    let tasks = units::number_of(tasks, "task");
    context.output.note(&format!("job {}: round {round}, {tasks} to run again", job.0));
    Ok(())
}

/// The ids of these tasks, if each may run again.
fn not_done(job: JobId, tasks: &[TaskState]) -> Result<Vec<LocalId>, Failure> {
    let may = |task: &&TaskState| {
        use TaskPhase::{TaskCancelled, TaskFailed, TaskSkipped};
        matches!(task.phase(), TaskFailed | TaskSkipped | TaskCancelled)
    };
    if let Some(other) = tasks.iter().find(|task| !may(task)) {
        let (id, state) = (LocalId(other.local), state_word(other.phase()));
        let text = format!("job {}: task {id} ('{}') is {state}", job.0, other.name);
        return Err(Failure::refused(format!(
            "{text}: only failed, skipped or cancelled tasks run again"
        ))
        .hint(format!("'starling task list {}' shows how each has ended", job.0)));
    }
    let mut ids: Vec<LocalId> = tasks.iter().map(|task| LocalId(task.local)).collect();
    ids.sort_unstable();
    ids.dedup();
    Ok(ids)
}

/// The failure of a refused retry, with a hint.
fn explain(error: ClientError, job: JobId, before: &JobState) -> Failure {
    let job = job.0;
    let hint = match client::raw::is_ended(before) {
        false => format!(
            "'starling job wait {job}' waits for its end, 'starling job cancel {job}' ends it"
        ),
        true if before.incomplete_text().is_some() => {
            "'starling submit' sends all of its tasks again, as a new job".to_owned()
        }
        true => format!("'starling job info {job}' shows what became of it"),
    };
    match error {
        ClientError::Refused(_) => Failure::from(error).hint(hint),
        error => error.into(),
    }
}
