//! The captured output of tasks by the records of their homes, compared with the received output.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use client::Client;
use proto::event::End;
use proto::wire::{TaskPhase, TaskState};
use proto::{Attempt, JobId, LocalId, NodeId};
use serde::Serialize;
use verb::cluster::logs::Committed;
use verb::errors::Failure;
use verb::units;

use crate::views::task_rows::label;

/// The time for the homes of tasks to serve: another node takes over from a failed one.
const RECORDS_TIMEOUT: Duration = Duration::from_secs(30);
/// The same if no other node can take over.
const ALONE_TIMEOUT: Duration = Duration::from_secs(2);
/// The maximum of tasks, or ranges of an array, that one line names.
const NAMED_MAX: usize = 8;

/// The end of a task in its home's record.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    name: String,
    entry: Option<u64>,
    /// `None` if its home has freed the details.
    ran: Option<(Attempt, NodeId)>,
    bytes: u64,
}

/// The records of tasks that have ended by themselves.
#[derive(Debug, Default)]
pub(crate) struct Records {
    ended: BTreeMap<LocalId, Record>,
    /// True if every home has answered.
    pub(crate) are_all: bool,
}

impl Records {
    /// Reads the records of the tasks in `named`, or of all tasks of a job.
    pub(crate) async fn read(
        client: &Client,
        job: JobId,
        named: Option<Vec<TaskState>>,
        stderr: bool,
        some_are_away: bool,
    ) -> Result<Self, Failure> {
        let mut records = Self { are_all: true, ..Self::default() };
        if let Some(named) = named {
            named.into_iter().for_each(|task| records.see(task, stderr));
            return Ok(records);
        }
        let alone = some_are_away && client.raw().map().copies <= 1;
        let patience = if alone { ALONE_TIMEOUT } else { RECORDS_TIMEOUT };
        let see = |task| records.see(task, stderr);
        let are_all = client.raw().known_tasks(job, patience, see).await?;
        records.are_all = are_all;
        Ok(records)
    }

    /// The first task that has ended.
    pub(crate) fn first(&self) -> Option<LocalId> {
        self.ended.keys().next().copied()
    }

    /// The number of other tasks that have ended, if the first one is of an array.
    pub(crate) fn others_of_array(&self) -> u64 {
        let of_array = self.ended.values().filter(|record| record.entry.is_some()).count();
        let is_first = self.ended.values().next().is_some_and(|record| record.entry.is_some());
        if is_first { of_array as u64 - 1 } else { 0 }
    }

    fn see(&mut self, task: TaskState, stderr: bool) {
        if matches!(task.phase(), TaskPhase::TaskDone | TaskPhase::TaskFailed) {
            let record = Record {
                ran: task.placed.then_some((Attempt(task.attempt), NodeId(task.node))),
                bytes: if stderr { task.stderr_bytes } else { task.stdout_bytes },
                name: task.name,
                entry: task.entry,
            };
            self.ended.insert(LocalId(task.local), record);
        }
    }

    /// Adds the facts of event logs about tasks for which homes have freed the details.
    pub(crate) fn complete(&mut self, committed: &HashMap<LocalId, Committed>) {
        for (task, record) in self.ended.iter_mut().filter(|(_, record)| record.ran.is_none()) {
            record.ran = committed
                .get(task)
                .filter(|ended| matches!(ended.end, End::Done | End::Failed))
                .map(|ended| (ended.attempt, ended.node));
        }
    }

    /// The attempt that counted.
    pub(crate) fn attempt(&self, task: LocalId) -> Option<Attempt> {
        self.ended.get(&task)?.ran.map(|(attempt, _)| attempt)
    }

    /// The tasks with less received than captured output. `came_bytes` returns the received bytes
    /// of an attempt.
    pub(crate) fn short(
        &self,
        came_bytes: impl Fn(LocalId, Option<Attempt>) -> u64,
        why: impl Fn(Option<NodeId>) -> MissingReason,
    ) -> Vec<IncompleteOutput> {
        let printed = self.ended.iter().filter(|(_, record)| record.bytes > 0);
        let found = printed.filter_map(|(&task, record)| {
            let came_bytes = came_bytes(task, record.ran.map(|(attempt, _)| attempt));
            let node = record.ran.map(|(_, node)| node);
            let record = record.clone();
            (came_bytes < record.bytes).then(|| IncompleteOutput {
                task,
                record,
                came_bytes,
                node,
                why: why(node),
            })
        });
        found.collect()
    }
}

