//! Alike failures of a job, each sort with one example: "and 299 alike".

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use client::Client;
use lens::failures::{Example, common_text, kind_of_name};
use lens::groups::Merge as _;
use lens::{FailureGroup, FailureKey, TaskRow};
use proto::wire::{Failure as TaskFailure, JobState, TaskPhase, TaskState};
use proto::work::Used;
use proto::{JobId, LocalId};
use verb::units::count;

use crate::views::jobs;

/// Larger jobs are not listed for their failures: the kept ones stand for all.
const LISTED_TASKS_MAX: u64 = 200_000;
/// The time that the homes have to list failed tasks.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

/// The lines of error output that an example has.
const STDERR_LINES_MAX: usize = 20;

/// Failures with an equal cause.
#[derive(Clone, Debug)]
pub(crate) struct Alike {
    key: FailureKey,
    group: FailureGroup,
    /// The first failure with a kept error.
    first: Option<TaskFailure>,
    /// A task of the group, where no error is kept.
    name: String,
}

/// The failures of a job, the most frequent first. Homes keep the errors of the first failures
/// only, so the others are listed.
pub(crate) async fn groups(client: &Client, state: &JobState) -> Vec<Alike> {
    let counts = jobs::counts(state);
    let kept = counts.failures;
    let mut failed: HashMap<LocalId, TaskRow> = HashMap::new();
    if counts.failed > kept.len() as u64 && state.total <= LISTED_TASKS_MAX {
        // Homes that do not answer are left out: their kept failures count.
        let _ = client
            .raw()
            .known_tasks(JobId(state.job), LIST_TIMEOUT, |task| {
                if task.phase() == TaskPhase::TaskFailed {
                    failed.insert(LocalId(task.local), row(&task));
                }
            })
            .await;
    }
    group(failed, &kept)
}

/// The groups of these failed tasks of one job, the most frequent first.
pub(crate) fn group(mut failed: HashMap<LocalId, TaskRow>, kept: &[TaskFailure]) -> Vec<Alike> {
    for failure in kept {
        let task = LocalId(failure.local);
        let row = || TaskRow {
            task,
            name: failure.name.clone(),
            state: TaskPhase::TaskFailed as u8,
            exit_code: failure.exit_code,
            ..TaskRow::default()
        };
        failed.entry(task).or_insert_with(row);
    }
    let kind_of = |task: LocalId| failed.get(&task).map_or("", |row| row.name.as_str());
    let rows: Vec<TaskRow> = failed.values().cloned().collect();
    let groups = failures(&rows, kept, |task| kind_of_name(kind_of(task)));
    let mut groups: Vec<Alike> = groups
        .into_iter()
        .map(|(key, group)| {
            let is_of_group = |failure: &&TaskFailure| {
                let task = LocalId(failure.local).to_string();
                group.examples.iter().any(|example| example.task == task)
            };
            let first = kept.iter().find(is_of_group).cloned();
            let is_unkept = |row: &&TaskRow| {
                row.exit_code == key.exit_code && kind_of_name(&row.name) == key.kind
            };
            let unkept = first.is_none().then(|| rows.iter().filter(is_unkept));
            let unkept = unkept.and_then(|rows| rows.min_by_key(|row| row.task));
            let name = unkept.map(|row| row.name.clone()).unwrap_or_default();
            Alike { key, group, first, name }
        })
        .collect();
    groups.sort_by_key(|group| std::cmp::Reverse(group.group.tasks));
    groups
}

impl Alike {
    /// One line: the first failure, and how many are like it.
    pub(crate) fn line(&self) -> String {
        let first = match &self.first {
            Some(first) => jobs::failure_line(first),
            None => {
                let (name, code) = (&self.name, self.key.exit_code);
                format!("task '{name}' failed: exit code {code}")
            }
        };
        match self.group.tasks {
            0 | 1 => first,
            tasks => format!("{first}; {} alike", count(tasks)),
        }
    }

    /// The lines about these failures.
    pub(crate) fn lines(&self) -> Vec<String> {
        let Some(first) = &self.first else {
            let FailureKey { kind, exit_code, .. } = &self.key;
            let name = &self.name;
            return vec![match self.group.tasks {
                1 => format!("error: task '{name}' failed: exit code {exit_code}"),
                tasks => format!(
                    "error: {} tasks of kind '{kind}' failed, such as '{name}': exit code {exit_code}",
                    count(tasks)
                ),
            }];
        };
        let mut lines = vec![format!("error: {}", jobs::failure_line(first))];
        let tail = String::from_utf8_lossy(&first.stderr_tail);
        let stderr: Vec<&str> = tail.lines().collect();
        let last = &stderr[stderr.len().saturating_sub(jobs::STDERR_LINES_MAX)..];
        lines.extend(last.iter().map(|line| format!("  | {line}")));
        if self.group.tasks > 1 {
            let own = LocalId(first.local).to_string();
            let others = self.group.examples.iter().filter(|example| example.task != own);
            let others: Vec<String> = others
                .map(|other| if other.name.is_empty() { &other.task } else { &other.name })
                .map(|name| format!("'{name}'"))
                .collect();
            let names = match others.is_empty() {
                true => String::new(),
                false => format!(", such as {}", others.join(", ")),
            };
            lines.push(format!("  and {} alike{names}", count(self.group.tasks - 1)));
        }
        lines
    }
}

pub(crate) fn row(task: &TaskState) -> TaskRow {
    TaskRow {
        task: LocalId(task.local),
        name: task.name.clone(),
        state: task.phase as u8,
        exit_code: task.exit_code,
        used: Used { cpu_us: task.cpu_us, max_rss_kib: task.max_rss_kib },
    }
}

