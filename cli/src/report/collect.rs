//! The run record of a job of a cluster: outcomes, names and counts from the homes, the timeline
//! from the nodes' event logs.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use analysis::RunReport;
use client::Client;
use lens::failures::kind_of_name;
use lens::record::{MetaNode, Missing, PrintedReport, Tasks};
use lens::{AttemptRow, Collector, KindNumbers, Meta, Record, TaskRow, eta};
use proto::wire::{JobState, TaskPhase};
use proto::{JobId, LocalId, NodeId, Time};
use verb::Context;
use verb::cluster::logs::Logs;
use verb::errors::Failure;
use verb::output::say;
use workloads::{Graph, Plan};

use crate::common::selector::Selector;
use crate::views::alike::{failures, row};
use crate::views::{job_info, jobs, reports};

/// The only job of a selector.
pub(crate) async fn one(client: &Client, job: &Selector, what: &str) -> Result<JobId, Failure> {
    match jobs::select(client, job).await?[..] {
        [job] => Ok(job),
        _ => Err(Failure::usage(format!("{what} of one job: name one"))),
    }
}

/// The record of a selected job.
pub(super) fn of_cluster(context: &Context, job: &Selector) -> Result<Record, Failure> {
    verb::block_on(async {
        let client = context.connect().await?;
        let job = one(&client, job, "a report is").await?;
        of_job(&client, job).await
    })
}

/// The record of a job, from all nodes that answer.
async fn of_job(client: &Client, job: JobId) -> Result<Record, Failure> {
    let state = job_info::recorded(client, job, None).await?;
    if let Some(text) = state.thinned_text() {
        say(&format!("warning: {text}"));
    }
    let logs = Logs::read(client, job, None).await?;
    of_logs(client, &state, logs).await
}

/// The record of a job with this state and these logs.
pub(crate) async fn of_logs(
    client: &Client,
    state: &JobState,
    mut logs: Logs,
) -> Result<Record, Failure> {
    logs.end(state.ended_ns);
    let report = match analysis::past::report(state, jobs::state_word(state)) {
        Some(report) => report,
        None => job_info::of_logs(&logs, state)?,
    };
    let json = reports::json(&report, state, None, true);
    let mut tasks = Vec::new();
    client.raw().tasks(JobId(state.job), |task| tasks.push(task)).await?;
    let mut kinds = KindNumbers::default();
    let mut of_task = HashMap::new();
    // By id, so that kinds are numbered in the same way each time.
    tasks.sort_unstable_by_key(|task| task.local);
    for task in &tasks {
        of_task.insert(task.local, kinds.number(&kind_of_name(&task.name)));
    }
    let unknown = kinds.number("task");
    let (name, policy, kinds) = (state.name.clone(), report.policy.clone(), kinds.names);
    let run = Run { source: "cluster", name, policy, json, kinds };
    let kind_of = |task: LocalId| of_task.get(&task.0).copied().unwrap_or(unknown);
    record(state, &logs, run, tasks.iter().map(row).collect(), kind_of)
}

/// What a record has beside the state of its job and the logs.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) source: &'static str,
    pub(crate) name: String,
    pub(crate) policy: String,
    /// The report, as it is printed.
    pub(crate) json: String,
    pub(crate) kinds: Vec<String>,
}

