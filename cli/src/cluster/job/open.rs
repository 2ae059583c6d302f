//! Open jobs: `submit --open`, `submit --job`, `job close`, `job release`, and waiting for what was
//! submitted.

use std::path::Path;
use std::sync::Arc;

use clap::Args;
use client::{Client, NewTask, OpenOptions, Parent, TaskSpec};
use proto::wire::{self, JobState};
use proto::{JobId, LocalId};
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure, heard};
use verb::units;
use workloads::Graph;

use crate::cluster::task;
use crate::common::selector::Selector;
use crate::views::jobs;
use crate::views::waiting::Deadline;

/// The number of tasks that `--after` and `job release` look up one by one.
const TASKS_LOOKED_UP_MAX: usize = 10_000;

#[derive(Args, Debug)]
pub(crate) struct ReleaseArgs {
    /// The number of the job
    job: Selector,
    /// Tasks by id or name, separated by commas; all for all tasks so far
    #[arg(value_name = "TASKS")]
    tasks: String,
}

#[derive(Serialize)]
struct Opened {
    job: String,
    state: &'static str,
}

#[derive(Serialize)]
struct Added {
    job: String,
    tasks: u64,
    ids: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<&'static str>,
}

/// Opens a job and prints its number.
pub(crate) async fn open(context: &Context, client: &Client, options: OpenOptions) -> Done {
    let job = client.open_job(options).await?.id();
    match context.output.json {
        true => context.output.json(&Opened { job: job.0.to_string(), state: "open" })?,
        false => context.output.line(&job.0.to_string())?,
    }
    Ok(Exit::Ok)
}

/// The tasks that a submission adds.
pub(crate) struct Addition<'a> {
    pub(crate) graph: &'a Graph,
    /// `TASK:FILE` of `--in`: outputs of tasks of the job, which each new task reads.
    pub(crate) inputs: Vec<(String, String)>,
    /// `--after`.
    pub(crate) after: Option<&'a str>,
}

/// Adds tasks to an open job and prints their ids.
pub(crate) async fn add(
    context: &Context,
    client: &Client,
    job: JobId,
    what: Addition<'_>,
    wait: Option<Deadline>,
) -> Done {
    let state = client.raw().job(job).await?;
    check_open(&state)?;
    let ids = append(client, job, &what).await?;
    let texts: Vec<String> = ids.iter().map(ToString::to_string).collect();
    if !context.output.json {
        for text in &texts {
            heard(context.output.line(text))?;
        }
    }
    let ended = match wait {
        Some(deadline) => Some(wait_submitted(client, job, &deadline).await?),
        None => None,
    };
    if context.output.json {
        let (job, tasks) = (job.0.to_string(), texts.len() as u64);
        let state = ended.as_ref().map(jobs::state_word);
        heard(context.output.json(&Added { job, tasks, ids: texts, state }))?;
    }
    Ok(match ended {
        Some(state) => {
            jobs::tell_failures(&context.output, client, &state).await;
            jobs::tell_more(&state);
            exit_of(&state)
        }
        None => Exit::Ok,
    })
}

/// Refuses a job to which nothing can be added, before anything is sent.
fn check_open(state: &JobState) -> Result<(), Failure> {
    let job = state.job;
    match state.openness() {
        wire::Openness::Open => Ok(()),
        wire::Openness::Closing => {
            Err(Failure::refused(format!("job {job} is closed: no tasks can be added"))
                .hint("submit --open opens another job"))
        }
        wire::Openness::ClosedGraph => {
            let text = format!("job {job} was submitted as a whole: no tasks can be added");
            Err(Failure::refused(text)
                .hint("submit --open makes a job to which tasks are added later"))
        }
    }
}

async fn append(client: &Client, job: JobId, what: &Addition<'_>) -> Result<Vec<LocalId>, Failure> {
    let graph = what.graph;
    if graph.uploads().next().is_some() {
        return Err(Failure::usage("files cannot be uploaded to an open job")
            .hint("name a file that all nodes see with --in or --stage-in"));
    }
    let mut common = Vec::new();
    let mut read = Vec::new();
    for (task, file) in &what.inputs {
        let task = one_task(client, job, task).await?;
        let output = output_of(client, job, task, file).await?;
        common.push(Parent { task, output: Some(output) });
        let (key, file) = (file.clone(), file.clone());
        read.push(wire::Input { key, file, ..Default::default() });
    }
    let after = match what.after {
        Some(text) => named(client, job, text).await?,
        None => Vec::new(),
    };
    let specs: Vec<TaskSpec> = graph.specs().iter().map(|it| spec(it, &read)).collect();
    let handle = client.join_job_for(job, graph.len() as u64).await?;
    let mut ids = vec![LocalId(0); graph.len()];
    for at in graph.topological() {
        let view = graph.task(at);
        let edge = |it: workloads::Edge| Parent {
            task: ids[it.task as usize],
            output: it.output.checked_sub(1),
        };
        let mut parents = common.clone();
        parents.extend(graph.parents(at).map(edge));
        parents.extend(after.iter().map(|&task| Parent { task, output: None }));
        let task = NewTask {
            entry: view.entry,
            name: view.name.to_owned(),
            duration_ns: view.duration_ns,
            output_sizes: view.output_sizes.to_vec(),
            payload: view.payload.to_vec().into(),
            parents,
        };
        ids[at as usize] = handle.append(&specs[view.spec_index as usize], task)?;
        handle.room().await?;
    }
    handle.flush().await?;
    Ok(ids)
}