/// The failed tasks in groups of alike ones. Homes keep the errors of the first ones only: a task
/// without one has the text that all kept errors of its kind and exit code share.
pub(crate) fn failures(
    tasks: &[TaskRow],
    kept: &[TaskFailure],
    kind_of: impl Fn(LocalId) -> String,
) -> Vec<(FailureKey, FailureGroup)> {
    let kept: HashMap<u64, &TaskFailure> = kept.iter().map(|it| (it.local, it)).collect();
    let mut texts: BTreeMap<(String, i32), BTreeSet<String>> = BTreeMap::new();
    for failure in kept.values() {
        let key = (kind_of(LocalId(failure.local)), failure.exit_code);
        texts.entry(key).or_default().insert(common_text(&failure.error));
    }
    let mut groups: BTreeMap<FailureKey, FailureGroup> = BTreeMap::new();
    let mut add = |key: FailureKey, group: FailureGroup| match groups.get_mut(&key) {
        Some(sum) => sum.merge(&group),
        None => drop(groups.insert(key, group)),
    };
    let failed = |task: &&TaskRow| task.state == TaskPhase::TaskFailed as u8;
    for task in tasks.iter().filter(failed) {
        let kind = kind_of(task.task);
        let key = (kind.clone(), task.exit_code);
        let (text, example) = match kept.get(&task.task.0) {
            Some(failure) => (common_text(&failure.error), Some(example(failure))),
            None => match texts.get(&key) {
                Some(all) if all.len() == 1 => (all.first().cloned().unwrap_or_default(), None),
                _ => (String::new(), None),
            },
        };
        let mut group = FailureGroup { tasks: 1, ..FailureGroup::default() };
        if let Some(example) = example {
            group = FailureGroup::of(example, None);
        }
        add(FailureKey { kind, exit_code: task.exit_code, text }, group);
    }
    groups.into_iter().collect()
}

fn example(failure: &TaskFailure) -> Example {
    let stderr = String::from_utf8_lossy(&failure.stderr_tail);
    let lines: Vec<&str> = stderr.lines().collect();
    let last = &lines[lines.len().saturating_sub(STDERR_LINES_MAX)..];
    Example {
        task: LocalId(failure.local).to_string(),
        name: failure.name.clone(),
        node: failure.node,
        error: failure.error.clone(),
        stderr: last.join("\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(local: u64, exit_code: i32, error: &str) -> TaskFailure {
        let (name, error) = (format!("work-{local}"), error.to_owned());
        TaskFailure { local, exit_code, name, error, ..TaskFailure::default() }
    }

    #[test]
    fn alike_failures_are_told_once() {
        let kept = [failure(1, 3, "no /a/1"), failure(2, 3, "no /b/2"), failure(9, 127, "gone")];
        let row = |local: u64| TaskRow {
            task: LocalId(local),
            name: format!("work-{local}"),
            state: TaskPhase::TaskFailed as u8,
            exit_code: 3,
            ..TaskRow::default()
        };
        let failed = (1..=300).filter(|&it| it != 9).map(|it| (LocalId(it), row(it))).collect();
        let groups = group(failed, &kept);
        let sizes: Vec<u64> = groups.iter().map(|group| group.group.tasks).collect();
        assert_eq!(sizes, [299, 1]);
        let lines = groups[0].lines();
        assert!(lines[0].contains("task 'work-1' failed on node n0"), "{lines:?}");
        assert_eq!(lines.last().unwrap(), "  and 298 alike, such as 'work-2'");
        let line = groups[0].line();
        assert!(line.ends_with("no /a/1 (exit code 3); 299 alike"), "{line}");
        assert!(groups[1].line().ends_with("gone (exit code 127)"), "{}", groups[1].line());
        assert_eq!(groups[1].lines().len(), 1);
        let unkept = group(HashMap::from([(LocalId(4), row(4)), (LocalId(5), row(5))]), &[]);
        let expected = "error: 2 tasks of kind 'work' failed, such as 'work-4': exit code 3";
        assert_eq!(unkept[0].lines(), [expected]);
        assert_eq!(unkept[0].line(), "task 'work-4' failed: exit code 3; 2 alike");
        let unkept = group(HashMap::from([(LocalId(5), row(5))]), &[]);
        assert_eq!(unkept[0].lines(), ["error: task 'work-5' failed: exit code 3"]);
    }

    #[test]
    fn alike_failures_are_one_group() {
        let task = |number: u64| TaskRow {
            task: LocalId(number),
            name: format!("sh-{number}"),
            state: TaskPhase::TaskFailed as u8,
            exit_code: if number == 7 { 2 } else { 1 },
            ..TaskRow::default()
        };
        let tasks: Vec<_> = (0..300).map(task).collect();
        let failure = |local: u64| TaskFailure {
            local,
            exit_code: if local == 7 { 2 } else { 1 },
            error: format!("exited with code 1 in '/tmp/{local}'"),
            stderr_tail: b"no\nsuch\n".to_vec(),
            ..TaskFailure::default()
        };
        let kept = [failure(0), failure(5)];
        let groups = failures(&tasks, &kept, |_| "sh".to_owned());
        assert_eq!(groups.len(), 2);
        let (key, group) = &groups[0];
        assert_eq!((key.text.as_str(), group.tasks), ("exited with code # in '<path>'", 299));
        assert_eq!(group.examples.first().unwrap().stderr, "no\nsuch");
        assert_eq!((groups[1].0.exit_code, groups[1].1.tasks), (2, 1));
    }
}
