//! What a newer map means for the copies and homes of this node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kvs::Record;
use kvs::membership::{is_serving, member, min_in_sync};
use proto::wire::{self, MemberPhase};
use proto::{Incarnation, NodeId, PartitionId};

use super::Replica;
use super::activation::{Activation, Stage};
use super::primary::{Learner, Served};

/// A partition that this node serves from now on.
#[derive(Debug)]
pub(crate) struct TakenOver {
    pub(crate) partition: PartitionId,
    pub(crate) epoch: u64,
    pub(crate) records: Vec<Record>,
}

/// What the node has to do because of a map.
#[derive(Debug, Default)]
pub(crate) struct MapNews {
    /// It serves these no more.
    pub(crate) given_up: Vec<PartitionId>,
    /// It serves these.
    pub(crate) taken_over: Vec<TakenOver>,
}

/// Whether the map takes this incarnation for a live one that may serve. A map that was agreed on
/// before says nothing of it: its disk may be another one.
pub(crate) fn is_current(map: &wire::ClusterMap, node: NodeId, incarnation: Incarnation) -> bool {
    let known = |member: &wire::Member| member.incarnation == incarnation.0;
    is_serving(map, node.0) && member(map, node).is_some_and(known)
}

pub(super) fn may_have_lease(map: &wire::ClusterMap, node: NodeId, own: Incarnation) -> bool {
    member(map, node).is_some_and(|member| {
        !matches!(member.phase(), MemberPhase::Down | MemberPhase::Removed)
            && own.0 >= member.incarnation
    })
}

/// A process of this incarnation may be there and take itself for a primary although the map does
/// not. A later incarnation is the proof that it is not.
pub(super) fn may_still_run(map: &wire::ClusterMap, node: NodeId, own: Incarnation) -> bool {
    member(map, node).is_none_or(|member| {
        member.incarnation <= own.0
            && matches!(member.phase(), MemberPhase::Down | MemberPhase::Removed)
    })
}

impl Replica {
    fn serve(&mut self, partition: PartitionId, entry: &wire::PartitionEntry) {
        let served = Served {
            epoch: 0,
            members: Vec::new(),
            learners: BTreeMap::new(),
            is_short: false,
            must_register: false,
            refusing: BTreeSet::new(),
        };
        self.served.insert(partition, served);
        self.update(partition, entry);
    }

    /// A newer map that takes this incarnation for a live one.
    pub(crate) fn on_map(&mut self, map: Arc<wire::ClusterMap>) -> MapNews {
        let older = std::mem::replace(&mut self.map, Arc::clone(&map));
        let mut news = MapNews::default();
        let is_current = is_current(&map, self.me, self.incarnation);
        for (at, entry) in (0..).zip(&map.partitions) {
            let partition = PartitionId(at);
            let same = older.partitions.get(at as usize) == Some(entry);
            let is_mine = is_current && entry.replicas[0] == self.me.0 && !entry.lost;
            if self.served.contains_key(&partition) {
                if is_mine && entry.active {
                    self.update(partition, entry);
                } else {
                    self.served.remove(&partition);
                    news.given_up.push(partition);
                }
            }
            if is_mine && !entry.active {
                let begun = self.activations.get(&partition);
                if begun.is_none_or(|activation| activation.epoch != entry.epoch) {
                    let others = entry.replicas[1..].iter().map(|&node| NodeId(node));
                    self.begin_activation(partition, entry.epoch, others.collect());
                }
            } else if let Some(records) = self.records_at_hand(partition)
                && is_mine
                && !self.served.contains_key(&partition)
            {
                self.serve(partition, entry);
                // The epoch it was read under is the one it was registered under.
                let epoch = entry.epoch;
                news.taken_over.push(TakenOver { partition, epoch, records });
            }
            // An earlier life may not have heard that it should. A map that does not know this one
            // yet may be older than what that life has heard of.
            if is_current && (!same || !self.has_looked) {
                self.drop_copy(partition, entry);
            }
        }
        self.has_looked |= is_current;
        self.retain_shipped();
        self.count_backups();
        self.wants_anew = true;
        news
    }

