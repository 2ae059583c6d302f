//! A run record as the page shows it: the report with progress by kind, and the list of tasks.

use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

use lens::failures::kind_of_name;
use lens::{AttemptRow, Record, Report, TaskRow};
use proto::LocalId;
use proto::wire::TaskPhase;
use serde::Serialize;
use verb::errors::Failure;
use web::TaskFilter;

use crate::report::files;
use crate::views::task_rows::state_word;

/// The rows of one page of tasks.
const ROWS_MAX: usize = 100;
/// Further kinds are counted together.
const KINDS_MAX: usize = 64;

/// A record, and the texts that were made of it.
pub(crate) struct Shown {
    pub(crate) record: Record,
    /// The reason why records of tasks are missing.
    thinned: Option<String>,
    bytes: OnceLock<Vec<u8>>,
    report: OnceLock<String>,
    /// The last attempt of each task, and the number of its attempts.
    attempts: OnceLock<HashMap<LocalId, (usize, u32)>>,
}

/// The tasks of a kind by state.
#[derive(Clone, Default, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Progress {
    pub(crate) kind: String,
    pub(crate) total: u64,
    pub(crate) waiting: u64,
    pub(crate) ready: u64,
    pub(crate) running: u64,
    pub(crate) done: u64,
    pub(crate) failed: u64,
    cancelled: u64,
    skipped: u64,
}

#[derive(Serialize)]
struct ReportPage<'r> {
    #[serde(flatten)]
    report: &'r Report<'r>,
    progress: Vec<Progress>,
    #[serde(skip_serializing_if = "Option::is_none")]
    thinned: Option<&'r str>,
}

/// A task in a list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct TaskLine {
    pub(crate) id: String,
    name: String,
    kind: String,
    state: &'static str,
    exit_code: i32,
    attempts: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<u32>,
    /// From the submission.
    #[serde(skip_serializing_if = "Option::is_none")]
    start_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ran_s: Option<f64>,
}

/// A part of the list of tasks.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct TaskLines {
    schema: u32,
    /// The tasks of the selection; all of them are counted.
    pub(crate) matching: u64,
    skip: usize,
    pub(crate) tasks: Vec<TaskLine>,
}

fn word(state: u8) -> &'static str {
    state_word(TaskPhase::try_from(i32::from(state)).unwrap_or_default())
}

impl Shown {
    pub(crate) fn new(mut record: Record, thinned: Option<String>) -> Self {
        record.sort();
        Self {
            record,
            thinned,
            bytes: OnceLock::new(),
            report: OnceLock::new(),
            attempts: OnceLock::new(),
        }
    }

    pub(crate) fn bytes(&self) -> Result<Vec<u8>, Failure> {
        if let Some(bytes) = self.bytes.get() {
            return Ok(bytes.clone());
        }
        let bytes = files::bytes(&self.record)?;
        Ok(self.bytes.get_or_init(|| bytes).clone())
    }

    pub(crate) fn report_json(&self) -> String {
        let make = || {
            let report = Report::of(&self.record);
            let (progress, thinned) = (self.progress(), self.thinned.as_deref());
            serde_json::to_string(&ReportPage { report: &report, progress, thinned })
                .expect("numbers and strings always serialise")
        };
        self.report.get_or_init(make).clone()
    }

    fn attempts(&self) -> &HashMap<LocalId, (usize, u32)> {
        self.attempts.get_or_init(|| {
            let mut last: HashMap<LocalId, (usize, u32)> = HashMap::new();
            for (at, row) in self.record.attempts.iter().enumerate() {
                let known = last.entry(row.task).or_insert((at, 0));
                known.1 += 1;
                if self.record.attempts[known.0].number <= row.number {
                    known.0 = at;
                }
            }
            last
        })
    }

    fn last_attempt(&self, task: LocalId) -> Option<(&AttemptRow, u32)> {
        let &(at, number) = self.attempts().get(&task)?;
        Some((&self.record.attempts[at], number))
    }

    fn kind(&self, task: &TaskRow) -> String {
        match self.last_attempt(task.task) {
            Some((row, _)) => self.record.kind(row.kind).to_owned(),
            // A task that has not run.
            None => kind_of_name(&task.name),
        }
    }

    /// The tasks by kind and state.
    pub(crate) fn progress(&self) -> Vec<Progress> {
        let mut kinds: BTreeMap<String, Progress> = BTreeMap::new();
        for task in &self.record.tasks {
            let mut kind = self.kind(task);
            if kinds.len() >= KINDS_MAX && !kinds.contains_key(&kind) {
                "others".clone_into(&mut kind);
            }
            let sum = kinds.entry(kind).or_default();
            sum.total += 1;
            *match TaskPhase::try_from(i32::from(task.state)).unwrap_or_default() {
                TaskPhase::Waiting => &mut sum.waiting,
                TaskPhase::Ready => &mut sum.ready,
                TaskPhase::RunningTask => &mut sum.running,
                TaskPhase::TaskDone => &mut sum.done,
                TaskPhase::TaskFailed => &mut sum.failed,
                TaskPhase::TaskCancelled => &mut sum.cancelled,
                TaskPhase::TaskSkipped => &mut sum.skipped,
            } += 1;
        }
        kinds.into_iter().map(|(kind, sum)| Progress { kind, ..sum }).collect()
    }

