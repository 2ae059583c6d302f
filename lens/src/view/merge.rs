//! Views of parts of a job together. The order and the grouping do not matter.

use super::{Counts, KindView, Link, NodeView, View, Work};
use crate::groups::Merge;
use crate::series::Series;

impl View {
    pub fn merge(&mut self, other: &Self) {
        self.work.merge(&other.work);
        self.counts.merge(&other.counts);
        self.kinds.merge(&other.kinds);
        self.nodes.merge(&other.nodes);
        self.links.merge(&other.links);
        self.failures.merge(&other.failures);
        for (&node, &slots) in &other.slots {
            let known = self.slots.entry(node).or_default();
            *known = slots.max(*known);
        }
        self.detailed += other.detailed;
    }
}

impl<const N: usize> Merge for Series<N> {
    fn merge(&mut self, other: &Self) {
        Self::merge(self, other);
    }
}

impl Merge for Work {
    fn merge(&mut self, other: &Self) {
        add_all(&mut self.attempts, &other.attempts);
        add_all(&mut self.committed, &other.committed);
        self.busy_us = self.busy_us.saturating_add(other.busy_us);
        self.lost_us = self.lost_us.saturating_add(other.lost_us);
        self.moved_bytes = self.moved_bytes.saturating_add(other.moved_bytes);
        self.local_bytes = self.local_bytes.saturating_add(other.local_bytes);
        self.made_bytes = self.made_bytes.saturating_add(other.made_bytes);
        self.ran.merge(&other.ran);
        let firsts = [self.first_start_us, other.first_start_us];
        self.first_start_us = firsts.into_iter().flatten().min();
        self.last_end_us = self.last_end_us.max(other.last_end_us);
    }
}

impl Merge for KindView {
    fn merge(&mut self, other: &Self) {
        self.work.merge(&other.work);
        self.waited.merge(&other.waited);
        self.busy.merge(&other.busy);
        self.slowest.merge(&other.slowest);
    }
}

impl Merge for NodeView {
    fn merge(&mut self, other: &Self) {
        self.work.merge(&other.work);
        self.busy.merge(&other.busy);
        self.waits.merge(&other.waits);
        self.stolen += other.stolen;
        self.pushed += other.pushed;
    }
}

impl Merge for Link {
    fn merge(&mut self, other: &Self) {
        self.objects += other.objects;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.took_us = self.took_us.saturating_add(other.took_us);
    }
}

impl Counts {
    fn merge(&mut self, other: &Self) {
        self.stolen += other.stolen;
        self.pushed += other.pushed;
        self.replaced += other.replaced;
        self.stale += other.stale;
        self.wakeups_repaired += other.wakeups_repaired;
        self.crashes += other.crashes;
    }
}

fn add_all(sums: &mut [u64; 4], more: &[u64; 4]) {
    sums.iter_mut().zip(more).for_each(|(sum, n)| *sum += n);
}
