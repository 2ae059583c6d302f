//! The presentation of jobs in all verbs: their state in a word, their failures, their exit code.

use std::time::Duration;

use client::raw::JobRecordList;
use client::{Client, ClientError, now_ns};
use proto::event::Stall;
use proto::wire::{Failure as TaskFailure, JobPhase, JobState, PartitionCount};
use proto::{Attempt, JobId, LocalId, NodeId};
use serde::Serialize;
use verb::cluster::logs::Logs;
use verb::errors::{Exit, Failure};
use verb::output::{Output, say};
use verb::units;

use crate::common::selector::Selector;
use crate::views::alike;

/// The maximum of sorts of failures that are listed; the others are counted.
const FAILURES_TOLD_MAX: usize = 5;
/// The maximum of shown stderr lines of a failed task.
pub(crate) const STDERR_LINES_MAX: usize = 10;

/// The time for homes to serve and to list their jobs.
const LIST_TIMEOUT: Duration = Duration::from_secs(30);
/// The time for a job's home to answer when some node is known to be away.
const AWAY_TIMEOUT: Duration = Duration::from_secs(2);

/// All jobs, by age, and the homes that did not list theirs.
pub(crate) async fn list(client: &Client) -> Result<JobRecordList, Failure> {
    Ok(client.raw().jobs(LIST_TIMEOUT).await?)
}

/// The jobs of a selector, by age. If the selector may mean an unknown job, it selects nothing: no
/// verb acts on a guess.
pub(crate) async fn select(client: &Client, selector: &Selector) -> Result<Vec<JobId>, Failure> {
    if let Some(job) = selector.single() {
        return Ok(vec![JobId(job)]);
    }
    let jobs = list(client).await?;
    let present: Vec<u64> = jobs.states.iter().map(|state| state.job).collect();
    if !jobs.missing.is_empty() {
        let known: Vec<String> = present.iter().map(u64::to_string).collect();
        let known = match known.is_empty() {
            true => "no job is known".to_owned(),
            false => format!("known are {}", known.join(", ")),
        };
        return Err(Failure::lost(missing_text(&jobs))
            .hint(format!("name a job by its number ({known}), or start the nodes")));
    }
    let picked = selector.pick(&present).map_err(|text| {
        Failure::refused(text).hint("'starling job list' shows the jobs of the cluster")
    })?;
    if picked.is_empty() {
        return Err(Failure::refused("no job is selected")
            .hint("'starling job list' shows the jobs of the cluster"));
    }
    Ok(picked.into_iter().map(JobId).collect())
}

/// Which jobs are not known, and which nodes are away.
pub(crate) fn missing_text(jobs: &JobRecordList) -> String {
    let names = |nodes: &[NodeId]| {
        let names: Vec<String> = nodes.iter().map(ToString::to_string).collect();
        names.join(", ")
    };
    let (away, present): (Vec<NodeId>, Vec<NodeId>) =
        jobs.missing.iter().partition(|node| jobs.away.contains(node));
    let text = format!("the jobs of {} are not known", names(&jobs.missing));
    match (jobs.away.is_empty(), present.is_empty()) {
        (true, _) => format!("{text}: these nodes do not serve yet"),
        (false, true) => format!("{text}: no answer of {}", names(&away)),
        (false, false) => format!(
            "{text}: no answer of {}, and without that {} cannot serve",
            names(&jobs.away),
            names(&present)
        ),
    }
}

/// Checks that a job exists. Its traces come from all nodes, and a node without traces returns
/// none. A job with an unreachable home may exist.
pub(crate) async fn must_exist(client: &Client, job: JobId, logs: &Logs) -> Result<(), Failure> {
    if client.nodes().into_iter().all(|node| logs.has(node)) {
        return Ok(client.raw().job(job).await.map(drop)?);
    }
    match tokio::time::timeout(AWAY_TIMEOUT, client.raw().job(job)).await {
        Err(_) | Ok(Ok(_) | Err(ClientError::ClusterUnreachable(_))) => Ok(()),
        Ok(Err(error)) => Err(error.into()),
    }
}

pub(crate) fn counts(state: &JobState) -> PartitionCount {
    state.sum.clone().unwrap_or_default()
}

/// The user that cancelled the job, or the first of its cancelled tasks.
pub(crate) fn canceller(state: &JobState) -> Option<String> {
    let by = match state.phase() {
        JobPhase::JobCancelled => state.cancelled_by.clone(),
        _ => counts(state).cancelled_by,
    };
    (!by.is_empty()).then_some(by)
}

