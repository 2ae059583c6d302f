//! The report of a job, from its event logs and its home's counts.

use std::path::Path;

use analysis::{Fold, Reads, RunFacts, RunReport};
use client::Variable;
use proto::wire::{JobState, NodeState, Openness};
use proto::{Span, Time};
use serde::Serialize;

use crate::views::variables::VariableRow;
use crate::views::{job_info, jobs};

/// The facts of a job's state that are not in the log.
pub(crate) fn facts(state: &JobState, states: Vec<NodeState>) -> RunFacts {
    let members = states.iter().filter_map(|state| state.member.as_ref());
    let reads = state.sum.as_ref().map(|sum| Reads {
        inputs: sum.inputs,
        local: sum.inputs_local,
        copied: sum.inputs_copied,
    });
    RunFacts {
        reads,
        job: state.job.to_string(),
        state: jobs::state_word(state).to_owned(),
        policy: states.first().map(|state| state.policy.clone()).unwrap_or_default(),
        slots: members.map(|member| member.slots).sum(),
        nodes: states.len() as u32,
        tasks: state.total,
        edges: state.edges,
        submitted: Some(analysis::past::begin(state)),
        ended: (state.ended_ns > 0).then_some(Time(state.ended_ns)),
        node_states: states,
        ..RunFacts::default()
    }
}

/// The report with the job's own counts: a log may lag behind, or be on an unreachable node.
pub(crate) fn report(fold: &Fold, facts: &RunFacts, state: &JobState) -> RunReport {
    let mut report = RunReport::new(fold, facts);
    let counts = jobs::counts(state);
    report.tasks.done = counts.done;
    report.tasks.failed = counts.failed;
    report.tasks.cancelled = counts.cancelled;
    report.tasks.skipped = counts.skipped;
    report.tasks.executions = report.tasks.executions.max(counts.executions);
    report
}

/// A report with the facts from its job's home: failures, and the user that cancelled.
#[derive(Serialize)]
struct ReportWithFailures<'r> {
    #[serde(flatten)]
    report: &'r RunReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    cancelled_by: Option<String>,
    failures: Vec<jobs::FailureRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stall: Option<jobs::StallRow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    round: Option<u32>,
    /// The jobs that must end before its tasks start, and why all of these are skipped.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waits_for: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    skipped_because: Option<String>,
    /// The directory of a run's kept outputs.
    #[serde(skip_serializing_if = "Option::is_none")]
    results_dir: Option<String>,
    /// Of a job to which tasks can be added: the bytes of outputs that are held.
    #[serde(skip_serializing_if = "Option::is_none")]
    open: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    held_bytes: Option<u64>,
    /// Since when its client sends no life signs.
    #[serde(skip_serializing_if = "Option::is_none")]
    silent_since_s: Option<f64>,
    /// Of a job with events between its tasks: those that came to mailboxes, and those that came to
    /// a done task.
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    events_dropped: Option<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    variables: Vec<VariableRow>,
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    past: Option<job_info::PastRow>,
}

/// The report as one line of JSON; its schema comes first. `past`: with the facts for jobs of a
/// cluster only.
pub(crate) fn json(
    report: &RunReport,
    state: &JobState,
    results: Option<&Path>,
    past: bool,
) -> String {
    let (cancelled_by, failures) = (jobs::canceller(state), jobs::failure_rows(state));
    let results_dir = results.map(|dir| dir.display().to_string());
    let stall = jobs::StallRow::of(state);
    let round = jobs::later_round(state);
    let past = past.then(|| job_info::PastRow::of(state));
    let is_of_open_job = state.openness() != Openness::ClosedGraph;
    let open = is_of_open_job.then(|| state.openness() == Openness::Open && state.ended_ns == 0);
    let held_bytes = is_of_open_job.then(|| jobs::counts(state).held_bytes);
    let counts = jobs::counts(state);
    let has_events = counts.events + counts.events_dropped > 0;
    let variables = state.variables.iter().map(|it| Variable::of_record(it).into()).collect();
    let told = ReportWithFailures {
        report,
        cancelled_by,
        failures,
        stall,
        round,
        waits_for: state.waits_for().map(|job| job.to_string()).collect(),
        skipped_because: state.skipped_text(),
        results_dir,
        open,
        held_bytes,
        silent_since_s: state.silent_since_ns().map(|ns| ns as f64 / 1e9),
        events: has_events.then_some(counts.events),
        events_dropped: has_events.then_some(counts.events_dropped),
        variables,
        past,
    };
    serde_json::to_string(&told).expect("numbers and strings always serialise")
}

/// CPU time of this process so far.
pub(crate) fn own_cpu() -> Span {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Span(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// The peak memory of this process.
pub(crate) fn own_peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kibibytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<u64>().ok());
    kibibytes.unwrap_or(0) * 1024
}
