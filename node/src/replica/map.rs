//! What a newer map means for the copies and homes of this node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kvs::Record;
use kvs::membership::{is_serving, member, min_in_sync};
use proto::limits::REFUSAL_TIMEOUT;
use proto::marks::{Mark, mark};
use proto::wire::{self, MemberPhase};
use proto::{Incarnation, NodeId, PartitionId, Time};
use scheduler::Mutant;

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
    /// This incarnation has said or done what its copies may not have, and has to end.
    pub(crate) must_end: bool,
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

    /// A newer map that takes this incarnation for a live one.
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
                // The epoch it was read under is the one it was registered under.
                let epoch = entry.epoch;
                news.taken_over.push(TakenOver { partition, epoch, records });
            }
            if !same && !self.served.contains_key(&partition) {
                self.wait_for_map(partition, &nodes(&entry.former));
            }
            // An earlier life may not have heard that it should. A map that does not know this one
            // yet may be older than what that life has heard of.
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
        self.count_backups();
        self.watch_slow(now);
        self.wants_anew = true;
        news
    }

    /// Peers of which the map knows a later life than this node has heard of: what they say first
    /// may be lost, and they may have nothing else to say.
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

    /// All that a partition consists of, if this node may begin to serve it: it has registered as
    /// its primary; or it is there for the first time, and the first map calls it active and empty.
    /// And the members that have other copies.
    fn records_at_hand(
        &mut self,
        partition: PartitionId,
    ) -> Option<(Vec<Record>, BTreeSet<NodeId>)> {
        match self.activations.remove(&partition) {
            Some(Activation { stage: Stage::Ready { records }, refusing, .. }) => {
                Some((records, refusing))
            }
            Some(_) => None,
            None => (self.incarnation == Incarnation(1)).then(Default::default),
        }
    }

    /// Others have everything and this node is none of them: its copy goes.
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

    /// The change is of a configuration that this node was one of, and is no more. Where it has no
    /// copy and never had one, nothing else tells it.
    pub(super) fn is_of_the_past(&self, change: &wire::Change) -> bool {
        let entry = self.map.partitions.get(change.partition as usize);
        entry.is_some_and(|entry| change.epoch < entry.epoch && self.is_left_out(entry))
    }

    /// The configuration of a partition that this node serves.
    fn update(&mut self, partition: PartitionId, entry: &wire::PartitionEntry) {
        let short = entry.replicas.len() < min_in_sync(self.map.copies);
        let short = short && !self.is(Mutant::ShortServes);
        let careless = self.is(Mutant::LoneUnregistered);
        let served = self.served.get_mut(&partition).expect("the caller serves it");
        let mut replaced = BTreeSet::new();
        if served.epoch != entry.epoch {
            // Whoever has refused something as a member has another copy for good. A learner that
            // began anew may have become a member just before it could be let go; if it has not, no
            // word of its having caught up counts any more.
            replaced = std::mem::take(&mut served.refusing);
            served.refusing =
                replaced.extract_if(.., |node| entry.replicas.contains(&node.0)).collect();
            replaced.retain(|node| served.learners.contains_key(node));
            // One step that let a member in or out touched no learner that was one before. Else a
            // learner may have been counted or dropped, may have let its copy go, and be wanted
            // again, and this node hears of all that at once.
            let is_one_change =
                served.epoch + 1 == entry.epoch && served.members.len() + 1 != entry.replicas.len();
            if !is_one_change {
                let still = |node: &&NodeId| entry.learners.contains(&node.0);
                replaced.extend(served.learners.keys().filter(still));
            }
            // An answer that is still to come speaks of the epoch before, and is passed over.
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
            // Those who were dropped, too: what they have not got may be nowhere else.
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

    /// What those who have left have not answered waits until the map says that it goes on without
    /// them: until then they may, whoever is to be primary.
    fn wait_for_map(&mut self, partition: PartitionId, left: &[NodeId]) {
        self.shipping.wait_for_map(self.me, left, partition);
        // So does what this very step has for them, and what would be sent at its end.
        let is_open = |node: &NodeId| {
            self.out.get(node).is_some_and(|outgoing| outgoing.counted.contains(&partition))
        };
        if left.iter().any(is_open) {
            self.out.entry(self.me).or_default().counted.push(partition);
        }
    }

    /// A partition was handed over, and its new primary has let this node go because their copies
    /// differ: what this node wrote and others have not taken may be nowhere else, and it must not
    /// go on as if it were.
    fn is_dropped(&self) -> bool {
        let is_in = |partition: PartitionId| {
            let entry = &self.map.partitions[partition.0 as usize];
            self.served.contains_key(&partition) || entry.replicas.contains(&self.me.0)
        };
        let open = self.shipping.open_partitions();
        open.into_iter().any(|partition| !is_in(partition))
    }

    /// A copy has refused what this node wrote before it handed the partition over, and the new
    /// home has brought all copies together: they have it, or this node is let go. Nothing tells it
    /// which as long as nobody writes, and what it has to say waits behind that.
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

    /// It has waited too long for what only a new life settles.
    pub(crate) fn is_stuck(&self, now: Time) -> bool {
        self.stuck_since.values().any(|&since| since + REFUSAL_TIMEOUT <= now)
    }

    /// Who has left is waited for no more.
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
            // What was shipped before the partition was handed over.
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

    /// Whose leases it needs: a learner may be counted, and the next primary, before this node
    /// hears of it.
    pub(super) fn count_backups(&mut self) {
        let mut all = BTreeSet::new();
        for served in self.served.values() {
            all.extend(&served.members);
            let ready = served.learners.iter().filter(|(_, learner)| learner.may_be_counted());
            all.extend(ready.map(|(&node, _)| node));
        }
        self.backups = all.into_iter().collect();
    }
}

fn nodes(of: &[u32]) -> Vec<NodeId> {
    of.iter().map(|&node| NodeId(node)).collect()
}