/// The reason why output is missing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum MissingReason {
    Away,
    Damaged,
    Gone,
    Left,
    Unknown,
}

impl MissingReason {
    fn text(self, node: Option<NodeId>) -> String {
        let node = node.map_or_else(String::new, |node| node.to_string());
        match self {
            Self::Away => format!("{node} does not answer"),
            Self::Damaged => format!("it is damaged on {node}"),
            Self::Gone => format!("{node} does not have it any more"),
            Self::Left => format!("{node} is not part of the cluster any more"),
            Self::Unknown => "it is not known which node ran it".to_owned(),
        }
    }
}

/// A task with missing output.
#[derive(Debug)]
pub(crate) struct IncompleteOutput {
    pub(crate) task: LocalId,
    record: Record,
    came_bytes: u64,
    pub(crate) node: Option<NodeId>,
    pub(crate) why: MissingReason,
}

/// The same as JSON.
#[derive(Serialize)]
struct Row {
    task: String,
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    node: Option<u32>,
    captured_bytes: u64,
    printed_bytes: u64,
    reason: String,
}

#[derive(Serialize)]
pub(crate) struct Missing {
    job: String,
    stream: &'static str,
    missing: Vec<Row>,
}

impl Missing {
    pub(crate) fn new(job: JobId, stderr: bool, short: &[IncompleteOutput]) -> Self {
        let row = |one: &IncompleteOutput| Row {
            task: one.task.to_string(),
            name: one.record.name.clone(),
            node: one.node.map(|node| node.0),
            captured_bytes: one.record.bytes,
            printed_bytes: one.came_bytes,
            reason: one.why.text(one.node),
        };
        let missing = short.iter().map(row).collect();
        Self { job: job.0.to_string(), stream: stream_word(stderr), missing }
    }
}

fn stream_word(stderr: bool) -> &'static str {
    if stderr { "stderr" } else { "stdout" }
}

/// A line for each node and reason.
pub(crate) fn lines(job: JobId, stderr: bool, short: &[IncompleteOutput]) -> Vec<String> {
    let mut groups: BTreeMap<(MissingReason, Option<NodeId>), Vec<&IncompleteOutput>> =
        BTreeMap::new();
    for one in short {
        groups.entry((one.why, one.node)).or_default().push(one);
    }
    let line =
        |((why, node), group): (&(MissingReason, Option<NodeId>), &Vec<&IncompleteOutput>)| {
            let sum = |bytes: fn(&IncompleteOutput) -> u64| {
                group.iter().map(|one| bytes(one)).sum::<u64>()
            };
            let captured = units::bytes(sum(|one| one.record.bytes));
            let amount = match sum(|one| one.came_bytes) {
                0 => captured,
                came => format!("all but {} of {captured}", units::bytes(came)),
            };
            let word = if group.len() == 1 { "task" } else { "tasks" };
            format!(
                "job {}: missing {amount} of the {} of {word} {}: {}",
                job.0,
                stream_word(stderr),
                labels(group),
                why.text(*node)
            )
        };
    groups.iter().map(line).collect()
}

/// `1-3, 7` for one array, else names. Their number is bounded, so that a line stays readable.
fn labels(group: &[&IncompleteOutput]) -> String {
    let entries: Option<Vec<u64>> = group.iter().map(|one| one.record.entry).collect();
    let entries = entries.map(|mut entries| {
        entries.sort_unstable();
        entries
    });
    let of_one_array = |entries: &Vec<u64>| entries.windows(2).all(|pair| pair[0] < pair[1]);
    let mut labels: Vec<(String, usize)> = match entries.filter(of_one_array) {
        Some(entries) => ranges(&entries),
        None => group.iter().map(|one| (label(&one.record.name, one.task), 1)).collect(),
    };
    let total: usize = labels.iter().map(|(_, count)| count).sum();
    labels.truncate(NAMED_MAX);
    let named: usize = labels.iter().map(|(_, count)| count).sum();
    let labels: Vec<String> = labels.into_iter().map(|(label, _)| label).collect();
    let more = match total - named {
        0 => String::new(),
        n => format!(" and {} more", units::count(n as u64)),
    };
    format!("{}{more}", labels.join(", "))
}

