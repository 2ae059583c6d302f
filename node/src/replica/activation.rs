//! How a node becomes the primary of a partition of which it has a replica.
//!
//! ```text
//! draining   the previous primary, if it is still there, reports that it writes nothing more
//! promising  every other member promises the epoch, durably, and reports its position; so does
//!            this node. Leases that an earlier primary may still have expire meanwhile. Then all
//!            members are brought to the furthest position. Acknowledged writes are on all members,
//!            so every position covers them; further writes do no harm
//! reading    the records of this node's replica are read
//! ready      all members have that position, or have refused it. The map must show the partition
//!            as active; this node serves as soon as it does
//! ```
//! A member that cannot be brought to that position by the changes at hand is dropped as soon as
//! this node serves: the previous primary may wait for exactly that.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::Mutant;
use kvs::replica::{Position, position};
use kvs::{Page, PageRequest, Record};
use proto::limits::ACTIVATION_LATE;
use proto::marks::{Mark, mark};
use proto::wire::{self, ReplicaQueryKind};
use proto::{NodeId, PartitionId, Time};

use super::Replica;
use crate::replica::limits::COPY_PAGE_BYTES;

#[derive(Debug)]
pub(super) struct Activation {
    pub(super) epoch: u64,
    pub(super) members: Vec<NodeId>,
    pub(super) stage: Stage,
    /// Members with replicas that differ: they must be dropped.
    pub(super) refusing: BTreeSet<NodeId>,
    /// When this node first worked on it.
    begun: Option<Time>,
}

impl Activation {
    fn is_late(&self, now: Time) -> bool {
        self.begun.is_some_and(|begun| begun + ACTIVATION_LATE <= now)
    }
    /// The present stage, as text.
    pub(super) fn describe(&self) -> String {
        match &self.stage {
            Stage::Draining { waiting } => format!("waits until {} release it", listed(waiting)),
            Stage::Promising(promising) if promising.waiting.is_empty() => {
                "waits for its own promise, or for leases to run out".to_owned()
            }
            Stage::Promising(promising) => {
                format!("waits for promises of {}", listed(&promising.waiting))
            }
            Stage::Reading { .. } => "reads its records".to_owned(),
            Stage::Ready { .. } => "waits for members, or for the map to say so".to_owned(),
        }
    }
}

fn listed(nodes: &BTreeSet<NodeId>) -> String {
    nodes.iter().map(NodeId::to_string).collect::<Vec<String>>().join(", ")
}

#[derive(Debug)]
pub(super) enum Stage {
    Draining { waiting: BTreeSet<NodeId> },
    Promising(Promising),
    Reading { page: u64, records: Vec<Record> },
    Ready { records: Vec<Record> },
}

#[derive(Debug)]
pub(super) struct Promising {
    waiting: BTreeSet<NodeId>,
    told: BTreeMap<NodeId, wire::ReplicaAnswer>,
    /// The batch with this node's own promise.
    own_batch: Option<u64>,
}

impl Promising {
    /// Whether all other members have promised.
    fn is_enough(&self, mutant: Option<Mutant>) -> bool {
        let by_majority = mutant == Some(Mutant::MajorityActivates);
        self.waiting.is_empty() || (by_majority && self.told.len() + 1 > self.waiting.len())
    }
}

impl Replica {
    /// This node is to become the primary of a partition with these other members.
    pub(super) fn begin_activation(
        &mut self,
        partition: PartitionId,
        epoch: u64,
        members: Vec<NodeId>,
    ) {
        let waiting: BTreeSet<NodeId> = members.iter().copied().collect();
        let (stage, refusing) = (Stage::Draining { waiting }, BTreeSet::new());
        let activation = Activation { epoch, members, stage, refusing, begun: None };
        self.activations.insert(partition, activation);
        self.unasked_members.insert(partition);
    }

    /// Sends the open questions to the members that have not answered yet.
    pub(super) fn ask_members(&mut self) {
        let mut queries: BTreeMap<NodeId, Vec<wire::ReplicaQuery>> = BTreeMap::new();
        for partition in std::mem::take(&mut self.unasked_members) {
            let Some(activation) = self.activations.get(&partition) else { continue };
            let (kind, waiting) = match &activation.stage {
                Stage::Draining { waiting } => (ReplicaQueryKind::Drained, waiting),
                Stage::Promising(promising) => (ReplicaQueryKind::Prepare, &promising.waiting),
                Stage::Reading { .. } | Stage::Ready { .. } => continue,
            };
            for &node in waiting {
                queries.entry(node).or_default().push(wire::ReplicaQuery {
                    partition: partition.0,
                    epoch: activation.epoch,
                    kind: kind as i32,
                    position: Some(self.copies.position(partition).into()),
                    map_epoch: self.map.epoch,
                });
            }
        }
        for (node, queries) in queries {
            self.send_queries(node, queries);
        }
    }

    /// A member has restarted: it may have lost the question.
    pub(super) fn member_restarted(&mut self, peer: NodeId) {
        for (&partition, activation) in &self.activations {
            let waits = match &activation.stage {
                Stage::Draining { waiting } => waiting.contains(&peer),
                Stage::Promising(promising) => promising.waiting.contains(&peer),
                Stage::Reading { .. } | Stage::Ready { .. } => false,
            };
            if waits {
                self.unasked_members.insert(partition);
            }
        }
    }

