//! `starling job forget`: removes what is known of ended jobs.

use std::time::Duration;

use clap::Args;
use client::{Client, ClientError};
use kvs::membership::member;
use proto::JobId;
use serde::Serialize;

use crate::errors::{Done, Exit, Failure};
use crate::selector::Selector;
use crate::{Context, jobs, kept_outputs};

#[derive(Args, Debug)]
pub(crate) struct ForgetArgs {
    /// all, last, 5 or 1-3,7
    jobs: Selector,
    /// Remove what their tasks keep as well
    #[arg(long)]
    results: bool,
}

/// How long a node may take to say that it is there.
const THERE_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct ForgottenRow {
    job: String,
    forgotten: bool,
    results: bool,
    /// Nodes that have what they had of it until they are back.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nodes_away: Vec<u32>,
}

/// It has ended, and nothing that it keeps would be left without its record.
async fn may_be_forgotten(client: &Client, job: JobId, results: bool) -> Result<(), Failure> {
    let number = job.0;
    let state = match client.job(job).await {
        // It was forgotten before; what it keeps may be there yet.
        Err(ClientError::Refused(text)) if results && text.contains(" was forgotten on ") => {
            return Ok(());
        }
        state => state?,
    };
    if !client::is_ended(&state) || state.ended_ns == 0 {
        let text = format!("job {number} has not ended: only an ended job can be forgotten");
        return Err(Failure::refused(text).hint(format!(
            "'starling job wait {number}' waits for its end, 'starling job cancel {number}' ends it"
        )));
    }
    let keeps = || state.settings.is_some_and(|settings| settings.keeps_results);
    if !results && (keeps() || kept_outputs::is_listed(client, job).await?) {
        let text = format!("job {number} keeps results: it is forgotten with them, or not at all");
        return Err(Failure::refused(text).hint(format!(
            "'starling job fetch {number} -o DIR' copies them, \
             'starling job forget {number} --results' removes them"
        )));
    }
    Ok(())
}

/// Nothing is forgotten unless all of it can be.
pub(crate) async fn run(context: &Context, client: &Client, args: &ForgetArgs) -> Done {
    let selected = jobs::select(client, &args.jobs).await?;
    for &job in &selected {
        may_be_forgotten(client, job, args.results).await?;
    }
    let states = client.node_states(THERE_TIMEOUT).await;
    let map = client.newest_map(THERE_TIMEOUT).await;
    // A node that was let in and never started has nothing to remove.
    let never_came =
        |node| map.copies > 1 && member(&map, node).is_some_and(|it| it.incarnation == 0);
    let away = states.iter().filter(|(node, state)| state.is_err() && !never_came(*node));
    let nodes_away: Vec<u32> = away.map(|(node, _)| node.0).collect();
    for &job in &selected {
        client.forget(job, args.results).await?;
        if args.results {
            kept_outputs::forget(client, job).await?;
        }
        let (number, results) = (job.0.to_string(), args.results);
        if context.output.json {
            let nodes_away = nodes_away.clone();
            let row = ForgottenRow { job: number, forgotten: true, results, nodes_away };
            context.output.json(&row)?;
        } else {
            let what = if results { ", with its results" } else { "" };
            context.output.note(&format!("job {number} is forgotten{what}"));
        }
    }
    if !context.output.json && !selected.is_empty() && !nodes_away.is_empty() {
        let names: Vec<String> = nodes_away.iter().map(|node| format!("n{node}")).collect();
        let (nodes, verbs) = match names.len() {
            1 => ("node", "removes what it has when it is back"),
            _ => ("nodes", "remove what they have when they are back"),
        };
        context.output.note(&format!("{nodes} {} {verbs}", names.join(", ")));
    }
    Ok(Exit::Ok)
}
