//! *Past*: the record of an ended round of a job never changes, whatever dies and whichever home
//! reports it. Nothing of a forgotten job remains or returns.

use kvs::keys;
use proto::{JobId, wire};

use super::{Jobs, Verdict, Violation};
use crate::state::expected::ExpectedJob;
use crate::state::machine::Machine;

const NAME: &str = "past";

/// A client receives the state of a job. `id`: the request's number, `next`: that of the next
/// request. `asked_after`: the request was sent after the client knew that the job is forgotten.
pub(crate) fn on_reported(
    truth: &mut ExpectedJob,
    state: &wire::JobState,
    (id, next): (u64, u64),
    asked_after: bool,
) -> Verdict {
    if asked_after {
        let text = format!("{}: it is told of, and was forgotten before: {state:?}", truth.job);
        return Err(Violation::new(NAME, text));
    }
    let round = state.round();
    let Some(summary) = &state.summary else {
        // A request from before the first summary may be answered late.
        return match truth.summaries.get(&round) {
            Some((_, before)) if id >= *before => {
                Err(Violation::new(NAME, format!("{}: its summary is gone", truth.job)))
            }
            _ => Ok(()),
        };
    };
    let (known, _) = truth.summaries.entry(round).or_insert_with(|| (summary.clone(), next));
    if known != summary {
        let text = format!(
            "{}: the summary of round {round} was {known:?}, and is {summary:?}",
            truth.job
        );
        return Err(Violation::new(NAME, text));
    }
    Ok(())
}

/// The first trace of a forgotten job on any machine, in memory or on its disk.
pub(crate) fn remains(jobs: &Jobs, machines: &[Machine]) -> Option<String> {
    // A chunk that a client repeated late waits for a commit that never comes. It expires at its
    // home and at all replicas.
    let forgotten = jobs.values().filter(|job| job.is_forgotten && !is_staged(job.job, machines));
    let all = || machines.iter().enumerate();
    forgotten.flat_map(|job| all().map(move |it| (job.job, it))).find_map(|(job, (at, it))| {
        let node = it.node.as_ref()?;
        if node.has_ended(job).is_some() {
            return Some(format!("n{at}, a home of {job}, has it in memory"));
        }
        if it.printed.contains(&job) {
            return Some(format!("what {job} has printed lies on a node"));
        }
        it.disk.has_records(&keys::job_prefix(keys::TASK, job)).then(|| on_disk(job, at))
    })
}

fn is_staged(job: JobId, machines: &[Machine]) -> bool {
    let mut nodes = machines.iter().filter_map(|machine| machine.node.as_ref());
    nodes.any(|node| node.is_uncommitted(job))
}

/// True if some machine has chunks that a client has repeated after its job was forgotten.
pub(crate) fn is_staged_late(jobs: &Jobs, machines: &[Machine]) -> bool {
    let mut forgotten = jobs.values().filter(|job| job.may_be_forgotten);
    forgotten.any(|job| is_staged(job.job, machines))
}

fn on_disk(job: JobId, machine: usize) -> String {
    format!("records of {job} are on the disk of n{machine}")
}

/// Data of a forgotten job still exists when the cluster is idle.
pub(crate) fn stays(what: &str) -> Violation {
    Violation::new(NAME, format!("{what}, long after it was forgotten"))
}