    pub(super) fn member_answered(&mut self, from: NodeId, answer: wire::ReplicaAnswer) {
        let partition = PartitionId(answer.partition);
        let Some(activation) = self.activations.get_mut(&partition) else { return };
        if activation.epoch != answer.epoch {
            return;
        }
        match &mut activation.stage {
            Stage::Draining { waiting } if answer.kind() == ReplicaQueryKind::Drained => {
                waiting.remove(&from);
            }
            Stage::Promising(promising)
                if answer.kind() == ReplicaQueryKind::Prepare
                    && promising.waiting.contains(&from) =>
            {
                promising.waiting.remove(&from);
                promising.told.insert(from, answer);
            }
            _ => {}
        }
    }

    /// Advances every activation as far as possible.
    pub(super) fn activate(&mut self, now: Time, durable: u64) {
        let partitions: Vec<PartitionId> = self.activations.keys().copied().collect();
        for partition in partitions {
            self.activate_one(now, durable, partition);
        }
    }

    /// The partitions that this node has tried to serve for too long, and the cause for the first.
    pub(crate) fn late_activations(&self, now: Time) -> Option<String> {
        let mut late = self.activations.iter().filter(|(_, activation)| activation.is_late(now));
        let (partition, first) = late.next()?;
        let (epoch, others) = (first.epoch, late.count());
        Some(format!(
            "{partition} at epoch {epoch} has no active home, this node {}; {others} others alike",
            first.describe()
        ))
    }

    fn activate_one(&mut self, now: Time, durable: u64, partition: PartitionId) {
        let free_at = self.leases_run_out_at();
        let careless = self.mutant == Some(Mutant::ActivateWithoutPromise);
        let activation = self.activations.get_mut(&partition).expect("listed by the caller");
        activation.begun.get_or_insert(now);
        let epoch = activation.epoch;
        if let Stage::Draining { waiting } = &activation.stage
            && (waiting.is_empty() || careless)
        {
            self.copies.promise(partition, epoch, &mut self.batch);
            let waiting: BTreeSet<NodeId> = activation.members.iter().copied().collect();
            let waiting = if careless { BTreeSet::new() } else { waiting };
            activation.stage =
                Stage::Promising(Promising { waiting, told: BTreeMap::new(), own_batch: None });
            self.unasked_members.insert(partition);
        }
        if let Stage::Promising(promising) = &mut activation.stage
            && promising.is_enough(self.mutant)
            && promising.own_batch.is_some_and(|batch| batch <= durable)
        {
            if now < free_at && !careless {
                self.wake(free_at);
                return;
            }
            let told = std::mem::take(&mut promising.told);
            self.page_number += 1;
            let page = self.page_number;
            activation.stage = Stage::Reading { page, records: Vec::new() };
            self.reconcile(partition, epoch, &told);
            let (after, bytes) = (None, COPY_PAGE_BYTES);
            self.reads.push(PageRequest { partition, after, bytes, number: page });
        }
    }

    /// Brings the members to the furthest position among them.
    fn reconcile(
        &mut self,
        partition: PartitionId,
        epoch: u64,
        told: &BTreeMap<NodeId, wire::ReplicaAnswer>,
    ) {
        let at = |answer: &wire::ReplicaAnswer| -> Position { position(answer.position.as_ref()) };
        let whole = told.values().filter(|answer| !answer.installing_snapshot);
        let furthest = whole.max_by_key(|answer| at(answer));
        let furthest = furthest.filter(|_| !self.is(Mutant::ShortestWins));
        let tail = furthest.filter(|answer| at(answer) > self.copies.position(partition));
        for change in tail.into_iter().flat_map(|answer| &answer.tail) {
            let change = Arc::new(wire::Change { epoch, ..change.clone() });
            if self.copies.take(&change, &mut self.batch).is_err() {
                break; // This node has taken what it can; members with more are dropped.
            }
            mark(Mark::TailTaken);
        }
        for (&node, answer) in told {
            let missing =
                self.copies.since(partition, at(answer)).filter(|_| !answer.installing_snapshot);
            let Some(mut missing) = missing else {
                self.member_refuses(partition, node);
                continue;
            };
            if self.is(Mutant::TailsUnsent) {
                missing.clear();
            }
            if !missing.is_empty() {
                mark(Mark::MemberBrought);
            }
            let out = self.out.entry(node).or_default();
            for change in missing {
                out.add(wire::Change { epoch, ..change.as_ref().clone() }, true);
            }
        }
    }

    /// A member of a partition that is to be taken over has a different replica. There may never be
    /// another write to the partition, so nothing else shows that the member must be dropped.
    pub(super) fn member_refuses(&mut self, partition: PartitionId, node: NodeId) {
        if let Some(activation) = self.activations.get_mut(&partition)
            && activation.members.contains(&node)
        {
            activation.refusing.insert(node);
        }
    }

    /// The batch of this step, with its promises, has this number.
    pub(super) fn note_promises(&mut self, batch: u64) {
        for activation in self.activations.values_mut() {
            if let Stage::Promising(promising) = &mut activation.stage {
                promising.own_batch.get_or_insert(batch);
            }
        }
    }

    /// Handles a page of records. Returns false if no activation waits for it.
    pub(super) fn on_activation_page(&mut self, page: &mut Page) -> bool {
        let Some(activation) = self.activations.get_mut(&page.partition) else { return false };
        let Stage::Reading { page: number, records } = &mut activation.stage else { return false };
        if *number != page.number {
            return false;
        }
        records.append(&mut page.records);
        if page.end {
            activation.stage = Stage::Ready { records: std::mem::take(records) };
            self.wants_anew = true;
            return true;
        }
        self.page_number += 1;
        *number = self.page_number;
        self.reads.push(PageRequest {
            partition: page.partition,
            after: records.last().map(|record| record.key.clone()),
            bytes: COPY_PAGE_BYTES,
            number: *number,
        });
        true
    }
}
