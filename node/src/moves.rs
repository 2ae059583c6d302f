//! Installs a newer map: where homes move, this node becomes home of partitions and ceases to be.

use std::collections::BTreeSet;
use std::sync::Arc;

use kvs::membership::member;
use proto::wire::{self, MemberPhase, response};
use proto::{Incarnation, NodeId, PartitionId, TaskId, Time};
use scheduler::Homes;

use crate::node::Node;
use crate::records::{self, Loaded};
use crate::replica::{TakenOver, is_current};

impl Node {
    pub(crate) fn on_map(&mut self, now: Time, map: wire::ClusterMap) {
        let is_strange = map.partitions.len() != self.map.partitions.len();
        if self.replica.is_some() || map.epoch < self.map.epoch || is_strange {
            return; // Homes move; or the map is older, or of another cluster.
        }
        self.map = Arc::new(map);
        self.store.set_map(self.map.clone());
        let homes = Homes::new(self.own.node, &self.map, kvs::job_partition);
        self.scheduler.set_homes(now, homes, &mut self.out);
    }

    /// A partition of the request that this node does not serve. Without this check a node that is
    /// not home yet, or no longer, would answer that unknown jobs or keys do not exist.
    pub(crate) fn not_here(&self, request: &scheduler::Request) -> Option<PartitionId> {
        self.replica.as_ref()?;
        // A holder explains its tasks, too: only it knows why they wait.
        if let scheduler::Request::Explain(query) = request
            && self.scheduler.holds(TaskId::new(query.job, query.local))
        {
            return None;
        }
        let homes = self.scheduler.homes();
        request.partitions(homes).into_iter().find(|&partition| !homes.is_mine(partition))
    }

    pub(crate) fn on_moving_map(&mut self, now: Time, map: Arc<wire::ClusterMap>) {
        let (me, incarnation) = (self.own.node, self.own.incarnation);
        if is_current(&map, me, incarnation) {
            self.scheduler.hand_over_partitions(&handed_over(me, &self.map, &map), &mut self.out);
        }
        // Earlier decisions of this step were made under the older map.
        let writes = self.gather_writes();
        let older = std::mem::replace(&mut self.map, Arc::clone(&map));
        let replica = self.replica.as_mut().expect("looked at by the caller");
        replica.ship(writes);
        let news = replica.on_map(now, Arc::clone(&map));
        for &partition in &news.given_up {
            self.give_up(partition);
        }
        let seen = Arc::new(seen_from(&map, me, incarnation));
        self.store.set_map(Arc::clone(&seen));
        let homes = Homes::new(me, &seen, kvs::job_partition).moving();
        self.scheduler.set_homes(now, homes, &mut self.out);
        // Deaths from before the map showed this incarnation may be learned late: they do not
        // count.
        let saw = is_current(&older, me, incarnation);
        for (peer, gone) in gone(&older, &map).into_iter().filter(|(peer, _)| *peer != me) {
            if saw && has_died(&map, peer) {
                self.scheduler.note_peer_death(now, peer);
            }
            self.on_peer_gone(now, peer, gone);
        }
        for member in map.members.iter().filter(|member| member.node != me.0) {
            let peer = NodeId(member.node);
            if member.is_gone() {
                self.shut(peer, Incarnation(member.incarnation));
            } else {
                self.reopen(peer);
            }
        }
        for taken in news.taken_over {
            self.take_over(now, taken);
        }
        if news.must_end {
            self.fenced = Some(Some(Incarnation(incarnation.0 + 1)));
        }
    }

    fn give_up(&mut self, partition: PartitionId) {
        self.scheduler.give_up(partition, &mut self.out);
        self.store.forget(partition);
        let redirect = self.redirect_for(partition);
        for (client, mut response) in self.watches.give_up(partition) {
            response.body = Some(response::Body::Redirect(redirect.clone()));
            self.immediate_replies.push((client, response));
        }
    }

    /// This incarnation of a node sends nothing more, and nothing reaches it.
    fn on_peer_gone(&mut self, now: Time, peer: NodeId, gone: Incarnation) {
        // If a message of a later incarnation has arrived, that incarnation itself refuses messages
        // for partitions that it does not serve.
        let is_heard = self.links.incarnation_of(peer) > gone.0;
        let unacknowledged = if is_heard { Vec::new() } else { self.links.give_back(peer) };
        self.scheduler.on_peer_gone(now, peer, gone, &mut self.out);
        self.scheduler.reroute(unacknowledged, &mut self.out);
    }

