//! A task as a row: its name, its state in a word, its node and times.

use lens::failures::kind_of_name;
use proto::wire::{TaskPhase, TaskState};
use proto::{Attempt, LocalId, Span};
use serde::Serialize;

/// A task as JSON.
#[derive(Serialize)]
pub(crate) struct TaskRow {
    id: String,
    name: String,
    /// The name without numbers.
    kind: String,
    state: &'static str,
    attempt: String,
    /// Absent until it was placed.
    node: Option<u32>,
    exit_code: Option<i32>,
    /// Seconds since 1970, for a task that ran and has ended.
    started_s: Option<f64>,
    ended_s: Option<f64>,
    /// CPU time and peak memory of its command; absent for other tasks.
    cpu_s: Option<f64>,
    max_rss_bytes: Option<u64>,
}

pub(crate) fn state_word(phase: TaskPhase) -> &'static str {
    match phase {
        TaskPhase::Waiting => "waiting",
        TaskPhase::Ready => "ready",
        TaskPhase::RunningTask => "running",
        TaskPhase::TaskDone => "done",
        TaskPhase::TaskFailed => "failed",
        TaskPhase::TaskCancelled => "cancelled",
        TaskPhase::TaskSkipped => "skipped",
    }
}

impl TaskRow {
    pub(crate) fn new(task: &TaskState) -> Self {
        let phase = task.phase();
        let has_ended = matches!(phase, TaskPhase::TaskDone | TaskPhase::TaskFailed);
        let ran_command = task.max_rss_kib > 0;
        let seconds = |ns: u64| (ns > 0).then(|| Span(ns).as_secs_f64());
        Self {
            id: LocalId(task.local).to_string(),
            name: task.name.clone(),
            kind: kind_of_name(&task.name),
            state: state_word(phase),
            attempt: Attempt(task.attempt).to_string(),
            node: task.placed.then_some(task.node),
            exit_code: has_ended.then_some(task.exit_code),
            started_s: seconds(task.started_ns),
            ended_s: seconds(task.ended_ns),
            cpu_s: ran_command.then(|| Span(task.cpu_us * 1_000).as_secs_f64()),
            max_rss_bytes: ran_command.then_some(task.max_rss_kib << 10),
        }
    }
    pub(crate) const HEADER: [&'static str; 6] = ["id", "name", "state", "node", "attempt", "exit"];
    pub(crate) fn cells(self) -> Vec<String> {
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        vec![
            self.id,
            self.name,
            self.state.to_owned(),
            or_dash(self.node.map(|node| format!("n{node}"))),
            self.attempt,
            or_dash(self.exit_code.map(|code| code.to_string())),
        ]
    }
}

/// The name of a task in a sentence.
pub(crate) fn label(name: &str, task: LocalId) -> String {
    if name.is_empty() { task.to_string() } else { format!("'{name}'") }
}
