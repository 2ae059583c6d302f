//! The questions of primaries about replicas here, until they can be answered.

use std::collections::VecDeque;

use crate::Mutant;
use proto::marks::{Mark, mark};
use proto::wire::{self, ReplicaQueryKind};
use proto::{NodeId, PartitionId, Time};

use super::{Replica, map};

/// The maximum number of queries about replicas that one node keeps until it can answer them.
const COPY_ASKS_MAX: usize = 1 << 16;

#[derive(Debug, Default)]
pub(super) struct PendingQueries {
    open: Vec<(NodeId, wire::ReplicaQuery)>,
    /// Answers that wait for a sync, each with its batch once that is known.
    unsynced: VecDeque<(Option<u64>, NodeId, wire::ReplicaAnswer)>,
    ready: Vec<(NodeId, wire::ReplicaAnswer)>,
}

impl PendingQueries {
    pub(super) fn add(&mut self, from: NodeId, queries: Vec<wire::ReplicaQuery>) {
        for query in queries {
            // A later question of the same node about the same partition replaces an earlier one.
            self.open.retain(|(by, open)| (*by, open.partition) != (from, query.partition));
            if self.open.len() < COPY_ASKS_MAX {
                self.open.push((from, query));
            }
        }
    }
    pub(super) fn forget(&mut self, from: NodeId) {
        self.open.retain(|&(by, _)| by != from);
        self.unsynced.retain(|&(_, to, _)| to != from);
    }
    pub(super) fn note_batch(&mut self, batch: u64) {
        for (seq, _, _) in &mut self.unsynced {
            seq.get_or_insert(batch);
        }
    }
    pub(super) fn awaits_sync(&self) -> bool {
        !self.unsynced.is_empty()
    }

    /// The answers that can be sent, by asker. A promise counts when it is synced, and so does a
    /// position.
    pub(super) fn answers(&mut self, durable: u64) -> Vec<(NodeId, Vec<wire::ReplicaAnswer>)> {
        while let Some(&(Some(batch), _, _)) = self.unsynced.front()
            && batch <= durable
        {
            let (_, to, answer) = self.unsynced.pop_front().expect("looked at above");
            self.ready.push((to, answer));
        }
        self.ready.drain(..).map(|(to, answer)| (to, vec![answer])).collect()
    }
}

impl Replica {
    /// Answers the questions that can be answered now.
    pub(super) fn answer_asks(&mut self, now: Time) {
        if self.pending_queries.open.is_empty() {
            return;
        }
        let free_at = self.leases_run_out_at();
        let mut open = std::mem::take(&mut self.pending_queries.open);
        open.retain(|(from, query)| !self.answer_query(now, free_at, *from, query));
        self.pending_queries.open = open;
    }

    /// Returns false if the question cannot be answered yet.
    fn answer_query(
        &mut self,
        now: Time,
        free_at: Time,
        from: NodeId,
        query: &wire::ReplicaQuery,
    ) -> bool {
        let partition = PartitionId(query.partition);
        let Some(entry) = self.map.partitions.get(query.partition as usize) else { return true };
        match query.kind() {
            // By an older map this node may have to drop its replica, after it has reported its
            // position.
            ReplicaQueryKind::Position
                if self.map.epoch < query.map_epoch && !self.is(Mutant::LearnersAnswerEarly) =>
            {
                false
            }
            ReplicaQueryKind::Position => {
                // The primary may count the replica at once, at the reported position. A late page
                // of an earlier primary must not take that away.
                self.copies.promise(partition, query.epoch, &mut self.batch);
                let answer = self.replica_answer(query);
                self.pending_queries.unsynced.push_back((None, from, answer));
                true
            }
            // A primary with an old map will ask again.
            _ if entry.epoch > query.epoch => true,
            // The map has not arrived here yet: this node may still work as the primary.
            _ if entry.epoch < query.epoch => false,
            ReplicaQueryKind::Drained => {
                // The writes of this very step are not shipped yet.
                let mut others = self.out.iter().filter(|(to, _)| **to != self.me);
                let is_new = others.any(|(_, it)| it.counted.contains(&partition));
                let busy = self.served.contains_key(&partition)
                    || self.shipping.is_open_elsewhere(self.me, partition)
                    || is_new;
                if busy {
                    mark(Mark::DrainWaits);
                } else {
                    let answer = self.replica_answer(query);
                    self.pending_queries.ready.push((from, answer));
                }
                !busy
            }
            ReplicaQueryKind::Prepare => {
                if now < free_at {
                    mark(Mark::PromiseWaits);
                    self.wake(free_at);
                    return false;
                }
                self.copies.promise(partition, query.epoch, &mut self.batch);
                let mut answer = self.replica_answer(query);
                let told = kvs::replica::position(query.position.as_ref());
                let tail = self.copies.since(partition, told).unwrap_or_default();
                answer.tail = tail.iter().map(|change| change.as_ref().clone()).collect();
                self.pending_queries.unsynced.push_back((None, from, answer));
                true
            }
        }
    }

    fn replica_answer(&self, query: &wire::ReplicaQuery) -> wire::ReplicaAnswer {
        let partition = PartitionId(query.partition);
        wire::ReplicaAnswer {
            partition: query.partition,
            epoch: query.epoch,
            kind: query.kind,
            position: Some(self.copies.position(partition).into()),
            installing_snapshot: self.copies.is_installing_snapshot(partition),
            tail: Vec::new(),
        }
    }

    /// When no primary that may have been replaced holds a lease of this node any more.
    pub(super) fn leases_run_out_at(&self) -> Time {
        if self.is(Mutant::LeasesUnwaited) {
            return Time::ZERO;
        }
        let map = &self.map;
        self.leases.free_at(|peer, incarnation| map::may_still_run(map, peer, incarnation))
    }
}
