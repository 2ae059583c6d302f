//! `starling job`: the jobs of a cluster.

mod captured;
mod fetch;
mod forget;
mod logs;
pub(crate) mod open;
pub(crate) mod output;
pub(crate) mod results;
pub(crate) mod retry;
mod watch;

use std::path::PathBuf;

use clap::Subcommand;
use client::{Client, now_ns};
use proto::{JobId, NodeId};
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure, heard};
use verb::flags::TimeoutArgs;
use verb::units;
use verb::units::Timespan;

use crate::cluster::job::fetch::FetchArgs;
use crate::cluster::job::forget::ForgetArgs;
use crate::cluster::job::logs::LogsArgs;
use crate::cluster::job::open::ReleaseArgs;
use crate::cluster::job::output::OutputArgs;
use crate::cluster::job::retry::RetryArgs;
use crate::cluster::job::watch::WatchArgs;
use crate::common::selector::Selector;
use crate::report::offline;
use crate::views::job_info;
use crate::views::jobs::{self, JobRow};
use crate::views::kept::KeptRow;
use crate::views::waiting::{self, Deadline};

#[derive(Subcommand, Debug)]
pub(crate) enum JobVerb {
    /// List the jobs of the cluster
    List {
        /// all, last, 5 or 1-3,7
        #[arg(default_value = "all")]
        jobs: Selector,
        /// Read run records instead of a cluster: of a file, a run, or a directory of runs
        #[arg(long, value_name = "DIR|FILE")]
        from: Option<PathBuf>,
    },
    /// Summarize a job, running or ended
    Info {
        /// all, last, 5 or 1-3,7
        #[arg(required_unless_present = "from")]
        jobs: Option<Selector>,
        /// State at the end of this round: 0 is the first, 1 that of the first retry
        #[arg(long, value_name = "N", conflicts_with = "from")]
        round: Option<u32>,
        /// Read run records instead of a cluster: of a file, a run, or a directory of runs
        #[arg(long, value_name = "DIR|FILE")]
        from: Option<PathBuf>,
    },
    /// Wait until jobs have ended; exit 1 unless all tasks are done
    Wait {
        /// all, last, 5 or 1-3,7
        jobs: Selector,
        /// Wait only until all tasks so far have ended; an open job stays open
        #[arg(long)]
        without_close: bool,
        #[command(flatten)]
        timeout: TimeoutArgs,
    },
    /// Close open jobs: no more tasks are added
    Close {
        /// all, last, 5 or 1-3,7
        jobs: Selector,
    },
    /// Free outputs of an open job once the tasks that read them have ended
    Release(ReleaseArgs),
    /// Follow jobs to their end
    Progress {
        /// all, last, 5 or 1-3,7
        jobs: Selector,
    },
    /// Print the values of variables of a job, and each later one, until the job ends
    Watch(WatchArgs),
    /// Cancel jobs, even incompletely submitted ones; their running tasks are killed
    Cancel {
        /// all, last, 5 or 1-3,7
        jobs: Selector,
    },
    /// Run the unfinished tasks of ended jobs again: failed, skipped and cancelled ones
    Retry(RetryArgs),
    /// Remove the records of ended jobs: events, task records, captured output, data for retries;
    /// kept results only with --results
    Forget(ForgetArgs),
    /// Print the standard output of tasks; lost output is named (exit code 3)
    Output(OutputArgs),
    /// Print the output of tasks so far, or follow it to the end of the job
    Logs(LogsArgs),
    /// Copy the kept outputs of tasks into a directory
    Fetch(FetchArgs),
}

#[derive(Serialize)]
struct JobList {
    jobs: Vec<JobRow>,
    /// Homes that have not listed their jobs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    missing: Vec<String>,
    /// Nodes that answer nothing, where jobs are missing.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    away: Vec<String>,
}

pub(crate) fn run(context: &Context, verb: &JobVerb) -> Done {
    match verb {
        JobVerb::List { jobs, from: Some(from) } => return offline::job_list(context, from, jobs),
        JobVerb::Info { jobs, from: Some(from), .. } => {
            let jobs = jobs.as_ref().unwrap_or(&Selector::All);
            return offline::job_info(context, from, jobs);
        }
        _ => {}
    }
    verb::block_on(async {
        let client = context.connect().await?;
        match verb {
            JobVerb::List { jobs, .. } => list(context, &client, jobs).await,
            JobVerb::Info { jobs, round, .. } => {
                let jobs = jobs.as_ref().unwrap_or(&Selector::Last);
                for job in jobs::select(&client, jobs).await? {
                    job_info::info(context, &client, job, *round).await?;
                }
                Ok(Exit::Ok)
            }
            JobVerb::Wait { jobs, without_close, timeout } => {
                let timeout = context.settings.pick_optional(timeout.timeout, "timeout")?;
                wait(context, &client, jobs, *without_close, timeout).await
            }
            JobVerb::Close { jobs } => open::close(context, &client, jobs).await,
            JobVerb::Release(args) => open::release(context, &client, args).await,
            JobVerb::Progress { jobs } => {
                for job in jobs::select(&client, jobs).await? {
                    progress(context, &client, job).await?;
                }
                Ok(Exit::Ok)
            }
            JobVerb::Watch(args) => watch::run(context, &client, args).await,
            JobVerb::Cancel { jobs } => {
                for job in jobs::select(&client, jobs).await? {
                    let answer = client.cancel(job, &[]).await?;
                    tell_cancelled(context, job, &answer)?;
                }
                Ok(Exit::Ok)
            }
            JobVerb::Retry(args) => retry::run(context, &client, args).await,
            JobVerb::Forget(args) => forget::run(context, &client, args).await,
            JobVerb::Output(args) => output::run(context, &client, args).await,
            JobVerb::Logs(args) => logs::run(context, &client, args).await,
            JobVerb::Fetch(args) => fetch::run(context, &client, args).await,
        }
    })
}

