//! Applies a newer map to the replicas and homes of this node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::Mutant;
use kvs::Record;
use kvs::membership::{is_serving, member, min_in_sync};
use proto::marks::{Mark, mark};
use proto::{Incarnation, NodeId, PartitionId, Time, wire};

use super::Replica;
use super::activation::{Activation, Stage};
use super::primary::{Learner, Served};
use crate::replica::limits::REFUSAL_TIMEOUT;

/// A partition that this node serves from now on.
#[derive(Debug)]
pub(crate) struct TakenOver {
    pub(crate) partition: PartitionId,
    pub(crate) epoch: u64,
    pub(crate) records: Vec<Record>,
}

/// The consequences of a map for the node.
#[derive(Debug, Default)]
pub(crate) struct MapNews {
    /// The node no longer serves these.
    pub(crate) given_up: Vec<PartitionId>,
    /// The node serves these from now on.
    pub(crate) taken_over: Vec<TakenOver>,
    /// This incarnation has sent or done something that its replicas may not have, and must end.
    pub(crate) must_end: bool,
}

/// Whether the map shows this incarnation as alive, so that it may serve. A map from before its
/// start does not: the disk may be another one.
pub(crate) fn is_current(map: &wire::ClusterMap, node: NodeId, incarnation: Incarnation) -> bool {
    let known = |member: &wire::Member| member.incarnation == incarnation.0;
    is_serving(map, node.0) && member(map, node).is_some_and(known)
}

pub(super) fn may_have_lease(map: &wire::ClusterMap, node: NodeId, own: Incarnation) -> bool {
    member(map, node).is_some_and(|member| !member.is_gone() && own.0 >= member.incarnation)
}

/// Whether a process of this incarnation may still run and consider itself a primary although the
/// map does not. A later incarnation proves that it does not run.
pub(super) fn may_still_run(map: &wire::ClusterMap, node: NodeId, own: Incarnation) -> bool {
    member(map, node).is_none_or(|member| member.incarnation <= own.0 && member.is_gone())
}

impl Replica {
    fn serve(
        &mut self,
        partition: PartitionId,
        entry: &wire::PartitionEntry,
        refusing: BTreeSet<NodeId>,
    ) {
        let served = Served {
            epoch: 0,
            members: Vec::new(),
            learners: BTreeMap::new(),
            is_short: false,
            must_register: false,
            refusing,
        };
        self.served.insert(partition, served);
        self.update(partition, entry);
    }