    /// All that a partition consists of, if this node may begin to serve it: it has registered as
    /// its primary; or it is there for the first time, and the first map calls it active and empty.
    fn records_at_hand(&mut self, partition: PartitionId) -> Option<Vec<Record>> {
        match self.activations.remove(&partition) {
            Some(Activation { stage: Stage::Ready { records }, .. }) => Some(records),
            Some(_) => None,
            None => (self.incarnation == Incarnation(1)).then(Vec::new),
        }
    }

    /// Others have everything and this node is none of them: its copy goes.
    fn drop_copy(&mut self, partition: PartitionId, entry: &wire::PartitionEntry) {
        let holders = entry.replicas.iter().chain(&entry.learners).chain(&entry.former);
        let is_holder = holders.into_iter().any(|&node| node == self.me.0);
        if entry.active && !is_holder {
            self.copies.give_up(partition, entry.epoch, &mut self.batch);
        }
    }

    /// The configuration of a partition that this node serves.
    fn update(&mut self, partition: PartitionId, entry: &wire::PartitionEntry) {
        let short = entry.replicas.len() < min_in_sync(self.map.copies);
        let served = self.served.get_mut(&partition).expect("the caller serves it");
        if served.epoch != entry.epoch {
            // A learner that began anew may have become a member just before it could be let go.
            served.refusing.retain(|member| {
                served.learners.contains_key(member) && entry.replicas.contains(&member.0)
            });
            // An answer that is still to come speaks of the epoch before, and is passed over.
            let asked = |(_, learner): &(_, &Learner)| matches!(learner, Learner::Asked);
            let asked = served.learners.iter().filter(asked);
            self.unasked.extend(asked.map(|(&node, _)| (partition, node)));
        }
        served.epoch = entry.epoch;
        served.members = entry.replicas[1..].iter().map(|&node| NodeId(node)).collect();
        served.is_short = short;
        served.must_register = !entry.former.is_empty();
        if served.must_register {
            let left: Vec<NodeId> = entry.former.iter().map(|&node| NodeId(node)).collect();
            self.shipping.wait_for_map(self.me, &left, partition);
        }
        let served = self.served.get_mut(&partition).expect("the caller serves it");
        let learners: BTreeSet<NodeId> = entry.learners.iter().map(|&node| NodeId(node)).collect();
        served.learners.retain(|node, _| learners.contains(node));
        let members = &served.members;
        served.refusing.retain(|node| members.contains(node) || learners.contains(node));
        for node in learners {
            served.learners.entry(node).or_insert_with(|| {
                self.unasked.insert((partition, node));
                Learner::Asked
            });
        }
    }

    /// Who has left is waited for no more.
    fn retain_shipped(&mut self) {
        let (me, served, activations) = (self.me, &self.served, &self.activations);
        let map = &self.map;
        self.shipping.retain(|peer, partition| match served.get(&partition) {
            Some(served) if peer == me => served.waits_for_map(),
            Some(served) => {
                let learner = served.learners.get(&peer);
                served.members.contains(&peer) || matches!(learner, Some(Learner::CaughtUp { .. }))
            }
            None if activations.contains_key(&partition) => {
                let entry = &map.partitions[partition.0 as usize];
                entry.replicas.contains(&peer.0)
            }
            // What was shipped before the partition was handed over.
            None => {
                let entry = &map.partitions[partition.0 as usize];
                let waits = peer != me || !entry.former.is_empty();
                waits && entry.replicas.contains(&peer.0) && entry.replicas.contains(&me.0)
            }
        });
    }

    fn count_backups(&mut self) {
        let members = self.served.values().flat_map(|served| served.members.iter().copied());
        let all: BTreeSet<NodeId> = members.collect();
        self.backups = all.into_iter().collect();
    }
}
