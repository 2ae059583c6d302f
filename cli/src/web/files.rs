//! The answers of run records, which need no node.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use proto::LocalId;
use serde::Serialize;
use serde_json::{Value, json};
use verb::errors::Failure;
use web::{Answer, Body, Problem, ProblemKind, Question, Source};

use super::live::problem;
use super::record_rows::Shown;
use crate::report::{files, offline};

/// The newest records of a directory are shown.
const RECORDS_MAX: usize = 100;
/// The records that are kept in memory.
const SHOWN_MAX: usize = 4;

/// A record on disk.
#[derive(Clone)]
struct Entry {
    key: String,
    path: PathBuf,
}

#[derive(Default)]
struct Known {
    shown: Vec<(String, Arc<Shown>)>,
    /// The line of each job, or the reason why its record cannot be read.
    lines: Option<Arc<Vec<Value>>>,
}

struct Inner {
    root: String,
    entries: Vec<Entry>,
    known: Mutex<Known>,
}

/// The source of run records.
#[derive(Clone)]
pub(super) struct Files(Arc<Inner>);

impl Files {
    /// Finds the records of a path: a file, a directory of a run, a directory of runs, or the
    /// directory of a stopped instance.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let entries: Vec<Entry> = match path.is_dir() && !path.join(files::NAME).is_file() {
            true => {
                let newest = offline::paths(path)?.into_iter().rev().take(RECORDS_MAX);
                newest.map(|path| Entry { key: key_of(&path), path }).collect()
            }
            false => vec![Entry { key: "1".to_owned(), path: path.to_owned() }],
        };
        let known = Mutex::default();
        let root = path.display().to_string();
        let files = Self(Arc::new(Inner { root, entries, known }));
        // A single wrong file is refused at once.
        if let [one] = &files.0.entries[..] {
            drop(files.shown(&one.key)?);
        }
        Ok(files)
    }

    fn shown(&self, key: &str) -> Result<Arc<Shown>, Failure> {
        let find = |known: &Known| known.shown.iter().find(|it| it.0 == key).map(|it| it.1.clone());
        if let Some(shown) = find(&self.known()) {
            return Ok(shown);
        }
        let entry = self.0.entries.iter().find(|entry| entry.key == key);
        let absent = || Failure::refused(format!("there is no run '{key}'"));
        let shown = Arc::new(Shown::new(files::read(&entry.ok_or_else(absent)?.path)?, None));
        let mut known = self.known();
        if known.shown.len() == SHOWN_MAX {
            known.shown.remove(0);
        }
        known.shown.push((key.to_owned(), Arc::clone(&shown)));
        Ok(shown)
    }

    fn known(&self) -> std::sync::MutexGuard<'_, Known> {
        self.0.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Every record as a line of the list of jobs. They are read once.
    fn lines(&self) -> Arc<Vec<Value>> {
        if let Some(lines) = &self.known().lines {
            return Arc::clone(lines);
        }
        let line = |entry: &Entry| match self.shown(&entry.key) {
            Ok(shown) => line(&entry.key, &shown),
            Err(failure) => json!({
                "job": entry.key, "name": failure.message, "state": "unreadable", "total": 0,
                "done": 0, "failed": 0, "cancelled": 0, "skipped": 0, "submitted_s": 0.0,
            }),
        };
        let lines: Arc<Vec<Value>> = Arc::new(self.0.entries.iter().map(line).collect());
        self.known().lines = Some(Arc::clone(&lines));
        lines
    }

    fn answer_to(&self, question: Question) -> Result<Body, Failure> {
        match question {
            Question::Overview => text(&json!({
                "schema": 1, "source": "records", "instance": self.0.root,
                "now_s": client::now_ns() as f64 / 1e9, "jobs": *self.lines(), "nodes": [],
                "figures": [], "changes": [],
            })),
            Question::Report { job } => Ok(Body::Json(self.shown(&job)?.report_json())),
            Question::Record { job } => Ok(Body::Bytes(self.shown(&job)?.bytes()?)),
            Question::Tasks { job, filter } => text(&self.shown(&job)?.tasks(&filter)),
            Question::Task { job, task } => {
                let absent = || Failure::refused(format!("no task '{task}' in the record"));
                let id: LocalId = task.parse().map_err(|_| absent())?;
                let line = self.shown(&job)?.task(id).ok_or_else(absent)?;
                text(&json!({ "schema": 1, "task": line, "lines": [] }))
            }
            Question::Store | Question::Output { .. } | Question::Metrics => {
                Err(Failure::refused("a run record does not have this")
                    .hint("'starling web' without --from shows a running cluster"))
            }
        }
    }
}

