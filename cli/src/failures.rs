//! Why a task failed or was skipped, in lines: `task explain`.

use client::{Client, is_ended};
use proto::wire::{Failure as TaskFailure, TaskPhase, TaskState};
use proto::{JobId, LocalId};
use serde::Serialize;

use crate::errors::Failure;
use crate::jobs;

/// Failed tasks of the job that an explanation of a skipped one names.
const CAUSES_NAMED_MAX: usize = 8;

/// What a failure left behind, and what it means for tasks after it.
#[derive(Default, Serialize)]
pub(crate) struct Cause {
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr_tail: Option<String>,
    /// Failed tasks of the job: those before this one are why it was skipped.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failed_tasks: Vec<String>,
    #[serde(skip)]
    pub(crate) lines: Vec<String>,
}

impl Cause {
    /// What the home of the job knows of this task's end. It keeps the first failures alone.
    pub(crate) async fn of(client: &Client, job: JobId, task: &TaskState) -> Result<Self, Failure> {
        let phase = task.phase();
        if !matches!(phase, TaskPhase::TaskFailed | TaskPhase::TaskSkipped) {
            return Ok(Self::default());
        }
        let state = client.job(job).await?;
        let counts = jobs::counts(&state);
        let mut cause = match phase {
            TaskPhase::TaskFailed => {
                let kept = counts.failures.iter().find(|failure| failure.local == task.local);
                Self::of_failed(job, task, kept)
            }
            _ => Self::of_skipped(&counts.failures, counts.failed),
        };
        if !is_ended(&state) {
            cause.lines.push("its job has not ended yet".to_owned());
        }
        Ok(cause)
    }

    fn of_failed(job: JobId, task: &TaskState, kept: Option<&TaskFailure>) -> Self {
        let local = LocalId(task.local);
        let more = format!("'starling job output {} {local} --stderr' prints what it wrote", job.0);
        let Some(failure) = kept else {
            let code = format!("it failed with exit code {}", task.exit_code);
            return Self { lines: vec![code, more], ..Self::default() };
        };
        let mut lines = vec![jobs::failure_line(failure)];
        let tail = String::from_utf8_lossy(&failure.stderr_tail).into_owned();
        let shown: Vec<&str> = tail.lines().collect();
        let from = shown.len().saturating_sub(jobs::STDERR_LINES_MAX);
        lines.extend(shown[from..].iter().map(|line| format!("  | {line}")));
        lines.push(more);
        Self {
            error: Some(failure.error.clone()),
            stderr_tail: Some(tail),
            lines,
            ..Self::default()
        }
    }

    fn of_skipped(failures: &[TaskFailure], failed: u64) -> Self {
        let told = failures.iter().take(CAUSES_NAMED_MAX);
        let mut lines =
            vec!["a task that it depends on did not end well; failed in its job:".to_owned()];
        lines.extend(told.clone().map(jobs::failure_line));
        let left = failed.saturating_sub(lines.len() as u64 - 1);
        if left > 0 {
            lines.push(format!("and {left} more"));
        }
        let name = |failure: &TaskFailure| match failure.name.is_empty() {
            true => LocalId(failure.local).to_string(),
            false => failure.name.clone(),
        };
        Self { failed_tasks: told.map(name).collect(), lines, ..Self::default() }
    }
}