/// A spec that also reads these outputs.
fn spec(spec: &wire::Spec, read: &[wire::Input]) -> TaskSpec {
    let mut spec = spec.clone();
    spec.inputs.splice(0..0, read.iter().cloned());
    spec.externals.iter_mut().filter(|it| it.place > 0).for_each(|it| {
        it.place += read.len() as u32;
    });
    client::raw::task_spec(Arc::new(spec))
}

/// The number of a task's output with this file name.
async fn output_of(client: &Client, job: JobId, task: LocalId, file: &str) -> Result<u32, Failure> {
    let files = client.raw().explain(job, task).await?.output_files;
    match files.iter().position(|known| known == file) {
        Some(at) => Ok(at as u32),
        None => {
            let known = match files.is_empty() {
                true => "it has no outputs".to_owned(),
                false => format!("its outputs are: {}", files.join(", ")),
            };
            Err(Failure::refused(format!("task {task} of job {} has no output '{file}'", job.0))
                .hint(known))
        }
    }
}

/// The tasks of a list of ids and names. Each must exist.
async fn named(client: &Client, job: JobId, text: &str) -> Result<Vec<LocalId>, Failure> {
    let parts: Vec<&str> = text.split(',').map(str::trim).filter(|it| !it.is_empty()).collect();
    let ids: Result<Vec<LocalId>, _> = parts.iter().map(|part| part.parse::<LocalId>()).collect();
    if let Ok(ids) = ids
        && !ids.is_empty()
        && ids.len() <= TASKS_LOOKED_UP_MAX
    {
        for &id in &ids {
            client.raw().explain(job, id).await?;
        }
        return Ok(ids);
    }
    let found = task::find(client, job, Some(text)).await?;
    Ok(found.into_iter().map(|task| LocalId(task.local)).collect())
}

/// A task by its id or name.
async fn one_task(client: &Client, job: JobId, text: &str) -> Result<LocalId, Failure> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    match named(client, job, text).await?[..] {
        [task] => Ok(task),
        _ => Err(Failure::refused(format!("--in: '{text}' names several tasks of job {}", job.0))
            .hint("give the id of one: --in ID:FILE")),
    }
}

/// `TASK:FILE`: an output of a task of the job, by id or name. Other texts are files, and so is the
/// name of a file that is here.
pub(crate) fn output_input(text: &str) -> Option<(String, String)> {
    let (task, file) = text.split_once(':')?;
    let is_id = task.parse::<LocalId>().is_ok();
    let can_be_name = !task.is_empty() && !file.is_empty() && !task.contains(['/', '=']);
    let is_output = is_id || (can_be_name && !Path::new(text).exists());
    is_output.then(|| (task.to_owned(), file.to_owned()))
}

/// Closes jobs.
pub(crate) async fn close(context: &Context, client: &Client, selector: &Selector) -> Done {
    for job in jobs::select(client, selector).await? {
        client.close_job(job).await?;
        if context.output.json {
            context.output.json(&Opened { job: job.0.to_string(), state: "closed" })?;
        } else {
            context.output.note(&format!("job {}: no more tasks are added", job.0));
        }
    }
    Ok(Exit::Ok)
}

/// Releases outputs of tasks.
pub(crate) async fn release(context: &Context, client: &Client, args: &ReleaseArgs) -> Done {
    let [job] = jobs::select(client, &args.job).await?[..] else {
        return Err(Failure::usage("outputs are released of one job: name one"));
    };
    let state = client.raw().job(job).await?;
    if state.openness() == wire::Openness::ClosedGraph {
        let text = format!("job {} was submitted as a whole: it holds no outputs", job.0);
        return Err(Failure::refused(text).hint("only outputs of open jobs are held"));
    }
    let tasks = named(client, job, &args.tasks).await?;
    client.release(job, &tasks).await?;
    let released = units::number_of(tasks.len() as u64, "task");
    if context.output.json {
        let ids = tasks.iter().map(ToString::to_string).collect();
        let (job, tasks) = (job.0.to_string(), tasks.len() as u64);
        context.output.json(&Added { job, tasks, ids, state: Some("released") })?;
    } else {
        context.output.note(&format!("job {}: outputs of {released} released", job.0));
    }
    Ok(Exit::Ok)
}

/// Waits until all that was submitted has ended; the job may stay open.
pub(crate) async fn wait_submitted(
    client: &Client,
    job: JobId,
    deadline: &Deadline,
) -> Result<JobState, Failure> {
    Ok(Box::pin(deadline.cut(client.raw().wait_submitted(job))).await??)
}

/// The exit code of a wait that does not wait for the job's end.
pub(crate) fn exit_of(state: &JobState) -> Exit {
    jobs::exit_of_counts(&jobs::counts(state))
}
