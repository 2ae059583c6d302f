/*!
The membership of the cluster, as one node sees it: its part in the [group](kvs::group), its
detector (`detector.rs`), the map, and the changes that it wants in the map.

A node that is no voter has a group too, which only listens. Every node proposes; the leader decides
and its group agrees. A proposal is repeated until the map shows it, or shows that it is impossible.
Maps spread by themselves: every message names the epoch of its sender's map. A node that is behind
asks for the commands since its own, or for the whole map. Only changes of the map wait for the
group: without a majority all else goes on.
*/

mod detector;
mod flapping;
mod founding;
mod identity;
mod limits;
mod proposals;
mod slow;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::Mutant;
use kvs::group::{DamagedGroup, Group, News, Output, Start};
use kvs::membership::{self, is_serving, member, would_change};
use kvs::{Record, Write};
use proto::limits::GROUP_ELECTION_AFTER;
use proto::marks::{Mark, mark};
use proto::wire::MemberPhase::{Down, Removed};
use proto::wire::map_command;
use proto::wire::membership_message::Body;
use proto::{Incarnation, NodeId, Time, wire};

use crate::membership::limits::{
    MAP_ASK_AGAIN, MAP_COMMANDS_KEPT_MAX, MAP_UPDATES_SENT_MAX, PROPOSALS_MAX, PROPOSE_AGAIN,
};
use detector::Detector;
use flapping::Flapping;
use founding::Founding;
pub(crate) use identity::Identity;
use identity::waits;

/// The membership state of one node, see the module.
#[derive(Debug)]
pub(crate) struct Membership {
    own: Identity,
    map: Arc<wire::ClusterMap>,
    /// The last commands; the last of them made `map`.
    commands: VecDeque<wire::MapCommand>,
    group: Group,
    founding: Option<Founding>,
    detector: Detector,
    flapping: Flapping,
    wanted: Vec<wire::MapCommand>,
    /// The changes that this node's replicas want.
    wanted_of_copies: Vec<wire::MapCommand>,
    propose_at: Time,
    /// The leader at the time of the last proposal.
    proposed_to: Option<NodeId>,
    ask_at: Time,
    turn: usize,
    has_news: bool,
    slow_reports: slow::Reports,
    outgoing: Vec<(u32, Body)>,
}

/// The results of a step.
#[derive(Debug, Default)]
pub(crate) struct Done {
    pub(crate) writes: Vec<Write>,
    /// The number for [`Membership::synced`], once these writes are on stable storage.
    pub(crate) number: u64,
    pub(crate) messages: Vec<(NodeId, wire::MembershipMessage)>,
    /// Set if the map has changed.
    pub(crate) map: Option<Arc<wire::ClusterMap>>,
    /// Set if the map declares this incarnation failed or removed, so that it must end. The inner
    /// value is the least incarnation under which to return; `None` if the node is removed.
    pub(crate) fenced: Option<Option<Incarnation>>,
}

/// The state of a packet's sender according to the map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sender {
    Current,
    /// The sender is declared failed or removed: its messages do not count.
    Gone,
}

impl Membership {
    /// Restores the state from the records of an earlier incarnation; records of others are
    /// skipped. `map` is the first map of the cluster, or any map if the node joined later.
    pub(crate) fn recover(
        own: Identity,
        map: Arc<wire::ClusterMap>,
        records: impl IntoIterator<Item = Record>,
        now: Time,
    ) -> Result<Self, DamagedGroup> {
        assert_ne!(own.store, 0, "a store has a number");
        let start = Start { me: own.node, seed: own.seed, map, blank: own.late };
        let group = Group::recover(start, records, now)?;
        let mut this = Self {
            founding: Founding::of(&group, own.node.0, now),
            map: Arc::clone(group.map()),
            commands: VecDeque::new(),
            detector: Detector::new(now, own.seed),
            flapping: Flapping::default(),
            group,
            wanted: Vec::new(),
            wanted_of_copies: Vec::new(),
            propose_at: now,
            proposed_to: None,
            ask_at: now,
            turn: own.seed as usize % 64,
            has_news: true,
            slow_reports: slow::Reports::new(),
            outgoing: Vec::new(),
            own,
        };
        this.announce();
        this.watch(now);
        Ok(this)
    }

    /// Called at the start: whether all other nodes were dead according to this node's own records.
    pub(crate) fn was_alone(&self) -> bool {
        let map = self.group.written_map();
        let mut others = map.members.iter().filter(|member| member.node != self.own.node.0);
        others.all(|member| member.is_gone() || member.incarnation == 0)
    }

