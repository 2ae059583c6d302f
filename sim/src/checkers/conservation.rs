//! *Conservation*: no task is lost, and no two nodes could both run it. The records of all homes
//! add up to the submitted tasks. A ready task is at the holder in its home's record, or in transit
//! for a bounded time. A holder has each task in a queue, in staging with an open fetch, or in a
//! slot.

use std::collections::{BTreeMap, BTreeSet};

use proto::{Attempt, Incarnation, NodeId, Span, TaskId, Time};
use scheduler::{Believed, Census, JobCount};

use super::{Jobs, Verdict, Violation};
use crate::state::expected::SubmissionStage;

const NAME: &str = "conservation";
/// Without faults, a task that is in transit for longer is lost.
const LOST_AFTER: Span = Span::from_secs(20);

/// Ready tasks that were not found at the holder in their home's record, and since when.
#[derive(Debug, Default)]
pub(crate) struct Conservation {
    astray: BTreeMap<(TaskId, Attempt, NodeId), Time>,
    pub next: Time,
}

/// The census of one live node, and its incarnation.
pub(crate) struct NodeCount {
    pub node: NodeId,
    pub incarnation: Incarnation,
    pub census: Census,
}

/// Facts from the world.
pub(crate) struct WorldState<'w> {
    pub jobs: &'w Jobs,
    /// The home of a task.
    pub home: &'w dyn Fn(TaskId) -> NodeId,
    pub now: Time,
    pub healed: Time,
    /// No process ever died here, so no record is ever undone.
    pub deathless: bool,
    /// A home may not have completed its take-over yet.
    pub homes_move: bool,
}

fn wrong(text: String) -> Verdict {
    Err(Violation::new(NAME, text))
}

impl Conservation {
    /// `all`: every node that is up.
    pub(crate) fn on_census(&mut self, all: &[NodeCount], around: &WorldState<'_>) -> Verdict {
        for counted in all {
            let node = counted.node;
            for count in &counted.census.jobs {
                adds_up(node, count, around)?;
            }
            let (records, counter) = counted.census.waiting;
            if records != counter {
                return wrong(format!("{node} counts {counter} waiting tasks and keeps {records}"));
            }
            if let Some((task, attempt)) = counted.census.stuck.first() {
                return wrong(format!(
                    "{task} attempt {attempt} is on {node} in no queue, and waits for nothing"
                ));
            }
        }
        if around.deathless {
            at_one_place(all)?;
        }
        self.believed_where_it_is(all, around)
    }

    fn believed_where_it_is(&mut self, all: &[NodeCount], around: &WorldState<'_>) -> Verdict {
        let by_node: BTreeMap<NodeId, &NodeCount> =
            all.iter().map(|counted| (counted.node, counted)).collect();
        let mut astray = BTreeMap::new();
        for counted in all {
            for believed in &counted.census.believed {
                if is_there(believed, &by_node) {
                    continue;
                }
                let Believed { task, attempt, holder, .. } = *believed;
                if holder == counted.node {
                    return wrong(format!(
                        "{task} attempt {attempt} is ready at its home {holder}, but in no queue, \
                         not staged, and does not run"
                    ));
                }
                let key = (task, attempt, holder);
                let since = self.astray.get(&key).copied().unwrap_or(around.now);
                if around.now > since.max(around.healed) + LOST_AFTER {
                    return wrong(format!(
                        "{task} attempt {attempt} is lost: its home believes that {holder} has \
                         it, which is up and has not had it since {since:?}"
                    ));
                }
                astray.insert(key, since);
            }
        }
        self.astray = astray;
        Ok(())
    }
}

/// The records of a job at a home are the submitted tasks, each in one state. The counters must
/// agree.
fn adds_up(node: NodeId, count: &JobCount, around: &WorldState<'_>) -> Verdict {
    let ended = [count.done, count.failed, count.cancelled, count.skipped];
    let open = count.waiting + count.ready;
    let all = open + ended.iter().sum::<u64>();
    if all != count.tasks || open != count.open || ended != count.told {
        return wrong(format!("{node} does not add up: {count:?}"));
    }
    let Some(job) = around.jobs.get(&count.job) else {
        return wrong(format!("{node} keeps {}, which no client submitted", count.job));
    };
    let told = matches!(job.promise, SubmissionStage::Accepted | SubmissionStage::Ended);
    if !count.visible || !told || around.homes_move {
        return Ok(());
    }
    let here = |local: &&proto::LocalId| (around.home)(job.task_id(**local)) == node;
    let submitted = job.tasks.keys().filter(here).count() as u64;
    if submitted != all {
        return wrong(format!("{node} keeps {all} tasks of {}, {submitted} were sent", count.job));
    }
    Ok(())
}

/// No attempt could start on two nodes.
fn at_one_place(all: &[NodeCount]) -> Verdict {
    let mut seen: BTreeMap<(TaskId, Attempt), NodeId> = BTreeMap::new();
    for counted in all {
        for &(task, attempt) in &counted.census.held {
            if let Some(other) = seen.insert((task, attempt), counted.node) {
                let node = counted.node;
                return wrong(format!("{task} attempt {attempt} is held by {other} and {node}"));
            }
        }
    }
    Ok(())
}

/// True if the holder has the task. A holder that is down or has restarted counts as well: its home
/// will query it.
fn is_there(believed: &Believed, by_node: &BTreeMap<NodeId, &NodeCount>) -> bool {
    let Believed { task, attempt, holder, incarnation } = *believed;
    let Some(counted) = by_node.get(&holder) else { return true };
    if incarnation != counted.incarnation && incarnation != Incarnation(0) {
        return true;
    }
    let has = |set: &BTreeSet<(TaskId, Attempt)>| set.contains(&(task, attempt));
    has(&counted.census.held) || has(&counted.census.in_transit)
}
