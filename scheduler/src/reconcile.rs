//! Credits that may have slipped through are asked for again. In a run without faults this finds
//! nothing; what it does find is counted.

use std::collections::BTreeMap;

use proto::limits::{RECONCILE_INTERVAL, RECONCILE_PARENTS_MAX, RECONCILE_TASKS_MAX};
use proto::wire::message::Body;
use proto::{LocalId, NodeId, TaskId, Time, wire};

use crate::Scheduler;
use crate::homes::Homes;
use crate::ledger::{Job, Ledger, State};
use crate::out::Out;

#[derive(Debug, Default)]
pub(crate) struct Reconciler {
    /// The next round.
    at: Option<Time>,
    /// The last task of the last round, where more were waiting: each has its turn.
    after: Option<TaskId>,
    /// What was asked of new homes has come by then.
    settled_at: Option<Time>,
}

impl Reconciler {
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.at
    }
    pub(crate) fn homes_changed(&mut self, now: Time) {
        self.settled_at = Some(now + RECONCILE_INTERVAL);
    }
}

impl Scheduler {
    /// Asks for what waiting tasks should have heard by now.
    pub(crate) fn reconcile(&mut self, now: Time, out: &mut Out) {
        let visible = self.ledger.live_jobs().any(|(_, job)| is_open(job));
        if self.ledger.waiting == 0 || !visible {
            (self.reconciler.at, self.reconciler.after) = (None, None);
            return;
        }
        let due = *self.reconciler.at.get_or_insert(now + RECONCILE_INTERVAL);
        if now < due {
            return;
        }
        self.reconciler.at = Some(now + RECONCILE_INTERVAL);
        let after = self.reconciler.after.take();
        let (asks, last) = self.ledger.missing_credits(after, &self.homes);
        self.reconciler.after = last;
        for (home, asks) in asks {
            out.loose.push((home, Body::CreditQuery(wire::CreditQuery { asks })));
        }
    }

    pub(crate) fn on_credits(&mut self, now: Time, mut credits: wire::Credits, out: &mut Out) {
        // New homes are asked anyway, in order; a round may overtake that.
        credits.reconciled &= self.reconciler.settled_at.is_none_or(|at| at <= now);
        self.ledger.on_credits(now, credits, out);
    }
}

impl Ledger {
    /// What waiting tasks after this one should ask for, by home of the parent; and where to go on
    /// if that was not for all.
    fn missing_credits(
        &self,
        after: Option<TaskId>,
        homes: &Homes,
    ) -> (BTreeMap<NodeId, Vec<wire::CreditAsk>>, Option<TaskId>) {
        let mut asks: BTreeMap<NodeId, Vec<wire::CreditAsk>> = BTreeMap::new();
        let (mut asked, mut last) = (0, None);
        for task in self.live_jobs().filter(|(_, job)| is_open(job)).flat_map(waiting_of) {
            // Who mourns has asked, and others run for it.
            if after.is_some_and(|after| task <= after) || self.mourning.contains(&task) {
                continue;
            }
            if asked == RECONCILE_TASKS_MAX {
                return (asks, last);
            }
            (asked, last) = (asked + 1, Some(task));
            for parent in self.awaited(task).take(RECONCILE_PARENTS_MAX) {
                let Some(home) = homes.owner(parent.partition()) else { continue };
                let (job, parent, child) = (task.job.0, parent.0, task.local.0);
                let ask = wire::CreditAsk { job, parent, child, ..Default::default() };
                asks.entry(home).or_default().push(ask);
            }
        }
        (asks, None)
    }
}

fn is_open(job: &Job) -> bool {
    job.visible && job.open > 0
}

/// In the order of their ids.
fn waiting_of((job_id, job): (proto::JobId, &Job)) -> impl Iterator<Item = TaskId> + '_ {
    job.parts.iter().flat_map(move |(&partition, part)| {
        let waits = |&index: &u64| {
            let cell = part.segment(index).and_then(|segment| segment.cell(index));
            cell.is_some_and(|cell| cell.state == State::Waiting && cell.missing > 0)
        };
        let id = move |index| TaskId { job: job_id, local: LocalId::new(partition, index) };
        part.indices().filter(waits).map(id)
    })
}