    pub(crate) fn is_leader(&self) -> bool {
        self.group.is_leader()
    }

    /// The commands since the map of that epoch, if they are still known.
    pub(crate) fn commands_since(&self, epoch: u64) -> Option<Vec<wire::MapCommand>> {
        let behind = usize::try_from(self.map.epoch.checked_sub(epoch)?).ok()?;
        let first = self.commands.len().checked_sub(behind)?;
        Some(self.commands.range(first..).cloned().collect())
    }

    /// Proposes that this incarnation is up. The map must show it before other nodes rely on it.
    fn announce(&mut self) {
        self.propose(self.own.coming());
        self.propose_down_for_own_replaced_store();
    }

    /// A voter that has lost its disk must lose its vote first: its earlier incarnation is declared
    /// down.
    fn propose_down_for_own_replaced_store(&mut self) {
        let Identity { node, incarnation, store, .. } = self.own;
        if let Some(known) = member(&self.map, node)
            && known.store != 0
            && known.store != store
            && incarnation.0 > known.incarnation
        {
            let down = wire::MemberDown { node: node.0, incarnation: known.incarnation };
            let down = membership::command(map_command::Body::Down(down));
            if would_change(&self.map, &down) {
                self.propose(down);
            }
        }
    }

    fn watch(&mut self, now: Time) {
        let me = self.own.node.0;
        let others = self.map.members.iter().filter(|it| it.node != me);
        let alive = others.filter(|it| is_serving(&self.map, it.node));
        self.flapping.look(now, &self.map);
        self.detector.watch(now, alive.map(|it| (it.node, it.incarnation)));
    }

    fn wants_something(&self) -> bool {
        !(self.wanted.is_empty() && self.wanted_of_copies.is_empty())
    }

    /// A packet of another node has arrived.
    pub(crate) fn heard(&mut self, now: Time, from: NodeId, incarnation: Incarnation) -> Sender {
        let Some(known) = member(&self.map, from) else { return Sender::Current };
        let is_gone = incarnation.0 < known.incarnation
            || known.phase() == Removed
            || (incarnation.0 == known.incarnation && known.phase() == Down);
        if is_gone {
            return Sender::Gone;
        }
        self.detector.heard(now, from.0, incarnation.0);
        Sender::Current
    }

    /// The transport to this node broke.
    pub(crate) fn peer_lost(&mut self, now: Time, peer: NodeId) {
        self.detector.lost(now, peer.0);
        self.group.peer_lost(now, peer);
    }

    pub(crate) fn voters(&self) -> &[u32] {
        self.group.voters()
    }

    pub(crate) fn describe_group(&self) -> String {
        self.group.describe()
    }

    /// Handles a message of another node. A sender that is declared failed only learns that.
    pub(crate) fn handle(
        &mut self,
        now: Time,
        from: NodeId,
        incarnation: Incarnation,
        message: wire::MembershipMessage,
    ) {
        let Some(body) = message.body else { return };
        self.hear_as_founder(from.0, message.map_epoch);
        let is_former = message.to_store != 0 && message.to_store != self.own.store;
        if is_former && self.own.mutant != Some(Mutant::ReplacedStoreUnnoticed) {
            return; // Meant for an earlier store; its promises are lost.
        }
        let is_other_self =
            !self.is_same_store(from, message.from_store) && self.is_old(from, incarnation);
        if is_other_self || self.heard(now, from, incarnation) == Sender::Gone {
            if !matches!(body, Body::MapUpdate(_)) && message.map_epoch < self.map.epoch {
                self.send_map(from.0, message.map_epoch);
            }
            return;
        }
        if message.map_epoch > self.map.epoch {
            self.ask_for_map(now, from.0);
        }
        self.propose_down_for_replaced_store(from, incarnation, message.from_store);
        match body {
            Body::Group(group) if self.is_same_store(from, message.from_store) => {
                self.group.handle(now, from, group);
            }
            Body::Group(_) => {}
            Body::Propose(propose) => self.on_propose(now, propose),
            Body::MapRequest(ask) => self.send_map(from.0, ask.epoch),
            Body::MapUpdate(update) => self.on_map_update(now, update),
            Body::Suspect(suspect) => self.detector.accuse(now, &suspect),
            Body::SlowNodeReport(report) => self.on_slow_node_report(now, from, report),
            Body::Probe(_) | Body::ProbeReply(_) | Body::IndirectProbe(_) => {
                let me = (self.own.node.0, self.own.incarnation.0);
                self.detector.handle(now, me, from.0, &body);
            }
        }
    }