/// Ranges of ascending numbers, each with its length.
fn ranges(numbers: &[u64]) -> Vec<(String, usize)> {
    let runs = numbers.chunk_by(|before, after| before + 1 == *after);
    runs.map(|run| match run {
        [one] => (one.to_string(), 1),
        [first, .., last] => (format!("{first}-{last}"), run.len()),
        [] => unreachable!("a run has a number"),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(local: u64, bytes: u64, entry: Option<u64>) -> TaskState {
        let mut task = TaskState {
            local,
            name: format!("t{local}"),
            placed: true,
            attempt: 3,
            node: 1,
            stdout_bytes: bytes,
            entry,
            ..TaskState::default()
        };
        task.set_phase(TaskPhase::TaskDone);
        task
    }

    fn records(tasks: impl IntoIterator<Item = TaskState>) -> Records {
        let mut records = Records::default();
        tasks.into_iter().for_each(|task| records.see(task, false));
        records
    }

    #[test]
    fn what_came_short_is_named_by_node_and_reason() {
        let mut running = task(9, 100, None);
        running.set_phase(TaskPhase::RunningTask);
        let records = records([task(1, 5, None), task(2, 7, None), task(3, 0, None), running]);
        let came = |task: LocalId, attempt| match (task.0, attempt) {
            (1, Some(Attempt(3))) => 5,
            (2, Some(Attempt(3))) => 3,
            _ => 0,
        };
        let short = records.short(came, |_| MissingReason::Gone);
        let lines = lines(JobId(4), false, &short);
        assert_eq!(
            lines,
            ["job 4: missing all but 3 B of 7 B of the stdout of task 't2': \
              n1 does not have it any more"]
        );
        let rows = serde_json::to_value(Missing::new(JobId(4), false, &short)).unwrap();
        assert_eq!(rows["missing"].as_array().map(Vec::len), Some(1), "{rows}");
        assert_eq!(rows["missing"][0]["captured_bytes"], 7);
    }

    #[test]
    fn entries_of_an_array_are_ranges_and_the_list_is_bounded() {
        let array = records([1, 2, 3, 7].map(|entry| task(entry, 1, Some(entry))));
        let line = &lines(JobId(1), true, &array.short(|_, _| 0, |_| MissingReason::Away))[0];
        assert_eq!(line, "job 1: missing 4 B of the stderr of tasks 1-3, 7: n1 does not answer");
        let many = records((0..30).map(|entry| task(entry, 1, Some(2 * entry))));
        let line = &lines(JobId(1), false, &many.short(|_, _| 0, |_| MissingReason::Left))[0];
        assert!(line.contains("tasks 0, 2, 4, 6, 8, 10, 12, 14 and 22 more: "), "{line}");
        let two = records((0..2).map(|number| task(number, 1, Some(5))));
        let line = &lines(JobId(1), false, &two.short(|_, _| 0, |_| MissingReason::Gone))[0];
        assert!(line.contains("tasks 't0', 't1': "), "two arrays: {line}");
    }

    #[test]
    fn what_a_home_forgot_the_event_logs_know() {
        let mut bare = task(1, 5, None);
        (bare.placed, bare.attempt, bare.node) = (false, 0, 0);
        let mut records = records([bare]);
        assert_eq!(records.attempt(LocalId(1)), None);
        let ended = Committed { node: NodeId(2), attempt: Attempt(8), end: End::Done };
        records.complete(&HashMap::from([(LocalId(1), ended)]));
        assert_eq!(records.attempt(LocalId(1)), Some(Attempt(8)));
    }
}
