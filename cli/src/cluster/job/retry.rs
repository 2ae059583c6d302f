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

/// Of more named tasks the parents are not asked for.
const PARENTS_CHECKED_MAX: usize = 1_000;

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
    /// Wait until it has ended; exit 1 unless all tasks are done
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
        Some(text) => {
            let named = find(client, job, Some(text)).await?;
            let ids = not_done(job, &named)?;
            check_parents(client, job, &named, &ids).await?;
            ids
        }
        None => Vec::new(),
    };
    let (round, tasks) = open_round(client, before, &tasks).await?;
    if context.output.json {
        return context.output.json(&RetryRow { job: job.0.to_string(), round, tasks });
    }
    context.output.note(&told(job, round, tasks));
    Ok(())
}

/// Opens the next round with these tasks, or with all that are not done. Returns the round and the
/// number of its tasks.
pub(crate) async fn open_round(
    client: &Client,
    before: &JobState,
    tasks: &[LocalId],
) -> Result<(u32, u64), Failure> {
    let job = JobId(before.job);
    let state = client.raw().retry(job, before.round(), tasks).await;
    let state = state.map_err(|error| explain(error, job, before))?;
    let tasks = match tasks.len() as u64 {
        0 => not_done_count(before),
        named => named,
    };
    Ok((state.round(), tasks))
}

/// The line about an opened round.
pub(crate) fn told(job: JobId, round: u32, tasks: u64) -> String {
    format!("job {}: round {round}, {} to run again", job.0, units::number_of(tasks, "task"))
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

/// Refuses tasks with a parent that is neither done nor named: they would only end like before.
async fn check_parents(
    client: &Client,
    job: JobId,
    named: &[TaskState],
    ids: &[LocalId],
) -> Result<(), Failure> {
    let of_parents = |task: &&TaskState| {
        matches!(task.phase(), TaskPhase::TaskSkipped | TaskPhase::TaskCancelled)
    };
    for task in named.iter().filter(of_parents).take(PARENTS_CHECKED_MAX) {
        let unmet = client.raw().explain(job, LocalId(task.local)).await?.unmet_parents;
        for parent in unmet.into_iter().map(LocalId).filter(|parent| !ids.contains(parent)) {
            let parent = client.raw().explain(job, parent).await?.task.unwrap_or_default();
            // A later round may have done it.
            if parent.phase() != TaskPhase::TaskDone {
                return Err(waits_for(job, task, &parent));
            }
        }
    }
    Ok(())
}

fn waits_for(job: JobId, task: &TaskState, parent: &TaskState) -> Failure {
    let called = |task: &TaskState| match task.name.as_str() {
        "" => LocalId(task.local).to_string(),
        name => format!("{} ('{name}')", LocalId(task.local)),
    };
    let (id, by) = (called(task), called(parent));
    let state = state_word(parent.phase());
    Failure::refused(format!(
        "job {}: task {id} needs task {by}, which is {state} and not named: it would only be \
         skipped again",
        job.0
    ))
    .hint(format!(
        "name both ('starling job retry {} {},{}'), or leave the list out for all tasks that are \
         not done",
        job.0,
        LocalId(parent.local),
        LocalId(task.local)
    ))
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

#[cfg(test)]
mod tests {
    use proto::PartitionId;

    use super::*;

    #[test]
    fn a_task_that_would_be_skipped_again_names_its_parent() {
        let task = |index, name: &str, phase: TaskPhase| TaskState {
            local: LocalId::new(PartitionId(0), index).0,
            name: name.to_owned(),
            phase: phase as i32,
            ..TaskState::default()
        };
        let parent = task(0, "b", TaskPhase::TaskFailed);
        let refused = waits_for(JobId(7), &task(1, "c", TaskPhase::TaskSkipped), &parent);
        assert!(refused.message.contains("('c') needs task"), "{refused:?}");
        assert!(refused.message.contains("('b'), which is failed"), "{refused:?}");
        assert!(refused.hint.unwrap().contains("job retry 7"), "both are named");
    }
}
