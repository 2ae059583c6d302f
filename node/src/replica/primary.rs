//! The primary's side: the writes of a step go to every replica, and new replicas are filled.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use kvs::keys::is_whole_job;
use kvs::replica::{is_own_record, position};
use kvs::{Page, PageRequest, Write};

use crate::Mutant;
use proto::marks::{Mark, mark};
use proto::wire::{self, ReplicaQueryKind, SnapshotChunk};
use proto::{NodeId, PartitionId};

use super::Replica;
use crate::replica::limits::{COPIES_FILLING_MAX, COPY_PAGE_BYTES};

/// A partition that this node serves.
#[derive(Debug)]
pub(super) struct Served {
    pub(super) epoch: u64,
    /// The configuration without this node.
    pub(super) members: Vec<NodeId>,
    pub(super) learners: BTreeMap<NodeId, Learner>,
    /// There are fewer members than are needed to acknowledge anything.
    pub(super) is_short: bool,
    /// The primary was left alone and must register before it acknowledges anything. Otherwise the
    /// nodes that left may continue without it.
    pub(super) must_register: bool,
    /// Members with different replicas, and learners that have started over although the map may be
    /// about to count them: they must be dropped.
    pub(super) refusing: BTreeSet<NodeId>,
}

impl Served {
    pub(super) fn waits_for_map(&self) -> bool {
        self.is_short || self.must_register
    }
}

/// The progress of a node that is not a member yet.
#[derive(Debug)]
pub(super) enum Learner {
    /// The learner was asked for its position.
    Asked,
    /// All records are to be sent, once a fill may begin.
    Queued,
    Installing(Installing),
    /// The learner counts as a member from this message on. `ready`: it has synced that message, so
    /// the map may count it at any moment.
    CaughtUp {
        number: u64,
        ready: bool,
    },
}

impl Learner {
    pub(super) fn may_be_counted(&self) -> bool {
        matches!(self, Self::CaughtUp { ready: true, .. })
    }
}

#[derive(Debug)]
pub(super) struct Installing {
    /// The page that is being read.
    page: u64,
    /// Keys that were written since the page was requested: the learner has newer values of them.
    changed: BTreeSet<Bytes>,
    /// The last key that was sent, and the message that must be logged before more is sent.
    after: Option<Vec<u8>>,
    in_flight: Option<u64>,
}

impl Replica {
    /// Ships the node's writes to partitions that it serves. May be called several times in a step.
    pub(crate) fn ship(&mut self, own: Vec<Write>) {
        let mut by_partition: BTreeMap<PartitionId, Vec<wire::RecordWrite>> = BTreeMap::new();
        for write in own {
            let key = Bytes::from(write.key.clone());
            let removed = write.value.is_none();
            let value = write.value.clone().map(Bytes::from).unwrap_or_default();
            let record = wire::RecordWrite { key, value, removed };
            by_partition.entry(write.partition).or_default().push(record);
            self.batch.writes.push(write);
        }
        for (partition, writes) in by_partition {
            self.ship_one(partition, writes);
        }
    }

    fn ship_one(&mut self, partition: PartitionId, writes: Vec<wire::RecordWrite>) {
        let (mutant, all) = (self.mutant, self.mutant != Some(Mutant::FirstCopyCounts));
        let served = self.served.get_mut(&partition);
        let served = served.unwrap_or_else(|| {
            let key = writes.first().map(|write| &write.key);
            panic!("{partition} is written and not served: {key:?}")
        });
        let change = self.copies.advance(partition, served.epoch, writes, &mut self.batch);
        if served.waits_for_map() {
            self.out.entry(self.me).or_default().counted.push(partition);
        }
        for (at, &member) in served.members.iter().enumerate() {
            self.out.entry(member).or_default().add(change.as_ref().clone(), all || at == 0);
        }
        for (&node, learner) in &mut served.learners {
            let out = self.out.entry(node).or_default();
            match learner {
                Learner::Asked | Learner::Queued => {}
                Learner::Installing(installing) => {
                    installing.changed.extend(change.writes.iter().map(|write| write.key.clone()));
                    if mutant == Some(Mutant::SnapshotForgets) {
                        continue;
                    }
                    let snapshot_chunk = SnapshotChunk::More as i32;
                    out.add(
                        wire::Change { snapshot_chunk, after: None, ..change.as_ref().clone() },
                        false,
                    );
                }
                Learner::CaughtUp { .. } => out.add(change.as_ref().clone(), true),
            }
        }
    }

