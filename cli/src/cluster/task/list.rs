//! `starling task list`: the tasks of a job, selected and in an order.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use client::Client;
use lens::failures::kind_of_name;
use proto::wire::{TaskPhase, TaskState};
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit};
use verb::output::say;
use verb::units::count;

use crate::cluster::task;
use crate::common::selector::Selector;
use crate::report::offline;
use crate::views::task_rows::TaskRow;

/// Rows on a terminal, unless another number is given.
const TERMINAL_ROWS: usize = 50;
/// The kinds that a note names; the others are counted.
const KINDS_NAMED_MAX: usize = 20;

#[derive(Args, Debug)]
pub(crate) struct ListArgs {
    /// The job: last, or its number
    job: Selector,
    /// Names or ids, or entries of an array such as 3-20, separated by commas [default: all]
    tasks: Option<String>,
    /// Only tasks in these states
    #[arg(long, value_enum, value_name = "STATE", value_delimiter = ',')]
    state: Vec<StateName>,
    /// Only tasks of these kinds: names without their numbers
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    kind: Vec<String>,
    /// The order: by name, with entries of arrays as they are numbered, or by another column
    #[arg(long, value_enum, value_name = "COLUMN", default_value_t = SortKey::Name)]
    sort: SortKey,
    /// Reverse the order
    #[arg(long)]
    reverse: bool,
    /// At most this many rows; 0: all [default: 50 on a terminal, else all]
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Read a run record instead of a cluster: a file, the directory of a run, or one of runs
    #[arg(long, value_name = "DIR|FILE")]
    pub(crate) from: Option<PathBuf>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum StateName {
    Waiting,
    Ready,
    Running,
    Done,
    Failed,
    Cancelled,
    Skipped,
}

impl StateName {
    fn phase(self) -> TaskPhase {
        match self {
            Self::Waiting => TaskPhase::Waiting,
            Self::Ready => TaskPhase::Ready,
            Self::Running => TaskPhase::RunningTask,
            Self::Done => TaskPhase::TaskDone,
            Self::Failed => TaskPhase::TaskFailed,
            Self::Cancelled => TaskPhase::TaskCancelled,
            Self::Skipped => TaskPhase::TaskSkipped,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum SortKey {
    Name,
    Id,
    State,
    Node,
    Start,
    End,
    /// The longest first
    Duration,
}

#[derive(Serialize)]
struct TaskList {
    tasks: Vec<TaskRow>,
    /// Tasks that --limit leaves out.
    #[serde(skip_serializing_if = "Option::is_none")]
    more: Option<usize>,
    /// Retention has removed records of tasks: these are the remaining ones.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    removed_by_retention: bool,
}

impl SortKey {
    fn compare(self, a: &TaskState, b: &TaskState) -> Ordering {
        // Tasks that have not started come last.
        let started = |task: &TaskState| (task.started_ns == 0, task.started_ns);
        let ended = |task: &TaskState| (task.ended_ns == 0, task.ended_ns);
        let took = |task: &TaskState| task.ended_ns.saturating_sub(task.started_ns);
        let first = match self {
            Self::Name => Ordering::Equal,
            Self::Id => a.local.cmp(&b.local),
            Self::State => a.phase.cmp(&b.phase),
            Self::Node => (!a.placed, a.node).cmp(&(!b.placed, b.node)),
            Self::Start => started(a).cmp(&started(b)),
            Self::End => ended(a).cmp(&ended(b)),
            Self::Duration => took(b).cmp(&took(a)),
        };
        let by_name = || natural(&a.name, &b.name);
        first.then_with(by_name).then_with(|| a.local.cmp(&b.local))
    }
}

/// Compares names with the numbers in them as numbers: `b-9` is before `b-10`.
fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let (Some(first), Some(second)) = (a.chars().next(), b.chars().next()) else {
            return a.len().cmp(&b.len());
        };
        if first.is_ascii_digit() && second.is_ascii_digit() {
            let (number, rest) = number(a);
            let (other, other_rest) = self::number(b);
            let order = number.len().cmp(&other.len()).then_with(|| number.cmp(other));
            if order != Ordering::Equal {
                return order;
            }
            (a, b) = (rest, other_rest);
        } else if first == second {
            (a, b) = (&a[first.len_utf8()..], &b[second.len_utf8()..]);
        } else {
            return first.cmp(&second);
        }
    }
}

/// The number at the beginning of a text, without leading zeros, and the rest.
fn number(text: &str) -> (&str, &str) {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    (text[..end].trim_start_matches('0'), &text[end..])
}

pub(crate) async fn run(context: &Context, client: &Client, args: &ListArgs) -> Done {
    let job = task::one_job(client, &args.job).await?;
    let found = task::find(client, job, args.tasks.as_deref()).await?;
    let state = client.raw().job(job).await?;
    // Records of tasks with kept results stay.
    let is_whole = args.tasks.as_deref().is_none_or(|tasks| tasks == "all");
    let lacks_some = is_whole && (found.len() as u64) < state.total;
    let removed = state.thinned_text().filter(|_| lacks_some);
    print(context, args, found, removed)
}

/// As [`run`], from a run record.
pub(crate) fn offline(context: &Context, args: &ListArgs) -> Done {
    let from = args.from.as_deref().unwrap_or_else(|| Path::new("."));
    let found = offline::tasks(from, &args.job, args.tasks.as_deref())?;
    print(context, args, found, None)
}

/// `removed`: retention has removed other tasks, as a text.
fn print(
    context: &Context,
    args: &ListArgs,
    mut found: Vec<TaskState>,
    removed: Option<String>,
) -> Done {
    if let Some(text) = unknown_kinds(&args.kind, &found) {
        context.output.note(&format!("note: {text}"));
    }
    select(args, &mut found);
    found.sort_unstable_by(|a, b| args.sort.compare(a, b));
    if args.reverse {
        found.reverse();
    }
    let limit = match args.limit {
        Some(0) => usize::MAX,
        Some(limit) => limit,
        None if context.output.is_table() => TERMINAL_ROWS,
        None => usize::MAX,
    };
    let more = found.len().saturating_sub(limit);
    found.truncate(limit);
    let tasks: Vec<TaskRow> = found.iter().map(TaskRow::new).collect();
    if context.output.json {
        let more = (more > 0).then_some(more);
        context.output.json(&TaskList { tasks, more, removed_by_retention: removed.is_some() })?;
        return Ok(Exit::Ok);
    }
    let rows: Vec<_> = tasks.into_iter().map(TaskRow::cells).collect();
    context.output.table(&TaskRow::HEADER, &rows)?;
    if more > 0 {
        context.output.note(&format!("{} more; --limit 0 shows all", count(more as u64)));
    }
    if let Some(text) = removed {
        say(&format!("note: {text}; 'job info' still sums it up"));
    }
    Ok(Exit::Ok)
}

fn select(args: &ListArgs, found: &mut Vec<TaskState>) {
    if !args.state.is_empty() {
        let is_wanted =
            |task: &TaskState| args.state.iter().any(|state| state.phase() == task.phase());
        found.retain(is_wanted);
    }
    if !args.kind.is_empty() {
        found.retain(|task| args.kind.contains(&kind_of_name(&task.name)));
    }
}

/// The asked kinds that no task has, and the present ones.
fn unknown_kinds(asked: &[String], found: &[TaskState]) -> Option<String> {
    if asked.is_empty() || found.is_empty() {
        return None;
    }
    let kinds: BTreeSet<String> = found.iter().map(|task| kind_of_name(&task.name)).collect();
    let unknown: Vec<String> = asked
        .iter()
        .filter(|&kind| !kinds.contains(kind))
        .map(|kind| format!("'{kind}'"))
        .collect();
    if unknown.is_empty() {
        return None;
    }
    let shown: Vec<&str> = kinds.iter().take(KINDS_NAMED_MAX).map(String::as_str).collect();
    let more = match kinds.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {} more", count(more as u64)),
    };
    Some(format!("no task of kind {}; kinds are: {}{more}", unknown.join(", "), shown.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(local: u64, name: &str, phase: TaskPhase, started_ns: u64, took_ns: u64) -> TaskState {
        TaskState {
            local,
            name: name.to_owned(),
            phase: phase as i32,
            started_ns,
            ended_ns: started_ns + took_ns,
            ..TaskState::default()
        }
    }

    #[test]
    fn names_are_in_the_order_of_their_numbers() {
        let mut names = ["b-10", "b-9", "a", "b-009x", "b", "b-9-2", "b-9-11", ""];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(names, ["", "a", "b", "b-9", "b-9-2", "b-9-11", "b-009x", "b-10"]);
    }

    #[test]
    fn an_unknown_kind_is_named_with_the_known_ones() {
        let tasks = ["use-1", "use-2", "make-1"]
            .map(|name| TaskState { name: name.to_owned(), ..TaskState::default() });
        let text = |kinds: &[&str]| {
            let kinds: Vec<String> = kinds.iter().map(|kind| (*kind).to_owned()).collect();
            unknown_kinds(&kinds, &tasks)
        };
        assert_eq!(text(&["use", "make"]), None);
        assert_eq!(text(&[]), None);
        let expected = "no task of kind 'usee'; kinds are: make, use";
        assert_eq!(text(&["usee", "use"]).as_deref(), Some(expected));
    }

    #[test]
    fn tasks_are_sorted_by_each_column() {
        let tasks = [
            task(3, "w-1", TaskPhase::TaskDone, 5, 10),
            task(1, "w-2", TaskPhase::TaskFailed, 9, 90),
            task(2, "w-10", TaskPhase::Ready, 0, 0),
        ];
        let order = |key: SortKey| {
            let mut sorted: Vec<&TaskState> = tasks.iter().collect();
            sorted.sort_by(|a, b| key.compare(a, b));
            sorted.iter().map(|task| task.local).collect::<Vec<u64>>()
        };
        assert_eq!(order(SortKey::Name), [3, 1, 2]);
        assert_eq!(order(SortKey::Id), [1, 2, 3]);
        assert_eq!(order(SortKey::State), [2, 3, 1]);
        assert_eq!(order(SortKey::Start), [3, 1, 2]);
        assert_eq!(order(SortKey::End), [3, 1, 2]);
        assert_eq!(order(SortKey::Duration), [1, 3, 2]);
    }
}