    /// A later incarnation of a node with another disk shows that the one in the map is over. The
    /// node announces this itself, but perhaps to no node that listens: alone among the first
    /// voters it may consider itself the whole group.
    fn propose_down_for_replaced_store(
        &mut self,
        from: NodeId,
        incarnation: Incarnation,
        store: u64,
    ) {
        let Some(known) = member(&self.map, from) else { return };
        if known.store == 0 || store == 0 || known.store == store || !self.is_leader() {
            return;
        }
        if incarnation.0 > known.incarnation {
            let down = wire::MemberDown { node: from.0, incarnation: known.incarnation };
            self.propose(membership::command(map_command::Body::Down(down)));
        }
    }

    /// Whether the node has the disk that the map knows. With another disk it has lost its promises
    /// as a voter.
    fn is_same_store(&self, from: NodeId, store: u64) -> bool {
        let known = self.store_of(from);
        known == 0 || known == store || self.own.mutant == Some(Mutant::ReplacedStoreUnnoticed)
    }

    /// The store number of a node; 0 if it is not known.
    fn store_of(&self, node: NodeId) -> u64 {
        let (incarnation, agreed) =
            member(&self.map, node).map_or((0, 0), |known| (known.incarnation, known.store));
        let logged = self.group.store_of(node).filter(|(since, _)| since.0 > incarnation);
        logged.map_or(agreed, |(_, store)| store)
    }

    fn is_old(&self, from: NodeId, incarnation: Incarnation) -> bool {
        member(&self.map, from).is_some_and(|known| incarnation.0 <= known.incarnation)
    }

    fn on_propose(&mut self, now: Time, propose: wire::Propose) {
        if self.take_up(now, propose.commands.clone()) || propose.passed_on {
            return;
        }
        // This node is not the leader: it forwards the proposal once. The proposer repeats it in
        // time.
        if let Some(leader) = self.leader_or_voter() {
            let propose = wire::Propose { passed_on: true, ..propose };
            self.outgoing.push((leader.0, Body::Propose(propose)));
        }
    }

    fn ask_for_map(&mut self, now: Time, from: u32) {
        if now >= self.ask_at {
            self.ask_at = now + MAP_ASK_AGAIN;
            // This node may have led a group of only itself while the others had another
            // leader: then its history differs.
            let epoch = if self.leads_itself() { 0 } else { self.map.epoch };
            self.outgoing.push((from, Body::MapRequest(wire::MapRequest { epoch })));
        }
    }

    fn leads_itself(&self) -> bool {
        self.group.is_leader() && self.map.voters == [self.own.node.0]
    }

    fn send_map(&mut self, to: u32, epoch: u64) {
        let Some(behind) = self.map.epoch.checked_sub(epoch).filter(|&behind| behind > 0) else {
            return;
        };
        let known = usize::try_from(behind).ok().filter(|&behind| behind <= self.commands.len());
        let update = match known {
            Some(behind) => {
                let commands = self.commands.range(self.commands.len() - behind..).cloned();
                wire::MapUpdate { after: epoch, commands: commands.collect(), map: None }
            }
            None => {
                let map = Some(self.map.as_ref().clone());
                wire::MapUpdate { after: epoch, commands: Vec::new(), map }
            }
        };
        self.outgoing.push((to, Body::MapUpdate(update)));
    }

    fn on_map_update(&mut self, now: Time, update: wire::MapUpdate) {
        if let Some(map) = update.map {
            let is_ours = map.cluster == self.map.cluster
                && map.partitions.len() == self.map.partitions.len();
            if is_ours && map.epoch > self.map.epoch && kvs::check_map(&map).is_ok() {
                self.take_map(now, Arc::new(map));
            }
        } else if let Some(known) = self.map.epoch.checked_sub(update.after)
            && !self.leads_itself()
        {
            let new =
                update.commands.into_iter().skip(usize::try_from(known).unwrap_or(usize::MAX));
            self.take_commands(now, new.collect());
        }
    }

    fn take_map(&mut self, now: Time, map: Arc<wire::ClusterMap>) {
        self.commands.clear();
        self.map = map;
        self.map_changed(now);
    }