/// Makes the record of a run with a known graph.
pub(crate) async fn of_run(
    client: &Client,
    (graph, plan): (&Graph, &Plan<'_>),
    logs: &Logs,
    state: &JobState,
    report: &RunReport,
    json: String,
) -> Result<Record, Failure> {
    let mut tasks = Vec::new();
    client.raw().tasks(JobId(state.job), |task| tasks.push(row(&task))).await?;
    let (of_kind, kinds) = kinds(graph);
    let (name, policy) = (graph.name().to_owned(), report.policy.clone());
    let run = Run { source: "run", name, policy, json, kinds };
    record(state, logs, run, tasks, |task| {
        plan.task_of(task).map_or(0, |number| of_kind[graph.task(number).spec_index as usize])
    })
}

/// The numbers of the kinds of a graph's specs, and the names of the kinds. A spec without a kind
/// has the kind that its name shows.
pub(crate) fn kinds(graph: &Graph) -> (Vec<u32>, Vec<String>) {
    let mut kinds = KindNumbers::default();
    let number = |spec: &proto::wire::Spec| match spec.kind.as_str() {
        "" => kinds.number(&kind_of_name(&spec.name.replace("{i}", ""))),
        kind => kinds.number(kind),
    };
    let of_spec = graph.specs().iter().map(number).collect();
    (of_spec, kinds.names)
}

/// Makes the record of a job.
pub(crate) fn record(
    state: &JobState,
    logs: &Logs,
    run: Run,
    tasks: Vec<TaskRow>,
    kind_of: impl Fn(LocalId) -> u32,
) -> Result<Record, Failure> {
    let counts = jobs::counts(state);
    let meta = Meta {
        program: format!("starling {}", env!("CARGO_PKG_VERSION")),
        source: run.source.to_owned(),
        job: state.job.to_string(),
        name: run.name,
        state: jobs::state_word(state).to_owned(),
        policy: run.policy,
        tasks: Tasks {
            total: state.total,
            done: counts.done,
            failed: counts.failed,
            cancelled: counts.cancelled,
            skipped: counts.skipped,
        },
        nodes: nodes(state, logs),
        failures: failures(&tasks, &counts.failures, |task| {
            run.kinds.get(kind_of(task) as usize).cloned().unwrap_or_default()
        }),
        kinds: run.kinds,
        missing: missing(state, logs),
        report: PrintedReport::of(run.json),
        ..Meta::default()
    };
    let mut record = Record { meta, tasks, ..Record::default() };
    let begin = analysis::past::begin(state);
    let is_later = jobs::later_round(state).is_some();
    let mut collector = Collector::new(JobId(state.job), begin);
    let mut seen = Seen::default();
    logs.for_each(|entry| {
        let is_of_job = entry.event.job().is_some();
        // Attempts of earlier rounds are not of this run.
        if is_later && is_of_job && entry.time < begin {
            return Ok(());
        }
        if is_of_job {
            seen.told.insert(entry.node.0);
        }
        collector.push(entry.node, entry.time, &entry.event);
        Ok(())
    })?;
    let ended = (state.ended_ns > 0).then_some(Time(state.ended_ns));
    let running = collector.finish(ended, Time(client::now_ns()), &mut record, &kind_of);
    // The parts of gangs hold slots, and are no attempts.
    let (parts, running): (Vec<_>, Vec<_>) = running.into_iter().partition(|row| row.is_part);
    seen.count(record.attempts.iter().chain(&running));
    let nodes = record.meta.nodes.iter().map(|node| node.node);
    let present: Vec<u32> = nodes.filter(|&node| logs.has(NodeId(node))).collect();
    let lost = lost(state, &present, &record.meta.missing, &seen);
    record.meta.missing.extend(lost);
    record.meta.missing.sort_by_key(|missing| missing.node);
    if ended.is_none() {
        let has_ended = |task: &&TaskRow| task.state >= TaskPhase::TaskDone as u8;
        let tasks = record.tasks.iter().filter(|task| !has_ended(task));
        let left = tasks.map(|task| record.kind(kind_of(task.task)));
        let remaining = eta::remaining(left, &running, |kind| record.kind(kind));
        let view = record.view();
        let slots = view.slots.values().map(|&slots| u64::from(slots)).sum();
        let busy: u32 = running.iter().chain(&parts).map(AttemptRow::width).sum();
        record.meta.eta = Some(eta::eta(&view, &remaining, slots, busy.into()));
    }
    Ok(record)
}

/// The nodes of the job. The summary has the slots of its time.
fn nodes(state: &JobState, logs: &Logs) -> Vec<MetaNode> {
    let mut nodes: BTreeMap<u32, MetaNode> = BTreeMap::new();
    let members = logs.states.iter().filter_map(|state| state.member.as_ref());
    for member in members.filter(|member| was_there(state, member.node)) {
        let (node, slots, host) = (member.node, member.slots, member.host.clone());
        nodes.insert(node, MetaNode { node, slots, host });
    }
    let parts = state.summary.iter().flat_map(|summary| &summary.parts);
    for part in parts.filter(|part| part.merged == 0) {
        let node = nodes.entry(part.node).or_default();
        node.node = part.node;
        node.slots = part.slots;
    }
    nodes.into_values().collect()
}

/// True if a present node was one of the job, as far as that is known.
fn was_there(state: &JobState, node: u32) -> bool {
    match &state.summary {
        // A part of several nodes does not name them.
        Some(summary) => {
            let is_told = summary.parts.iter().any(|part| part.merged > 0 || part.node == node);
            is_told || summary.missing.contains(&node)
        }
        None => state.ended_ns == 0 || state.members.is_empty() || state.members.contains(&node),
    }
}

/// Nodes that ran for the job, without events here.
fn missing(state: &JobState, logs: &Logs) -> Vec<Missing> {
    let mut missing: BTreeMap<u32, String> =
        logs.missing.iter().map(|(node, why)| (node.0, why.clone())).collect();
    let summary = state.summary.clone().unwrap_or_default();
    let ran = summary.parts.iter().filter(|part| part.merged == 0 && part.executions > 0);
    let known: BTreeSet<u32> = ran.map(|part| part.node).chain(summary.missing).collect();
    for node in known {
        if !logs.has(NodeId(node)) {
            missing.entry(node).or_insert_with(|| "it is not in the cluster any more".to_owned());
        }
    }
    missing.into_iter().map(|(node, why)| Missing { node, why }).collect()
}

/// What the event logs have of the job, by node.
#[derive(Debug, Default)]
struct Seen {
    attempts: BTreeMap<u32, u64>,
    /// Nodes with any event of the job.
    told: BTreeSet<u32>,
}

impl Seen {
    fn count<'r>(&mut self, attempts: impl Iterator<Item = &'r AttemptRow>) {
        attempts.for_each(|row| *self.attempts.entry(row.node).or_default() += 1);
    }
}

