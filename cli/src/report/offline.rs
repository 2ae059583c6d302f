//! Jobs and tasks from run records, without a node: `--from DIR|FILE`.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use lens::attempt::SLOT_UNKNOWN;
use lens::{AttemptRow, Record, Report};
use proto::wire::{TaskPhase, TaskState};
use proto::{LocalId, Time};
use serde::Serialize;
use verb::Context;
use verb::errors::{Done, Exit, Failure};
use verb::output::say;
use verb::terminal_text::shown;
use verb::units;

use super::{files, keep};
use crate::common::selector::Selector;
use crate::views::task_rows::{TaskRow, label, state_word};

/// Records of one directory that are read.
const RECORDS_MAX: usize = 1024;

/// A record as a row of `job list`.
#[derive(Serialize)]
struct JobRow {
    job: String,
    name: String,
    state: String,
    total: u64,
    done: u64,
    failed: u64,
    cancelled: u64,
    skipped: u64,
    submitted_s: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ended_s: Option<f64>,
    record: String,
}

#[derive(Serialize)]
struct JobList {
    jobs: Vec<JobRow>,
}

#[derive(Serialize)]
struct Explained {
    task: TaskRow,
    lines: Vec<String>,
}

/// The files of the records in a directory, by name: directories of runs begin with their time.
fn files_in(dir: &Path) -> Result<Vec<PathBuf>, Failure> {
    let entries = fs::read_dir(dir).map_err(|error| Failure::file(dir, &error))?;
    let record_of = |path: PathBuf| {
        let in_dir = path.join(files::NAME);
        let is_record = path.extension().is_some_and(|ending| ending == files::ENDING);
        if in_dir.is_file() { Some(in_dir) } else { is_record.then_some(path) }
    };
    let mut found: Vec<PathBuf> =
        entries.flatten().filter_map(|entry| record_of(entry.path())).collect();
    found.sort();
    if found.is_empty() {
        return Err(Failure::refused(format!("{}: there is no run record", dir.display()))
            .hint("name a directory of 'starling run' (starling-runs), or a file ending in .srr"));
    }
    Ok(found)
}

/// The records at a path: of a file, of the directory of a run, of a directory of runs, or of an
/// instance that was stopped.
pub(crate) fn paths(from: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !from.is_dir() || from.join(files::NAME).is_file() {
        return Ok(vec![from.to_owned()]);
    }
    let of_instance = from.join(keep::DIRECTORY);
    files_in(if of_instance.is_dir() { &of_instance } else { from })
}

/// Calls `see` with each record that a selector means. The number of a job is that in its record;
/// `last` is the newest record. One record at a time is in memory.
///
/// Among several records, one that cannot be read costs itself alone. It is named, and the exit
/// code says that the answer is not whole.
pub(crate) fn each(
    from: &Path,
    jobs: &Selector,
    mut see: impl FnMut(&Path, Record) -> Result<(), Failure>,
) -> Done {
    let mut paths = paths(from)?;
    if *jobs == Selector::Last {
        paths.drain(..paths.len() - 1);
    }
    if paths.len() > RECORDS_MAX {
        let text = format!("{}: more than {RECORDS_MAX} run records", from.display());
        return Err(Failure::refused(text).hint("name one of them"));
    }
    let (is_alone, mut is_found, mut exit) = (paths.len() == 1, false, Exit::Ok);
    for path in paths {
        let record = match files::read(&path) {
            Ok(record) => record,
            Err(failure) if is_alone => return Err(failure),
            Err(failure) => {
                say(&format!("warning: {}", failure.message));
                exit = Exit::Refused;
                continue;
            }
        };
        let number: Option<u64> = record.meta.job.trim_start_matches('j').parse().ok();
        let is_meant = match (jobs, number) {
            (Selector::All | Selector::Last, _) => true,
            (jobs, Some(number)) => jobs.pick(&[number]).is_ok_and(|picked| !picked.is_empty()),
            (_, None) => false,
        };
        if is_meant {
            is_found = true;
            see(&path, record)?;
        }
    }
    if !is_found {
        return Err(Failure::refused(format!("{}: no record of such a job", from.display()))
            .hint("'starling job list --from' shows the jobs"));
    }
    Ok(exit)
}

