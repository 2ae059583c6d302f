/*!
The group: the voters that agree on the sequence of commands which makes the map.

This is Raft (Ongaro and Ousterhout, *In Search of an Understandable Consensus Algorithm*, 2014)
with pre-vote, snapshots, and changes of one voter at a time (Ongaro's dissertation, 2014, chapters
4 and 9). A leader without answers from a majority steps down. The replicated state is the
[map](crate::membership). The first map is every voter's first snapshot, so a new cluster works
before its first election. Tasks never wait for the group: without a majority the map stays as it
is.

The group does no IO and reads no clock. Its driver calls:

```text
group.handle(now, from, message) | group.propose(now, commands) | group.on_time(now) | ...
group.flush(now, &mut output)     write output.writes; send output.messages
group.synced(now, output.number)  once they are on stable storage, then flush again
```

Messages that promise something (votes, acknowledged entries) wait until all earlier writes are
synced. The leader counts its own entries only when they are synced. All other messages are sent at
once, so a slow disk alone does not make a leader look failed.

A voter that lost its disk has forgotten its votes and could vote twice. So it starts *blank*, as a
new voter does: it takes part in no election until a leader has sent it a snapshot. But a founding
voter that finds an empty disk cannot tell a first start from a lost disk. So it is *fresh* until it
has voted or has an entry. A fresh voter refuses every candidate that has entries, unless the
candidate knows its disk. Each voter also stores the highest index that it knows as committed. It
votes for no candidate without that index, even if it lacks the entries itself.
*/

mod election;
mod limits;
mod log;
mod mutant;
mod records;
mod replicate;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use proto::limits::GROUP_ELECTION_AFTER;
use proto::wire::group_message::Body;
use proto::{Incarnation, NodeId, Span, Time, wire};

use crate::membership;
use crate::{Record, Write};
use dice::Dice;
use log::Log;
use mutant::Mutant;

use crate::group::limits::{GROUP_APPEND_ENTRIES_MAX, GROUP_ELECTION_SOON, GROUP_LOG_ENTRIES_MAX};
pub use records::is_record;

/// A voter, or a node that may become one.
#[derive(Debug)]
pub struct Group {
    me: u32,
    dice: Dice,
    term: u64,
    vote: Option<u32>,
    log: Log,
    /// The map after the entries up to `commit`.
    map: Arc<wire::ClusterMap>,
    commit: u64,
    role: Role,
    /// It has no Raft state to vote with: it is new, or it lost its disk.
    blank: bool,
    /// It started without records, and has neither voted nor received an entry since. This is a
    /// first start, or a disk was lost unnoticed.
    fresh: bool,
    /// Leaders reported that all entries up to this index are committed. This node may lack some of
    /// them.
    agreed: u64,
    /// Other nodes reported that this node is no longer a voter.
    retired: bool,
    leader: Option<u32>,
    /// The time of the last message of a leader of its term.
    heard_at: Option<Time>,
    election_at: Time,
    /// Elections tried since it last knew a leader.
    tries: u32,
    /// Terms that it has started since then without success.
    stands: u32,
    plans: bool,
    log_entries_max: u64,
    append_entries_max: usize,
    /// The map has changed since the leader last planned.
    unplanned: bool,
    /// A change of voters was refused because a remaining voter does not answer now. Planning is
    /// repeated at the next heartbeat.
    plan_at_beat: bool,
    proposed: Vec<wire::MapCommand>,
    writes: Vec<Write>,
    /// The number of the last flush that had writes.
    written: u64,
    synced: u64,
    /// Flushes that are not synced, each with the log's last index after it.
    unsynced: VecDeque<(u64, u64)>,
    /// This node has synced the entries up to this index.
    stable: u64,
    said: Vec<(u32, wire::GroupMessage)>,
    held: VecDeque<(u64, u32, wire::GroupMessage)>,
    news: News,
    mutant: Option<Mutant>,
}