    /// Stops sending to a node that is gone; its next incarnation will be greeted.
    fn shut(&mut self, peer: NodeId, gone: Incarnation) {
        self.links.shut(peer, gone);
        if let Some(replica) = &mut self.replica {
            replica.shut(peer, gone);
        }
    }
    fn reopen(&mut self, peer: NodeId) {
        self.links.reopen(peer);
        if let Some(replica) = &mut self.replica {
            replica.reopen(peer);
        }
    }

    fn take_over(&mut self, now: Time, taken: TakenOver) {
        let TakenOver { partition, epoch, records } = taken;
        for record in records {
            if let Err(what) = self.adopt(now, &record) {
                // No record of a replica may be skipped: the other nodes of the cluster may have a
                // better replica.
                self.damaged = Some(Box::new((partition, what)));
                return;
            }
        }
        self.scheduler.serve(now, partition, term(epoch), &mut self.out);
    }

    fn adopt(&mut self, now: Time, record: &kvs::Record) -> Result<(), String> {
        match records::read(record)? {
            Loaded::Ledger(job, loaded) => self
                .scheduler
                .adopt(now, record.partition, job, *loaded)
                .map_err(|error| error.to_string()),
            Loaded::Job(state) => {
                self.scheduler.adopt_job(record.partition, *state);
                Ok(())
            }
            Loaded::Variable(job, variable) => {
                self.scheduler.adopt_variable(record.partition, job, *variable);
                Ok(())
            }
            Loaded::User => self.load_user(record).map_err(|error| error.to_string()),
            Loaded::Meta => Ok(()),
        }
    }
}

/// The homes of this node that the map gives to others, which wait for its last records. However
/// many changes it has missed: while it is a member, no new home begins without these.
fn handed_over(
    me: NodeId,
    older: &wire::ClusterMap,
    map: &wire::ClusterMap,
) -> BTreeSet<PartitionId> {
    let entries = (0..).map(PartitionId).zip(older.partitions.iter().zip(&map.partitions));
    let goes = entries.filter(|(_, (before, entry))| {
        let is_awaited = !entry.active && !entry.lost && entry.replicas.contains(&me.0);
        is_awaited && before.replicas[0] == me.0 && entry.replicas[0] != me.0
    });
    goes.map(|(partition, _)| partition).collect()
}

/// The high half of attempt numbers is the epoch.
fn term(epoch: u64) -> u32 {
    u32::try_from(epoch).expect("a partition changes hands less than four billion times")
}

/// The map as this incarnation may use it: partitions that an earlier one served are not active.
pub(crate) fn seen_from(
    map: &wire::ClusterMap,
    me: NodeId,
    incarnation: Incarnation,
) -> wire::ClusterMap {
    let mut seen = map.clone();
    if !is_current(map, me, incarnation) {
        for entry in &mut seen.partitions {
            entry.active &= entry.replicas[0] != me.0;
        }
    }
    seen
}

/// Whether an incarnation of the node has ended otherwise than by leaving in order.
fn has_died(map: &wire::ClusterMap, node: NodeId) -> bool {
    member(map, node).is_some_and(|it| it.phase() != MemberPhase::Removed && it.incarnation > 0)
}

/// The nodes that are gone by the newer map, each with its last incarnation that is gone.
fn gone(older: &wire::ClusterMap, newer: &wire::ClusterMap) -> Vec<(NodeId, Incarnation)> {
    let mut gone = Vec::new();
    for now in &newer.members {
        let node = NodeId(now.node);
        let before = member(older, node);
        let was_gone = before.is_some_and(wire::Member::is_gone);
        let known = before.map_or(0, |before| before.incarnation);
        if now.is_gone() && (!was_gone || known < now.incarnation) {
            gone.push((node, Incarnation(now.incarnation)));
        } else if now.incarnation > known.max(1) {
            gone.push((node, Incarnation(now.incarnation - 1)));
        }
    }
    gone
}
