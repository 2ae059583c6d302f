//! Replication of partitions: this node is the primary of some and a backup of others.
//!
//! The [`kvs::replica`] module has the rules of a single replica; this module has the exchange
//! between nodes. As a primary: `primary.rs` ships each step's changes and fills new replicas,
//! `activation.rs` takes a partition over. As a backup: `backup.rs` reports how far the log is,
//! `asked.rs` promises epochs. `lease.rs` bounds how long a primary that was replaced may answer
//! reads. `proposals.rs` has the changes that this node wants in the map.
//!
//! All this uses links of its own. So a message that waits for a replica never blocks the messages
//! that end its wait. An acknowledgement on these links means that a change is synced.

mod activation;
mod backup;
mod lease;
mod limits;
mod map;
mod pending_queries;
mod primary;
mod proposals;
mod slow;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::Mutant;
use kvs::replica::{Copies, Shipping};
use kvs::{Batch, DamagedRecord, Page, PageRequest, Record};
use proto::marks::{Mark, mark};
use proto::wire::message::Body;
use proto::wire::{self, ReplicaQueryKind};
use proto::{Incarnation, NodeId, PartitionId, Time};
use scheduler::{Channel, traits};

use crate::link::Links;
use crate::{Config, Effect, SyncWish};
use activation::Activation;
use backup::Sources;
use lease::Leases;
pub(crate) use map::{TakenOver, is_current};
use pending_queries::PendingQueries;
use primary::Served;
use slow::SlowDetector;

/// The changes of a step for one peer.
#[derive(Debug, Default)]
struct Outgoing {
    changes: Vec<wire::Change>,
    /// The partitions in which the effects of this step wait for the peer.
    counted: Vec<PartitionId>,
}

impl Outgoing {
    fn add(&mut self, change: wire::Change, counts: bool) {
        if counts {
            self.counted.push(PartitionId(change.partition));
        }
        self.changes.push(change);
    }
}

#[derive(Debug)]
pub(crate) struct Replica {
    me: NodeId,
    incarnation: Incarnation,
    mutant: Option<Mutant>,
    map: Arc<wire::ClusterMap>,
    links: Links,
    copies: Copies,
    shipping: Shipping,
    sources: Sources,
    leases: Leases,
    served: BTreeMap<PartitionId, Served>,
    /// All members of served partitions, and learners that may be members before this node knows.
    backups: Vec<NodeId>,
    /// Some served partition has learners.
    has_learners: bool,
    /// Some served partition must register before it acknowledges anything.
    must_register: bool,
    activations: BTreeMap<PartitionId, Activation>,
    /// Learners and members that must be asked.
    unasked: BTreeSet<(PartitionId, NodeId)>,
    unasked_members: BTreeSet<PartitionId>,
    pending_queries: PendingQueries,
    /// The writes of this step to replicas, its own included.
    batch: Batch,
    out: BTreeMap<NodeId, Outgoing>,
    /// The number of the last message with changes.
    number: u64,
    /// Messages with changes that are not acknowledged: the number on the link, and this number.
    shipped: BTreeMap<NodeId, VecDeque<(u64, u64)>>,
    page_number: u64,
    pages: BTreeMap<u64, Page>,
    reads: Vec<PageRequest>,
    /// All replicas have been compared with a map.
    has_looked: bool,
    /// Its replicas have promised later epochs than the map with which it began. So an earlier
    /// incarnation knew a newer map, and a node that asks for a lease may have been replaced.
    map_is_behind: bool,
    /// The changes that it wants in the map may have changed.
    wants_anew: bool,
    wake_at: Option<Time>,
    /// Some replica has refused a change.
    has_refusals: bool,
    slow_detector: SlowDetector,
    /// Since when a refused change has no node that could settle it.
    stuck_since: BTreeMap<PartitionId, Time>,
}