    /// The number of the message with the changes of this step.
    fn next_number(&self) -> u64 {
        self.number + 1
    }

    /// A learner has reported its position.
    pub(super) fn learner_answered(&mut self, from: NodeId, answer: &wire::ReplicaAnswer) {
        let partition = PartitionId(answer.partition);
        let number = self.next_number();
        let Some(served) = self.served.get_mut(&partition) else { return };
        let Some(learner) = served.learners.get_mut(&from) else { return };
        if served.epoch != answer.epoch || !matches!(learner, Learner::Asked) {
            return;
        }
        let at = position(answer.position.as_ref());
        let tail = self.copies.since(partition, at).filter(|_| !answer.installing_snapshot);
        let Some(tail) = tail else {
            *learner = Learner::Queued;
            return;
        };
        // A learner that lacks nothing is ready at once: no later message would show its position.
        let ready = tail.is_empty() || self.mutant == Some(Mutant::LearnersCountEarly);
        *learner = Learner::CaughtUp { number, ready };
        if !tail.is_empty() {
            mark(Mark::LearnerByTail);
        }
        let out = self.out.entry(from).or_default();
        for change in tail {
            out.add(wire::Change { epoch: served.epoch, ..change.as_ref().clone() }, true);
        }
        self.wants_anew |= ready;
    }

    /// Asks learners that are new, or have restarted, for their positions.
    pub(super) fn ask_learners(&mut self) {
        if self.unasked.is_empty() {
            return;
        }
        let mut queries: BTreeMap<NodeId, Vec<wire::ReplicaQuery>> = BTreeMap::new();
        for (&partition, served) in &self.served {
            for (&node, learner) in &served.learners {
                if matches!(learner, Learner::Asked) && self.unasked.contains(&(partition, node)) {
                    queries.entry(node).or_default().push(wire::ReplicaQuery {
                        partition: partition.0,
                        epoch: served.epoch,
                        kind: ReplicaQueryKind::Position as i32,
                        position: None,
                        map_epoch: self.map.epoch,
                    });
                }
            }
        }
        self.unasked.clear();
        for (node, queries) in queries {
            self.send_queries(node, queries);
        }
    }

    /// Sends learners the pages that can be sent now, after the step's own changes.
    pub(super) fn fill_learners(&mut self) {
        if !self.has_learners {
            return;
        }
        let (number, mutant) = (self.next_number(), self.mutant);
        let installing = |learner: &Learner| matches!(learner, Learner::Installing(_));
        let learners = self.served.values().flat_map(|served| served.learners.values());
        let mut filled = learners.filter(|learner| installing(learner)).count();
        for (&partition, served) in &mut self.served {
            for (&node, learner) in &mut served.learners {
                let out = self.out.entry(node).or_default();
                if matches!(learner, Learner::Queued) && filled < COPIES_FILLING_MAX {
                    filled += 1;
                    let begin =
                        snapshot_change(partition, served.epoch, SnapshotChunk::First, Vec::new());
                    out.add(begin, false);
                    *learner = Learner::Installing(Installing {
                        page: 0,
                        changed: BTreeSet::new(),
                        after: None,
                        in_flight: None,
                    });
                }
                let Learner::Installing(installing) = learner else { continue };
                if let Some(page) = self.pages.remove(&installing.page) {
                    installing.after = page.records.last().map(|record| record.key.clone());
                    installing.in_flight = Some(number);
                    if mutant == Some(Mutant::PagesOverwrite) {
                        installing.changed.clear();
                    }
                    let writes = page_writes(&page, &installing.changed);
                    out.add(
                        snapshot_change(partition, served.epoch, SnapshotChunk::More, writes),
                        false,
                    );
                    if page.end || mutant == Some(Mutant::SnapshotEndsEarly) {
                        let mut end = snapshot_change(
                            partition,
                            served.epoch,
                            SnapshotChunk::Last,
                            Vec::new(),
                        );
                        end.after = Some(self.copies.position(partition).into());
                        out.add(end, true);
                        let ready = mutant == Some(Mutant::LearnersCountEarly);
                        *learner = Learner::CaughtUp { number, ready };
                        self.wants_anew |= ready;
                    }
                } else if installing.page == 0 {
                    if installing.after.is_some() {
                        mark(Mark::FilledByPages);
                    }
                    self.page_number += 1;
                    installing.page = self.page_number;
                    installing.changed.clear();
                    self.reads.push(PageRequest {
                        partition,
                        after: installing.after.clone(),
                        bytes: COPY_PAGE_BYTES,
                        number: installing.page,
                    });
                }
            }
        }
    }

