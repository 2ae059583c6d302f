//! The reconciler asks again for credits that may have been lost. Links and outboxes lose none,
//! however nodes end: a credit that is found here is counted, and is evidence of a bug.
//!
//! A partition with a new home is asked for credits anyway, in order, and a round would overtake
//! that. So a round leaves out a partition that changed within the last `RECONCILE_INTERVAL`. If a
//! partition changes all the time, it is asked after `RECONCILE_SKIPS_MAX` rounds; credits found
//! only by that are not counted. A round also leaves out a parent until its home has confirmed the
//! edge to the task: the edge is repeated until then, and the credit follows the confirmation.

use std::collections::{BTreeMap, BTreeSet};

use proto::wire::message::Body;
use proto::{LocalId, NodeId, PartitionId, TaskId, Time, wire};

use crate::Scheduler;
use crate::home::Home;
use crate::home::ledger::{Job, Ledger, State};
use crate::limits::{RECONCILE_INTERVAL, RECONCILE_SKIPS_MAX, RECONCILE_TASKS_MAX};
use crate::output::Out;
use crate::routing::partition_owners::Homes;

/// The maximum number of missing parents in the query of one task in one round.
const RECONCILE_PARENTS_MAX: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct Reconciler {
    /// The time of the next round.
    at: Option<Time>,
    /// The last task of the last round, if more were waiting: the next round continues there.
    after: Option<TaskId>,
    /// Partitions that have changed recently.
    unsettled: BTreeMap<PartitionId, Unsettled>,
}

#[derive(Debug)]
struct Unsettled {
    /// The time at which the credits that its new home was asked for have arrived.
    until: Time,
    /// The number of rounds that have left the partition out.
    skips: u32,
}

impl Reconciler {
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.at
    }
    pub(crate) fn homes_changed(&mut self, now: Time, changed: &BTreeSet<PartitionId>) {
        let until = now + RECONCILE_INTERVAL;
        for &partition in changed {
            let fresh = Unsettled { until, skips: 0 };
            self.unsettled.entry(partition).or_insert(fresh).until = until;
        }
    }

    /// The partitions that this round leaves out.
    fn skipped(&mut self, now: Time) -> BTreeSet<PartitionId> {
        self.unsettled.retain(|_, unsettled| unsettled.until > now);
        self.unsettled.values_mut().for_each(|unsettled| unsettled.skips += 1);
        let skipped = self.unsettled.iter().filter(|(_, it)| it.skips <= RECONCILE_SKIPS_MAX);
        skipped.map(|(&partition, _)| partition).collect()
    }

    /// Whether the partition of the credit has changed recently, so that the credit is no evidence.
    fn is_expected(&self, now: Time, credit: &wire::Credit) -> bool {
        let ends = credit.child.iter().chain(std::iter::once(&credit.parent));
        let mut partitions = ends.map(|&local| LocalId(local).partition());
        partitions.any(|partition| {
            self.unsettled.get(&partition).is_some_and(|unsettled| unsettled.until > now)
        })
    }
}

impl Home {
    pub(crate) fn on_credits(&mut self, now: Time, mut credits: wire::Credits, out: &mut Out) {
        if credits.reconciled {
            let is_expected = |credit: &wire::Credit| self.reconciler.is_expected(now, credit);
            let (expected, others) = credits.credits.into_iter().partition(is_expected);
            credits.credits = others;
            let expected = wire::Credits { credits: expected, reconciled: false };
            self.ledger.on_credits(now, expected, out);
        }
        self.ledger.on_credits(now, credits, out);
    }
}

impl Scheduler {
    /// Asks for credits that waiting tasks should have by now.
    pub(crate) fn reconcile(&mut self, now: Time, out: &mut Out) {
        let visible = self.home.ledger.live_jobs().any(|(_, job)| is_open(job));
        if !self.home.ledger.awaits_credits() || !visible {
            (self.home.reconciler.at, self.home.reconciler.after) = (None, None);
            return;
        }
        let due = *self.home.reconciler.at.get_or_insert(now + RECONCILE_INTERVAL);
        if now < due {
            return;
        }
        self.home.reconciler.at = Some(now + RECONCILE_INTERVAL);
        let after = self.home.reconciler.after.take();
        let skipped = self.home.reconciler.skipped(now);
        let (asks, last) = self.home.ledger.missing_credits(after, self.routing.homes(), &skipped);
        self.home.reconciler.after = last;
        for (home, asks) in asks {
            out.best_effort.push((home, Body::CreditQuery(wire::CreditQuery { requests: asks })));
        }
    }
}

impl Ledger {
    /// The credits to ask for, for waiting tasks after `after`, by home of the parent; and the last
    /// task if there are more.
    fn missing_credits(
        &self,
        after: Option<TaskId>,
        homes: &Homes,
        skipped: &BTreeSet<PartitionId>,
    ) -> (BTreeMap<NodeId, Vec<wire::CreditRequest>>, Option<TaskId>) {
        let mut asks: BTreeMap<NodeId, Vec<wire::CreditRequest>> = BTreeMap::new();
        let (mut asked, mut last) = (0, None);
        for task in self.live_jobs().filter(|(_, job)| is_open(job)).flat_map(waiting_of) {
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

fn is_open(job: &Job) -> bool {
    job.visible && job.open > 0
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
