//! The node as a member of its cluster: the part of [`Membership`] in each of its steps.
//!
//! Membership messages travel in packets of their own, outside all links. Membership writes are
//! part of the step's batch; [`Membership`] sends a promise when its writes are synced. A newer map
//! is the first thing that a step applies.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use crate::Mutant;
use kvs::{Record, Write};
use proto::{Incarnation, NodeId, Time, wire};

use crate::leaving::Reasons;
use crate::membership::{Done, Identity, Membership, Sender};
use crate::node::Node;
use crate::{Config, Effect};

#[derive(Debug)]
pub(crate) struct Member {
    membership: Membership,
    /// Batches with membership writes that are not synced yet, each with the number of these
    /// writes.
    unsynced: VecDeque<(u64, u64)>,
    /// The membership writes of this step, and their number.
    writes: Vec<Write>,
    number: u64,
    outgoing: Vec<(NodeId, wire::MembershipMessage)>,
    /// The latest known incarnation of each other node. Messages name it, so that the receiver
    /// knows that both nodes lived at the same time.
    heard: BTreeMap<u32, u32>,
    /// A newer map for the shell.
    news: Option<Arc<wire::ClusterMap>>,
    due: Time,
    pub(crate) reasons: Reasons,
    pub(crate) messages: u64,
}

impl Member {
    /// Restores the promises of earlier incarnations to the group.
    pub(crate) fn recover(
        config: &Config,
        records: Vec<Record>,
        now: Time,
    ) -> Result<Self, kvs::group::DamagedGroup> {
        let own = Identity {
            node: config.node,
            incarnation: config.incarnation,
            store: config.store,
            address: config.address.clone(),
            data_address: config.data_address.clone(),
            host: config.host.clone(),
            slots: config.slots,
            offer: config.offer_bytes(),
            pid: config.pid,
            seed: config.seed,
            late: config.late,
            mutant: config.mutant,
        };
        Ok(Self {
            membership: Membership::recover(own, Arc::clone(&config.map), records, now)?,
            unsynced: VecDeque::new(),
            writes: Vec::new(),
            number: 0,
            outgoing: Vec::new(),
            heard: BTreeMap::new(),
            news: None,
            due: Time::ZERO,
            reasons: Reasons::of(config),
            messages: 0,
        })
    }

    /// Takes the membership messages out of a packet. Returns false if nothing else of the packet
    /// counts: it has nothing else, or its sender is declared failed and only learns that.
    pub(crate) fn receive(&mut self, now: Time, packet: &mut wire::Packet) -> bool {
        let (from, incarnation) = (NodeId(packet.from), Incarnation(packet.from_incarnation));
        if incarnation.0 == 0 {
            return false;
        }
        let heard = self.heard.entry(from.0).or_default();
        *heard = incarnation.0.max(*heard);
        let messages = std::mem::take(&mut packet.membership);
        let is_other = messages.is_empty();
        for message in messages {
            self.membership.handle(now, from, incarnation, message);
        }
        self.membership.heard(now, from, incarnation) == Sender::Current && is_other
    }

    /// Called at the start: whether all other nodes were dead according to this node's own records.
    pub(crate) fn was_alone(&self) -> bool {
        self.membership.was_alone()
    }

    pub(crate) fn peer_lost(&mut self, now: Time, peer: NodeId) {
        self.membership.peer_lost(now, peer);
    }
    pub(crate) fn propose(&mut self, command: wire::MapCommand) {
        self.membership.propose(command);
    }
    /// This node wants the change no more.
    pub(crate) fn withdraw(&mut self, command: &wire::MapCommand) {
        self.membership.withdraw(command);
    }
    /// Whether this node waits for a change of its own.
    pub(crate) fn proposes(&self) -> bool {
        self.membership.proposes()
    }
    pub(crate) fn on_time(&mut self, now: Time) {
        self.membership.on_time(now);
    }

    pub(crate) fn voters(&self) -> &[u32] {
        self.membership.voters()
    }
    pub(crate) fn describe_group(&self) -> String {
        self.membership.describe_group()
    }