/// The only record that a selector means.
pub(super) fn one(from: &Path, job: &Selector) -> Result<Record, Failure> {
    let (mut first, mut number) = (None, 0);
    each(from, job, |_, record| {
        number += 1;
        first.get_or_insert(record);
        Ok(())
    })?;
    match first {
        Some(record) if number == 1 => Ok(record),
        _ => Err(Failure::usage(format!("tasks are of one job: {number} records are meant"))
            .hint("name one record with --from; 'starling job list --from' shows them")),
    }
}

fn row(path: &Path, record: &Record) -> JobRow {
    let meta = &record.meta;
    let seconds = |us: u64| meta.origin_ns as f64 / 1e9 + us as f64 / 1e6;
    JobRow {
        job: meta.job.clone(),
        name: meta.name.clone(),
        state: meta.state.clone(),
        total: meta.tasks.total,
        done: meta.tasks.done,
        failed: meta.tasks.failed,
        cancelled: meta.tasks.cancelled,
        skipped: meta.tasks.skipped,
        submitted_s: seconds(meta.submitted_us),
        ended_s: meta.ended_us.map(seconds),
        record: path.display().to_string(),
    }
}

/// Names the parts of a run that are not in its record.
fn tell_missing(record: &Record) {
    for missing in &record.meta.missing {
        say(&format!("warning: without the events of n{}: {}", missing.node, missing.why));
    }
}

pub(crate) fn job_list(context: &Context, from: &Path, jobs: &Selector) -> Done {
    let mut rows = Vec::new();
    let exit = each(from, jobs, |path, record| {
        rows.push(row(path, &record));
        Ok(())
    })?;
    let jobs = rows;
    if context.output.json {
        context.output.json(&JobList { jobs })?;
        return Ok(exit);
    }
    let cells = |row: &JobRow| {
        let took = row.ended_s.map(|ended| units::seconds((ended - row.submitted_s).max(0.0)));
        vec![
            row.job.clone(),
            row.name.clone(),
            row.state.clone(),
            units::count(row.total),
            units::count(row.done),
            units::count(row.failed),
            units::count(row.skipped),
            took.unwrap_or_else(|| "-".to_owned()),
            row.record.clone(),
        ]
    };
    let rows: Vec<_> = jobs.iter().map(cells).collect();
    let header = ["job", "name", "state", "tasks", "done", "failed", "skipped", "time", "record"];
    context.output.table(&header, &rows)?;
    Ok(exit)
}

pub(crate) fn job_info(context: &Context, from: &Path, jobs: &Selector) -> Done {
    each(from, jobs, |_, record| {
        tell_missing(&record);
        let report = Report::of(&record);
        if !context.output.json {
            return context.output.text(&report.to_text());
        }
        // The report of the run itself, as it was printed at its end.
        match record.meta.report.is_given() {
            true => context.output.raw_line(record.meta.report.text()),
            false => context.output.json_with_schema(&report),
        }
    })
}

/// The tasks of a record, as a home would send them.
pub(crate) fn tasks(
    from: &Path,
    job: &Selector,
    wanted: Option<&str>,
) -> Result<Vec<TaskState>, Failure> {
    let record = one(from, job)?;
    tell_missing(&record);
    let mut tasks = states(&record);
    let Some(wanted) = wanted.filter(|text| *text != "all") else { return Ok(tasks) };
    let wanted: Vec<&str> = wanted.split(',').map(str::trim).filter(|it| !it.is_empty()).collect();
    let is =
        |task: &TaskState, text: &str| task.name == text || LocalId(task.local).to_string() == text;
    if let Some(unknown) = wanted.iter().find(|text| !tasks.iter().any(|task| is(task, text))) {
        return Err(Failure::refused(format!("{}: no task '{unknown}'", from.display()))
            .hint("'starling task list last --from' shows the tasks"));
    }
    tasks.retain(|task| wanted.iter().any(|text| is(task, text)));
    Ok(tasks)
}