    /// Applies commands that follow this map, each of which changes it.
    fn take_commands(&mut self, now: Time, commands: Vec<wire::MapCommand>) {
        if commands.is_empty() {
            return;
        }
        let map = Arc::make_mut(&mut self.map);
        for command in commands {
            if !membership::apply(map, &command) {
                break; // Of another history: a whole map will arrive.
            }
            self.commands.push_back(command);
        }
        let surplus = self.commands.len().saturating_sub(MAP_COMMANDS_KEPT_MAX);
        self.commands.drain(..surplus);
        self.map_changed(now);
    }

    fn map_changed(&mut self, now: Time) {
        self.has_news = true;
        self.wanted.retain(|command| would_change(&self.map, command) || waits(&self.map, command));
        self.wanted_of_copies.retain(|command| would_change(&self.map, command));
        self.propose_down_for_own_replaced_store();
        self.watch(now);
        let me = self.own.node.0;
        if self.map.epoch > self.group.map().epoch && !self.map.voters.contains(&me) {
            self.group.retire(self.map.epoch);
        }
        // A map that this node agreed on by itself showed it; the map of the other nodes may not.
        let coming = self.own.coming();
        if waits(&self.map, &coming) {
            self.propose(coming);
        }
    }

    /// [`Self::deadline`] has come.
    pub(crate) fn on_time(&mut self, now: Time) {
        if self.may_lead(now) {
            self.group.on_time(now);
        }
        if self.detector.deadline() <= now {
            self.detector.on_time(now);
            self.ask_around();
        }
    }

    /// A node that considers all others failed gets no messages, and may not learn that they are
    /// back. So it asks one of them for the map.
    fn ask_around(&mut self) {
        let me = self.own.node.0;
        let others = self.map.members.iter().filter(|it| it.node != me);
        let others: Vec<&wire::Member> = others.filter(|it| it.phase() != Removed).collect();
        if others.is_empty() || others.iter().any(|it| is_serving(&self.map, it.node)) {
            return;
        }
        self.turn = self.turn.wrapping_add(1);
        let to = others[self.turn % others.len()].node;
        mark(Mark::AllGone);
        self.outgoing.push((to, Body::MapRequest(wire::MapRequest { epoch: self.map.epoch })));
    }

    /// The time of the next call of [`Self::on_time`].
    #[must_use]
    pub(crate) fn deadline(&self, now: Time) -> Time {
        let proposal = self.wants_something().then_some(self.propose_at);
        let death = self.detector.next_death(now);
        let group = match &self.founding {
            Some(founding) => Some(founding.until),
            None => self.group.deadline(),
        };
        let others = [group, proposal, death];
        others.into_iter().flatten().fold(self.detector.deadline(), Time::min)
    }

    /// Its writes up to that number are on stable storage.
    pub(crate) fn synced(&mut self, now: Time, number: u64) {
        self.group.synced(now, number);
    }

    /// Ends a step.
    pub(crate) fn flush(&mut self, now: Time, done: &mut Done) {
        self.judge(now);
        self.send_proposals(now);
        let mut output = Output::default();
        self.group.flush(now, &mut output);
        self.take_news(now, output.news);
        done.writes = output.writes;
        done.number = output.number;
        let group = output.messages.into_iter().map(|(to, outgoing)| (to.0, Body::Group(outgoing)));
        let outgoing: Vec<(u32, Body)> =
            group.chain(self.outgoing.drain(..)).chain(self.detector.take_outgoing()).collect();
        done.messages.extend(outgoing.into_iter().map(|(to, body)| self.addressed(to, body)));
        if std::mem::take(&mut self.has_news) {
            done.map = Some(Arc::clone(&self.map));
            done.fenced = self.fenced();
        }
    }

    fn addressed(&self, to: u32, body: Body) -> (NodeId, wire::MembershipMessage) {
        let to = NodeId(to);
        let to_store = match body {
            // An earlier store may receive the map, and answer whether its node is up.
            Body::Group(_) => self.store_of(to),
            _ => 0,
        };
        let (from_store, map_epoch) = (self.own.store, self.map.epoch);
        (to, wire::MembershipMessage { from_store, to_store, map_epoch, body: Some(body) })
    }

    /// Installs the map that the group has agreed on, unless a newer one has arrived already.
    fn take_news(&mut self, now: Time, news: News) {
        let before = self.map.epoch;
        self.take_agreed(now, news);
        if self.group.is_leader() && self.map.epoch > before {
            self.announce_map(before);
        }
    }

