//! `starling top --from`: run records in the same views, without a node.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use lens::Record;
use proto::JobId;
use verb::errors::Failure;

use crate::common::selector::Selector;
use crate::report::{files, offline};
use crate::views::jobs::JobRow;
use crate::web::live::Overview;
use crate::web::record_rows::{Progress, Shown};

/// The states of jobs in records.
const STATES: [&str; 6] = ["staged", "running", "finished", "failed", "cancelled", "lost"];

/// The records of a path.
pub(super) struct Records {
    overview: Arc<Overview>,
    /// In the order of the jobs of the overview.
    paths: Vec<PathBuf>,
    /// The kinds of the last job: the screen asks for them at each look.
    last: Mutex<Option<(JobId, Vec<Progress>)>>,
}

impl Records {
    /// Reads all records and keeps their heads.
    pub(super) fn open(from: &Path) -> Result<Self, Failure> {
        let (mut jobs, mut paths) = (Vec::new(), Vec::new());
        offline::each(from, &Selector::All, |path, record| {
            jobs.push(row(&record));
            paths.push(path.to_owned());
            Ok(())
        })?;
        let own: BTreeSet<u64> = jobs.iter().filter_map(|row| row.job.parse().ok()).collect();
        if own.len() < jobs.len() {
            // Runs on clusters of their own have the same number.
            jobs.iter_mut().enumerate().for_each(|(at, row)| row.job = (at + 1).to_string());
        }
        let overview = Arc::new(Overview::of_records(from.display().to_string(), jobs));
        Ok(Self { overview, paths, last: Mutex::default() })
    }

    pub(super) fn overview(&self) -> Arc<Overview> {
        Arc::clone(&self.overview)
    }

    /// The tasks of a run by kind.
    pub(super) async fn kinds(&self, job: JobId) -> Result<Vec<Progress>, Failure> {
        if let Some(kinds) = self.last_kinds(job) {
            return Ok(kinds);
        }
        let name = job.0.to_string();
        let at = self.overview.jobs.iter().position(|row| row.job == name);
        let path = at.and_then(|at| self.paths.get(at)).cloned();
        let path = path.ok_or_else(|| Failure::refused(format!("there is no record {name}")))?;
        // Reading a large record takes seconds.
        let read = move || files::read(&path).map(|record| Shown::new(record, None).progress());
        let kinds = tokio::task::spawn_blocking(read).await;
        let kinds = kinds.map_err(|_| Failure::lost("the record could not be read"))??;
        self.keep(job, &kinds);
        Ok(kinds)
    }

    fn last_kinds(&self, job: JobId) -> Option<Vec<Progress>> {
        let last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|(of, _)| *of == job).map(|(_, kinds)| kinds.clone())
    }

    fn keep(&self, job: JobId, kinds: &[Progress]) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        *last = Some((job, kinds.to_vec()));
    }
}

fn row(record: &Record) -> JobRow {
    let meta = &record.meta;
    let seconds = |us: u64| meta.origin_ns as f64 / 1e9 + us as f64 / 1e6;
    JobRow {
        job: meta.job.trim_start_matches('j').to_owned(),
        name: meta.name.clone(),
        state: STATES.into_iter().find(|state| *state == meta.state).unwrap_or("unknown"),
        total: meta.tasks.total,
        done: meta.tasks.done,
        failed: meta.tasks.failed,
        cancelled: meta.tasks.cancelled,
        skipped: meta.tasks.skipped,
        submitted_s: seconds(meta.submitted_us),
        opened_s: None,
        ended_s: Some(seconds(record.end_us())),
        stall: None,
        round: None,
        waiting: false,
        waits_for: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_of_a_directory_are_rows_with_numbers_of_their_own() {
        let root = tempfile::tempdir().unwrap();
        for name in ["2026-1", "2026-2"] {
            std::fs::create_dir(root.path().join(name)).unwrap();
            files::put_into_run(&root.path().join(name), &Record::default()).unwrap();
        }
        let records = Records::open(root.path()).unwrap();
        let numbers: Vec<&str> = records.overview.jobs.iter().map(|row| &*row.job).collect();
        assert_eq!(numbers, ["1", "2"]);
        let kinds = |job| verb::block_on(records.kinds(JobId(job)));
        assert_eq!((kinds(2).unwrap(), kinds(2).unwrap()), (Vec::new(), Vec::new()));
        assert!(kinds(3).unwrap_err().message.contains("no record 3"));
        assert!(Records::open(&root.path().join("none")).is_err());
    }
}