/// The state in a word. A job that ran to its end with failed tasks is `failed`.
pub(crate) fn state_word(state: &JobState) -> &'static str {
    match state.phase() {
        JobPhase::Staged => "staged",
        JobPhase::Running => "running",
        JobPhase::Finished if counts(state).failed > 0 => "failed",
        JobPhase::Finished => "finished",
        JobPhase::JobCancelled => "cancelled",
        JobPhase::Lost => "lost",
    }
}

/// For which jobs this one waits, in a line.
pub(crate) fn waits_line(state: &JobState) -> Option<String> {
    let jobs: Vec<String> = state.waits_for().map(|job| format!("job {job}")).collect();
    (!jobs.is_empty()).then(|| format!("waits for {}", jobs.join(" and ")))
}

/// The round of a job that was retried.
pub(crate) fn later_round(state: &JobState) -> Option<u32> {
    Some(state.round()).filter(|&round| round > 0)
}

/// The stall of a job, in a line.
pub(crate) fn stall_line(state: &JobState) -> Option<String> {
    let now_s = now_ns() as f64 / 1e9;
    StallRow::of(state).map(|stall| stall.line(now_s))
}

/// A line for each stalled job: its number and what blocks it.
pub(crate) fn stall_lines(states: &[JobState]) -> Vec<String> {
    let line = |state: &JobState| Some(format!("job {}: {}", state.job, stall_line(state)?));
    states.iter().filter_map(line).collect()
}

/// The exit code of a verb that waited for this job: 0 only if all its tasks are done.
pub(crate) fn exit_of(state: &JobState) -> Exit {
    match state.phase() {
        JobPhase::Finished => exit_of_counts(&counts(state)),
        _ => Exit::Failed,
    }
}

/// The exit code of a wait, by the tasks that have ended.
pub(crate) fn exit_of_counts(counts: &PartitionCount) -> Exit {
    match counts.failed + counts.skipped + counts.cancelled {
        0 => Exit::Ok,
        _ => Exit::Failed,
    }
}

/// A job in a list.
#[derive(Clone, Serialize)]
pub(crate) struct JobRow {
    pub(crate) job: String,
    pub(crate) name: String,
    pub(crate) state: &'static str,
    pub(crate) total: u64,
    pub(crate) done: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
    pub(crate) skipped: u64,
    /// Seconds since the Unix epoch.
    pub(crate) submitted_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) ended_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stall: Option<StallRow>,
    /// Absent in the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) round: Option<u32>,
    /// When the present round began, in seconds since the Unix epoch. Absent in the first one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) opened_s: Option<f64>,
    /// None of its tasks has started. Present only then.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) waiting: bool,
    /// The jobs that must end before its tasks start.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) waits_for: Vec<String>,
}

/// The stall of a job.
#[derive(Clone, PartialEq, Serialize)]
pub(crate) struct StallRow {
    task: String,
    name: String,
    why: &'static str,
    /// Nodes.
    home: u32,
    holder: u32,
    last_event: String,
    /// Seconds since the Unix epoch.
    since_s: f64,
}

impl StallRow {
    pub(crate) fn of(state: &JobState) -> Option<Self> {
        let stall = state.stall.as_ref()?;
        let why = Stall::of_number(stall.why.into()).unwrap_or(Stall::NotCounted);
        Some(Self {
            task: LocalId(stall.local).to_string(),
            name: stall.name.clone(),
            why: why.text(),
            home: stall.home,
            holder: stall.holder,
            last_event: stall.event.clone(),
            since_s: stall.since_ns as f64 / 1e9,
        })
    }

    /// In one line.
    pub(crate) fn line(&self, now_s: f64) -> String {
        let Self { task, why, home, holder, .. } = self;
        let name = if self.name.is_empty() { String::new() } else { format!(" '{}'", self.name) };
        let last = match self.last_event.as_str() {
            "" => String::new(),
            event => format!("; last event: {event}"),
        };
        let quiet = units::seconds((now_s - self.since_s).max(0.0));
        format!(
            "nothing for {quiet}: task {task}{name}: {why} (home n{home}, holder n{holder}){last}"
        )
    }
}