impl Replica {
    pub(crate) fn new(config: &Config, map: Arc<wire::ClusterMap>, now: Time) -> Self {
        let mut links = Links::for_replicas(config.node, config.incarnation);
        links.break_on_purpose(config.mutant);
        Self {
            me: config.node,
            incarnation: config.incarnation,
            mutant: config.mutant,
            links,
            copies: Copies::default(),
            shipping: Shipping::default(),
            sources: Sources::default(),
            leases: Leases::new(now, config.mutant == Some(Mutant::LeasesForgotten)),
            served: BTreeMap::new(),
            backups: Vec::new(),
            has_learners: false,
            must_register: false,
            activations: BTreeMap::new(),
            unasked: BTreeSet::new(),
            unasked_members: BTreeSet::new(),
            pending_queries: PendingQueries::default(),
            batch: Batch::default(),
            out: BTreeMap::new(),
            number: 0,
            shipped: BTreeMap::new(),
            page_number: 0,
            pages: BTreeMap::new(),
            reads: Vec::new(),
            has_looked: false,
            map_is_behind: false,
            wants_anew: true,
            wake_at: None,
            has_refusals: false,
            slow_detector: SlowDetector::default(),
            stuck_since: BTreeMap::new(),
            map,
        }
    }

    /// Loads a stored record about its replicas.
    pub(crate) fn load(&mut self, record: &Record) -> Result<(), DamagedRecord> {
        self.copies.load(record)?;
        self.map_is_behind |= self.is_behind(record.partition);
        Ok(())
    }

    fn is_behind(&self, partition: PartitionId) -> bool {
        let entry = self.map.partitions.get(partition.0 as usize);
        entry.is_some_and(|entry| self.copies.promised(partition) > entry.epoch)
    }

    pub(crate) fn describe(&self) -> String {
        let activations = self.activations.iter().map(|(partition, activation)| {
            format!("{partition} at epoch {}: {}", activation.epoch, activation.describe())
        });
        let activations: Vec<String> = activations.collect();
        format!(
            "to become active: {activations:?}; {:?}; asked: {:?}",
            self.shipping, self.pending_queries
        )
    }

    pub(crate) fn serves(&self, partition: PartitionId) -> Option<u64> {
        Some(self.served.get(&partition)?.epoch)
    }

    /// Announces this incarnation to a peer.
    pub(crate) fn announce(&mut self, peer: NodeId) {
        self.links.announce(peer);
    }
    pub(crate) fn shut(&mut self, peer: NodeId, gone: Incarnation) {
        self.links.shut(peer, gone);
        self.slow_detector.forget(peer);
    }
    pub(crate) fn reopen(&mut self, peer: NodeId) {
        self.links.reopen(peer);
    }
    pub(crate) fn reconnected(&mut self, peer: NodeId) {
        self.links.reconnected(peer);
    }

    /// Returns false if a message cannot be decoded: then this incarnation can no longer follow the
    /// peer.
    pub(crate) fn receive(&mut self, now: Time, packet: wire::Packet) -> bool {
        let (from, incarnation) = (NodeId(packet.from), Incarnation(packet.from_incarnation));
        let received = self.links.receive(packet);
        if received.restarted {
            self.peer_restarted(from);
        }
        for body in received.bodies {
            self.on_body(now, from, incarnation, body);
        }
        self.note_acknowledged(now, from);
        !received.is_garbled
    }

    /// A peer has synced all that it has acknowledged, except for changes that it has refused
    /// before.
    fn note_acknowledged(&mut self, now: Time, from: NodeId) {
        let acknowledged = self.links.acknowledged(from);
        let Some(shipped) = self.shipped.get_mut(&from) else { return };
        let mut last = None;
        while let Some((_, number)) = shipped.pop_front_if(|(on_link, _)| *on_link <= acknowledged)
        {
            last = Some(number);
        }
        let Some(number) = last else { return };
        self.slow_detector.acknowledged(now, from, number);
        let told = wire::Replicated { logged: number, synced: number, refused: Vec::new() };
        self.on_replicated(from, told);
    }

    /// Messages to an earlier incarnation of a peer, and its questions, are lost.
    pub(super) fn peer_restarted(&mut self, peer: NodeId) {
        if !self.is(Mutant::RestartedMembers) {
            self.shipping.peer_restarted(peer);
        }
        self.shipped.remove(&peer);
        self.sources.forget(peer);
        self.slow_detector.forget(peer);
        self.pending_queries.forget(peer);
        self.learner_restarted(peer);
        self.member_restarted(peer);
    }

