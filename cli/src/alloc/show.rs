//! `starling alloc list | info | log | explain`.

use allocation::{Intent, Lease, Phase};
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure};
use verb::units::number_of;

use crate::alloc::records::{QueueRecord, Records};
use crate::alloc::round::{folder, now_ms};

#[derive(Serialize)]
struct QueueList {
    queues: Vec<QueueRow>,
}

#[derive(Serialize)]
struct QueueRow {
    queue: String,
    system: String,
    state: &'static str,
    time_limit_s: u64,
    /// Allocations by their phase, and the nodes that ready tasks want.
    queued: usize,
    running: usize,
    wanted_nodes: u32,
}

/// `active`, `paused`, or `resting` after a failure.
pub(super) fn state_of(queue: &QueueRecord) -> &'static str {
    match queue.config.paused {
        true => "paused",
        false if now_ms() < queue.state.not_before_ms => "resting",
        false => "active",
    }
}
fn count(queue: &QueueRecord, is: fn(Phase) -> bool) -> usize {
    queue.intents.iter().filter(|intent| is(intent.phase)).count()
}

pub(super) async fn list(context: &Context) -> Done {
    let client = context.connect().await?;
    let queues = Records::new(&client)?.queues().await?;
    let row = |queue: &QueueRecord| QueueRow {
        queue: queue.config.name.clone(),
        system: queue.config.system.to_string(),
        state: state_of(queue),
        time_limit_s: queue.config.time_limit_s,
        queued: count(queue, Phase::is_expected),
        running: count(queue, |phase| phase == Phase::Running),
        wanted_nodes: queue.state.wanted_nodes,
    };
    let queues: Vec<QueueRow> = queues.iter().map(row).collect();
    if context.output.json {
        context.output.json(&QueueList { queues })?;
        return Ok(Exit::Ok);
    }
    let header = ["queue", "system", "state", "time limit", "queued", "running", "wanted nodes"];
    let cells = |row: &QueueRow| {
        vec![
            row.queue.clone(),
            row.system.clone(),
            row.state.to_owned(),
            format!("{} s", row.time_limit_s),
            row.queued.to_string(),
            row.running.to_string(),
            row.wanted_nodes.to_string(),
        ]
    };
    let rows: Vec<Vec<String>> = queues.iter().map(cells).collect();
    context.output.table(&header, &rows)?;
    Ok(Exit::Ok)
}

#[derive(Serialize)]
struct Info {
    queue: QueueRecord,
    state: &'static str,
    /// The batch jobs that ended at once, since another one had their allocation.
    duplicates: u64,
    /// The owner of the site with its calls; `None`: there was none yet.
    owner: Option<Lease>,
    owner_is_present: bool,
}

pub(super) async fn info(context: &Context, name: &str) -> Done {
    let client = context.connect().await?;
    let records = Records::new(&client)?;
    let queue = records.queue(name).await?;
    let owner = records.lease(queue.config.system).await?;
    let owner_is_present = owner.as_ref().is_some_and(|lease| lease.is_valid(now_ms()));
    let state = state_of(&queue);
    let open = queue.intents.iter().filter(|intent| intent.number >= queue.state.settled());
    let further: u64 = open.map(|intent| u64::from(intent.duplicates)).sum();
    let duplicates = queue.state.duplicates + further;
    let info = Info { queue, state, duplicates, owner, owner_is_present };
    if context.output.json {
        context.output.json(&info)?;
        return Ok(Exit::Ok);
    }
    context.output.text(&text_of(&info))?;
    Ok(Exit::Ok)
}

