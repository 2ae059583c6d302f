//! `starling job`: what runs and ran on a cluster.

use std::io::Write;

use clap::{Args, Subcommand};
use client::{Client, StreamFilter, now_ns};
use proto::JobId;
use serde::Serialize;

use crate::args::TimeoutArgs;
use crate::errors::{Done, Exit, Failure};
use crate::jobs::{self, JobRow};
use crate::selector::Selector;
use crate::story::{self, Logs};
use crate::{Context, run, summary, task};

#[derive(Subcommand, Debug)]
pub(crate) enum JobVerb {
    /// List the jobs of the cluster
    List {
        /// all, last, 5 or 1-3,7
        #[arg(default_value = "all")]
        jobs: Selector,
    },
    /// Sum up a job, running or ended
    Info {
        /// all, last, 5 or 1-3,7
        jobs: Selector,
    },
    /// Wait until jobs have ended; exit 1 when tasks failed
    Wait {
        /// all, last, 5 or 1-3,7
        jobs: Selector,
        #[command(flatten)]
        timeout: TimeoutArgs,
    },
    /// Follow jobs to their end
    Progress {
        /// all, last, 5 or 1-3,7
        jobs: Selector,
    },
    /// Cancel jobs; their running tasks are killed
    Cancel {
        /// all, last, 5 or 1-3,7
        jobs: Selector,
    },
    /// Print what tasks wrote to their standard output
    Output(OutputArgs),
}

#[derive(Args, Debug)]
pub(crate) struct OutputArgs {
    /// all, last, 5 or 1-3,7
    jobs: Selector,
    /// Only of these tasks: names or ids, separated by commas
    tasks: Option<String>,
    /// Their standard error instead
    #[arg(long)]
    stderr: bool,
}

#[derive(Serialize)]
struct JobList {
    jobs: Vec<JobRow>,
}

pub(crate) fn run(context: &Context, verb: &JobVerb) -> Done {
    crate::block_on(async {
        let client = context.connect().await?;
        match verb {
            JobVerb::List { jobs } => list(context, &client, jobs).await,
            JobVerb::Info { jobs } => {
                for job in jobs::select(&client, jobs).await? {
                    info(context, &client, job).await?;
                }
                Ok(Exit::Ok)
            }
            JobVerb::Wait { jobs, timeout } => {
                let timeout = context.settings.pick_optional(timeout.timeout, "timeout")?;
                let mut exit = Exit::Ok;
                for job in jobs::select(&client, jobs).await? {
                    let state = run::wait(context, &client, job, 0, timeout).await?;
                    jobs::tell_failures(&context.output, &state);
                    if context.output.json {
                        context.output.json(&JobRow::new(&state))?;
                    }
                    if jobs::exit_of(&state) != Exit::Ok {
                        exit = Exit::Failed;
                    }
                }
                Ok(exit)
            }
            JobVerb::Progress { jobs } => {
                for job in jobs::select(&client, jobs).await? {
                    progress(context, &client, job).await?;
                }
                Ok(Exit::Ok)
            }
            JobVerb::Cancel { jobs } => {
                for job in jobs::select(&client, jobs).await? {
                    client.cancel(job, &[]).await?;
                }
                Ok(Exit::Ok)
            }
            JobVerb::Output(args) => {
                for job in jobs::select(&client, &args.jobs).await? {
                    output(context, &client, job, args).await?;
                }
                Ok(Exit::Ok)
            }
        }
    })
}

async fn list(context: &Context, client: &Client, selector: &Selector) -> Done {
    let mut states = jobs::list(client).await?;
    let present: Vec<u64> = states.iter().map(|state| state.job).collect();
    let picked = selector.pick(&present).map_err(Failure::refused)?;
    states.retain(|state| picked.contains(&state.job));
    let jobs: Vec<JobRow> = states.iter().map(JobRow::new).collect();
    if context.output.json {
        context.output.json(&JobList { jobs })?;
    } else {
        let now_s = now_ns() as f64 / 1e9;
        let rows: Vec<_> = jobs.iter().map(|row| row.cells(now_s)).collect();
        context.output.table(&JobRow::HEADER, &rows)?;
    }
    Ok(Exit::Ok)
}

async fn info(context: &Context, client: &Client, job: JobId) -> Result<(), Failure> {
    let state = client.job(job).await?;
    let logs = Logs::read(client, job, None).await?;
    let fold = logs.fold(job, None)?;
    let mut facts = story::facts(&state, logs.states.clone());
    if facts.ended.is_none() {
        facts.ended = Some(proto::Time(now_ns()));
    }
    let report = story::report(&fold, &facts, &state);
    if context.output.json {
        return context.output.line(&story::json(&report, &state));
    }
    let name = if state.name.is_empty() { "" } else { &state.name };
    let head = format!("{:12} {} {name}\n{:12} {}\n", "job", report.job, "state", report.state);
    context.output.bytes((head + &summary::text(&report)).as_bytes())?;
    for failure in &jobs::counts(&state).failures {
        context.output.line(&format!("{:12} {}", "failure", jobs::failure_line(failure)))?;
    }
    Ok(())
}

/// Every change of the state, as a line of JSON or on the terminal.
async fn progress(context: &Context, client: &Client, job: JobId) -> Result<(), Failure> {
    if !context.output.json && context.output.progress {
        return run::wait(context, client, job, 0, None).await.map(drop);
    }
    let mut watch = client.watch_job(job);
    while let Some(state) = watch.next().await? {
        let row = JobRow::new(&state);
        if context.output.json {
            context.output.json(&row)?;
        } else {
            let ended = row.done + row.failed + row.skipped + row.cancelled;
            let line = format!("job {job}: {} of {} tasks, {}", ended, row.total, row.state);
            context.output.line(&line.replace("job j", "job "))?;
        }
    }
    Ok(())
}

/// The streams of all nodes, one after another; a task's own output stays together.
async fn output(
    context: &Context,
    client: &Client,
    job: JobId,
    args: &OutputArgs,
) -> Result<(), Failure> {
    // Asks about the job first: the nodes say nothing when they know nothing.
    client.job(job).await?;
    let tasks = match &args.tasks {
        Some(text) => task::named(client, job, text).await?,
        None => Vec::new(),
    };
    let filter = StreamFilter { tasks, stderr: args.stderr };
    for node in client.nodes() {
        let see = |piece: proto::wire::TaskStream| -> Result<(), Failure> {
            if context.output.json {
                let text = String::from_utf8_lossy(&piece.data);
                let task = proto::LocalId(piece.task).to_string();
                let attempt = proto::Attempt(piece.attempt).to_string();
                context.output.json(&StreamRow { task, attempt, text: &text })
            } else {
                context.output.bytes(&piece.data)
            }
        };
        client.streams(node, job, &filter, see).await?;
    }
    // Buffers of this process are written line by line; nothing is left to lose.
    std::io::stdout().flush().map_err(|_| Failure::nobody_listens())
}

#[derive(Serialize)]
struct StreamRow<'t> {
    task: String,
    attempt: String,
    text: &'t str,
}
