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
use proto::{LocalId, PartitionId, TaskId, Time, wire};

use crate::Scheduler;
use crate::home::Home;
use crate::limits::{RECONCILE_INTERVAL, RECONCILE_SKIPS_MAX};
use crate::output::Out;

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
        let visible = self.home.ledger.live_jobs().any(|(_, job)| job.is_running());
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