    /// Applies a newer map. Returns its consequences for the node.
    pub(crate) fn on_map(&mut self, now: Time, map: Arc<wire::ClusterMap>) -> MapNews {
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
                    if !entry.former.is_empty() && entry.replicas.len() == 1 {
                        mark(Mark::FormerFollows);
                    }
                    let others = entry.replicas[1..].iter().map(|&node| NodeId(node));
                    self.begin_activation(partition, entry.epoch, others.collect());
                }
            } else if let Some((records, refusing)) = self.records_at_hand(partition)
                && is_mine
                && !self.served.contains_key(&partition)
            {
                self.serve(partition, entry, refusing);
                // The epoch of the map is the one under which it was registered and read.
                let epoch = entry.epoch;
                news.taken_over.push(TakenOver { partition, epoch, records });
            }
            if !same && !self.served.contains_key(&partition) {
                self.wait_for_map(partition, &nodes(&entry.former));
            }
            // An earlier incarnation may not have known that it should. A map that does not show
            // this incarnation yet may be older than the maps that the earlier one knew.
            if is_current && (!same || !self.has_looked) {
                self.drop_replica(partition, entry);
            }
        }
        self.has_looked |= is_current;
        let all = || (0..map.partitions.len() as u32).map(PartitionId);
        self.map_is_behind = self.map_is_behind && all().any(|of| self.is_behind(of));
        self.note_restarts(&older);
        news.must_end = self.is_dropped();
        self.retain_shipped();
        self.sum_up_served();
        self.watch_slow(now);
        self.wants_anew = true;
        news
    }

    /// Handles peers with a later incarnation in the map than this node knows. Their first messages
    /// may be lost, and they may have no others to send.
    fn note_restarts(&mut self, older: &wire::ClusterMap) {
        let map = Arc::clone(&self.map);
        for it in &map.members {
            let node = NodeId(it.node);
            let known = member(older, node).map_or(0, |before| before.incarnation);
            let heard = self.links.incarnation_of(node);
            if node != self.me && it.incarnation > known && it.incarnation > heard && heard > 0 {
                self.peer_restarted(node);
            }
        }
    }

    /// All records of a partition, if this node may begin to serve it, and the members with
    /// different replicas. A node may serve a partition after it has registered as its primary. A
    /// first incarnation also may: then the first map shows the partition as active and empty.
    fn records_at_hand(
        &mut self,
        partition: PartitionId,
    ) -> Option<(Vec<Record>, BTreeSet<NodeId>)> {
        match self.activations.remove(&partition) {
            Some(Activation { stage: Stage::Ready { records }, refusing, .. }) => {
                Some((records, refusing))
            }
            Some(_) => None,
            None => (self.incarnation == Incarnation::FIRST).then(Default::default),
        }
    }

    /// Drops the replica of an active partition if this node is neither a member nor a learner nor
    /// a former member.
    fn drop_replica(&mut self, partition: PartitionId, entry: &wire::PartitionEntry) {
        if self.is_left_out(entry) {
            self.copies.give_up(partition, entry.epoch, &mut self.batch);
        }
    }

    fn is_left_out(&self, entry: &wire::PartitionEntry) -> bool {
        let formers =
            if self.is(Mutant::FormerMembersDropReplica) { &[] } else { entry.former.as_slice() };
        let mut holders = entry.replicas.iter().chain(&entry.learners).chain(formers);
        entry.active && !holders.any(|&node| node == self.me.0)
    }

    /// Whether the change is of an earlier configuration, and this node is not in the present one.
    /// If this node never had a replica, only the map shows that.
    pub(super) fn is_of_the_past(&self, change: &wire::Change) -> bool {
        let entry = self.map.partitions.get(change.partition as usize);
        entry.is_some_and(|entry| change.epoch < entry.epoch && self.is_left_out(entry))
    }

    /// Applies the configuration of a partition that this node serves.
    fn update(&mut self, partition: PartitionId, entry: &wire::PartitionEntry) {
        let short = entry.replicas.len() < min_in_sync(self.map.copies);
        let short = short && !self.is(Mutant::ShortServes);
        let careless = self.is(Mutant::LoneUnregistered);
        let served = self.served.get_mut(&partition).expect("the caller serves it");
        let mut replaced = BTreeSet::new();
        if served.epoch != entry.epoch {
            // A member that has refused a change has a different replica permanently. A learner
            // that has started over may have become a member just before it could be dropped. If it
            // has not, no report that it has caught up counts any more.
            replaced = std::mem::take(&mut served.refusing);
            served.refusing =
                replaced.extract_if(.., |node| entry.replicas.contains(&node.0)).collect();
            replaced.retain(|node| served.learners.contains_key(node));
            // A single step that added or removed a member changed no learner that was one before.
            // After several steps a learner may have been counted or dropped, and may have dropped
            // its replica. It may also be wanted again; this node learns of all that at once.
            let is_one_change =
                served.epoch + 1 == entry.epoch && served.members.len() + 1 != entry.replicas.len();
            if !is_one_change {
                let still = |node: &&NodeId| entry.learners.contains(&node.0);
                replaced.extend(served.learners.keys().filter(still));
            }
            // An answer that is still to come names the earlier epoch, and is ignored.
            let asked = |(_, learner): &(_, &Learner)| matches!(learner, Learner::Asked);
            let asked = served.learners.iter().filter(asked);
            self.unasked.extend(asked.map(|(&node, _)| (partition, node)));
        }
        served.epoch = entry.epoch;
        let members = nodes(&entry.replicas[1..]);
        let before = std::mem::replace(&mut served.members, members);
        served.is_short = short;
        served.must_register = !entry.former.is_empty() && !careless;
        if served.must_register {
            mark(Mark::LeftAlone);
        }
        if served.waits_for_map() {
            // Dropped members count too: writes that they have not confirmed may be nowhere else.
            let gone = before.into_iter().filter(|node| !served.members.contains(node));
            let left: Vec<NodeId> = gone.chain(nodes(&entry.former)).collect();
            self.wait_for_map(partition, &left);
        }
        for node in replaced {
            self.restart_learner(partition, node); // If the map wants it again, or still.
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

    /// Writes that nodes which have left did not confirm wait for the map. The map must show that
    /// the partition continues without these nodes. Before that, these nodes may continue without
    /// this one, whichever node is to be primary.
    fn wait_for_map(&mut self, partition: PartitionId, left: &[NodeId]) {
        self.shipping.wait_for_map(self.me, left, partition);
        // The writes of this step wait too, with those that are sent at the end of the step.
        let is_open = |node: &NodeId| {
            self.out.get(node).is_some_and(|outgoing| outgoing.counted.contains(&partition))
        };
        if left.iter().any(is_open) {
            self.out.entry(self.me).or_default().counted.push(partition);
        }
    }

    /// Whether a partition was handed over, and its new primary has dropped this node because their
    /// replicas differ. Then no other node may have the writes of this node that others have not
    /// accepted. This node must not continue as if they were stored elsewhere.
    fn is_dropped(&self) -> bool {
        let is_in = |partition: PartitionId| {
            let entry = &self.map.partitions[partition.0 as usize];
            self.served.contains_key(&partition) || entry.replicas.contains(&self.me.0)
        };
        let open = self.shipping.open_partitions();
        open.into_iter().any(|partition| !is_in(partition))
    }

    /// A member has refused a change that this node wrote before it handed the partition over. The
    /// new home has reconciled all replicas: they have the change, or this node is dropped. If
    /// there are no further writes, this node does not learn which, and its messages wait for that.
    pub(super) fn look_at_refusals(&mut self, now: Time) {
        if !self.has_refusals {
            return;
        }
        let refused = self.shipping.refused_partitions();
        self.has_refusals = !refused.is_empty();
        let is_settled = |partition: &PartitionId| {
            let entry = &self.map.partitions[partition.0 as usize];
            entry.active && entry.replicas[0] != self.me.0
        };
        self.stuck_since
            .retain(|partition, _| refused.contains(partition) && is_settled(partition));
        for partition in refused.into_iter().filter(is_settled) {
            self.stuck_since.entry(partition).or_insert(now);
        }
        if let Some(&since) = self.stuck_since.values().min() {
            self.wake(since + REFUSAL_TIMEOUT);
        }
    }

    /// Whether a refusal of this node's change has lasted for `REFUSAL_TIMEOUT`. Only a new
    /// incarnation settles such a refusal.
    pub(crate) fn is_stuck(&self, now: Time) -> bool {
        self.stuck_since.values().any(|&since| since + REFUSAL_TIMEOUT <= now)
    }

    /// Stops waiting for nodes that have left.
    fn retain_shipped(&mut self) {
        let (me, served, activations) = (self.me, &self.served, &self.activations);
        let map = &self.map;
        let counts = |peer: NodeId, partition: PartitionId| match served.get(&partition) {
            Some(served) if peer == me => served.waits_for_map(),
            Some(served) => {
                let learner = served.learners.get(&peer);
                served.members.contains(&peer) || matches!(learner, Some(Learner::CaughtUp { .. }))
            }
            None if activations.contains_key(&partition) => {
                let entry = &map.partitions[partition.0 as usize];
                entry.replicas.contains(&peer.0)
            }
            // Changes that were shipped before the partition was handed over.
            None => {
                let entry = &map.partitions[partition.0 as usize];
                let is_short = entry.replicas.len() < min_in_sync(map.copies);
                let waits = peer != me || !entry.former.is_empty() || is_short;
                waits && entry.replicas.contains(&peer.0) && entry.replicas.contains(&me.0)
            }
        };
        self.shipping.retain(counts);
        for (&peer, outgoing) in &mut self.out {
            outgoing.counted.retain(|&partition| counts(peer, partition));
        }
    }

    /// Notes what each step asks of the served partitions, and the nodes from which it needs
    /// leases. A learner may be counted, and be the next primary, before this node learns of it.
    pub(super) fn sum_up_served(&mut self) {
        let mut all = BTreeSet::new();
        for served in self.served.values() {
            all.extend(&served.members);
            let ready = served.learners.iter().filter(|(_, learner)| learner.may_be_counted());
            all.extend(ready.map(|(&node, _)| node));
        }
        self.backups = all.into_iter().collect();
        self.has_learners = self.served.values().any(|served| !served.learners.is_empty());
        self.must_register = self.served.values().any(|served| served.must_register);
    }
}

fn nodes(of: &[u32]) -> Vec<NodeId> {
    of.iter().map(|&node| NodeId(node)).collect()
}