    fn on_body(&mut self, now: Time, from: NodeId, incarnation: Incarnation, body: Body) {
        match body {
            Body::Replicate(replicate) => self.on_replicate(from, replicate),
            Body::Replicated(told) => self.on_replicated(from, told),
            Body::ReplicaQueries(queries) => self.pending_queries.add(from, queries.queries),
            Body::ReplicaAnswers(answers) => {
                for answer in answers.answers {
                    match answer.kind() {
                        ReplicaQueryKind::Position => self.learner_answered(from, &answer),
                        _ => self.member_answered(from, answer),
                    }
                }
            }
            // A node that may have been replaced, or that the map declares failed, gets no lease.
            Body::LeaseRequest(_) if self.map_is_behind => {}
            Body::LeaseRequest(query) if map::may_have_lease(&self.map, from, incarnation) => {
                self.leases.give(now, from, incarnation);
                let given = wire::LeaseGrant { sent_ns: query.sent_ns };
                self.links.send_best_effort(from, Body::LeaseGrant(given));
            }
            Body::LeaseGrant(given) => self.leases.confirmed(from, Time(given.sent_ns)),
            Body::SlowProbe(probe) => self.on_slow_probe(from, probe),
            Body::SlowProbeReply(probed) => self.on_slow_probe_reply(now, from, probed.number),
            Body::LeaseRequest(_) => {}
            other => {
                let channel = traits(&other).channel;
                debug_assert_ne!(channel, Channel::Replication, "not handled: {other:?}");
            }
        }
    }

    /// Whether this mutant is active.
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn on_replicate(&mut self, from: NodeId, replicate: wire::Replicate) {
        let number = replicate.number;
        let mut refused = Vec::new();
        for mut change in replicate.changes {
            let partition = PartitionId(change.partition);
            if self.is(Mutant::ChangesAnywhere) {
                change.before = Some(self.copies.position(partition).into());
            }
            let exists = change.partition < self.map.partitions.len() as u32;
            let change = Arc::new(change);
            let other = self.served.contains_key(&partition) || self.is_of_the_past(&change);
            if !exists || other || self.copies.take(&change, &mut self.batch).is_err() {
                refused.push(wire::Refusal { number, partition: partition.0 });
            }
        }
        self.sources.took(from, number, replicate.client_waits, refused);
    }

    fn send_queries(&mut self, to: NodeId, queries: Vec<wire::ReplicaQuery>) {
        self.links.send(to, Body::ReplicaQueries(wire::ReplicaQueries { queries }));
    }

    /// A page has been read.
    pub(crate) fn on_page(&mut self, mut page: Page) {
        if !self.on_activation_page(&mut page) {
            self.pages.insert(page.number, page);
        }
    }

    /// Ends a step. Returns the batch with all its writes. `last` is the number of the last batch
    /// so far; batches up to `durable` are synced. `client_waits` for an answer that depends on
    /// this step.
    pub(crate) fn end_step(
        &mut self,
        now: Time,
        last: u64,
        durable: u64,
        client_waits: bool,
    ) -> Option<Batch> {
        self.wake_at = None;
        self.look_at_refusals(now);
        self.activate(now, durable);
        self.answer_asks(now);
        self.fill_learners();
        self.pages.clear(); // Pages that no replica waits for any more.
        self.measure(now);
        let mut batch = std::mem::take(&mut self.batch);
        let writes = !batch.writes.is_empty() || !batch.cleared.is_empty();
        batch.seq = last + u64::from(writes);
        self.send_changes(now, batch.seq, client_waits);
        self.note_measured(now, batch.seq, writes);
        self.sources.note_batch(now, batch.seq);
        self.pending_queries.note_batch(batch.seq);
        self.note_promises(batch.seq);
        writes.then_some(batch)
    }