impl JobRow {
    pub(crate) fn new(state: &JobState) -> Self {
        let counts = counts(state);
        Self {
            job: state.job.to_string(),
            name: state.name.clone(),
            state: state_word(state),
            total: state.total,
            done: counts.done,
            failed: counts.failed,
            cancelled: counts.cancelled,
            skipped: counts.skipped,
            submitted_s: state.submitted_ns as f64 / 1e9,
            ended_s: (state.ended_ns > 0).then_some(state.ended_ns as f64 / 1e9),
            stall: StallRow::of(state),
            round: later_round(state),
            opened_s: later_round(state).map(|_| state.opened_ns as f64 / 1e9),
            waiting: state.is_held_back(),
            waits_for: state.waits_for().map(|job| job.to_string()).collect(),
        }
    }

    /// The state for people: a job of which no task has started waits.
    pub(crate) fn word(&self) -> &'static str {
        if self.waiting { "waiting" } else { self.state }
    }

    pub(crate) const HEADER: [&'static str; 8] =
        ["job", "name", "state", "tasks", "done", "failed", "skipped", "time"];

    pub(crate) fn cells(&self, now_s: f64) -> Vec<String> {
        vec![
            self.job.clone(),
            self.name.clone(),
            self.word().to_owned(),
            units::count(self.total),
            units::count(self.done),
            units::count(self.failed),
            units::count(self.skipped),
            units::seconds(self.took_s(now_s)),
        ]
    }

    /// The time of the present round, as in the report: a job that is retried may have rested.
    pub(crate) fn took_s(&self, now_s: f64) -> f64 {
        let began_s = self.opened_s.unwrap_or(self.submitted_s);
        (self.ended_s.unwrap_or(now_s) - began_s).max(0.0)
    }
}

/// The maximum of tasks of a job that are looked at for one that runs, and of such jobs.
const LOOKED_AT_TASKS_MAX: u64 = 100_000;
const LOOKED_AT_JOBS_MAX: usize = 1_000;

/// Marks the running jobs of which no task has started.
pub(crate) async fn note_waiting(client: &Client, states: &[JobState], rows: &mut [JobRow]) {
    let may_wait = |state: &JobState| {
        let counts = counts(state);
        let started = counts.executions + counts.done + counts.failed;
        state.phase() == JobPhase::Running
            && !state.is_held_back()
            && started == 0
            && (1..=LOOKED_AT_TASKS_MAX).contains(&state.total)
    };
    let candidates = states.iter().zip(rows).filter(|(state, _)| may_wait(state));
    for (state, row) in candidates.take(LOOKED_AT_JOBS_MAX) {
        // Without an answer it is not known that it waits.
        if let Ok(false) = client.raw().runs_some(JobId(state.job)).await {
            row.waiting = true;
        }
    }
}

/// A failed task as JSON.
#[derive(Serialize)]
pub(crate) struct FailureRow {
    task: String,
    name: String,
    node: u32,
    attempt: String,
    exit_code: i32,
    error: String,
    stderr_tail: String,
}

/// The failures that a job's home keeps: the first ones.
pub(crate) fn failure_rows(state: &JobState) -> Vec<FailureRow> {
    let row = |failure: TaskFailure| FailureRow {
        task: LocalId(failure.local).to_string(),
        node: failure.node,
        attempt: Attempt(failure.attempt).to_string(),
        exit_code: failure.exit_code,
        stderr_tail: String::from_utf8_lossy(&failure.stderr_tail).into_owned(),
        name: failure.name,
        error: failure.error,
    };
    counts(state).failures.into_iter().map(row).collect()
}

/// One failed task: its name, node, attempt and reason.
pub(crate) fn failure_line(failure: &TaskFailure) -> String {
    let local = LocalId(failure.local);
    let name = match failure.name.is_empty() {
        true => local.to_string(),
        false => failure.name.clone(),
    };
    let code = failure.exit_code;
    let why = match failure.error.as_str() {
        "" => format!("exit code {code}"),
        error if code == 0 || error.contains("exit code") => error.to_owned(),
        error if error == format!("exited with code {code}") => format!("exit code {code}"),
        error => format!("{error} (exit code {code})"),
    };
    let (node, attempt) = (failure.node, Attempt(failure.attempt));
    format!("task '{name}' failed on node n{node}, attempt {attempt}: {why}")
}