    fn has(&self, task: &TaskRow, filter: &TaskFilter) -> bool {
        (filter.state.is_empty() || filter.state == word(task.state))
            && (filter.name.is_empty()
                || task.name.contains(&filter.name)
                || task.task.to_string().contains(&filter.name))
            && (filter.kind.is_empty() || filter.kind == self.kind(task))
    }

    pub(crate) fn tasks(&self, filter: &TaskFilter) -> TaskLines {
        let mut matching = 0;
        let mut tasks = Vec::new();
        for task in self.record.tasks.iter().filter(|task| self.has(task, filter)) {
            matching += 1;
            if matching > filter.skip as u64 && tasks.len() < ROWS_MAX {
                tasks.push(self.line(task));
            }
        }
        TaskLines { schema: 1, matching, skip: filter.skip, tasks }
    }

    fn line(&self, task: &TaskRow) -> TaskLine {
        let last = self.last_attempt(task.task);
        let row = last.map(|(row, _)| row);
        let submitted = self.record.meta.submitted_us;
        let seconds = |us: u64| us as f64 / 1e6;
        TaskLine {
            id: task.task.to_string(),
            name: task.name.clone(),
            kind: self.kind(task),
            state: word(task.state),
            exit_code: task.exit_code,
            attempts: last.map_or(0, |(_, number)| number),
            node: row.map(|row| row.node),
            start_s: row.map(|row| seconds(row.start_us.saturating_sub(submitted))),
            ran_s: row.map(|row| seconds(row.ran_us)),
        }
    }

    /// The line of one task.
    pub(crate) fn task(&self, task: LocalId) -> Option<TaskLine> {
        let at = self.record.tasks.binary_search_by_key(&task, |row| row.task).ok()?;
        Some(self.line(&self.record.tasks[at]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown() -> Shown {
        let task = |local: u64, name: &str, state: TaskPhase| TaskRow {
            task: LocalId(local),
            name: name.to_owned(),
            state: state as u8,
            ..TaskRow::default()
        };
        let attempt = |local: u64, number: u32, node: u32| AttemptRow {
            node,
            task: LocalId(local),
            number,
            start_us: u64::from(number) * 1_000_000,
            ran_us: 500_000,
            ..AttemptRow::default()
        };
        let mut record = Record {
            tasks: vec![
                task(0, "sort-0", TaskPhase::TaskDone),
                task(1, "sort-1", TaskPhase::TaskFailed),
                task(2, "merge-0", TaskPhase::Waiting),
            ],
            attempts: vec![attempt(1, 2, 0), attempt(0, 1, 1), attempt(1, 1, 1)],
            ..Record::default()
        };
        record.meta.kinds = vec!["sort".to_owned()];
        Shown::new(record, None)
    }

    #[test]
    fn kinds_have_all_their_tasks_also_those_that_have_not_run() {
        let progress = shown().progress();
        let counts: Vec<_> =
            progress.iter().map(|it| (it.kind.as_str(), it.total, it.done, it.failed)).collect();
        assert_eq!(counts, [("merge", 1, 0, 0), ("sort", 2, 1, 1)]);
    }

    #[test]
    fn tasks_are_selected_and_counted() {
        let shown = shown();
        let ids = |filter: TaskFilter| {
            let lines = shown.tasks(&filter);
            (lines.matching, lines.tasks.into_iter().map(|it| it.name).collect::<Vec<_>>())
        };
        let by = |state: &str, kind: &str, name: &str, skip| TaskFilter {
            state: state.to_owned(),
            kind: kind.to_owned(),
            name: name.to_owned(),
            skip,
        };
        assert_eq!(ids(by("", "", "", 2)), (3, vec!["merge-0".to_owned()]));
        assert_eq!(ids(by("failed", "", "", 0)), (1, vec!["sort-1".to_owned()]));
        assert_eq!(ids(by("", "merge", "", 0)), (1, vec!["merge-0".to_owned()]));
        assert_eq!(ids(by("", "", "rt-", 0)).0, 2);
        assert_eq!(ids(by("odd", "", "", 0)).0, 0);
    }

    #[test]
    fn a_task_has_its_last_attempt() {
        let line = shown().task(LocalId(1)).expect("it is there");
        assert_eq!((line.attempts, line.node, line.start_s), (2, Some(0), Some(2.0)));
        assert_eq!(shown().task(LocalId(9)), None);
    }
}
