//! Changes that a page asks for: with `--allow-changes` only.

use client::Client;
use client::raw::is_ended;
use proto::{NodeId, wire};
use serde::Serialize;
use verb::cluster::survival::PATIENCE;
use verb::errors::Failure;
use web::Change;

use super::live::job_id;
use crate::cluster::job::retry;
use crate::cluster::node::{known, removal};

/// The answer to a change.
#[derive(Serialize)]
pub(super) struct Changed {
    schema: u32,
    /// One line for people.
    text: String,
}

fn node_id(text: &str) -> Result<NodeId, Failure> {
    let digits = text.strip_prefix('n').unwrap_or(text);
    let wrong = || Failure::usage(format!("'{text}' is not the number of a node"));
    digits.parse().map(NodeId).map_err(|_| wrong())
}

pub(super) async fn make(client: &Client, change: &Change) -> Result<Changed, Failure> {
    let text = match change {
        Change::CancelJob { job } => cancel(client, job).await?,
        Change::RetryJob { job } => {
            let job = job_id(job)?;
            let before = client.raw().job(job).await?;
            let (round, tasks) = retry::open_round(client, &before, &[]).await?;
            retry::told(job, round, tasks)
        }
        Change::DrainNode { node } => {
            let node = node_id(node)?;
            removal::begin_drain(client, &[node], 0).await?;
            format!("node {node} is drained: it leaves when its tasks and data are elsewhere")
        }
        Change::PauseNode { node } => pause(client, node, true).await?,
        Change::ResumeNode { node } => pause(client, node, false).await?,
    };
    Ok(Changed { schema: 1, text })
}

async fn cancel(client: &Client, job: &str) -> Result<String, Failure> {
    let job = job_id(job)?;
    if is_ended(&client.raw().job(job).await?) {
        return Err(Failure::usage(format!("job {} has ended", job.0)));
    }
    client.cancel(job, &[]).await?;
    Ok(format!("job {} is cancelled", job.0))
}

async fn pause(client: &Client, node: &str, paused: bool) -> Result<String, Failure> {
    let node = node_id(node)?;
    known(client, node)?;
    let change = wire::Tuning { paused: Some(paused), ..wire::Tuning::default() };
    client.raw().tune(node, &change, PATIENCE).await?;
    let what = if paused { "is paused" } else { "starts tasks again" };
    Ok(format!("node {node} {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_named_as_on_the_page() {
        assert_eq!(node_id("n3").unwrap(), NodeId(3));
        assert_eq!(node_id("3").unwrap(), NodeId(3));
        assert!(node_id("x").unwrap_err().message.contains("not the number of a node"));
    }
}
