//! The durations of a finished job's commands, which a workflow file does not contain.

use std::collections::HashMap;

use client::Client;
use proto::event::{End, Event};
use proto::{JobId, Span};
use verb::cluster::logs::Logs;
use verb::errors::Failure;

/// By the tasks' names, for the committed attempts.
pub(super) async fn durations(
    client: &Client,
    job: JobId,
    logs: &Logs,
) -> Result<HashMap<String, Span>, Failure> {
    let committed = logs.committed(job)?;
    let mut took = HashMap::new();
    logs.for_each(|entry| {
        if let Event::Ended { task, attempt, end: End::Done, started, .. } = entry.event
            && task.job == job
            && committed.get(&task.local).is_some_and(|last| last.attempt == attempt)
        {
            took.insert(task.local.0, entry.time.since(started));
        }
        Ok(())
    })?;
    let mut by_name = HashMap::new();
    let see = |task: proto::wire::TaskState| {
        by_name.extend(took.get(&task.local).map(|&took| (task.name, took)));
    };
    client.raw().tasks(job, see).await?;
    Ok(by_name)
}
