//! `starling alloc pause | resume | remove`.

use allocation::{Intent, Phase, QueueConfig, QueueState, keys};
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure};

use crate::alloc::calls;
use crate::alloc::records::{QueueRecord, Records};

pub(super) async fn pause(context: &Context, name: &str, paused: bool) -> Done {
    let client = context.connect().await?;
    let records = Records::new(&client)?;
    records.config(name).await?;
    let change = |config: Option<&QueueConfig>| {
        Ok(config.map(|config| QueueConfig { paused, ..config.clone() }))
    };
    records.change(&keys::queue(name), change).await?;
    if !paused {
        let rested = |state: Option<&QueueState>| {
            Ok(state.map(|state| QueueState { failures: 0, not_before_ms: 0, ..state.clone() }))
        };
        records.change(&keys::state(name), rested).await?;
    }
    if context.output.json {
        context.output.json(&serde_json::json!({ "queue": name, "paused": paused }))?;
    }
    Ok(Exit::Ok)
}

#[derive(Serialize)]
struct Removed {
    queue: String,
    /// The batch jobs that were cancelled, and those that could not be.
    cancelled: Vec<String>,
    not_cancelled: Vec<String>,
}

pub(super) async fn remove(context: &Context, name: &str, running: bool) -> Done {
    let client = context.connect().await?;
    let records = Records::new(&client)?;
    let queue = records.queue(name).await?;
    // First, so that no batch job of it begins to work.
    let unlisted = |names: Option<&Vec<String>>| {
        let rest = |names: &Vec<String>| names.iter().filter(|it| *it != name).cloned().collect();
        Ok(names.map(rest))
    };
    records.change(keys::QUEUES, unlisted).await?;
    let removed = cancel(&queue, running).await;
    let last = forget(&records, &queue).await?;
    // A later queue of that name begins after these numbers.
    let state = QueueState { first: last + 1, settled: last + 1, ..QueueState::default() };
    let kept = |_: Option<&QueueState>| Ok(Some(state.clone()));
    records.change(&keys::state(name), kept).await?;
    records.kv().remove(keys::queue(name).as_bytes()).await?;
    for job in &removed.not_cancelled {
        context.output.note(&format!("batch job {job} was not cancelled: it ends when it starts"));
    }
    if context.output.json {
        context.output.json(&removed)?;
    }
    Ok(Exit::Ok)
}

async fn cancel(queue: &QueueRecord, running: bool) -> Removed {
    let mut removed = Removed {
        queue: queue.config.name.clone(),
        cancelled: Vec::new(),
        not_cancelled: Vec::new(),
    };
    let is_meant = |intent: &&Intent| {
        let is_running = running && intent.phase == Phase::Running;
        !intent.job.is_empty() && (intent.phase == Phase::Queued || is_running)
    };
    for intent in queue.intents.iter().filter(is_meant) {
        let ran = calls::run(&queue.config.system.cancel(&intent.job)).await;
        let list = match ran.is_ok_and(|ran| ran.is_ok) {
            true => &mut removed.cancelled,
            false => &mut removed.not_cancelled,
        };
        list.push(intent.job.clone());
    }
    removed
}

/// Removes the intents of a queue; returns the last number.
async fn forget(records: &Records, queue: &QueueRecord) -> Result<u64, Failure> {
    let mut last = queue.state.settled() - 1;
    for intent in &queue.intents {
        let key = keys::intent(&queue.config.name, intent.number);
        records.kv().remove(key.as_bytes()).await?;
        last = last.max(intent.number);
    }
    Ok(last)
}