/// The present nodes of which the event logs have lost attempts, as by retention. `known`: nodes
/// that are missing for another reason.
fn lost(state: &JobState, present: &[u32], known: &[Missing], seen: &Seen) -> Vec<Missing> {
    let parts = || state.summary.iter().flat_map(|summary| &summary.parts);
    let mut lost: BTreeMap<u32, String> = BTreeMap::new();
    for part in parts().filter(|part| part.merged == 0) {
        let found = seen.attempts.get(&part.node).copied().unwrap_or(0);
        let ran = part.executions;
        // The last events of a slot may be counted only.
        if found + u64::from(part.slots) < ran || (found == 0 && ran > 0) {
            lost.insert(part.node, format!("its event log has {found} of {ran} attempts"));
        }
    }
    // Homes count over all rounds.
    let is_later = jobs::later_round(state).is_some();
    let of_homes = if is_later { 0 } else { jobs::counts(state).executions };
    let ran = parts().map(|part| part.executions).sum::<u64>().max(of_homes);
    if seen.attempts.is_empty() && ran > 0 {
        // Else the attempts may be those of nodes that are missing.
        let is_lost = |node: &&u32| known.is_empty() || !seen.told.contains(*node);
        for &node in present.iter().filter(is_lost) {
            lost.entry(node).or_insert_with(|| "its event log is without the job".to_owned());
        }
    }
    lost.retain(|node, _| known.iter().all(|missing| missing.node != *node));
    lost.into_iter().map(|(node, why)| Missing { node, why }).collect()
}

#[cfg(test)]
mod tests {
    use proto::wire::{JobSummary, NodeTally, PartitionCount};

    use super::*;

    fn part(node: u32, executions: u64, merged: u32) -> NodeTally {
        NodeTally { node, slots: 2, executions, merged, ..NodeTally::default() }
    }

    fn summary(parts: Vec<NodeTally>, missing: Vec<u32>) -> Option<JobSummary> {
        Some(JobSummary { parts, missing, ..JobSummary::default() })
    }

    #[test]
    fn nodes_that_joined_later_have_no_idle_slots() {
        let there =
            |state: &JobState| (0..4).filter(|&node| was_there(state, node)).collect::<Vec<u32>>();
        let mut state = JobState { members: vec![2], ..JobState::default() };
        assert_eq!(there(&state), [0, 1, 2, 3], "it runs");
        state.ended_ns = 1;
        assert_eq!(there(&state), [2]);
        state.summary = summary(vec![part(0, 1, 0)], vec![1]);
        assert_eq!(there(&state), [0, 1]);
        state.summary = summary(vec![part(0, 1, 3)], vec![1]);
        assert_eq!(there(&state), [0, 1, 2, 3], "the others are not named");
    }

    #[test]
    fn attempts_that_event_logs_have_lost_are_missing() {
        let numbers = |lost: &[Missing]| lost.iter().map(|it| it.node).collect::<Vec<u32>>();
        let present = [0, 1, 2, 3];
        let parts = vec![part(0, 100, 0), part(1, 100, 0), part(2, 1, 0), part(3, 0, 0)];
        let mut state = JobState { summary: summary(parts, Vec::new()), ..JobState::default() };
        let (attempts, told) = (BTreeMap::from([(0, 98), (1, 97)]), BTreeSet::from([3]));
        let found = lost(&state, &present, &[], &Seen { attempts, told: told.clone() });
        assert_eq!(numbers(&found), [1, 2]);
        assert_eq!(found[0].why, "its event log has 97 of 100 attempts");
        let gone = Seen { attempts: BTreeMap::new(), told };
        assert_eq!(numbers(&lost(&state, &present, &[], &gone)), present);
        let known = [Missing { node: 1, why: String::new() }];
        assert_eq!(numbers(&lost(&state, &present, &known, &gone)), [0, 2]);
        state.summary = None;
        assert!(lost(&state, &present, &[], &gone).is_empty(), "nothing ran");
        state.sum = Some(PartitionCount { executions: 5, ..PartitionCount::default() });
        let found = lost(&state, &present, &[], &gone);
        assert_eq!((found.len(), found[0].why.as_str()), (4, "its event log is without the job"));
    }
}
