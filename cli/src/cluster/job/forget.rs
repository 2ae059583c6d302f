//! `starling job forget`: removes the records of ended jobs.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use client::{Client, ClientError};
use kvs::membership::never_came;
use proto::{JobId, NodeId, wire};
use serde::Serialize;
use verb::Context;
use verb::cluster::kept_outputs;
use verb::errors::{Done, Exit, Failure};

use crate::common::selector::Selector;
use crate::report::keep;
use crate::views::jobs;
use crate::views::kept::KeptRow;

#[derive(Args, Debug)]
pub(crate) struct ForgetArgs {
    /// all, last, 5 or 1-3,7; several may follow
    #[arg(required = true)]
    jobs: Vec<Selector>,
    /// Remove the kept results as well
    #[arg(long)]
    results: bool,
}

/// The time that a node has to answer.
const THERE_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Serialize)]
struct ForgottenRow {
    job: String,
    forgotten: bool,
    results: bool,
    /// Nodes that keep their data of the job until they return.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    nodes_away: Vec<u32>,
}

/// Checks that the job has ended, and that no kept result would be left without its record. Returns
/// whether the job is forgotten with its list of results: as asked, or because none is there.
async fn with_results(client: &Client, job: JobId, results: bool) -> Result<bool, Failure> {
    let number = job.0;
    let state = match client.raw().job(job).await {
        // The job was forgotten before; kept results may still exist.
        Err(ClientError::Refused(text)) if results && text.contains(" was forgotten on ") => {
            return Ok(true);
        }
        state => state?,
    };
    if !client::raw::is_ended(&state) || state.ended_ns == 0 {
        let text = format!("job {number} has not ended: only an ended job can be forgotten");
        return Err(Failure::refused(text).hint(format!(
            "'starling job wait {number}' waits for its end, 'starling job cancel {number}' ends it"
        )));
    }
    if !results && (state.keeps_results() || kept_outputs::is_listed(client, job).await?) {
        let kept = KeptRow::of(client, &state).await;
        if state.thinned_text().is_none() && kept.is_some_and(|kept| kept.are_none_there()) {
            return Ok(true);
        }
        let text = format!("job {number} keeps results: it is forgotten with them, or not at all");
        return Err(Failure::refused(text).hint(format!(
            "'starling job fetch {number} -o DIR' copies them, \
             'starling job forget {number} --results' removes them"
        )));
    }
    Ok(results)
}

/// The first refusal, with the numbers of the other refused jobs.
fn refusal(refused: Vec<(JobId, Failure)>) -> Option<Failure> {
    let mut refused = refused.into_iter();
    let (_, first) = refused.next()?;
    let others: Vec<String> = refused.map(|(job, _)| job.0.to_string()).collect();
    match &others[..] {
        [] => Some(first),
        [other] => Some(first.because(&format!("job {other} is not forgotten, either"))),
        _ => Some(first.because(&format!("jobs {} are not forgotten, either", others.join(", ")))),
    }
}

/// Of the nodes that do not answer: those that may have something to remove.
fn nodes_away(map: &wire::ClusterMap, silent: impl Iterator<Item = NodeId>) -> Vec<u32> {
    silent.filter(|&node| !never_came(map, node)).map(|node| node.0).collect()
}

/// A job that cannot be forgotten does not hold back the others.
pub(crate) async fn run(context: &Context, client: &Client, args: &ForgetArgs) -> Done {
    let mut named = BTreeSet::new();
    for jobs in &args.jobs {
        named.extend(jobs::select(client, jobs).await?);
    }
    let (mut selected, mut refused) = (Vec::new(), Vec::new());
    for job in named {
        match with_results(client, job, args.results).await {
            Ok(results) => selected.push((job, results)),
            Err(failure) if failure.exit == Exit::Refused => refused.push((job, failure)),
            Err(failure) => return Err(failure),
        }
    }
    let states = client.raw().node_states(THERE_TIMEOUT).await;
    let map = client.raw().newest_map(THERE_TIMEOUT).await;
    let silent = states.iter().filter(|(_, state)| state.is_err()).map(|(node, _)| *node);
    let nodes_away = nodes_away(&map, silent);
    for &(job, results) in &selected {
        client.forget(job, results).await?;
        keep::forget(&context.dir()?, job)?;
        if results {
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
    refusal(refused).map_or(Ok(Exit::Ok), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_other_jobs() {
        let message = |jobs: &[u64]| {
            let refused = jobs.iter().map(|&job| (JobId(job), Failure::refused("job 3 runs")));
            refusal(refused.collect()).map(|failure| failure.message)
        };
        assert_eq!(message(&[]), None);
        assert_eq!(message(&[3]), Some("job 3 runs".to_owned()));
        let three = "job 3 runs; jobs 5, 8 are not forgotten, either";
        assert_eq!(message(&[3, 5, 8]), Some(three.to_owned()));
    }

    #[test]
    fn a_node_that_never_came_has_nothing_to_remove() {
        let member = |node, incarnation| wire::Member { node, incarnation, ..Default::default() };
        let members = vec![member(0, 1), member(1, 3), member(2, 0)];
        let mut map = wire::ClusterMap { members, copies: 2, ..Default::default() };
        let silent = || [1, 2].into_iter().map(NodeId);
        assert_eq!(nodes_away(&map, silent()), [1]);
        // With one copy no node registers, and none can join.
        map.copies = 1;
        assert_eq!(nodes_away(&map, silent()), [1, 2]);
    }
}