fn states(record: &Record) -> Vec<TaskState> {
    let mut last: HashMap<LocalId, &AttemptRow> = HashMap::new();
    for attempt in &record.attempts {
        let known = last.entry(attempt.task).or_insert(attempt);
        if known.number < attempt.number {
            *known = attempt;
        }
    }
    let origin_ns = record.meta.origin_ns;
    let state = |task: &lens::TaskRow| {
        let attempt = last.get(&task.task);
        let ns = |us: u64| origin_ns + us * 1000;
        TaskState {
            local: task.task.0,
            name: task.name.clone(),
            phase: i32::from(task.state),
            attempt: attempt.map_or(0, |attempt| u64::from(attempt.number)),
            node: attempt.map_or(0, |attempt| attempt.node),
            placed: attempt.is_some(),
            exit_code: task.exit_code,
            started_ns: attempt.map_or(0, |attempt| ns(attempt.start_us)),
            ended_ns: attempt.map_or(0, |attempt| ns(attempt.end_us())),
            cpu_us: task.used.cpu_us,
            max_rss_kib: task.used.max_rss_kib,
            ..TaskState::default()
        }
    };
    record.tasks.iter().map(state).collect()
}

pub(crate) fn explain(
    context: &Context,
    from: &Path,
    job: &Selector,
    wanted: Option<&str>,
) -> Done {
    let record = one(from, job)?;
    for task in tasks(from, job, wanted)? {
        let lines = lines(&record, &task);
        if context.output.json {
            context.output.json(&Explained { task: TaskRow::new(&task), lines })?;
            continue;
        }
        let (local, state) = (LocalId(task.local), state_word(task.phase()));
        let mut text = format!("task {} ({local}) is {state}\n", shown(&label(&task.name, local)));
        lines.iter().for_each(|line| text.push_str(&format!("  {}\n", shown(line))));
        context.output.text(&text)?;
    }
    Ok(Exit::Ok)
}

/// The history of a task, as far as the record has it.
fn lines(record: &Record, task: &TaskState) -> Vec<String> {
    let local = LocalId(task.local);
    let mut attempts: Vec<&AttemptRow> =
        record.attempts.iter().filter(|attempt| attempt.task == local).collect();
    attempts.sort_by_key(|attempt| attempt.number);
    let mut lines: Vec<String> = attempts.iter().map(|it| attempt_line(record, it)).collect();
    if attempts.is_empty() {
        lines.push(match task.phase() {
            TaskPhase::TaskSkipped => {
                "it did not run: a task that it needs did not succeed".to_owned()
            }
            _ if record.meta.missing.is_empty() => "it did not run".to_owned(),
            _ => "the record has no attempt of it: some events are missing".to_owned(),
        });
    }
    if task.phase() == TaskPhase::TaskFailed {
        lines.push(format!("it failed with exit code {}", task.exit_code));
        let id = local.to_string();
        let groups = record.meta.failures.iter();
        let mut examples = groups.flat_map(|(_, group)| &group.examples);
        if let Some(example) = examples.find(|example| example.task == id) {
            lines.push(format!("error: {}", example.error));
            lines.extend(example.stderr.lines().map(|line| format!("| {line}")));
        }
    }
    lines
}

