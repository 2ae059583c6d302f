//! This node leaves the cluster, and may hold some of the last copies. It asks other nodes to store
//! what it holds, until enough of them have it. Then its hand-over records the new location
//! (`objects/drain.rs`). So one death after the end of this node takes no kept output with it.

use std::collections::BTreeSet;

use proto::{Incarnation, NodeId, Time};

use super::{AttemptKey, CopyState, OutputCopies};
use crate::{Mutant, Scheduler};

/// Attempts with a changed state: the hand-over of their outputs may begin.
#[derive(Debug, Default)]
pub(super) struct Changes(Vec<AttemptKey>);

impl CopyState {
    /// The number of nodes that are to have the outputs, this one among them. An attempt with an
    /// unreported end wants what its maker asks for; it counts as running.
    pub(super) fn total(&self, leaves: bool) -> usize {
        match leaves && self.end.is_none() {
            true => self.wanted.max(self.meant) + 1,
            false => self.wanted + 1,
        }
    }
}

impl OutputCopies {
    /// Whether this node leaves the cluster.
    pub(super) fn is_leaving(&self) -> bool {
        self.leaving.is_some()
    }
    /// The node does not leave any more.
    pub(crate) fn stay(&mut self) {
        self.leaving = None;
    }
    pub(super) fn note_change(&mut self, made: &AttemptKey) {
        if let Some(changes) = &mut self.leaving {
            changes.0.push(*made);
        }
    }
    /// The attempts with a changed state since the last call.
    pub(crate) fn changes(&mut self) -> Vec<AttemptKey> {
        self.leaving.as_mut().map(|changes| std::mem::take(&mut changes.0)).unwrap_or_default()
    }
    /// No node that was asked has yet to answer, and some had no space.
    pub(crate) fn waits_for_space(&self) -> bool {
        self.under_way == 0 && self.line.is_empty() && self.without_space > 0
    }
    /// The nodes that are known to have the outputs of the attempt.
    pub(crate) fn others_with(&self, made: &AttemptKey) -> impl Iterator<Item = NodeId> {
        self.shared.get(made).into_iter().flat_map(|shared| shared.others.iter().copied())
    }
}

impl Scheduler {
    /// Asks other nodes for copies of what this node holds.
    pub(crate) fn leave_copies(&mut self, now: Time) {
        if self.options.mutant == Some(Mutant::LeavesWithCopies) {
            return;
        }
        self.objects.output_copies.leaving = Some(Changes::default());
        for made in self.attempts_that_lack().collect::<Vec<_>>() {
            let shared = self.objects.output_copies.take(&made).expect("listed above");
            let found = CopyState { due: Some(now), found: false, rounds: 0, ..shared };
            self.objects.output_copies.put(made, found);
        }
    }

    /// The attempts with too few copies.
    pub(super) fn attempts_that_lack(&self) -> impl Iterator<Item = AttemptKey> {
        let shared = self.objects.output_copies.shared.iter();
        shared.filter(|(_, shared)| self.lacks(shared)).map(|(&made, _)| made)
    }

    /// Whether other nodes must get the outputs of the attempt before this one hands them over.
    pub(crate) fn must_stay_for(&self, made: &AttemptKey) -> bool {
        let copies = &self.objects.output_copies;
        copies.is_leaving() && copies.shared.get(made).is_some_and(|shared| self.lacks(shared))
    }

    pub(super) fn lacks(&self, shared: &CopyState) -> bool {
        self.present(shared) < self.wanted(shared)
    }

    /// The number of other nodes that are to have the outputs.
    pub(super) fn wanted(&self, shared: &CopyState) -> usize {
        if !self.objects.output_copies.is_leaving() || shared.end.is_some() {
            return shared.wanted;
        }
        let total = shared.total(true);
        let further = self.takers().filter(|node| !shared.others.contains(node));
        total.min(self.present(shared) + further.take(total).count())
    }

    /// The number of other nodes that have the outputs. For a leaving node, others that leave do
    /// not count.
    pub(super) fn present(&self, shared: &CopyState) -> usize {
        if !self.objects.output_copies.is_leaving() || shared.end.is_some() {
            return shared.others.len();
        }
        let homes = self.routing.homes();
        let stays = |node: &&NodeId| !homes.is_gone(**node) && !homes.is_leaving(**node);
        shared.others.iter().filter(stays).count()
    }

    /// The nodes that may take outputs: all that stay, but this one. A member that was admitted and
    /// has never started does not answer.
    pub(crate) fn takers(&self) -> impl Iterator<Item = NodeId> {
        let (homes, me) = (self.routing.homes(), self.options.me);
        let has_come = |node: NodeId| homes.incarnation_of(node) != Incarnation(0);
        homes.staying().filter(move |&node| node != me && has_come(node))
    }

    /// The nodes among these that have a copy. A leaving node hands the outputs over to one of
    /// them, which needs no further space.
    pub(crate) fn holders_among(&self, made: &AttemptKey, staying: &[NodeId]) -> Vec<NodeId> {
        let holders: BTreeSet<NodeId> = self.objects.output_copies.others_with(made).collect();
        staying.iter().copied().filter(|node| holders.contains(node)).collect()
    }
}
