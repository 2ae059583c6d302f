//! Run records of the jobs of an instance, which `starling down` leaves in its directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use client::Client;
use lens::Record;
use proto::wire::JobState;
use proto::{JobId, NodeId, Time};
use verb::Context;
use verb::cluster::logs::Logs;
use verb::errors::Failure;
use verb::output::say;
use verb::units;

use super::{collect, files};
use crate::limits::RECORDS_KEPT;
use crate::views::job_info;

/// The records of an instance, in its directory.
pub(crate) const DIRECTORY: &str = "records";
/// The time for all records, so that the nodes stop soon.
const WITHIN: Duration = Duration::from_secs(5);
/// A job with more tasks gets no record: its nodes would wait for it.
const TASKS_MAX: u64 = 1 << 20;
const LIST_TIMEOUT: Duration = Duration::from_secs(2);

/// The file of a job's record. Names are in the order of the jobs.
fn path_of(dir: &Path, job: JobId) -> PathBuf {
    dir.join(DIRECTORY).join(format!("job-{:010}.{}", job.0, files::ENDING))
}

/// The number of nodes without events in a record that is there.
fn missing_in(path: &Path) -> Option<usize> {
    let meta = Record::read_meta(&fs::read(path).ok()?).ok()?;
    Some(meta.missing.len())
}

/// True if the record was written after the last end of the job.
fn is_recorded(path: &Path, state: &JobState) -> bool {
    let written = fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let since = written.and_then(|at| at.duration_since(std::time::UNIX_EPOCH).ok());
    since.is_some_and(|since| since.as_nanos() > u128::from(state.ended_ns))
}

/// The number of records without the events of a node, by node and reason.
type Lacking = BTreeMap<(NodeId, String), u64>;

/// Writes the records of the newest ended jobs. The nodes stop also without them.
pub(crate) async fn before_stop(context: &Context, client: &Client, dir: &Path) {
    let mut lacking = Lacking::new();
    let written = tokio::time::timeout(WITHIN, write_all(context, client, dir, &mut lacking)).await;
    lacking_lines(&lacking).for_each(|line| say(&line));
    let problem = match written {
        Ok(Ok(())) => return,
        Ok(Err(failure)) => failure.message,
        Err(_) => format!("not done within {} s", WITHIN.as_secs()),
    };
    say(&format!("warning: run records of some jobs are not written: {problem}"));
}

fn lacking_lines(lacking: &Lacking) -> impl Iterator<Item = String> {
    lacking.iter().map(|((node, why), records)| {
        let records = units::number_of(*records, "run record");
        format!("warning: without the events of {node} in {records}: {why}")
    })
}

async fn write_all(
    context: &Context,
    client: &Client,
    dir: &Path,
    lacking: &mut Lacking,
) -> Result<(), Failure> {
    let mut states = client.raw().jobs(LIST_TIMEOUT).await?.states;
    states.retain(|state| client::raw::is_ended(state) && state.ended_ns > 0);
    states.sort_unstable_by_key(|state| std::cmp::Reverse(Time(state.ended_ns)));
    // A summary waits for the nodes that are away.
    let nodes = client.raw().node_states(LIST_TIMEOUT).await;
    let all_answer = nodes.iter().all(|(_, state)| state.is_ok());
    for state in states.iter().take(RECORDS_KEPT) {
        let path = path_of(dir, JobId(state.job));
        // A record without the events of a node that was away is made again.
        let known = is_recorded(&path, state).then(|| missing_in(&path)).flatten();
        if known == Some(0) || state.thinned_text().is_some() {
            continue;
        }
        if state.total > TASKS_MAX {
            context.output.note(&format!(
                "note: no run record of job {}: it has more than {TASKS_MAX} tasks",
                state.job
            ));
            continue;
        }
        let job = JobId(state.job);
        if !all_answer && client.raw().job(job).await?.summary.is_none() {
            continue;
        }
        let state = job_info::recorded(client, job, None).await?;
        let logs = Logs::read_quietly(client, job, None).await?;
        for (node, why) in &logs.missing {
            *lacking.entry((*node, why.clone())).or_default() += 1;
        }
        let record = collect::of_logs(client, &state, logs).await?;
        if known.is_some_and(|known| known <= record.meta.missing.len()) {
            continue;
        }
        let parent = dir.join(DIRECTORY);
        executor::private::own_dir(&parent).map_err(|error| Failure::file(&parent, &error))?;
        verb::files::put_private(&path, &files::bytes(&record)?)?;
    }
    let newest = states.iter().take(RECORDS_KEPT).map(|state| path_of(dir, JobId(state.job)));
    remove_old(&dir.join(DIRECTORY), &newest.collect::<Vec<_>>());
    Ok(())
}

/// Keeps the records of the newest ended jobs. Of other jobs, those with the highest numbers have
/// the places that are left.
fn remove_old(records: &Path, newest: &[PathBuf]) {
    let entries = fs::read_dir(records).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|ending| ending == files::ENDING));
    let all = paths.len();
    paths.retain(|path| !newest.contains(path));
    paths.sort();
    for old in paths.iter().take(all.saturating_sub(RECORDS_KEPT)) {
        let _ = fs::remove_file(old);
    }
}

/// Removes the record of a forgotten job.
pub(crate) fn forget(dir: &Path, job: JobId) -> Result<(), Failure> {
    let path = path_of(dir, job);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Failure::file(&path, &error))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_away_is_named_once() {
        let mut lacking = Lacking::new();
        for _ in 0..3 {
            *lacking.entry((NodeId(3), "it is down".to_owned())).or_default() += 1;
        }
        let lines: Vec<String> = lacking_lines(&lacking).collect();
        assert_eq!(lines, ["warning: without the events of n3 in 3 run records: it is down"]);
    }

    #[test]
    fn the_records_of_the_newest_ends_stay() {
        let dir = tempfile::tempdir().unwrap();
        let records = dir.path().join(DIRECTORY);
        fs::create_dir(&records).unwrap();
        let paths: Vec<PathBuf> =
            (0..RECORDS_KEPT as u64 + 2).map(|job| path_of(dir.path(), JobId(job))).collect();
        paths.iter().for_each(|path| fs::write(path, "").unwrap());
        // The job with the lowest number has ended last.
        remove_old(&records, &paths[..1]);
        let left: Vec<bool> = paths.iter().map(|path| path.exists()).collect();
        assert_eq!(left[..4], [true, false, false, true]);
        assert_eq!(left.iter().filter(|exists| **exists).count(), RECORDS_KEPT);
    }
}
