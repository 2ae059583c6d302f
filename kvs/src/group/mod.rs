/*!
The group: a few voters that agree on the sequence of commands that makes the map.

This is Raft (Ongaro and Ousterhout, *In Search of an Understandable Consensus Algorithm*, 2014)
with pre-vote, a leader that steps down when it hears from no majority, snapshots, and changes of
one voter at a time (Ongaro's dissertation, 2014, chapters 4 and 9). The state that is agreed on is
the [map](crate::membership); its first version is every voter's first snapshot, so that a fresh
cluster works before it has elected anybody. No task ever waits for the group: without a majority
the map stays as it is.

It does no IO and reads no clock. A driver does this:

```text
group.handle(now, from, message) | group.propose(now, commands) | group.on_time(now) | ...
group.flush(now, &mut output)     write output.writes; send output.messages
group.synced(now, output.number)  once they are on stable storage, then flush again
```

What it promises waits until all that it has written is synced: a promise that can be forgotten is
none, and an entry that can be lost does not count. The leader counts its own entries alike. What
promises nothing leaves at once: a leader is not taken for dead because somebody's disk is slow.

A voter whose disk is gone has forgotten its promises: it would vote twice. So it begins *blank*
(as a new voter does): it takes part in no election until a leader has given it a snapshot. One of
the first voters may not know that it had a disk, and nobody who answers may have heard of it: so
who begins without records votes for nobody who has entries and does not know its disk, until it has
voted or has some itself; and who has heard that something is agreed on elects nobody without it,
though it has nothing either.
*/

mod dice;
mod election;
mod log;
mod mutant;
mod records;
mod replicate;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use proto::limits::{
    GROUP_APPEND_ENTRIES_MAX, GROUP_ELECTION_AFTER, GROUP_ELECTION_SOON, GROUP_LOG_ENTRIES_MAX,
};
use proto::wire::group_message::Body;
use proto::{Incarnation, NodeId, Span, Time, wire};

use crate::membership;
use crate::{Record, Write};
use dice::Dice;
use log::Log;
use mutant::Mutant;

pub use records::is_record;

/// One voter, or a node that may become one.
#[derive(Debug)]
pub struct Group {
    me: u32,
    dice: Dice,
    term: u64,
    vote: Option<u32>,
    log: Log,
    /// What the entries up to `commit` make.
    map: Arc<wire::ClusterMap>,
    commit: u64,
    role: Role,
    /// It has no state that it could vote on: it never had, or its disk is gone.
    blank: bool,
    /// It began without any records, as all do that begin together, or as who has lost its disk
    /// and does not know; and it has had no vote and no entry since.
    fresh: bool,
    /// All up to this index is agreed on, as leaders have said; it may have less itself.
    agreed: u64,
    /// Others say that it has no vote any more.
    retired: bool,
    leader: Option<u32>,
    /// When it last heard from a leader of its term.
    heard_at: Option<Time>,
    election_at: Time,
    /// Elections that it has tried since it last knew a leader.
    tries: u32,
    /// Terms that it has begun since then, and that came to nothing.
    stands: u32,
    plans: bool,
    log_entries_max: u64,
    append_entries_max: usize,
    /// The map has changed since the leader last planned.
    unplanned: bool,
    /// A change of voters was refused as who has a vote then does not answer now.
    plan_at_beat: bool,
    proposed: Vec<wire::MapCommand>,
    writes: Vec<Write>,
    /// Numbers the flushes that had writes.
    written: u64,
    synced: u64,
    /// Flushes that are not synced, each with the last index after it.
    unsynced: VecDeque<(u64, u64)>,
    /// Entries up to here are on this node's stable storage.
    stable: u64,
    said: Vec<(u32, wire::GroupMessage)>,
    held: VecDeque<(u64, u32, wire::GroupMessage)>,
    news: News,
    mutant: Option<Mutant>,
}

