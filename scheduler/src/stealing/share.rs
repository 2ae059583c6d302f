//! The part of a victim's queue that a thief may have. It is a number of tasks without a request,
//! and tasks of those classes that fit the free resources of the thief.

use std::collections::{BTreeMap, BTreeSet};

use proto::{NodeId, wire};
use resources::Totals;

use crate::holder::queues::classes::is_gang_class;
use crate::holder::queues::ready_queue::PLAIN;
use crate::holder::task::Work;
use crate::{Mutant, Scheduler};

/// The number of tasks of one class that a probe counts.
const COUNTED_MAX: usize = 64;

/// The rest of a thief's share while tasks are taken out of the queues.
#[derive(Debug, Default)]
pub(crate) struct Share {
    /// Tasks without a request.
    pub(crate) plain: usize,
    /// Of these, tasks of the local queue.
    pub(crate) surplus: usize,
    pub(crate) requests: Option<RequestShare>,
}

#[derive(Debug)]
pub(crate) struct RequestShare {
    pub(crate) classes: BTreeSet<u64>,
    /// The free amounts of the thief.
    free: Totals,
}

impl Scheduler {
    /// The free amounts of a thief.
    fn free_of(&self, thief: NodeId, free: &[u64], slots: Option<u32>) -> Option<Totals> {
        let offer = self.routing.homes().offer_of(thief)?;
        match (free.is_empty(), slots) {
            (true, None) => Some(offer.clone()),
            (true, Some(free)) => Some(Totals::cpus(free)),
            (false, _) => Some(offer.with_free(free)),
        }
    }
    /// The classes with requests of the queues that other nodes may steal from, with the numbers of
    /// their tasks.
    fn shared_classes(&self) -> BTreeMap<u64, usize> {
        let mut classes: BTreeMap<u64, usize> = self.holder.shared().classes().collect();
        if self.rules().shares_local_queue {
            for (class, tasks) in self.holder.local().classes() {
                *classes.entry(class).or_default() += tasks;
            }
        }
        classes
    }
    /// Whether other nodes may steal tasks with requests.
    pub(crate) fn shares_requests(&self) -> bool {
        self.holder.shared().has_requests()
            || (self.rules().shares_local_queue && self.holder.local().has_requests())
    }
    /// Whether this node starts queued tasks of a class now: their resources are free, the disk has
    /// space, and no task runs alone.
    fn starts_class(&self, class: u64) -> bool {
        let holder = &self.holder;
        !holder.is_store_full() && !holder.runs_exclusively() && holder.may_start_class(class)
    }
    /// The classes of these queues that this node cannot start now and that fit the thief, with the
    /// numbers of their tasks.
    fn classes_for(&self, thief: NodeId, free: &Totals) -> BTreeMap<u64, usize> {
        let kind = self.routing.homes().kind_of(thief);
        let ignored = self.options.mutant == Some(Mutant::ClassIgnored);
        let fits = |class: u64| {
            let known = self.holder.class(class);
            known.is_some_and(|it| {
                let fits = || it.fits_kind_now(kind) && free.fits(it.open_request());
                ignored || fits() && self.outlives(thief, it.time)
            })
        };
        let mut queued = self.shared_classes();
        queued
            .retain(|&class, _| !is_gang_class(class) && fits(class) && !self.starts_class(class));
        queued
    }

    /// The number of tasks with requests that fit the free amounts of a thief.
    pub(crate) fn spare_requests(&self, thief: NodeId, free: &[u64]) -> usize {
        if !self.shares_requests() {
            return 0;
        }
        let Some(mut free) = self.free_of(thief, free, None) else { return 0 };
        let mut count = 0;
        for (class, tasks) in self.classes_for(thief, &free) {
            let Some(known) = self.holder.class(class) else { continue };
            let fitting =
                (0..tasks.min(COUNTED_MAX)).take_while(|_| free.take(known.open_request()));
            count += fitting.count();
        }
        count
    }

    /// The share of a thief. A slow node may not know yet that the map marks it as slow.
    pub(crate) fn share_of(&self, thief: NodeId, request: &wire::StealRequest) -> Share {
        if self.routing.homes().is_slow(thief) {
            return Share::default();
        }
        let (plain, surplus) = (self.wanted_by(request), self.surplus());
        Share { plain, surplus, requests: self.requests_for(thief, request) }
    }

    /// The part of the thief in tasks with requests.
    fn requests_for(&self, thief: NodeId, request: &wire::StealRequest) -> Option<RequestShare> {
        if !self.shares_requests() {
            return None;
        }
        let free = self.free_of(thief, &request.free_amounts, Some(request.free))?;
        let classes: BTreeSet<u64> = self.classes_for(thief, &free).into_keys().collect();
        (!classes.is_empty()).then_some(RequestShare { classes, free })
    }

    /// Whether the thief gets a task that was taken out for it; if so, its share shrinks.
    pub(crate) fn may_give(
        &self,
        (class, work): (u64, &Work),
        request: &wire::StealRequest,
        share: &mut Share,
    ) -> bool {
        if work.is_bound() {
            return false;
        }
        if class == PLAIN {
            let fits = work.cpus() <= request.slots && share.plain > 0;
            share.plain -= usize::from(fits);
            return fits;
        }
        let (Some(own), Some(known)) = (&mut share.requests, self.holder.class(class)) else {
            return false;
        };
        if self.options.mutant == Some(Mutant::ClassIgnored) {
            return true;
        }
        let fits = own.free.take(known.open_request());
        if !own.free.fits(known.open_request()) {
            own.classes.remove(&class);
        }
        fits
    }

    /// A class that waits for another node and that others may steal, and the number of its tasks.
    pub(crate) fn waiting_class(&self) -> Option<(u64, usize)> {
        let queued = self.shared_classes().into_iter();
        let waiting =
            queued.filter(|&(class, _)| !is_gang_class(class) && !self.starts_class(class));
        waiting.max_by_key(|&(_, tasks)| tasks)
    }
    /// The nodes, except for this one, that take tasks of a class.
    pub(crate) fn nodes_of_class(&self, class: u64) -> Vec<NodeId> {
        let Some(known) = self.holder.class(class) else { return Vec::new() };
        let fits = |&node: &NodeId| {
            node != self.options.me
                && self.routing.homes().fits(node, 1)
                && known.fits_kind_now(self.routing.homes().kind_of(node))
                && self.outlives(node, known.time)
        };
        self.routing.homes().living().filter(fits).collect()
    }
}