fn text_of(info: &Info) -> String {
    let QueueRecord { config, state, intents } = &info.queue;
    let mut lines = vec![
        format!("queue {} of {}: {}", config.name, config.system, info.state),
        format!(
            "allocations of up to {} for {} s; the next one may come {}",
            number_of(u64::from(config.max_nodes_per_alloc), "node"),
            config.time_limit_s,
            match state.not_before_ms.saturating_sub(now_ms()) {
                0 => "now".to_owned(),
                rest => format!("in {} s", rest.div_ceil(1000)),
            }
        ),
    ];
    if !config.arguments.is_empty() {
        lines.push(format!("arguments: {}", config.arguments.join(" ")));
    }
    let counts = format!(
        "{} submissions, {} refused, {} ended, {} unknown, {} duplicates, {} failures in a row",
        state.submissions,
        state.refusals,
        state.ended,
        state.unknown,
        info.duplicates,
        state.failures
    );
    lines.push(counts);
    if !state.last_error.is_empty() {
        lines.push(format!("last failure: {}", state.last_error));
    }
    lines.push(match &info.owner {
        Some(lease) if info.owner_is_present => format!(
            "owner: {}; {} listings and {} submissions of all owners",
            lease.owner, lease.listings, lease.submissions
        ),
        Some(lease) => format!("no owner is present; the last one was {}", lease.owner),
        None => "there was no owner yet: no node may submit".to_owned(),
    });
    lines.extend(intents.iter().map(intent_line));
    lines.join("\n") + "\n"
}

fn intent_line(intent: &Intent) -> String {
    let nodes = number_of(u64::from(intent.nodes), "node");
    let mut line = format!("{}: {}, {nodes}", intent.number, intent.phase.word());
    if !intent.job.is_empty() {
        line += &format!(", batch job {}", intent.job);
    }
    if intent.duplicates > 0 {
        line += &format!(", {}", number_of(u64::from(intent.duplicates), "duplicate"));
    }
    match intent.reason.is_empty() {
        true => line,
        false => format!("{line}: {}", intent.reason),
    }
}

pub(super) async fn log(context: &Context, name: &str, number: Option<u64>) -> Done {
    let dir = context.dir()?;
    let client = context.connect().await?;
    let queue = Records::new(&client)?.queue(name).await?;
    let last = queue.intents.last().map(|intent| intent.number);
    let last = last.unwrap_or_else(|| queue.state.first() - 1);
    if last == 0 {
        return Err(Failure::refused(format!("queue '{name}' has had no allocation yet")));
    }
    let number = number.unwrap_or(last);
    if !(1..=last).contains(&number) {
        let text = format!("queue '{name}': no allocation {number}");
        return Err(Failure::refused(text).hint(format!("the last one is {last}")));
    }
    let file = folder(&dir, name, number).join("output");
    let bytes = std::fs::read(&file).map_err(|error| {
        let failure = Failure::file(&file, &error);
        failure.hint("a batch job writes it when it starts; PBS may write it at its end")
    })?;
    context.output.bytes(&bytes)?;
    Ok(Exit::Ok)
}

#[derive(Serialize)]
struct Explained {
    queues: Vec<ExplainedQueue>,
}

#[derive(Serialize)]
struct ExplainedQueue {
    queue: String,
    state: &'static str,
    wanted_nodes: u32,
    lines: Vec<String>,
}

pub(super) async fn explain(context: &Context, name: Option<&str>) -> Done {
    let client = context.connect().await?;
    let records = Records::new(&client)?;
    let queues = match name {
        Some(name) => vec![records.queue(name).await?],
        None => records.queues().await?,
    };
    let explained = |queue: &QueueRecord| ExplainedQueue {
        queue: queue.config.name.clone(),
        state: state_of(queue),
        wanted_nodes: queue.state.wanted_nodes,
        lines: queue.state.lines.clone(),
    };
    let queues: Vec<ExplainedQueue> = queues.iter().map(explained).collect();
    if context.output.json {
        context.output.json(&Explained { queues })?;
        return Ok(Exit::Ok);
    }
    for queue in queues {
        let wanted = number_of(u64::from(queue.wanted_nodes), "node");
        context.output.line(&format!("{}: {}, wants {wanted}", queue.queue, queue.state))?;
        for line in queue.lines {
            context.output.line(&format!("  {line}"))?;
        }
    }
    Ok(Exit::Ok)
}