#[derive(Debug)]
enum Role {
    Follower,
    /// Asks whether an election could succeed. Its own vote counts at once.
    PreCandidate {
        votes: BTreeSet<u32>,
    },
    /// `own` is the flush that contains its vote for itself.
    Candidate {
        votes: BTreeSet<u32>,
        own: u64,
    },
    /// `newcomer`: the node that is to become a voter once it has caught up, the proposed change,
    /// and its start time.
    Leader {
        followers: BTreeMap<u32, Progress>,
        newcomer: Option<(u32, wire::MapCommand, Time)>,
        /// The voters that would remain after a removal, and the time since when the removal has
        /// been wanted.
        fewer: Option<(Vec<u32>, Time)>,
        beat_at: Time,
    },
}

/// The leader's knowledge about another voter.
#[derive(Clone, Debug)]
struct Progress {
    next: u64,
    /// The voter has synced all entries up to this index.
    matched: u64,
    /// The sending time of the leader's last message that the voter has answered.
    heard_at: Time,
    /// The same for answers about the voter's log. They report synced entries or missing ones.
    answered_at: Time,
    snapshot_at: Option<Time>,
}

/// The committed changes since the last flush.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum News {
    #[default]
    None,
    /// These commands, each of which has changed the map.
    Commands(Vec<wire::MapCommand>),
    /// The whole map, which came as a snapshot.
    Whole,
}

/// The output of a flush.
#[derive(Debug, Default)]
pub struct Output {
    /// Writes to be stored atomically, after all earlier ones.
    pub writes: Vec<Write>,
    /// The argument of [`Group::synced`], once these writes are on stable storage.
    pub number: u64,
    pub messages: Vec<(NodeId, wire::GroupMessage)>,
    pub news: News,
}

/// The parameters of a node's start.
#[derive(Clone, Debug)]
pub struct Start {
    pub me: NodeId,
    pub seed: u64,
    /// The first map of the cluster, which all founding nodes share. Any map if `blank`.
    pub map: Arc<wire::ClusterMap>,
    /// The node is no founder, or it lost its disk.
    pub blank: bool,
}

/// The stored records of the group are damaged or contradict each other.
#[derive(Debug, thiserror::Error)]
#[error("the stored records of the map's group are damaged: {0}")]
pub struct DamagedGroup(pub String);

impl Group {
    /// Rebuilds the state from the records of an earlier incarnation, or starts as `start`
    /// describes if there are none. Skips records that are not the group's.
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

    /// The committed map, as far as this voter knows.
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

    /// The store of a node and the incarnation that announced it, if entries after the known commit
    /// index contain its start. Voters that have restarted do not know the commit index, and must
    /// elect a leader before they learn it. An ineffective entry does not count: a voter with
    /// another disk must be removed from the voters first.
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

    /// It has no records, and has received no request for a vote.
    #[must_use]
    pub fn has_no_past(&self) -> bool {
        self.fresh && self.term == 0 && self.log.last_index() == 0
    }

    /// Makes the node blank: it had records before and has lost its votes.
    pub fn forgot(&mut self) {
        (self.blank, self.fresh) = (true, false);
        self.save_promise();
    }

    /// The voters by the latest entry of this node's log, committed or not.
    #[must_use]
    pub fn voters(&self) -> &[u32] {
        self.log.voters()
    }

    /// The map after all entries of this voter's log, as if they were committed.
    #[must_use]
    pub fn written_map(&self) -> wire::ClusterMap {
        let mut map = self.map.as_ref().clone();
        let entries = (self.commit + 1..=self.log.last_index()).filter_map(|at| self.log.entry(at));
        for command in entries.flat_map(|entry| &entry.commands) {
            membership::apply(&mut map, command);
        }
        map
    }

