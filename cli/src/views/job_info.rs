//! `starling job info`: the present state of a job, and after its end the recorded one.

use std::time::Duration;

use analysis::RunReport;
use client::{Client, Variable, now_ns};
use proto::limits::JOB_PARTS_TIMEOUT;
use proto::wire::{JobState, JobSummary, MemberPhase, Openness};
use proto::{JobId, NodeId, Span};
use serde::Serialize;
use verb::Context;
use verb::cluster::logs::Logs;
use verb::errors::Failure;
use verb::flags::tuning::TuningReport;
use verb::terminal_text::shown;
use verb::units;

use crate::common::summary;
use crate::views::alike;
use crate::views::jobs;
use crate::views::reports;

/// The time for the nodes to report their parts of a job that has just ended.
const RECORD_TIMEOUT: Duration = Duration::from_secs(2);
const RECORD_LOOKS: Duration = Duration::from_millis(20);

/// Fields of the report that cover the whole cluster during the job.
const OF_THE_CLUSTER: [&str; 5] =
    ["cpu_s", "peak_rss_bytes", "messages", "steals.tried", "steals.won"];

/// Facts about a job of a cluster beside the report.
#[derive(Serialize)]
pub(crate) struct PastRow {
    /// True if none of this changes any more.
    recorded: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    recorded_s: Option<f64>,
    /// True if the job ended without a summary; the event logs may have lost a part of it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    no_summary: bool,
    /// Nodes that have not reported all of their work.
    missing_parts: Vec<String>,
    /// The tuning of the nodes; if they differ, that of the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    tuning: Option<TuningReport>,
    cluster_wide: ClusterWide,
}

/// Figures that are not only of the job.
#[derive(Serialize)]
struct ClusterWide {
    fields: [&'static str; 5],
    /// Other jobs ran at the same time.
    others_ran: bool,
    /// Nodes without any of these figures.
    unmeasured: Vec<String>,
}

fn names(nodes: impl Iterator<Item = u32>) -> Vec<String> {
    nodes.map(|node| NodeId(node).to_string()).collect()
}

/// True if the summary of an ended round is missing. It is written some seconds after the end, or
/// never.
fn has_no_summary(state: &JobState) -> bool {
    let since_end = Span(now_ns().saturating_sub(state.ended_ns));
    state.ended_ns != 0 && state.summary.is_none() && since_end.0 > 2 * JOB_PARTS_TIMEOUT.0
}

/// True if the event logs have lost the nodes' work for an ended job without a summary.
fn is_lost(state: &JobState, report: &RunReport) -> bool {
    let ran = jobs::counts(state).executions > 0;
    ran && has_no_summary(state) && report.per_node.iter().all(|row| row.executions == 0)
}

impl PastRow {
    pub(crate) fn of(state: &JobState) -> Self {
        let is_recorded = state.summary.is_some();
        let JobSummary { recorded_ns, parts, missing, .. } =
            state.summary.clone().unwrap_or_default();
        let tuning = parts.iter().find_map(|part| part.tuning.as_ref());
        let unmeasured = parts.iter().filter(|part| part.unmeasured && part.merged == 0);
        Self {
            recorded: is_recorded,
            no_summary: has_no_summary(state),
            recorded_s: is_recorded.then_some(recorded_ns as f64 / 1e9),
            missing_parts: names(missing.into_iter()),
            tuning: tuning.map(TuningReport::from),
            cluster_wide: ClusterWide {
                fields: OF_THE_CLUSTER,
                others_ran: !is_recorded || parts.iter().any(|part| part.others_ran),
                unmeasured: names(unmeasured.map(|part| part.node)),
            },
        }
    }