#[derive(Debug)]
enum Role {
    Follower,
    /// Asks whether an election could be won; its own yes counts at once.
    PreCandidate {
        votes: BTreeSet<u32>,
    },
    /// `own` numbers the flush that holds its vote for itself.
    Candidate {
        votes: BTreeSet<u32>,
        own: u64,
    },
    /// The newcomer is to become a voter when it has caught up: who, by which change, since when.
    Leader {
        followers: BTreeMap<u32, Progress>,
        newcomer: Option<(u32, wire::MapCommand, Time)>,
        /// The voters that are to be left when one is let go, and since when that has been wanted.
        fewer: Option<(Vec<u32>, Time)>,
        beat_at: Time,
    },
}

/// What the leader knows of another voter.
#[derive(Clone, Debug)]
struct Progress {
    next: u64,
    /// All up to here is there and synced.
    matched: u64,
    /// When the last of this leader's messages that it has answered was sent.
    heard_at: Time,
    /// The same of those that it has answered with what is on its disk, or lacks.
    answered_at: Time,
    snapshot_at: Option<Time>,
}

/// What has been agreed on since the last flush.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum News {
    #[default]
    None,
    /// These commands, each of which has changed the map.
    Commands(Vec<wire::MapCommand>),
    /// So much that the map came as a whole.
    Whole,
}

/// What a flush hands out.
#[derive(Debug, Default)]
pub struct Output {
    /// To be written, all or nothing, after all earlier ones.
    pub writes: Vec<Write>,
    /// What to call [`Group::synced`] with, once these writes are on stable storage.
    pub number: u64,
    pub messages: Vec<(NodeId, wire::GroupMessage)>,
    pub news: News,
}

/// How a node takes part from its start.
#[derive(Clone, Debug)]
pub struct Start {
    pub me: NodeId,
    pub seed: u64,
    /// The first map of the cluster, the same for all its first nodes; or any map, if `blank`.
    pub map: Arc<wire::ClusterMap>,
    /// This node was not among the first, or its disk is gone.
    pub blank: bool,
}

/// The stored records of the group contradict each other.
#[derive(Debug, thiserror::Error)]
#[error("the stored records of the map's group are damaged: {0}")]
pub struct DamagedGroup(pub String);

impl Group {
    /// As an earlier incarnation's records describe it; without any, as `start` says. Records of
    /// others are passed over.
    pub fn recover(
        start: Start,
        records: impl IntoIterator<Item = Record>,
        now: Time,
    ) -> Result<Self, DamagedGroup> {
        let found = records::read(records)?;
        let blank = if found.any { found.hard_state.blank } else { start.blank };
        let fresh = if found.any { found.hard_state.fresh } else { !start.blank };
        let snapshot = found.snapshot.unwrap_or_default();
        let map = snapshot.map.map_or(start.map, Arc::new);
        let log = Log::new(snapshot.index, snapshot.term, map.voters.clone(), found.entries)?;
        let last = log.last_index();
        let mut group = Self {
            me: start.me.0,
            dice: Dice::new(start.seed),
            term: found.hard_state.term,
            vote: found.hard_state.voted.then_some(found.hard_state.vote),
            commit: log.snapshot_index(),
            map,
            log,
            role: Role::Follower,
            blank,
            fresh,
            agreed: found.hard_state.agreed,
            retired: false,
            leader: None,
            heard_at: None,
            election_at: now,
            tries: 0,
            stands: 0,
            plans: true,
            log_entries_max: GROUP_LOG_ENTRIES_MAX,
            append_entries_max: GROUP_APPEND_ENTRIES_MAX,
            unplanned: true,
            plan_at_beat: false,
            proposed: Vec::new(),
            writes: Vec::new(),
            written: 0,
            synced: 0,
            unsynced: VecDeque::new(),
            stable: last,
            said: Vec::new(),
            held: VecDeque::new(),
            news: News::None,
            mutant: None,
        };
        if !found.any {
            group.save_promise();
        }
        if group.log.voters() != [group.me] {
            group.elect_within(now, Span::ZERO, GROUP_ELECTION_SOON);
        }
        Ok(group)
    }

    /// The map as far as this voter knows it agreed on.
    #[must_use]
    pub fn map(&self) -> &Arc<wire::ClusterMap> {
        &self.map
    }
    #[must_use]
    pub fn leader(&self) -> Option<NodeId> {
        self.leader.map(NodeId)
    }
    #[must_use]
    pub fn is_leader(&self) -> bool {
        matches!(self.role, Role::Leader { .. })
    }
    #[must_use]
    pub fn is_voter(&self) -> bool {
        self.log.voters().contains(&self.me)
    }
    #[must_use]
    pub fn term(&self) -> u64 {
        self.term
    }

