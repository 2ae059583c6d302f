//! The lines of `task explain` about a failed or skipped task.

use std::collections::BTreeSet;

use client::Client;
use client::raw::is_ended;
use proto::wire::{Explanation, Failure as TaskFailure, TaskPhase, TaskState};
use proto::{JobId, LocalId};
use serde::Serialize;
use verb::errors::Failure;

use crate::views::jobs;
use crate::views::task_rows::state_word;

/// The maximum of tasks that an explanation of a skipped one names as the cause.
const CAUSES_NAMED_MAX: usize = 8;
/// The maximum of tasks that are queried to find them.
const ASKED_MAX: usize = 1024;
/// The maximum of letters of a command in a line.
const COMMAND_LETTERS_MAX: usize = 200;

/// The traces of a failure, and its effect on later tasks.
#[derive(Default, Serialize)]
pub(crate) struct Cause {
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr_tail: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    command: Vec<String>,
    /// For a skipped task: the ancestors that failed or were cancelled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    caused_by: Vec<CausedBy>,
    /// The names of these tasks; if they are unknown, those of the failed tasks of the job.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    failed_tasks: Vec<String>,
    #[serde(skip)]
    pub(crate) lines: Vec<String>,
}

/// A task that failed or was cancelled.
#[derive(Serialize)]
struct CausedBy {
    task: String,
    name: String,
    state: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
}

impl CausedBy {
    fn new(task: &TaskState) -> Self {
        let is_failed = task.phase() == TaskPhase::TaskFailed;
        Self {
            task: LocalId(task.local).to_string(),
            name: task.name.clone(),
            state: state_word(task.phase()),
            exit_code: is_failed.then_some(task.exit_code),
        }
    }
}

impl Cause {
    /// The facts about this task's end from the homes of the job and of its tasks. The job's home
    /// keeps only the first failures.
    pub(crate) async fn of(
        client: &Client,
        job: JobId,
        task: &TaskState,
        live: &Explanation,
    ) -> Result<Self, Failure> {
        let phase = task.phase();
        let mut cause = Self { command: live.argv.clone(), ..Self::default() };
        cause.lines.extend(command_line(&live.argv));
        if matches!(phase, TaskPhase::TaskDone | TaskPhase::TaskFailed) {
            cause.exit_code = Some(task.exit_code);
        }
        if !matches!(phase, TaskPhase::TaskFailed | TaskPhase::TaskSkipped) {
            return Ok(cause);
        }
        let state = client.raw().job(job).await?;
        let counts = jobs::counts(&state);
        if phase == TaskPhase::TaskFailed {
            let kept = counts.failures.iter().find(|failure| failure.local == task.local);
            cause.tell_failed(job, task, kept);
        } else if let Some(why) = state.skipped_text() {
            cause.lines.push(format!("all tasks of its job were skipped: {why}"));
        } else {
            let found = ancestors(client, job, live).await?;
            match found.bad.is_empty() {
                true => cause.tell_all_failed(&counts.failures, counts.failed),
                false => cause.tell_skipped(found, &counts.failures),
            }
        }
        if !is_ended(&state) {
            cause.lines.push("its job has not ended yet".to_owned());
        }
        Ok(cause)
    }

    pub(super) fn without_exit_code(self) -> Self {
        Self { exit_code: None, ..self }
    }

    fn tell_failed(&mut self, job: JobId, task: &TaskState, kept: Option<&TaskFailure>) {
        let local = LocalId(task.local);
        let more = format!("'starling job output {} {local} --stderr' prints what it wrote", job.0);
        let Some(failure) = kept else {
            self.lines.push(format!("it failed with exit code {}", task.exit_code));
            self.lines.push(more);
            return;
        };
        self.exit_code = Some(failure.exit_code);
        self.signal = signal_of(failure);
        self.lines.push(jobs::failure_line(failure));
        let tail = String::from_utf8_lossy(&failure.stderr_tail).into_owned();
        let shown: Vec<&str> = tail.lines().collect();
        let from = shown.len().saturating_sub(jobs::STDERR_LINES_MAX);
        self.lines.extend(shown[from..].iter().map(|line| format!("  | {line}")));
        self.lines.push(more);
        self.error = Some(failure.error.clone());
        self.stderr_tail = Some(tail);
    }

    fn tell_skipped(&mut self, found: Ancestors, failures: &[TaskFailure]) {
        self.lines.push("what it depends on did not end well:".to_owned());
        for task in &found.bad {
            let kept = failures.iter().find(|failure| failure.local == task.local);
            self.lines.push(match kept {
                Some(failure) => jobs::failure_line(failure),
                None => bad_line(task),
            });
        }
        if found.may_be_more {
            self.lines.push("and maybe others before it".to_owned());
        }
        self.failed_tasks = found.bad.iter().map(name_of).collect();
        self.caused_by = found.bad.iter().map(CausedBy::new).collect();
    }

