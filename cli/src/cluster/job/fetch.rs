//! `starling job fetch`: copies kept outputs out of the cluster.

use std::collections::BTreeSet;
use std::path::PathBuf;

use clap::Args;
use client::Client;
use proto::wire::Openness;
use proto::{JobId, NodeId};
use serde::Serialize;
use verb::Context;
use verb::cluster::kept_outputs::{CopiedFile, KeptOutput, OfSpawned, copy, of_spawned, recall};
use verb::cluster::logs::Logs;
use verb::errors::{Done, Failure};
use verb::output::say;
use verb::units::number_of;

use crate::cluster::job::output;
use crate::cluster::task;
use crate::common::selector::Selector;
use crate::views::jobs;

#[derive(Args, Debug)]
pub(crate) struct FetchArgs {
    /// all, last, 5 or 1-3,7
    jobs: Selector,
    /// Only of these tasks of one job: names, ids or entries of an array, separated by commas
    tasks: Option<String>,
    /// Directory for the files; with several jobs, a subdirectory for each
    #[arg(short, long, value_name = "DIR")]
    output: PathBuf,
}

#[derive(Serialize)]
struct Fetched {
    job: String,
    files: Vec<CopiedFile>,
    /// Kept outputs of tasks that are not done.
    undone: u64,
}

/// The kept outputs of these tasks. `needs_some`: it is an error if there are none.
async fn of_tasks(
    client: &Client,
    job: JobId,
    text: &str,
    mut kept: Vec<KeptOutput>,
    needs_some: bool,
) -> Result<Vec<KeptOutput>, Failure> {
    let found = task::find(client, job, Some(text)).await?;
    let named: BTreeSet<u64> = found.iter().map(|task| task.local).collect();
    kept.retain(|output| named.contains(&output.task().0));
    if kept.is_empty() && needs_some {
        let text = format!("job {}: '{text}' keeps no outputs", job.0);
        return Err(
            Failure::refused(text).hint("without names of tasks all kept outputs are copied")
        );
    }
    Ok(kept)
}

/// `starling job fetch JOBS [TASKS] -o DIR`.
pub(crate) async fn run(context: &Context, client: &Client, args: &FetchArgs) -> Done {
    let chosen = jobs::select(client, &args.jobs).await?;
    if args.tasks.is_some() && chosen.len() != 1 {
        return Err(Failure::usage("tasks are of one job: name one"));
    }
    let (mut away, mut short) = (BTreeSet::new(), Vec::new());
    for &job in &chosen {
        let is_noted = client.job_to_fetch(job).await.is_ok();
        let logs = Logs::read(client, job, None).await?;
        jobs::must_exist(client, job, &logs).await?;
        if !is_noted {
            say(&format!(
                "warning: the home of job {} is away: results of a job that still runs may change",
                job.0
            ));
        }
        let mut kept = recall(client, job).await?;
        // Without an answer of the job's home there is the warning above.
        let state = if is_noted { client.raw().job(job).await.ok() } else { None };
        let spawned = match &state {
            Some(state) => of_spawned(client, state).await?,
            None => OfSpawned::default(),
        };
        short.extend(spawned.check(job).err());
        kept.extend(spawned.kept);
        if let Some(text) = &args.tasks {
            kept = of_tasks(client, job, text, kept, short.is_empty()).await?;
        }
        if kept.is_empty() && short.is_empty() && chosen.len() == 1 {
            let was_open = state.is_some_and(|it| it.openness() != Openness::ClosedGraph);
            return Err(Failure::refused(format!("job {} keeps no outputs", job.0)).hint(
                match was_open {
                    true => "an open job keeps none: print them, or write them to shared files",
                    false => "mark them: --out FILE of a command, keep = true in a workflow",
                },
            ));
        }
        let dir = match chosen.len() {
            1 => args.output.clone(),
            _ => args.output.join(job.0.to_string()),
        };
        let outcome = copy(client, &logs, job, &kept, &dir).await?;
        short.extend(outcome.check_written(job, &dir).err());
        short.extend(outcome.check_lost().err());
        away.extend(outcome.away);
        let (files, undone) = (outcome.copied, outcome.undone);
        let number = number_of(files.len() as u64, "file");
        if context.output.json {
            context.output.json(&Fetched { job: job.0.to_string(), files, undone })?;
        } else {
            let undone = match undone {
                0 => String::new(),
                _ => format!("; {} of tasks that are not done", number_of(undone, "output")),
            };
            context.output.note(&format!("{number} in {}{undone}", dir.display()));
        }
    }
    let mut short = short.into_iter();
    if let Some(first) = short.next() {
        short.for_each(|failure| say(&format!("warning: {}", failure.message)));
        return Err(first);
    }
    let away: Vec<NodeId> = away.into_iter().collect();
    output::missing("the files that lie there were not fetched", &away)
}