    /// The disk with which a node came up last, and as which incarnation, where entries tell of it
    /// that are not known to be agreed on, as with voters: those who have restarted do not know
    /// what was agreed on, and have to elect somebody before they do. An entry that changes
    /// nothing does not count: a voter with another disk has to lose its vote first.
    #[must_use]
    pub fn store_of(&self, node: NodeId) -> Option<(Incarnation, u64)> {
        if !self.log.has_up_of(node.0, self.commit) {
            return None;
        }
        let mut map = self.map.as_ref().clone();
        let later = self.log.from(self.commit + 1, usize::MAX);
        for command in later.iter().flat_map(|entry| &entry.commands) {
            membership::apply(&mut map, command);
        }
        let member = membership::member(&map, node).filter(|member| member.store != 0)?;
        Some((Incarnation(member.incarnation), member.store))
    }

    /// It has no records, and no vote of its own or of others has been heard of.
    #[must_use]
    pub fn begins_anew(&self) -> bool {
        self.fresh && self.term == 0 && self.log.last_index() == 0
    }

    /// It had records once: what it promised then is forgotten.
    pub fn forgot(&mut self) {
        (self.blank, self.fresh) = (true, false);
        self.save_promise();
    }

    /// Who votes as far as this node knows, agreed on or not.
    #[must_use]
    pub fn voters(&self) -> &[u32] {
        self.log.voters()
    }

    /// The map once all that this voter has written down is agreed on.
    #[must_use]
    pub fn written_map(&self) -> wire::ClusterMap {
        let mut map = self.map.as_ref().clone();
        let entries = (self.commit + 1..=self.log.last_index()).filter_map(|at| self.log.entry(at));
        for command in entries.flat_map(|entry| &entry.commands) {
            membership::apply(&mut map, command);
        }
        map
    }

    /// What it knows and has promised, in words, for who looks for a fault.
    #[must_use]
    pub fn describe(&self) -> String {
        let Self { me, term, commit, log, role, vote, blank, fresh, agreed, retired, .. } = self;
        let (last, last_term, voters) = (log.last_index(), log.last_term(), log.voters());
        let mut is: Vec<&str> = Vec::new();
        is.extend(blank.then_some("blank"));
        is.extend(fresh.then_some("fresh"));
        is.extend(retired.then_some("retired"));
        let role = match role {
            Role::Follower => "follower",
            Role::PreCandidate { .. } => "before standing",
            Role::Candidate { .. } => "candidate",
            Role::Leader { .. } => "leader",
        };
        let vote = vote.map_or_else(|| "nobody".to_owned(), |node| format!("n{node}"));
        format!(
            "n{me} {role} {} in term {term}: voted for {vote}; voters {voters:?}; has {last} (of \
             term {last_term}), {commit} agreed on, heard of {agreed}",
            is.join(" ")
        )
    }

    /// A message of another node of the group.
    pub fn handle(&mut self, now: Time, from: NodeId, message: wire::GroupMessage) {
        let (from, term) = (from.0, message.term);
        let Some(body) = message.body else { return };
        if from == self.me {
            return;
        }
        match body {
            Body::VoteRequest(ask) if ask.pre_vote => {
                return self.on_pre_vote_request(now, from, term, &ask);
            }
            Body::VoteReply(reply) if reply.pre_vote && reply.granted => {
                return self.on_pre_vote(now, from, term);
            }
            _ => {}
        }
        if term > self.term {
            self.begin_term(now, term);
        }
        let is_stale = term < self.term;
        if is_stale
            && !(self.is(Mutant::AcceptStaleAppend) && matches!(body, Body::AppendEntries(_)))
        {
            // Whoever leads or votes in an older term learns of the newer one.
            match body {
                Body::VoteRequest(_) => self.say(from, vote_reply(false, false)),
                Body::AppendEntries(_) | Body::Install(_) => {
                    self.say(from, append_reply(false, 0, 0));
                }
                Body::VoteReply(_) | Body::AppendReply(_) => {}
            }
            return;
        }
        match body {
            Body::VoteRequest(ask) => self.on_vote_request(now, from, &ask),
            Body::VoteReply(reply) => self.on_vote(now, from, reply.granted && !reply.pre_vote),
            Body::AppendEntries(append) => self.on_append_entries(now, from, append),
            Body::Install(snapshot) => self.on_install(now, from, snapshot),
            Body::AppendReply(reply) => self.on_append_reply(now, from, &reply),
        }
    }