    /// Lists the failed tasks of the job, because the task's home has forgotten its parents.
    fn tell_all_failed(&mut self, failures: &[TaskFailure], failed: u64) {
        let told = failures.iter().take(CAUSES_NAMED_MAX);
        let line = "a task that it depends on did not end well; failed in its job:";
        self.lines.push(line.to_owned());
        self.lines.extend(told.clone().map(jobs::failure_line));
        let left = failed.saturating_sub(told.len() as u64);
        if left > 0 {
            self.lines.push(format!("and {left} more"));
        }
        let name = |failure: &TaskFailure| match failure.name.is_empty() {
            true => LocalId(failure.local).to_string(),
            false => failure.name.clone(),
        };
        self.failed_tasks = told.map(name).collect();
    }
}

/// The signal that ended a command, if its error shows one.
fn signal_of(failure: &TaskFailure) -> Option<i32> {
    let says_so =
        ["killed by signal ", "exceeded its time limit", "wrote ", "captured output of all tasks"];
    let is_signal = says_so.iter().any(|start| failure.error.starts_with(start));
    (is_signal && failure.exit_code > 128).then(|| failure.exit_code - 128)
}

fn name_of(task: &TaskState) -> String {
    match task.name.is_empty() {
        true => LocalId(task.local).to_string(),
        false => task.name.clone(),
    }
}

fn bad_line(task: &TaskState) -> String {
    let place = if task.placed { format!(" on node n{}", task.node) } else { String::new() };
    let (name, state) = (name_of(task), state_word(task.phase()));
    match task.phase() {
        TaskPhase::TaskFailed => {
            format!("task '{name}' {state}{place}: exit code {}", task.exit_code)
        }
        _ => format!("task '{name}' was {state}"),
    }
}

/// `command: sh -c 'echo hi'`, cut if it is long.
fn command_line(argv: &[String]) -> Option<String> {
    let is_plain = |letter: char| letter.is_alphanumeric() || "-_./=:,+@%{}".contains(letter);
    let quoted = |word: &String| match !word.is_empty() && word.chars().all(is_plain) {
        true => word.clone(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    };
    let words: Vec<String> = argv.iter().map(quoted).collect();
    let line = words.join(" ");
    let short: String = line.chars().take(COMMAND_LETTERS_MAX).collect();
    let more = if short.len() < line.len() { " ..." } else { "" };
    (!argv.is_empty()).then(|| format!("command: {short}{more}"))
}

/// Ancestors of a skipped task that failed or were cancelled themselves.
#[derive(Default)]
struct Ancestors {
    bad: Vec<TaskState>,
    may_be_more: bool,
}

/// Walks up from a skipped task, as far as homes still know parents.
async fn ancestors(client: &Client, job: JobId, live: &Explanation) -> Result<Ancestors, Failure> {
    let mut found = Ancestors::default();
    let mut seen: BTreeSet<u64> = live.unmet_parents.iter().copied().collect();
    let mut open = live.unmet_parents.clone();
    open.reverse();
    let mut asked = 0;
    while let Some(parent) = open.pop() {
        if asked == ASKED_MAX || found.bad.len() == CAUSES_NAMED_MAX {
            found.may_be_more = true;
            break;
        }
        asked += 1;
        let explained = client.raw().explain(job, LocalId(parent)).await?;
        let Some(task) = explained.task else { continue };
        match task.phase() {
            TaskPhase::TaskFailed => found.bad.push(task),
            TaskPhase::TaskCancelled | TaskPhase::TaskSkipped => {
                let unseen = explained.unmet_parents.iter().rev().filter(|&&it| seen.insert(it));
                let before = open.len();
                open.extend(unseen);
                // The task was cancelled by name itself, or its parents are forgotten.
                let is_end = before == open.len() && explained.unmet_parents.is_empty();
                if is_end && task.phase() == TaskPhase::TaskCancelled {
                    found.bad.push(task);
                } else if is_end {
                    found.may_be_more = true;
                }
            }
            _ => {}
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_shown_as_a_shell_takes_them() {
        let argv = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
        let line = |words: &[&str]| command_line(&argv(words));
        assert_eq!(line(&[]), None);
        let expected = r"command: sh -c 'echo '\''a b'\''' '' {in:x}";
        assert_eq!(line(&["sh", "-c", "echo 'a b'", "", "{in:x}"]).unwrap(), expected);
        let long = line(&["x".repeat(500).as_str()]).unwrap();
        assert_eq!(long.len(), "command: ".len() + COMMAND_LETTERS_MAX + 4);
    }

    #[test]
    fn only_a_reported_signal_is_one() {
        let signal = |error: &str, exit_code| {
            let error = error.to_owned();
            signal_of(&TaskFailure { error, exit_code, ..TaskFailure::default() })
        };
        assert_eq!(signal("killed by signal 11 (SIGSEGV)", 139), Some(11));
        assert_eq!(signal("exceeded its time limit of 1 s and was killed", 137), Some(9));
        assert_eq!(signal("exited with code 137 (its command killed; out of memory?)", 137), None);
        assert_eq!(signal("wrote 2 GiB of captured output; the limit is 1 GiB", 0), None);
    }
}