    fn send_changes(&mut self, now: Time, batch: u64, client_waits: bool) {
        self.out.retain(|_, out| !out.changes.is_empty() || !out.counted.is_empty());
        if self.out.is_empty() {
            return;
        }
        self.number += 1;
        let number = self.number;
        for (peer, Outgoing { changes, mut counted }) in std::mem::take(&mut self.out) {
            counted.sort_unstable();
            counted.dedup();
            if !counted.is_empty() && peer != self.me {
                self.slow_detector.shipped(now, peer, number);
            }
            if !counted.is_empty() {
                self.shipping.sent(peer, number, batch, counted);
            }
            if peer != self.me {
                let replicate = wire::Replicate { number, changes, client_waits };
                let on_link = self.links.send(peer, Body::Replicate(replicate));
                self.shipped.entry(peer).or_default().push_back((on_link, number));
            }
        }
    }

    /// The last batch up to which the log of every replica has everything.
    pub(crate) fn logged(&self, last: u64) -> u64 {
        match self.mutant {
            Some(Mutant::AckBeforeBackups | Mutant::ReleaseBeforeBackups) => last,
            _ => self.shipping.logged(last),
        }
    }
    /// The last batch up to which every replica and this node have synced everything.
    pub(crate) fn synced(&self, durable: u64) -> u64 {
        match self.mutant {
            Some(Mutant::AckBeforeBackups) => durable,
            _ => self.shipping.synced(durable),
        }
    }

    /// Whether answers may leave. Requests the leases that they need.
    pub(crate) fn may_answer(&mut self, now: Time, waiting: bool) -> bool {
        if self.must_register {
            return false; // Nodes that left may have continued without it.
        }
        if self.backups.is_empty() {
            return true;
        }
        if !waiting {
            return false;
        }
        let holds = self.leases.holds(now, &self.backups) || self.is(Mutant::ReadsUnleased);
        if self.leases.is_due(now) {
            for &peer in &self.backups {
                self.links.send_best_effort(
                    peer,
                    Body::LeaseRequest(wire::LeaseRequest { sent_ns: now.0 }),
                );
            }
        }
        if !holds {
            mark(Mark::AnswerUnleased);
            self.wake(self.leases.next_ask());
        }
        holds
    }

    /// Adds writes of the node itself, which have no replicas.
    pub(crate) fn write_own(&mut self, writes: Vec<kvs::Write>) {
        self.batch.writes.extend(writes);
    }

    /// After the step's batch: reads pages, and sends answers and reports to other nodes.
    pub(crate) fn flush(&mut self, now: Time, last: u64, durable: u64, effects: &mut Vec<Effect>) {
        self.ask_learners();
        self.ask_members();
        let said = |hasty: bool| if hasty { u64::MAX } else { durable };
        for (to, answers) in self.pending_queries.answers(said(self.is(Mutant::PromiseUnsynced))) {
            self.links.send(to, Body::ReplicaAnswers(wire::ReplicaAnswers { answers }));
        }
        let synced = said(self.is(Mutant::LoggedIsSynced));
        for (to, told) in self.sources.answers(now, synced) {
            self.links.send(to, Body::Replicated(told));
        }
        self.measured(now, durable);
        effects.extend(self.reads.drain(..).map(Effect::Read));
        self.links.note_batch(last);
        self.links.durable(synced);
        self.links.flush(
            now,
            || None,
            |to, packet| {
                effects.push(Effect::Send { to, packet: Box::new(packet) });
            },
        );
        self.links.take_forgotten();
    }

    fn wake(&mut self, at: Time) {
        self.wake_at = Some(self.wake_at.map_or(at, |before| before.min(at)));
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        let word = self.slow_detector.has_reports().then_some(Time::ZERO);
        let (links, logged) = (self.links.deadline(), self.sources.deadline());
        let timers = [links, logged, self.wake_at, self.slow_detector.window_ends(), word];
        timers.into_iter().flatten().min()
    }
    /// How urgent the next sync of this node is for other nodes.
    pub(crate) fn sync_wish(&self) -> SyncWish {
        if self.pending_queries.awaits_sync() {
            return SyncWish::Now;
        }
        let probed = if self.slow_detector.awaits_sync() { SyncWish::Soon } else { SyncWish::None };
        self.sources.sync_wish().max(probed)
    }
    pub(crate) fn messages(&self) -> u64 {
        self.links.messages
    }
}

#[cfg(test)]
mod mutant_tests;
#[cfg(test)]
mod tests;