    /// Remarks on the figures for people. `left`: the nodes that are not members any more.
    fn lines(&self, left: &[String]) -> Vec<(&'static str, String)> {
        let mut lines = Vec::new();
        let missing = self.missing_parts.iter().map(String::as_str);
        let (left, lost): (Vec<&str>, Vec<&str>) =
            missing.partition(|name| left.iter().any(|node| node == name));
        for (nodes, why) in [(left, "left the cluster"), (lost, "died or was unreachable")] {
            if !nodes.is_empty() {
                let text = format!(
                    "{}: {why} before it reported all of its work; the figures are without it",
                    nodes.join(", ")
                );
                lines.push(("missing", text));
            }
        }
        if self.no_summary {
            let text = "no summary of it was written: what is told here is of the nodes' event \
                        logs, which may have lost some of it";
            lines.push(("note", text.to_owned()));
        }
        let what = "CPU, memory, messages and attempts to steal are of the whole cluster";
        if !self.recorded {
            lines.push(("note", format!("{what}, since its nodes started")));
        } else if self.cluster_wide.others_ran {
            lines.push(("note", format!("{what} while the job ran: other jobs ran, too")));
        }
        lines
    }
}

pub(crate) async fn info(
    context: &Context,
    client: &Client,
    job: JobId,
    round: Option<u32>,
) -> Result<(), Failure> {
    let state = recorded(client, job, round).await?;
    let report = match analysis::past::report(&state, jobs::state_word(&state)) {
        Some(report) => report,
        None => present(client, &state).await?,
    };
    if context.output.json {
        return context.output.raw_line(&reports::json(&report, &state, None, true));
    }
    let name = shown(&state.name);
    let mut text = format!("{:12} {} {name}\n{:12} {}\n", "job", report.job, "state", report.state);
    let mut add = |key: &str, value: &str| text += &format!("{key:12} {value}\n");
    if let Some(round) = round_line(&state) {
        add("round", &round);
    }
    if let Some(line) = open_line(&state) {
        add("open", &line);
    }
    text += &match is_lost(&state, &report) {
        true => format!("{:12} {}\n", "tasks", summary::tasks(&report)),
        false => summary::text(&report),
    };
    let mut add = |key: &str, value: &str| text += &format!("{key:12} {value}\n");
    let map = client.raw().map();
    let left = map.members.iter().filter(|member| member.phase() == MemberPhase::Removed);
    let left = names(left.map(|member| member.node));
    for (key, value) in PastRow::of(&state).lines(&left) {
        add(key, &value);
    }
    if let Some(by) = jobs::canceller(&state) {
        add("cancelled by", &by);
    }
    if let Some(waits) = jobs::waits_line(&state) {
        add("start", &waits);
    }
    if let Some(why) = state.skipped_text() {
        add("skipped", &why);
    }
    if let Some(stall) = jobs::stall_line(&state) {
        add("stalled", &stall);
    }
    for variable in state.variables.iter().map(Variable::of_record) {
        let value = variable.value.as_deref().unwrap_or("no value");
        add("variable", &format!("{} = {} ({})", variable.name, shown(value), variable.rule));
    }
    for alike in &alike::groups(client, &state).await {
        add("failure", &shown(&alike.line()));
    }
    context.output.text(&text)
}

/// The state of a job. If it has just ended, waits for the reports of the nodes.
pub(crate) async fn recorded(
    client: &Client,
    job: JobId,
    round: Option<u32>,
) -> Result<JobState, Failure> {
    let asked = tokio::time::Instant::now();
    loop {
        let state = match round {
            Some(round) => client.raw().job_in_round(job, round).await?,
            None => client.raw().job(job).await?,
        };
        let ended_ago = Duration::from_nanos(now_ns().saturating_sub(state.ended_ns));
        let is_settled = state.ended_ns == 0 || state.summary.is_some();
        if is_settled || ended_ago > RECORD_TIMEOUT || asked.elapsed() > RECORD_TIMEOUT {
            return Ok(state);
        }
        tokio::time::sleep(RECORD_LOOKS).await;
    }
}

/// The present facts from the nodes and their event logs.
async fn present(client: &Client, state: &JobState) -> Result<RunReport, Failure> {
    let mut logs = Logs::read(client, JobId(state.job), None).await?;
    // Events after the end of this round belong to others.
    logs.end(state.ended_ns);
    of_logs(&logs, state)
}

/// The present facts from event logs that have been read.
pub(crate) fn of_logs(logs: &Logs, state: &JobState) -> Result<RunReport, Failure> {
    let fold = logs.fold(JobId(state.job), None)?;
    let mut facts = reports::facts(state, logs.states.clone());
    if facts.ended.is_none() {
        facts.ended = Some(proto::Time(now_ns()));
    }
    Ok(reports::report(&fold, &facts, state))
}

/// The line of `job info` about an open job.
fn open_line(state: &JobState) -> Option<String> {
    let held = units::bytes(jobs::counts(state).held_bytes);
    let is_over = state.ended_ns != 0;
    match state.openness() {
        Openness::Open if !is_over => {
            let more = silence_text(state).map_or_else(String::new, |text| format!("; {text}"));
            Some(format!("yes: tasks can be added; {held} of outputs are held{more}"))
        }
        Openness::Closing if !is_over => Some("no: closed, its tasks still run".to_owned()),
        _ => None,
    }
}

/// About the silent client of an open job.
pub(crate) fn silence_text(state: &JobState) -> Option<String> {
    let silent_ns = now_ns().saturating_sub(state.silent_since_ns()?);
    let close_ns = state.settings.as_ref().and_then(|it| it.silence).map_or(0, |it| it.close_ns);
    let left_s = close_ns.saturating_sub(silent_ns) / 1_000_000_000;
    let left = workloads::quantity::format_duration_ns(left_s * 1_000_000_000);
    Some(format!("its client is silent, and it closes in {left} unless one attaches"))
}

/// The number of the round, and the user that opened it.
fn round_line(state: &JobState) -> Option<String> {
    let round = jobs::later_round(state)?;
    let by = match state.opened_by.as_str() {
        "" => String::new(),
        by => format!(", retried by {by}"),
    };
    Some(format!("{round}{by}; '--round {}' shows the one before", round - 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_without_a_summary_shows_no_zeros() {
        let sum = Some(proto::wire::PartitionCount { executions: 3, ..Default::default() });
        let mut state = JobState { ended_ns: 1, sum, ..Default::default() };
        let report = RunReport::default();
        assert!(is_lost(&state, &report));
        let lines = PastRow::of(&state).lines(&[]);
        assert!(lines[0].1.contains("no summary of it was written"), "{lines:?}");
        state.ended_ns = now_ns();
        assert!(!has_no_summary(&state), "it may be written yet");
        state.ended_ns = 0;
        assert!(!is_lost(&state, &report), "it runs");
        state.ended_ns = 1;
        state.summary = Some(JobSummary::default());
        assert!(!is_lost(&state, &report) && PastRow::of(&state).lines(&[]).is_empty());
    }

    #[test]
    fn a_node_that_has_left_is_not_called_dead() {
        let summary = Some(JobSummary { missing: vec![0, 2], ..JobSummary::default() });
        let state = JobState { ended_ns: 1, summary, ..JobState::default() };
        let lines = PastRow::of(&state).lines(&["n0".to_owned(), "n1".to_owned()]);
        let missing = lines.iter().filter(|(key, _)| *key == "missing");
        let missing: Vec<&str> = missing.map(|(_, text)| text.as_str()).collect();
        let rest = "before it reported all of its work; the figures are without it";
        let expected =
            [format!("n0: left the cluster {rest}"), format!("n2: died or was unreachable {rest}")];
        assert_eq!(missing, expected);
    }
}