    /// A peer reports its progress.
    pub(super) fn on_replicated(&mut self, from: NodeId, mut told: wire::Replicated) {
        if self.is(Mutant::RefusalsIgnored) {
            told.refused.clear();
        }
        self.shipping.answered(from, &told);
        self.has_refusals |= !told.refused.is_empty();
        for refusal in &told.refused {
            if self.activations.contains_key(&PartitionId(refusal.partition)) {
                mark(Mark::DropWhileActivating);
            }
            self.member_refuses(PartitionId(refusal.partition), from);
        }
        // A partition that is ready to become active may have waited for this.
        self.wants_anew |= !self.activations.is_empty();
        if told.refused.is_empty() && !self.has_learners {
            return;
        }
        let refuses = |partition: PartitionId| {
            told.refused.iter().any(|refusal| refusal.partition == partition.0)
        };
        let mut asked_again = Vec::new();
        for (&partition, served) in &mut self.served {
            let refused = refuses(partition);
            if served.members.contains(&from) && refused {
                mark(Mark::MemberRefuses);
                self.wants_anew |= served.refusing.insert(from);
            }
            let Some(learner) = served.learners.get_mut(&from) else { continue };
            if refused && learner.may_be_counted() {
                self.wants_anew |= served.refusing.insert(from);
                continue;
            }
            if refused {
                mark(Mark::LearnerRefuses);
                asked_again.push(partition);
                continue;
            }
            match learner {
                Learner::Installing(installing)
                    if installing.in_flight.is_some_and(|number| number <= told.logged) =>
                {
                    (installing.in_flight, installing.page) = (None, 0);
                }
                Learner::CaughtUp { number, ready } if *number <= told.synced && !*ready => {
                    *ready = true;
                    self.wants_anew = true;
                }
                _ => {}
            }
        }
        asked_again.into_iter().for_each(|partition| self.restart_learner(partition, from));
    }

    /// Starts over with a learner: earlier messages to it no longer count.
    pub(super) fn restart_learner(&mut self, partition: PartitionId, node: NodeId) {
        let served = self.served.get_mut(&partition);
        let Some(learner) = served.and_then(|served| served.learners.get_mut(&node)) else {
            return;
        };
        *learner = Learner::Asked;
        self.unasked.insert((partition, node));
        self.shipping.forget(node, partition);
    }

    /// A peer has another incarnation: messages to the earlier one are lost. The map may already be
    /// about to count it as a member. Then the partition does not continue without the peer before
    /// the map has dropped it: the peer could be the next primary.
    pub(super) fn learner_restarted(&mut self, peer: NodeId) {
        if self.is(Mutant::RestartedLearners) {
            return;
        }
        let mut asked_again = Vec::new();
        for (&partition, served) in &mut self.served {
            let Some(learner) = served.learners.get(&peer) else { continue };
            if learner.may_be_counted() {
                mark(Mark::LearnerRestarted);
                self.wants_anew |= served.refusing.insert(peer);
            } else {
                asked_again.push(partition);
            }
        }
        asked_again.into_iter().for_each(|partition| self.restart_learner(partition, peer));
    }
}

fn snapshot_change(
    partition: PartitionId,
    epoch: u64,
    snapshot_chunk: SnapshotChunk,
    writes: Vec<wire::RecordWrite>,
) -> wire::Change {
    wire::Change {
        partition: partition.0,
        epoch,
        before: None,
        after: None,
        snapshot_chunk: snapshot_chunk as i32,
        writes,
    }
}

/// The records of a page, without those of which the learner has newer values.
fn page_writes(page: &Page, changed: &BTreeSet<Bytes>) -> Vec<wire::RecordWrite> {
    let is_older = |key: &[u8]| {
        let whole_job = key.get(..9).is_some_and(|job| is_whole_job(job) && changed.contains(job));
        let is_older = changed.contains(key) || whole_job;
        if is_older {
            mark(Mark::PageIsOlder);
        }
        is_older
    };
    let stale = |key: &[u8]| is_own_record(key) || is_older(key);
    let records = page.records.iter().filter(|record| !stale(&record.key));
    let write = |record: &kvs::Record| wire::RecordWrite {
        key: Bytes::copy_from_slice(&record.key),
        value: Bytes::copy_from_slice(&record.value),
        removed: false,
    };
    records.map(write).collect()
}
