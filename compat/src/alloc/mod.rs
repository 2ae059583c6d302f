//! `hq alloc`: queues of a batch system, by Starling's own queues.

pub(crate) mod args;
mod queues;

use std::process::ExitCode;

use client::Client;
use serde_json::{Value, json};
use verb::errors::Failure;

use crate::args::Form;
use crate::cluster::Front;
use crate::records::{self, QueueRecord};
use crate::table;
use crate::words::{iso_time, span, time_of_day};
use crate::worker_start;
use args::{AllocVerb, Channel, State, System};
use queues::{Allocation, DRY_RUN, Queue, name_of, words};

pub(crate) fn run(front: &Front, verb: AllocVerb) -> Result<ExitCode, Failure> {
    if let AllocVerb::Worker { worker, command } = verb {
        return worker_start::adopt(front, &worker, &command);
    }
    verb::block_on(async {
        let client = front.connect().await?;
        match verb {
            AllocVerb::List => list(front, &client).await?,
            AllocVerb::Info { queue, filter } => info(front, &client, queue, filter).await?,
            AllocVerb::Log { allocation, channel } => {
                log(front, &client, &allocation, channel).await?;
            }
            AllocVerb::Add { system } => add(front, &client, &system).await?,
            AllocVerb::Pause { queue } => change(front, &client, queue, "pause", "paused").await?,
            AllocVerb::Resume { queue } => {
                change(front, &client, queue, "resume", "resumed").await?;
            }
            AllocVerb::DryRun { system } => {
                check(front, &system)?;
                // That of an interrupted dry run.
                let _ = queues::remove(front, DRY_RUN);
                make(front, DRY_RUN, &system)?;
                let checked = dry_run(front, &system, DRY_RUN);
                queues::remove(front, DRY_RUN)?;
                checked?;
                told(front, TAKEN)?;
            }
            AllocVerb::Remove { queue, force } => remove(front, &client, queue, force).await?,
            AllocVerb::Worker { .. } => {}
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// The answer of a dry run.
const TAKEN: &str = "A trial allocation was submitted successfully. It was immediately canceled.";

/// A sentence for people; programs get an empty object.
fn told(front: &Front, text: &str) -> Result<(), Failure> {
    match front.form {
        Form::Json => front.context.output.raw_line("{}"),
        _ => front.context.output.line(text),
    }
}

/// Checks what Starling cannot check, before anything is made.
fn check(front: &Front, system: &System) -> Result<(), Failure> {
    let args = system.args();
    if args.worker_time_limit.is_some_and(|limit| limit.0 > args.time_limit.0) {
        let text = "Worker time limit cannot be larger than queue time limit";
        return Err(Failure::usage(text));
    }
    worker_start::check(front, &args.offer)
}

/// Makes a queue of Starling that submits nothing yet.
fn make(front: &Front, name: &str, system: &System) -> Result<(), Failure> {
    queues::run(front, &queues::add_words(front, name, system)?).map(drop)
}

fn dry_run(front: &Front, system: &System, name: &str) -> Result<(), Failure> {
    let ran = queues::run(front, &words(["dry-run", name]));
    ran.map(drop).map_err(|failure| refusal(system, &failure))
}

/// A failed dry run in the words of the front.
fn refusal(system: &System, failure: &Failure) -> Failure {
    let (program, message) = (system.submitter(), &failure.message);
    let held = message.strip_prefix("batch job ").and_then(|rest| rest.split_once(' '));
    let refused = message.strip_prefix(&format!("{} refuses: ", system.name()));
    let text = match (held, refused) {
        (Some((job, rest)), _) => format!("Could not cancel allocation {job}: it {rest}"),
        (_, Some(why)) => {
            format!("Could not submit allocation: {program} execution failed. Stderr: {why}")
        }
        _ if message.contains("did not start") => {
            format!("Could not submit allocation: {program} start failed. {message}")
        }
        _ => format!("Could not submit allocation: {message}"),
    };
    Failure::refused(text)
}

async fn add(front: &Front, client: &Client, system: &System) -> Result<(), Failure> {
    check(front, system)?;
    let id = records::next_queue(client).await?;
    make(front, &name_of(id), system)?;
    if !system.args().no_dry_run
        && let Err(failure) = dry_run(front, system, &name_of(id))
    {
        queues::remove(front, &name_of(id))?;
        return Err(failure);
    }
    let name = system.args().name.clone().unwrap_or_default();
    records::add_queue(client, QueueRecord { id, name }).await?;
    queues::run(front, &words(["resume", &name_of(id)]))?;
    told(front, &format!("Allocation queue {id} successfully created"))
}

async fn change(
    front: &Front,
    client: &Client,
    id: u64,
    verb: &str,
    done: &str,
) -> Result<(), Failure> {
    queues::known(client, id).await?;
    queues::run(front, &words([verb, &name_of(id)]))?;
    told(front, &format!("Allocation queue {id} successfully {done}"))
}

async fn remove(front: &Front, client: &Client, id: u64, force: bool) -> Result<(), Failure> {
    queues::known(client, id).await?;
    let Some(queue) = queues::find(front, id)? else {
        // 'starling alloc remove' was faster.
        records::remove_queue(client, id).await?;
        return told(front, &format!("Allocation queue {id} successfully removed"));
    };
    if !force && queue.intents.iter().any(|it| it.state() == Some(State::Running)) {
        return Err(Failure::refused(
            "Allocation queue has running jobs, so it will not be removed. \
             Use `--force` if you want to remove the queue anyway",
        ));
    }
    queues::remove(front, &name_of(id))?;
    records::remove_queue(client, id).await?;
    told(front, &format!("Allocation queue {id} successfully removed"))
}

async fn list(front: &Front, client: &Client) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for record in records::queues(client).await? {
        if let Some(queue) = queues::find(front, record.id)? {
            rows.push((record, queue));
        }
    }
    if front.form == Form::Json {
        let rows: Vec<Value> = rows.iter().map(|(record, queue)| json_row(record, queue)).collect();
        return front.context.output.raw_line(&Value::from(rows).to_string());
    }
    let header = [
        "ID",
        "State",
        "Backlog size",
        "Max workers per alloc",
        "Max worker count",
        "Timelimit",
        "Manager",
        "Name",
        "Args",
    ];
    let cells = |(record, queue): &(QueueRecord, Queue)| {
        let config = &queue.config;
        vec![
            record.id.to_string(),
            if config.paused { "PAUSED" } else { "ACTIVE" }.to_owned(),
            config.backlog.to_string(),
            config.max_nodes_per_alloc.to_string(),
            config.max_nodes.unwrap_or_default().to_string(),
            time_limit(queue),
            config.system.to_uppercase(),
            record.name.clone(),
            config.arguments.join(","),
        ]
    };
    let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
    front.context.output.text(&table::horizontal(&header, &rows))
}

fn time_limit(queue: &Queue) -> String {
    span(queue.config.time_limit_s.saturating_mul(1_000_000_000))
}

fn json_row(record: &QueueRecord, queue: &Queue) -> Value {
    let config = &queue.config;
    json!({
        "id": record.id,
        "name": (!record.name.is_empty()).then_some(&record.name),
        "state": if config.paused { "Paused" } else { "Active" },
        "manager": config.system.to_uppercase(),
        "additional_args": config.arguments,
        "backlog": config.backlog,
        "max_workers_per_alloc": config.max_nodes_per_alloc,
        "timelimit": time_limit(queue),
        "max_worker_count": config.max_nodes,
    })
}

/// The time of a batch job; 0: it has not come yet.
fn at(ms: u64, form: fn(u64) -> String) -> Option<String> {
    (ms > 0).then(|| form(ms.saturating_mul(1_000_000)))
}

async fn info(
    front: &Front,
    client: &Client,
    id: u64,
    filter: Option<State>,
) -> Result<(), Failure> {
    queues::known(client, id).await?;
    let queue = queues::info(front, id)?;
    let dir = front.context.dir_path()?.join("alloc").join(name_of(id));
    let shown = queue.intents.iter().filter_map(|it| Some((it, it.state()?)));
    let shown: Vec<(&Allocation, State)> =
        shown.filter(|(_, state)| filter.is_none_or(|filter| filter == *state)).collect();
    let folder = |it: &Allocation| dir.join(it.number.to_string()).display().to_string();
    if front.form == Form::Json {
        let row = |&(it, state): &(&Allocation, State)| {
            json!({
                "id": it.job,
                "target_worker_count": it.nodes,
                "queued_at": at(it.queued_ms, iso_time),
                "started_at": at(it.started_ms, iso_time),
                "ended_at": at(it.ended_ms, iso_time),
                "status": state.word(),
                "workdir": folder(it),
            })
        };
        let rows: Vec<Value> = shown.iter().map(row).collect();
        return front.context.output.raw_line(&Value::from(rows).to_string());
    }
    let header = [
        "ID",
        "State",
        "Working directory",
        "Worker count",
        "Queue time",
        "Start time",
        "Finish time",
    ];
    let time = |ms: u64| at(ms, time_of_day).unwrap_or_default();
    let cells = |&(it, state): &(&Allocation, State)| {
        vec![
            it.job.clone(),
            state.word().to_uppercase(),
            folder(it),
            it.nodes.to_string(),
            time(it.queued_ms),
            time(it.started_ms),
            time(it.ended_ms),
        ]
    };
    let rows: Vec<Vec<String>> = shown.iter().map(cells).collect();
    front.context.output.text(&table::horizontal(&header, &rows))
}

async fn log(
    front: &Front,
    client: &Client,
    allocation: &str,
    channel: Channel,
) -> Result<(), Failure> {
    for record in records::queues(client).await? {
        let Some(queue) = queues::find(front, record.id)? else { continue };
        let Some(found) = queue.intents.iter().find(|it| it.job == allocation) else { continue };
        if channel == Channel::Stderr {
            front.context.output.note("stdout and stderr of a batch job are one file: 'stdout'");
            return Ok(());
        }
        let number = found.number.to_string();
        let output = queues::run(front, &words(["log", &name_of(record.id), &number]))?;
        return front.context.output.bytes(&output);
    }
    Err(Failure::refused(format!("Allocation {allocation} not found")))
}