/// A job after a wait.
#[derive(Serialize)]
struct Waited {
    #[serde(flatten)]
    row: JobRow,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<KeptRow>,
}

/// Waits for jobs, one after another, within one deadline for all: for their ends, or until no task
/// is open.
async fn wait(
    context: &Context,
    client: &Client,
    selector: &Selector,
    without_close: bool,
    timeout: Option<Timespan>,
) -> Done {
    let deadline = Deadline::after(timeout);
    let mut exit = Exit::Ok;
    for job in jobs::select(client, selector).await? {
        let state = match without_close {
            true => open::wait_submitted(client, job, &deadline).await?,
            false => waiting::wait_or_silence(context, client, job, &deadline).await?,
        };
        jobs::tell_failures(&context.output, client, &state).await;
        let kept = KeptRow::of(client, &state).await;
        KeptRow::tell(kept.as_ref(), context);
        if context.output.json {
            heard(context.output.json(&Waited { row: JobRow::new(&state), kept }))?;
        }
        jobs::tell_more(&state);
        if let Some(text) = job_info::silence_text(&state) {
            context.output.note(&format!("job {}: no task is open; {text}", job.0));
        }
        let job_exit = match without_close || state.ended_ns == 0 {
            true => open::exit_of(&state),
            false => jobs::exit_of(&state),
        };
        if job_exit != Exit::Ok {
            exit = Exit::Failed;
        }
    }
    Ok(exit)
}

#[derive(Serialize)]
struct CancelledRow {
    job: String,
    cancelled: u64,
    ended: u64,
}

/// Prints the result of a cancellation.
pub(crate) fn tell_cancelled(
    context: &Context,
    job: JobId,
    answer: &client::Cancelled,
) -> Result<(), Failure> {
    let (cancelled, ended) = (answer.cancelled, answer.ended);
    if context.output.json {
        return context.output.json(&CancelledRow { job: job.0.to_string(), cancelled, ended });
    }
    let had_ended = match ended {
        0 => String::new(),
        n => format!(", {} had ended", units::count(n)),
    };
    let tasks = units::number_of(cancelled, "task");
    context.output.note(&format!("job {}: {tasks} cancelled{had_ended}", job.0));
    Ok(())
}

async fn list(context: &Context, client: &Client, selector: &Selector) -> Done {
    let known = jobs::list(client).await?;
    let mut states = known.states.clone();
    let present: Vec<u64> = states.iter().map(|state| state.job).collect();
    let picked = selector.pick(&present).map_err(Failure::refused)?;
    states.retain(|state| picked.contains(&state.job));
    let mut jobs: Vec<JobRow> = states.iter().map(JobRow::new).collect();
    jobs::note_waiting(client, &states, &mut jobs).await;
    if context.output.json {
        let names = |nodes: &[NodeId]| nodes.iter().map(ToString::to_string).collect();
        let (missing, away) = (names(&known.missing), names(&known.away));
        context.output.json(&JobList { jobs, missing, away })?;
    } else {
        let now_s = now_ns() as f64 / 1e9;
        let rows: Vec<_> = jobs.iter().map(|row| row.cells(now_s)).collect();
        context.output.table(&JobRow::HEADER, &rows)?;
        // A pipe has the columns only.
        if context.output.is_table() {
            jobs::stall_lines(&states).iter().for_each(|line| context.output.note(line));
        }
    }
    match known.missing.is_empty() {
        true => Ok(Exit::Ok),
        false => Err(Failure::lost(jobs::missing_text(&known))
            .hint("the list is without them; start the nodes, or try again")),
    }
}

/// Prints every change of the state, as a line of JSON or on the terminal.
async fn progress(context: &Context, client: &Client, job: JobId) -> Result<(), Failure> {
    if !context.output.json && context.output.progress {
        return waiting::wait(context, client, job, 0, &Deadline::after(None)).await.map(drop);
    }
    let mut watch = client.raw().watch_job(job);
    while let Some(state) = watch.next().await? {
        let row = JobRow::new(&state);
        if context.output.json {
            context.output.json(&row)?;
        } else {
            let ended = row.done + row.failed + row.skipped + row.cancelled;
            let line = format!("job {}: {ended} of {} tasks, {}", job.0, row.total, row.state);
            context.output.line(&line)?;
            if let Some(stall) = jobs::stall_line(&state) {
                context.output.line(&format!("job {}: {stall}", job.0))?;
            }
        }
    }
    Ok(())
}