    /// Batches up to this one are on stable storage.
    pub(crate) fn synced(&mut self, now: Time, durable: u64) {
        while let Some((_, number)) = self.unsynced.pop_front_if(|(batch, _)| *batch <= durable) {
            self.membership.synced(now, number);
        }
    }
    pub(crate) fn awaits_sync(&self) -> bool {
        !self.unsynced.is_empty()
    }

    pub(crate) fn take_writes(&mut self) -> Vec<Write> {
        std::mem::take(&mut self.writes)
    }
    /// The batch of this step has this number.
    pub(crate) fn note_batch(&mut self, batch: u64, has_writes: bool) {
        if has_writes {
            self.unsynced.push_back((batch, self.number));
        }
    }

    /// After the step's batch: messages to other nodes, and the newer map for the shell.
    pub(crate) fn flush(
        &mut self,
        me: NodeId,
        incarnation: Incarnation,
        effects: &mut Vec<Effect>,
    ) {
        effects.extend(self.news.take().map(Effect::MapChanged));
        let mut by_peer: BTreeMap<NodeId, Vec<wire::MembershipMessage>> = BTreeMap::new();
        for (to, message) in self.outgoing.drain(..) {
            self.messages += 1;
            by_peer.entry(to).or_default().push(message);
        }
        effects.extend(by_peer.into_iter().map(|(to, membership)| {
            let packet = Box::new(wire::Packet {
                from: me.0,
                to: to.0,
                from_incarnation: incarnation.0,
                to_incarnation: self.heard.get(&to.0).copied().unwrap_or_default(),
                membership,
                ..Default::default()
            });
            Effect::Send { to, packet }
        }));
    }

    pub(crate) fn deadline(&self) -> Time {
        self.due
    }
    pub(crate) fn wake_at(&mut self, at: Time) {
        self.due = self.due.min(at);
    }
}

impl Node {
    /// The membership part of a step, where homes move. A newer map takes effect before anything
    /// else is decided.
    pub(crate) fn step_as_member(&mut self, now: Time) {
        let (Some(member), Some(replica)) = (&mut self.member, &mut self.replica) else { return };
        if let Some(wanted) = replica.wanted() {
            member.membership.want(wanted);
        }
        member.membership.report_slow(now, replica.slow_node_reports());
        let mut done = Done::default();
        member.membership.flush(now, &mut done);
        member.due = member.membership.deadline(now);
        member.writes = done.writes;
        member.number = done.number;
        member.outgoing.append(&mut done.messages);
        let ignores = self.own.mutant == Some(Mutant::IgnoreFence);
        if let Some(restart) = done.fenced.filter(|_| !ignores) {
            self.fenced = Some(restart);
            return;
        }
        let Some(map) = done.map.filter(|map| map.epoch > self.map.epoch) else { return };
        member.news = Some(Arc::clone(&map));
        self.needs_decision = true;
        self.on_moving_map(now, map);
        // Changes that the new map makes possible are proposed at once.
        let (Some(member), Some(replica)) = (&mut self.member, &mut self.replica) else { return };
        if let Some(wanted) = replica.wanted() {
            member.membership.want(wanted);
            member.due = member.membership.deadline(now);
        }
    }

    /// A leaving node announces its departure when other nodes have all its outputs, and all its
    /// messages are acknowledged.
    pub(crate) fn consider_departure(&mut self, now: Time) {
        let waits =
            !self.held_steps.is_empty() || !self.awaiting_sync.is_empty() || self.unfinished;
        if waits || !self.scheduler.is_drained() || !self.links.owe_nothing() {
            return;
        }
        let departure = kvs::membership::departure(&self.map, self.own.node);
        if let (Some(member), Some(departure)) = (&mut self.member, departure) {
            member.membership.propose(departure);
            member.due = member.membership.deadline(now);
        }
    }

    /// The commands that lead from the map of that epoch to the present one: for checks.
    #[must_use]
    pub fn map_commands_since(&self, epoch: u64) -> Option<Vec<wire::MapCommand>> {
        self.member.as_ref()?.membership.commands_since(epoch)
    }
}