/// Prints the failures of an ended job on stderr, alike ones as one.
pub(crate) async fn tell_failures(output: &Output, client: &Client, state: &JobState) {
    let counts = counts(state);
    let told = if output.verbose { usize::MAX } else { FAILURES_TOLD_MAX };
    let groups = alike::groups(client, state).await;
    for group in groups.iter().take(told) {
        for line in group.lines() {
            say(&line);
        }
    }
    if groups.len() > told {
        say(&format!("error: failures of {} more sorts; -v shows all", groups.len() - told));
    }
    match state.phase() {
        JobPhase::Lost => {
            let why = match counts.lost.is_empty() {
                true => "its submission is incomplete",
                false => &counts.lost,
            };
            say(&format!("error: job {} is lost: {why}", state.job));
        }
        JobPhase::JobCancelled => {
            let by = canceller(state).map_or_else(String::new, |by| format!(" by {by}"));
            say(&format!("error: job {} was cancelled{by}", state.job));
        }
        _ if counts.failed > 0 => {
            let skipped = match counts.skipped {
                0 => String::new(),
                n => format!(", {} skipped because of that", units::count(n)),
            };
            let failed = units::count(counts.failed);
            let total = units::count(state.total);
            say(&format!("error: {failed} of {total} tasks failed{skipped}"));
        }
        _ => {
            if let Some(line) = left_out_line(state) {
                say(&line);
            }
        }
    }
}

/// Why a job that has ended without a failed task is not done, if it is not. After a retry of some
/// tasks others may still be skipped.
fn left_out_line(state: &JobState) -> Option<String> {
    let counts = counts(state);
    if state.phase() != JobPhase::Finished || state.skipped_text().is_some() || counts.failed > 0 {
        return None;
    }
    let parts = [(counts.skipped, "skipped"), (counts.cancelled, "cancelled")];
    let parts = parts.into_iter().filter(|(number, _)| *number > 0);
    let parts: Vec<String> =
        parts.map(|(number, what)| format!("{} {what}", units::count(number))).collect();
    let (total, job, parts) = (units::count(state.total), state.job, parts.join(", "));
    (!parts.is_empty()).then(|| {
        format!(
            "error: not all {total} tasks are done: {parts}; 'starling job retry {job}' runs these \
             again"
        )
    })
}

/// Names the verb with details about the first failed task, if there is one. The last line of a
/// verb that waited.
pub(crate) fn tell_more(state: &JobState) {
    if let Some(line) = more_line(state) {
        say(&line);
    }
}

/// As [`tell_more`], for a run that ends with its cluster.
pub(crate) fn tell_more_of_run(state: &JobState) {
    if !counts(state).failures.is_empty() {
        say("hint: on a cluster that stays ('starling up', then 'starling submit --file'), \
             'starling task explain JOB TASK' shows more");
    }
}