fn text(value: &impl Serialize) -> Result<Body, Failure> {
    Ok(Body::Json(serde_json::to_string(value).expect("numbers and strings always serialise")))
}

impl Source for Files {
    fn answer(&self, question: Question) -> Answer {
        let files = self.clone();
        Box::pin(async move {
            // Reading a large record takes seconds.
            let answered = tokio::task::spawn_blocking(move || files.answer_to(question)).await;
            match answered {
                Ok(answer) => answer.map_err(problem),
                Err(_) => Err(Problem::new(ProblemKind::Away, "the record could not be read")),
            }
        })
    }
}

/// The name of a record: of its directory, or of the file without its ending.
fn key_of(path: &Path) -> String {
    let is_in_run = path.file_name().is_some_and(|name| name == files::NAME);
    let name = if is_in_run { path.parent().and_then(Path::file_name) } else { path.file_stem() };
    name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

fn line(key: &str, shown: &Shown) -> Value {
    let meta = &shown.record.meta;
    let at = |us: u64| (meta.origin_ns / 1_000).saturating_add(us) as f64 / 1e6;
    let tasks = meta.tasks;
    json!({
        "job": key, "name": meta.name, "state": meta.state, "total": tasks.total,
        "done": tasks.done, "failed": tasks.failed, "cancelled": tasks.cancelled,
        "skipped": tasks.skipped, "submitted_s": at(meta.submitted_us),
        "ended_s": at(shown.record.end_us()),
    })
}

#[cfg(test)]
mod tests {
    use lens::Record;

    use super::*;

    #[test]
    fn a_directory_of_runs_is_listed_with_its_unreadable_ones() {
        let root = tempfile::tempdir().unwrap();
        let open = |path: &Path| Files::open(path).map(|it| it.0.entries.len());
        assert!(open(root.path()).unwrap_err().message.contains("no run record"));
        for name in ["2026-1", "2026-2"] {
            std::fs::create_dir(root.path().join(name)).unwrap();
            files::put_into_run(&root.path().join(name), &Record::default()).unwrap();
        }
        std::fs::write(root.path().join("2026-1").join(files::NAME), "odd").unwrap();
        assert_eq!(open(&root.path().join("2026-2")).unwrap(), 1);
        assert!(open(&root.path().join("2026-1")).is_err());
        let all = Files::open(root.path()).unwrap();
        let states: Vec<String> =
            all.lines().iter().map(|line| line["state"].as_str().unwrap().to_owned()).collect();
        assert_eq!(states, ["", "unreadable"], "the newest is first");
        let absent = all.answer_to(Question::Report { job: "2026-3".to_owned() });
        assert!(absent.unwrap_err().message.contains("no run '2026-3'"));
        assert!(all.answer_to(Question::Store).is_err());
        let instance = tempfile::tempdir().unwrap();
        let records = instance.path().join("records");
        std::fs::create_dir(&records).unwrap();
        let bytes = files::bytes(&Record::default()).unwrap();
        verb::files::put(&records.join("job-0000000003.srr"), &bytes).unwrap();
        let stopped = Files::open(instance.path()).unwrap();
        assert_eq!(stopped.0.entries[0].key, "job-0000000003");
    }
}
