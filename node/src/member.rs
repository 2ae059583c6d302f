//! What a node does as a member of its cluster: the part of [`Membership`] in each of its steps.
//!
//! Its packets are packets of their own, beside all links. Its writes go with the batch of the
//! step; what it promises by them it says when they are synced, by itself. A newer map is the first
//! thing that a step acts on.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use kvs::{Record, Write};
use proto::{Incarnation, NodeId, Time, wire};
use scheduler::Mutant;

use crate::membership::{Done, Identity, Membership, Sender};
use crate::node::Node;
use crate::{Config, Effect};

#[derive(Debug)]
pub(crate) struct Member {
    membership: Membership,
    /// Batches with its writes that are not synced yet, each with the number that it gave them.
    unsynced: VecDeque<(u64, u64)>,
    /// What it wants written with this step, and the number of that.
    writes: Vec<Write>,
    number: u64,
    outgoing: Vec<(NodeId, wire::MembershipMessage)>,
    /// The latest life of each other node that was heard of: what is said to it names that, so
    /// that who hears it knows that this node was there in its own life.
    heard: BTreeMap<u32, u32>,
    /// For the shell.
    news: Option<Arc<wire::ClusterMap>>,
    due: Time,
    pub(crate) messages: u64,
}

impl Member {
    /// With what earlier incarnations promised to the group.
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
            messages: 0,
        })
    }

    /// What others say of the map is taken in. False: nothing else of this packet counts, be it
    /// that there is nothing else, or that its sender is dead to the cluster and told only that.
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

    /// Asked at the start: by what was written down before, all other nodes were dead.
    pub(crate) fn was_alone(&self) -> bool {
        self.membership.was_alone()
    }

    pub(crate) fn peer_lost(&mut self, now: Time, peer: NodeId) {
        self.membership.peer_lost(now, peer);
    }
    pub(crate) fn propose(&mut self, command: wire::MapCommand) {
        self.membership.propose(command);
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

    /// After the step's batch: what it has to say, to others and to the shell.
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
}

impl Node {
    /// Where homes move: what its membership has to do in this step. A map that it has heard of
    /// takes effect, before anything else is decided.
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
        // What the map makes possible is wanted at once.
        let (Some(member), Some(replica)) = (&mut self.member, &mut self.replica) else { return };
        if let Some(wanted) = replica.wanted() {
            member.membership.want(wanted);
            member.due = member.membership.deadline(now);
        }
    }

    /// A node that leaves says so when others have all that it had, and all that it had to say.
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