fn more_line(state: &JobState) -> Option<String> {
    if let Some(why) = state.skipped_text() {
        return Some(format!("error: all tasks were skipped: {why}"));
    }
    let counts = counts(state);
    let failure = counts.failures.first()?;
    let local = LocalId(failure.local);
    Some(format!("hint: 'starling task explain {} {local}' shows more", state.job))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_names_task_node_attempt_and_exit_code() {
        let attempt = Attempt::new(1, 2).0;
        let mut failure = TaskFailure {
            local: LocalId::new(proto::PartitionId(7), 4).0,
            name: "sum".to_owned(),
            node: 2,
            attempt,
            exit_code: 3,
            ..TaskFailure::default()
        };
        let line = failure_line(&failure);
        assert_eq!(line, "task 'sum' failed on node n2, attempt 1.2: exit code 3");
        failure.error = "exited with code 3".to_owned();
        assert_eq!(failure_line(&failure), line);
        failure.error = "command 'foo' not found".to_owned();
        failure.exit_code = 127;
        failure.name.clear();
        assert_eq!(
            failure_line(&failure),
            "task '7.4' failed on node n2, attempt 1.2: command 'foo' not found (exit code 127)"
        );
    }

    #[test]
    fn a_failed_task_is_followed_by_a_hint_at_task_explain() {
        let mut state = JobState { job: 5, ..JobState::default() };
        assert_eq!(more_line(&state), None);
        let failures = vec![TaskFailure { local: 3, ..TaskFailure::default() }];
        state.sum = Some(PartitionCount { failed: 1, failures, ..PartitionCount::default() });
        let expected = "hint: 'starling task explain 5 0.3' shows more";
        assert_eq!(more_line(&state).as_deref(), Some(expected));
    }

    #[test]
    fn the_node_that_is_away_is_named_and_no_other() {
        let text = |missing: &[u32], away: &[u32]| {
            let nodes = |nodes: &[u32]| nodes.iter().copied().map(NodeId).collect();
            let (missing, away) = (nodes(missing), nodes(away));
            missing_text(&JobRecordList { states: Vec::new(), missing, away })
        };
        assert_eq!(text(&[1], &[1]), "the jobs of n1 are not known: no answer of n1");
        let both = "the jobs of n0, n1 are not known: no answer of n0, and without that n1 cannot \
                    serve";
        assert_eq!(text(&[0, 1], &[0]), both);
        assert!(text(&[0, 1], &[]).ends_with("these nodes do not serve yet"));
    }

    #[test]
    fn a_job_with_failed_tasks_failed() {
        let mut state = JobState::default();
        state.set_phase(JobPhase::Finished);
        assert_eq!((state_word(&state), exit_of(&state)), ("finished", Exit::Ok));
        state.sum = Some(PartitionCount { failed: 1, ..PartitionCount::default() });
        assert_eq!((state_word(&state), exit_of(&state)), ("failed", Exit::Failed));
        state.set_phase(JobPhase::JobCancelled);
        assert_eq!((state_word(&state), exit_of(&state)), ("cancelled", Exit::Failed));
    }

    #[test]
    fn a_job_that_is_held_back_waits_in_every_list() {
        let mut state = JobState { job: 2, ..JobState::default() };
        state.set_phase(JobPhase::Running);
        assert_eq!(JobRow::new(&state).word(), "running");
        state.after = vec![proto::wire::AfterJob { job: 1, ..Default::default() }];
        let row = JobRow::new(&state);
        assert_eq!((row.word(), row.state), ("waiting", "running"));
        assert_eq!(row.cells(0.0)[2], "waiting");
    }

    #[test]
    fn the_time_of_a_retried_job_is_that_of_its_round() {
        let second = 1_000_000_000;
        let mut state = JobState {
            submitted_ns: second,
            ended_ns: 9 * second,
            opened_ns: 7 * second,
            ..JobState::default()
        };
        assert_eq!(JobRow::new(&state).took_s(20.0), 8.0, "the first round");
        let settings = proto::wire::JobSettings { round: 1, ..Default::default() };
        state.settings = Some(settings);
        assert_eq!(JobRow::new(&state).took_s(20.0), 2.0);
        state.ended_ns = 0;
        assert_eq!(JobRow::new(&state).took_s(20.0), 13.0);
    }

    #[test]
    fn a_stalled_job_has_a_line_with_its_blocker() {
        let stall = proto::wire::Stall { name: "waits".to_owned(), ..Default::default() };
        let stalled = JobState { job: 4, stall: Some(stall), ..JobState::default() };
        let lines = stall_lines(&[JobState::default(), stalled]);
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(lines[0].starts_with("job 4: nothing for "), "{lines:?}");
        assert!(lines[0].contains("task 0.0 'waits': "), "{lines:?}");
    }

    #[test]
    fn a_job_without_failures_that_is_not_done_has_a_line() {
        let of = |phase, counts: PartitionCount| {
            let mut state = JobState { job: 7, total: 5, sum: Some(counts), ..JobState::default() };
            state.set_phase(phase);
            left_out_line(&state)
        };
        let none = PartitionCount { done: 5, ..PartitionCount::default() };
        assert_eq!(of(JobPhase::Finished, none), None);
        let some =
            PartitionCount { done: 2, skipped: 2, cancelled: 1, ..PartitionCount::default() };
        let line = "error: not all 5 tasks are done: 2 skipped, 1 cancelled; \
                    'starling job retry 7' runs these again";
        assert_eq!(of(JobPhase::Finished, some.clone()).as_deref(), Some(line));
        // Others have a line of their own.
        assert_eq!(of(JobPhase::JobCancelled, some.clone()), None);
        assert_eq!(of(JobPhase::Finished, PartitionCount { failed: 1, ..some }), None);
    }

    #[test]
    fn a_wait_is_well_only_if_all_tasks_are_done() {
        let of = |counts: PartitionCount| {
            let mut state = JobState { sum: Some(counts), ..JobState::default() };
            state.set_phase(JobPhase::Finished);
            exit_of(&state)
        };
        assert_eq!(of(PartitionCount { done: 2, ..PartitionCount::default() }), Exit::Ok);
        assert_eq!(of(PartitionCount { cancelled: 1, ..PartitionCount::default() }), Exit::Failed);
        assert_eq!(of(PartitionCount { skipped: 1, ..PartitionCount::default() }), Exit::Failed);
    }
}
