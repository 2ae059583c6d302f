//! The credits that waiting tasks still miss, for the reconciler.

use std::collections::{BTreeMap, BTreeSet};

use proto::{LocalId, NodeId, PartitionId, TaskId, wire};

use super::{Job, Ledger, State};
use crate::limits::RECONCILE_TASKS_MAX;
use crate::routing::partition_owners::Homes;

/// The maximum number of missing parents in the query of one task in one round.
const RECONCILE_PARENTS_MAX: usize = 8;

impl Ledger {
    /// The credits to ask for, for waiting tasks after `after`, by home of the parent; and the last
    /// task if there are more.
    pub(crate) fn missing_credits(
        &self,
        after: Option<TaskId>,
        homes: &Homes,
        skipped: &BTreeSet<PartitionId>,
    ) -> (BTreeMap<NodeId, Vec<wire::CreditRequest>>, Option<TaskId>) {
        let mut asks: BTreeMap<NodeId, Vec<wire::CreditRequest>> = BTreeMap::new();
        let (mut asked, mut last) = (0, None);
        for task in self.live_jobs().filter(|(_, job)| job.is_running()).flat_map(waiting_of) {
            if skipped.contains(&task.partition()) {
                continue;
            }
            // A task in `awaiting_lost_inputs` has asked already, and its parents run again.
            if after.is_some_and(|after| task <= after) || self.awaiting_lost_inputs.contains(&task)
            {
                continue;
            }
            if asked == RECONCILE_TASKS_MAX {
                return (asks, last);
            }
            (asked, last) = (asked + 1, Some(task));
            let is_asked = |parent: &LocalId| {
                !skipped.contains(&parent.partition()) && self.parent_knows_edge(task, *parent)
            };
            let parents = self.awaited(task).filter(is_asked);
            for parent in parents.take(RECONCILE_PARENTS_MAX) {
                let Some(home) = homes.active_owner(parent.partition()) else { continue };
                let (job, parent, child) = (task.job.0, parent.0, task.local.0);
                let ask = wire::CreditRequest { job, parent, child, ..Default::default() };
                asks.entry(home).or_default().push(ask);
            }
        }
        (asks, None)
    }
}

/// The waiting tasks of a job in the order of their ids.
fn waiting_of((job_id, job): (proto::JobId, &Job)) -> impl Iterator<Item = TaskId> + '_ {
    job.parts.iter().flat_map(move |(partition, part)| {
        let waits = |&index: &u64| {
            let cell = part.segment(index).and_then(|segment| segment.cell(index));
            cell.is_some_and(|cell| cell.state == State::Waiting && cell.missing > 0)
        };
        let id = move |index| TaskId { job: job_id, local: LocalId::new(partition, index) };
        part.indices().filter(waits).map(id)
    })
}