    /// Something that should change in the map. Only the leader takes it; false: ask [`leader`].
    /// A proposal may be lost with its leader: whoever wants it proposes again until the map
    /// shows it.
    ///
    /// [`leader`]: Self::leader
    pub fn propose(&mut self, commands: impl IntoIterator<Item = wire::MapCommand>) -> bool {
        if !self.is_leader() {
            return false;
        }
        for command in commands {
            let is_known =
                self.proposed.contains(&command) || self.log.holds(&command, self.commit);
            if !is_known && membership::would_change(&self.map, &command) {
                self.proposed.push(command);
            }
        }
        true
    }

    /// The transport to this node has broken: if it leads, somebody else should soon.
    pub fn peer_lost(&mut self, now: Time, peer: NodeId) {
        if self.leader == Some(peer.0) && !self.is_leader() {
            self.leader = None;
            self.heard_at = None;
            self.elect_within(now, Span::ZERO, GROUP_ELECTION_SOON);
        }
    }

    /// A map of this epoch was agreed on and tells of no vote of this node's: it has missed its
    /// going. Unless it has an entry later than that, by which it has one again.
    pub fn retire(&mut self, epoch: u64) {
        if !self.is_named_after(epoch) {
            self.role = Role::Follower;
            self.leader = self.leader.filter(|&leader| leader != self.me);
            self.retired = true;
        }
    }

    fn is_named_after(&self, epoch: u64) -> bool {
        let mut map = self.map.as_ref().clone();
        self.log.from(self.commit + 1, usize::MAX).iter().any(|entry| {
            for command in &entry.commands {
                membership::apply(&mut map, command);
            }
            map.epoch > epoch && log::voters_of(entry).is_some_and(|all| all.contains(&self.me))
        })
    }

    /// [`Self::deadline`] has come.
    pub fn on_time(&mut self, now: Time) {
        match self.role {
            Role::Leader { beat_at, .. } if beat_at <= now => self.beat(now),
            Role::Leader { .. } => {}
            _ if !self.may_stand() || self.election_at > now => {}
            // What it has promised already is not even said.
            _ if !self.is_all_synced() => self.wait_for_answers(now),
            _ => self.ask_for_pre_votes(now),
        }
    }