    /// Sends the new commands to nodes without a vote, so that they need not wait for other
    /// messages.
    fn announce_map(&mut self, before: u64) {
        let is_other = |it: &&wire::Member| {
            is_serving(&self.map, it.node) && !self.map.voters.contains(&it.node)
        };
        let others = self.map.members.iter().filter(is_other).map(|it| it.node);
        let me = self.own.node.0;
        let others: Vec<u32> =
            others.filter(|&node| node != me).take(MAP_UPDATES_SENT_MAX).collect();
        for node in others {
            self.send_map(node, before);
        }
    }

    fn take_agreed(&mut self, now: Time, news: News) {
        let agreed = Arc::clone(self.group.map());
        if agreed.epoch <= self.map.epoch {
            return;
        }
        match news {
            News::Commands(commands) => {
                let first = agreed.epoch - commands.len() as u64;
                match self.map.epoch.checked_sub(first) {
                    Some(known) => {
                        let new = commands.into_iter().skip(known as usize).collect();
                        self.take_commands(now, new);
                    }
                    None => self.take_map(now, agreed),
                }
            }
            News::Whole | News::None => self.take_map(now, agreed),
        }
    }

    /// The leader decides which nodes have failed; the others report their suspects to it.
    fn judge(&mut self, now: Time) {
        let suspects = self.detector.take_suspects();
        if self.group.is_leader() {
            let dead: Vec<_> = self.detector.dead(now).collect();
            let down = |(node, incarnation)| {
                let down = wire::MemberDown { node, incarnation };
                membership::command(map_command::Body::Down(down))
            };
            self.group.propose(dead.into_iter().map(down));
            return;
        }
        let Some(leader) = self.leader_or_voter() else { return };
        for suspect in suspects {
            if suspect.node != leader.0 {
                self.outgoing.push((leader.0, Body::Suspect(suspect)));
            }
        }
    }

    /// The leader if it is a voter according to the map, else some voter. A node without a vote
    /// might otherwise follow, without end, a leader that has no vote either.
    fn leader_or_voter(&mut self) -> Option<NodeId> {
        let leader = self.group.leader().filter(|leader| self.map.voters.contains(&leader.0));
        leader.or_else(|| self.some_voter())
    }

    /// A founder that has restarted knows only the first map, on which it may be alone. Its log
    /// names the voters that it has let in since.
    fn some_voter(&mut self) -> Option<NodeId> {
        let me = self.own.node.0;
        let but_me = |voters: &[u32]| -> Vec<u32> {
            voters.iter().copied().filter(|&node| node != me).collect()
        };
        let mut others = but_me(&self.map.voters);
        if others.is_empty() {
            others = but_me(self.group.voters());
        }
        self.turn = self.turn.wrapping_add(1);
        (!others.is_empty()).then(|| NodeId(others[self.turn % others.len()]))
    }

    fn send_proposals(&mut self, now: Time) {
        // The node that was asked before the leader was known may be gone.
        let leader = self.group.leader();
        let is_known = leader.is_none() || leader == self.proposed_to;
        if !self.wants_something() || (now < self.propose_at && is_known) {
            return;
        }
        (self.propose_at, self.proposed_to) = (now + PROPOSE_AGAIN, leader);
        let wanted = self.wanted.iter().chain(&self.wanted_of_copies).take(PROPOSALS_MAX).cloned();
        let commands: Vec<wire::MapCommand> = wanted.collect();
        if self.take_up(now, commands.clone()) {
            return;
        }
        if let Some(to) = self.leader_or_voter() {
            let propose = wire::Propose { commands, passed_on: false };
            self.outgoing.push((to.0, Body::Propose(propose)));
        }
    }

    /// Set if the map shows that this very incarnation is over: the least next incarnation.
    fn fenced(&self) -> Option<Option<Incarnation>> {
        let known = member(&self.map, self.own.node)?;
        let own = self.own.incarnation.0;
        // A node that lost its disk may not even know how often it has started.
        let is_other = known.store != 0 && known.store != self.own.store;
        let is_over = known.incarnation > own
            || (known.incarnation == own && (is_other || known.phase() == Down));
        if known.phase() == Removed {
            return Some(None);
        }
        is_over.then_some(Some(Incarnation(known.incarnation + 1)))
    }
}

/// Proposals are repeated at least once within the time of an election.
const _: () = assert!(PROPOSE_AGAIN.0 <= GROUP_ELECTION_AFTER.0);

#[cfg(test)]
mod tests;