fn attempt_line(record: &Record, attempt: &AttemptRow) -> String {
    let started = Time(record.meta.origin_ns + attempt.start_us * 1000).utc();
    let after = attempt.start_us.saturating_sub(record.meta.submitted_us);
    let seconds = |us: u64| units::seconds(us as f64 / 1e6);
    let slot = match attempt.slot {
        SLOT_UNKNOWN => String::new(),
        slot => format!(", slot {slot}"),
    };
    let fetched = match attempt.moved_bytes {
        0 => String::new(),
        moved => format!(", {} of inputs came from other nodes", units::bytes(moved)),
    };
    format!(
        "attempt {}: started on n{}{slot} at {started}, {} after the submission; it had waited {}, \
         {} of that for inputs{fetched}; it ran {} and was {}",
        attempt.number,
        attempt.node,
        seconds(after),
        seconds(attempt.wait_us),
        seconds(attempt.fetch_us),
        seconds(attempt.ran_us),
        attempt.outcome.word(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use lens::TaskRow as Row;

    fn record(job: &str) -> Record {
        let mut record = Record::default();
        record.meta.job = job.to_owned();
        record.meta.origin_ns = 1_700_000_000_000_000_000;
        record.meta.state = "finished".to_owned();
        let used = proto::work::Used { cpu_us: 200_000, max_rss_kib: 100 };
        record.tasks = vec![
            Row { task: LocalId(1), name: "a".to_owned(), state: 3, used, ..Row::default() },
            Row { task: LocalId(2), name: "b".to_owned(), state: 6, ..Row::default() },
        ];
        let attempt = AttemptRow {
            task: LocalId(1),
            number: 1,
            start_us: 5_000_000,
            ran_us: 250_000,
            ..AttemptRow::default()
        };
        record.attempts = vec![attempt];
        record.meta.kinds = vec!["a".to_owned()];
        record.sort();
        record
    }

    #[test]
    fn jobs_and_tasks_are_found_in_directories() {
        let root = tempfile::tempdir().unwrap();
        for (name, job) in [("2026-01", "1"), ("2026-02", "7")] {
            let dir = root.path().join(name);
            fs::create_dir(&dir).unwrap();
            verb::files::put(&dir.join(files::NAME), &files::bytes(&record(job)).unwrap()).unwrap();
        }
        fs::create_dir(root.path().join("other")).unwrap();
        let jobs = |text: &str| {
            let mut found = Vec::new();
            let see = |_: &Path, record: Record| {
                found.push(record.meta.job);
                Ok(())
            };
            each(root.path(), &text.parse().unwrap(), see).map(|exit| (exit, found))
        };
        let names = |text: &str| jobs(text).unwrap().1;
        assert_eq!(names("all"), ["1", "7"]);
        assert_eq!(names("last"), ["7"]);
        assert_eq!(names("1"), ["1"]);
        assert!(jobs("3").unwrap_err().message.contains("no record of such a job"));
        let found = tasks(root.path(), &Selector::Last, None).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].ended_ns - found[0].started_ns, 250_000_000);
        assert!(found[0].placed && !found[1].placed);
        assert!(found[0].max_rss_kib >= 100 && found[1].max_rss_kib == 0);
        assert_eq!(tasks(root.path(), &Selector::Last, Some("b")).unwrap()[0].local, 2);
        let unknown = tasks(root.path(), &Selector::Last, Some("c")).unwrap_err();
        assert!(unknown.message.contains("no task 'c'"), "{}", unknown.message);
        assert!(
            tasks(root.path(), &Selector::All, None).unwrap_err().message.contains("2 records")
        );
        fs::write(root.path().join("2025.srr"), "a cut one").unwrap();
        assert_eq!(jobs("all").unwrap(), (Exit::Refused, vec!["1".to_owned(), "7".to_owned()]));
        let other = root.path().join("other");
        let nothing = each(&other, &Selector::All, |_, _| Ok(())).unwrap_err();
        assert!(nothing.message.contains("no run record"));
    }

    #[test]
    fn a_task_is_explained_from_its_attempts() {
        let record = record("1");
        let states = states(&record);
        let lines_of = |at: usize| lines(&record, &states[at]);
        assert!(lines_of(0)[0].contains("it ran 250"), "{:?}", lines_of(0));
        assert!(lines_of(1)[0].contains("a task that it needs"), "{:?}", lines_of(1));
    }
}