    /// When it wants [`Self::on_time`].
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        match self.role {
            Role::Leader { beat_at, .. } => Some(beat_at),
            _ if self.may_stand() => Some(self.election_at),
            _ => None,
        }
    }

    /// All writes up to that flush are on stable storage.
    pub fn synced(&mut self, now: Time, number: u64) {
        assert!(number <= self.written, "flush {number} has not been");
        if number > self.synced {
            self.synced = number;
            if self.leader.is_none() {
                self.wait_for_answers(now); // The vote leaves only now.
            }
        }
        while let Some(&(flush, last)) = self.unsynced.front()
            && flush <= self.synced
        {
            self.stable = self.stable.max(last);
            self.unsynced.pop_front();
        }
        self.count_own_vote(now);
        self.advance_commit(now);
    }

    /// Ends a step: what to write, what to send now, and what has been agreed on.
    pub fn flush(&mut self, now: Time, output: &mut Output) {
        self.append_proposals(now);
        if !self.writes.is_empty() {
            self.written += 1;
            self.unsynced.push_back((self.written, self.log.last_index()));
            if self.is(Mutant::CountUnsynced) {
                self.stable = self.log.last_index();
                self.advance_commit(now);
            }
        }
        output.writes = std::mem::take(&mut self.writes);
        output.number = self.written;
        for (to, message) in std::mem::take(&mut self.said) {
            if promises(&message) || self.is(Mutant::HoldEverything) {
                self.held.push_back((self.written, to, message));
            } else {
                output.messages.push((NodeId(to), message));
            }
        }
        while let Some(&(number, _, _)) = self.held.front()
            && (number <= self.synced || self.is(Mutant::SpeakBeforeSync))
        {
            let (_, to, message) = self.held.pop_front().expect("looked at above");
            output.messages.push((NodeId(to), message));
        }
        output.news = std::mem::take(&mut self.news);
    }

    /// It has a vote, or had one before a change that is not agreed on yet and may have nobody else
    /// to bring it about (section 4.2.2 of the dissertation); it knows what it has promised, and
    /// does not know that it lacks something.
    fn may_stand(&self) -> bool {
        let votes = self.map.voters.contains(&self.me) || self.log.names(self.me, self.commit);
        let lacks = self.log.last_index() < self.agreed && !self.is(Mutant::LackingStands);
        votes && !self.retired && !self.blank && !lacks
    }

    fn is_all_synced(&self) -> bool {
        self.synced == self.written && self.writes.is_empty()
    }

    fn elect_within(&mut self, now: Time, least: Span, more: Span) {
        self.election_at = now + least + Span(self.dice.below(more.0.max(1)));
    }

    fn put_election_off(&mut self, now: Time) {
        self.elect_within(now, GROUP_ELECTION_AFTER, GROUP_ELECTION_AFTER);
    }

    /// A newer term than it knew: it has promised nothing in it and knows no leader.
    fn begin_term(&mut self, now: Time, term: u64) {
        assert!(term > self.term, "terms grow");
        self.term = term;
        self.vote = None;
        self.leader = None;
        self.save_promise();
        self.follow(now);
    }

    fn follow(&mut self, now: Time) {
        if self.is_leader() {
            self.proposed.clear();
        }
        self.role = Role::Follower;
        self.put_election_off(now);
    }

    fn save_promise(&mut self) {
        let (term, vote) = (self.term, self.vote.unwrap_or(0));
        let voted = self.vote.is_some() && !self.is(Mutant::ForgetVote);
        let (blank, fresh, agreed) = (self.blank, self.fresh, self.agreed);
        let hard_state = wire::HardState { term, voted, vote, blank, fresh, agreed };
        self.writes.push(records::hard_state(&hard_state));
    }

    fn say(&mut self, to: u32, body: Body) {
        self.say_in(self.term, to, body);
    }

    fn say_in(&mut self, term: u64, to: u32, body: Body) {
        self.said.push((to, wire::GroupMessage { term, body: Some(body) }));
    }

    fn others(&self) -> Vec<u32> {
        self.log.voters().iter().copied().filter(|&node| node != self.me).collect()
    }

    /// Whether these are more than half of the voters.
    fn is_majority(&self, nodes: &BTreeSet<u32>) -> bool {
        let voters = self.log.voters();
        voters.iter().filter(|node| nodes.contains(node)).count() * 2 > voters.len()
    }

    /// A bug on purpose, in tests only.
    fn is(&self, mutant: Mutant) -> bool {
        cfg!(test) && self.mutant == Some(mutant)
    }
}

/// Whether it may only be said once all that was written before is synced.
fn promises(message: &wire::GroupMessage) -> bool {
    match &message.body {
        // What an election needs is a vote for whoever says so; its log has to be what it says.
        Some(Body::VoteRequest(ask)) => !ask.pre_vote,
        Some(Body::VoteReply(reply)) => reply.granted && !reply.pre_vote,
        Some(Body::AppendReply(reply)) => reply.ok && reply.index > 0,
        // A follower counts what it has synced itself.
        Some(Body::AppendEntries(_) | Body::Install(_)) | None => false,
    }
}

fn vote_reply(pre_vote: bool, granted: bool) -> Body {
    Body::VoteReply(wire::VoteReply { pre_vote, granted })
}

/// `sent_ns`: what the leader's message said; 0 where no message of a leader is answered.
fn append_reply(ok: bool, index: u64, sent_ns: u64) -> Body {
    Body::AppendReply(wire::AppendReply { ok, index, needs_snapshot: false, sent_ns })
}

#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;