    /// The state in words, for diagnosis.
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
        let vote = vote.map_or_else(|| "no node".to_owned(), |node| format!("n{node}"));
        format!(
            "n{me} {role} {} in term {term}: voted for {vote}; voters {voters:?}; has {last} (of \
             term {last_term}), {commit} agreed on, knows of {agreed}",
            is.join(" ")
        )
    }

    /// Handles a message of another node of the group.
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
            // Informs a leader or candidate of an older term about the newer one.
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

    /// Proposes changes of the map. Only the leader accepts them; false means: send them to the
    /// [`leader`]. A proposal may be lost with its leader, so the proposer repeats it until the map
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

    /// Handles a broken connection to a peer. If the peer leads, an election follows soon.
    pub fn peer_lost(&mut self, now: Time, peer: NodeId) {
        if self.leader == Some(peer.0) && !self.is_leader() {
            self.leader = None;
            self.heard_at = None;
            self.elect_within(now, Span::ZERO, GROUP_ELECTION_SOON);
        }
    }

    /// Called when a committed map of this epoch does not list this node as a voter: it missed its
    /// removal. The node retires unless its log has a later entry that makes it a voter again.
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

    /// Called when [`Self::deadline`] has passed.
    pub fn on_time(&mut self, now: Time) {
        match self.role {
            Role::Leader { beat_at, .. } if beat_at <= now => self.beat(now),
            Role::Leader { .. } => {}
            _ if !self.may_stand() || self.election_at > now => {}
            // Its own vote request or vote has not been sent yet.
            _ if !self.is_all_synced() => self.wait_for_answers(now),
            _ => self.ask_for_pre_votes(now),
        }
    }

    /// The time of the next [`Self::on_time`].
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        match self.role {
            Role::Leader { beat_at, .. } => Some(beat_at),
            _ if self.may_stand() => Some(self.election_at),
            _ => None,
        }
    }

    /// All writes up to flush `number` are on stable storage.
    pub fn synced(&mut self, now: Time, number: u64) {
        assert!(number <= self.written, "flush {number} has not been");
        if number > self.synced {
            self.synced = number;
            if self.leader.is_none() {
                self.wait_for_answers(now); // Its vote is sent only now.
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

    /// Ends a step. Fills `output` with the writes, the messages and the newly committed changes.
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

    /// True if this node may become a candidate. It is a voter, or was one before an uncommitted
    /// change that perhaps only it can commit (section 4.2.2 of the dissertation). It is not blank,
    /// and it has all entries that it knows as committed.
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

    /// Enters a newer term, without a vote and without a leader.
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

    /// True if these nodes are more than half of the voters.
    fn is_majority(&self, nodes: &BTreeSet<u32>) -> bool {
        let voters = self.log.voters();
        voters.iter().filter(|node| nodes.contains(node)).count() * 2 > voters.len()
    }

    /// True if this mutant is set. Only tests set one.
    fn is(&self, mutant: Mutant) -> bool {
        cfg!(test) && self.mutant == Some(mutant)
    }
}

/// True if the message must wait until all earlier writes are synced.
fn promises(message: &wire::GroupMessage) -> bool {
    match &message.body {
        // The vote request includes the candidate's vote for itself, and describes its log. Both
        // must be durable.
        Some(Body::VoteRequest(ask)) => !ask.pre_vote,
        Some(Body::VoteReply(reply)) => reply.granted && !reply.pre_vote,
        Some(Body::AppendReply(reply)) => reply.ok && reply.index > 0,
        // A follower counts only entries that it has synced itself.
        Some(Body::AppendEntries(_) | Body::Install(_)) | None => false,
    }
}

fn vote_reply(pre_vote: bool, granted: bool) -> Body {
    Body::VoteReply(wire::VoteReply { pre_vote, granted })
}

/// `sent_ns`: the sending time in the leader's message; 0 if this answers no such message.
fn append_reply(ok: bool, index: u64, sent_ns: u64) -> Body {
    Body::AppendReply(wire::AppendReply { ok, index, needs_snapshot: false, sent_ns })
}

#[cfg(test)]
mod sim;
#[cfg(test)]
mod tests;
