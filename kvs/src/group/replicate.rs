//! Log replication from the leader to the followers, and the commit of entries that a majority has.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proto::limits::GROUP_ELECTION_AFTER;
use proto::marks::{Mark, mark};
use proto::wire::group_message::Body;
use proto::wire::map_command;
use proto::{Span, Time, wire};

use super::log::voters_of;
use super::mutant::Mutant;
use super::{Group, News, Progress, Role, append_reply, records};
use crate::group::limits::{GROUP_ELECTION_SLOW, GROUP_ENTRY_COMMANDS_MAX};
use crate::membership;

/// The leader sends to each follower at least this often.
pub(super) const GROUP_HEARTBEAT: Span = Span::from_millis(250);
/// The leader repeats a snapshot to a follower no earlier than this.
const GROUP_SNAPSHOT_TIMEOUT: Span = Span::from_secs(2);
/// The leader gives up a new voter that has not caught up after this time.
const GROUP_LEARNER_TIMEOUT: Span = Span::from_secs(10);

/// A follower without an answer for this long counts as unreachable.
const LEADER_TIMEOUT: Span = Span(GROUP_ELECTION_AFTER.0 * 2);

/// A voter that reports no synced entries for this long counts as one with a hanging disk.
const DISK_TIMEOUT: Span = Span(GROUP_ELECTION_SLOW.0 * 2);

impl Progress {
    fn new(next: u64, now: Time) -> Self {
        Self { next, matched: 0, heard_at: now, answered_at: now, snapshot_at: None }
    }
}

impl Group {
    /// Becomes leader. An entry of its own term lets it find out which earlier entries are
    /// committed.
    pub(super) fn lead(&mut self, now: Time) {
        self.leader = Some(self.me);
        self.forget_elections();
        self.unplanned = true;
        self.proposed.clear();
        let (followers, beat_at) = (BTreeMap::new(), now + GROUP_HEARTBEAT);
        self.role = Role::Leader { followers, newcomer: None, fewer: None, beat_at };
        self.append(Vec::new());
        self.look_at_entries();
        self.keep_to_voters(now);
        self.replicate(now);
        self.advance_commit(now);
    }

    /// Keeps one progress for each other voter and for the newcomer.
    fn keep_to_voters(&mut self, now: Time) {
        let (me, next) = (self.me, self.log.last_index());
        let voters = self.log.voters().to_vec();
        let Role::Leader { followers, newcomer, .. } = &mut self.role else { return };
        let is_newcomer = |node| newcomer.as_ref().is_some_and(|(new, ..)| *new == node);
        followers.retain(|&node, _| voters.contains(&node) || is_newcomer(node));
        for node in voters.into_iter().filter(|&node| node != me) {
            followers.entry(node).or_insert_with(|| Progress::new(next, now));
        }
    }

    fn append(&mut self, commands: Vec<wire::MapCommand>) {
        let index = self.log.last_index() + 1;
        let entry = wire::GroupEntry { index, term: self.term, commands };
        self.writes.push(records::entry(&entry));
        self.log.push(entry);
    }

    /// Appends entries for all proposals and for the planner's commands.
    pub(super) fn append_proposals(&mut self, now: Time) {
        if !self.is_leader() {
            return;
        }
        self.plan();
        let before = self.log.last_index();
        let mut commands = Vec::new();
        for command in std::mem::take(&mut self.proposed) {
            if !matches!(command.body, Some(map_command::Body::SetVoters(_))) {
                commands.push(command);
            } else if self.would_strand(now, &command) && !self.is(Mutant::StrandVoters) {
                mark(Mark::VotersStranded);
                self.plan_at_beat = true;
            } else if self.may_change_voters(&command) {
                match self.newcomer(&command) {
                    Some(node) => self.welcome(now, node, command),
                    None => self.append(vec![command]),
                }
            } // Otherwise it came too early, and is proposed again.
        }
        while !commands.is_empty() {
            let rest = commands.split_off(commands.len().min(GROUP_ENTRY_COMMANDS_MAX));
            self.append(std::mem::replace(&mut commands, rest));
        }
        if self.log.last_index() > before {
            self.keep_to_voters(now);
            self.replicate(now);
        }
    }

    /// Plans the missing changes of the map, once all earlier entries are committed.
    fn plan(&mut self) {
        let is_settled = self.commit == self.log.last_index() && self.proposed.is_empty();
        if self.plans && self.unplanned && is_settled {
            self.unplanned = false;
            self.proposed = membership::plan(&self.map);
        }
    }

    /// Voters change one at a time, after the last change is committed, and after the leader has
    /// committed an entry of its own term. Otherwise two majorities might not intersect (Ongaro
    /// 2015, a correction to chapter 4 of the dissertation).
    fn may_change_voters(&self, command: &wire::MapCommand) -> bool {
        let Some(map_command::Body::SetVoters(set)) = &command.body else { return false };
        let now: BTreeSet<u32> = self.log.voters().iter().copied().collect();
        let then: BTreeSet<u32> = set.voters.iter().copied().collect();
        let is_one_step = now.symmetric_difference(&then).count() == 1;
        let is_known =
            self.log.voters_index() <= self.commit && self.log.term(self.commit) == Some(self.term);
        (is_one_step && is_known || self.is(Mutant::TwoVoterChanges))
            && membership::would_change(&self.map, command)
    }

    /// True if the voters after this change could be unable to agree, even on the change itself.
    /// This is so if fewer than a majority of them have lately reported their log to this leader.
    /// The map may show a running voter as down, and the planner may then remove that one before a
    /// failed one. Before a removal the remaining voters must answer a message sent after the
    /// removal was first wanted. A voter that failed a moment ago has answered before, and its
    /// answer may be late.
    fn would_strand(&mut self, now: Time, command: &wire::MapCommand) -> bool {
        let Some(map_command::Body::SetVoters(set)) = &command.body else { return false };
        let Role::Leader { followers, fewer, .. } = &mut self.role else { return false };
        let heard_since = if set.voters.len() < self.log.voters().len() {
            if fewer.as_ref().is_none_or(|(voters, _)| *voters != set.voters) {
                *fewer = Some((set.voters.clone(), now));
            }
            fewer.as_ref().map_or(now, |&(_, since)| since)
        } else {
            Time(0)
        };
        let answers = |it: &Progress| {
            let lately = now.since(it.answered_at) < DISK_TIMEOUT;
            it.matched > 0 && lately && it.answered_at > heard_since
        };
        let is_there = |node: &&u32| {
            let is_newcomer = !self.log.voters().contains(node); // It must catch up first.
            **node == self.me || is_newcomer || followers.get(node).is_some_and(answers)
        };
        set.voters.iter().filter(is_there).count() * 2 <= set.voters.len()
    }

    /// A node that would become a voter without all committed entries. The group would need its
    /// vote before it has them.
    fn newcomer(&self, command: &wire::MapCommand) -> Option<u32> {
        let Some(map_command::Body::SetVoters(set)) = &command.body else { return None };
        let added = set.voters.iter().find(|node| !self.log.voters().contains(node));
        let Role::Leader { followers, .. } = &self.role else { return None };
        let has_all = |node: &u32| {
            followers.get(node).is_some_and(|progress| progress.matched >= self.commit)
        };
        added.copied().filter(|node| !has_all(node) && !self.is(Mutant::BlankVoters))
    }

    /// Sends entries to the newcomer like to a voter. It becomes a voter when it has caught up.
    fn welcome(&mut self, now: Time, node: u32, command: wire::MapCommand) {
        let next = self.log.last_index();
        let Role::Leader { followers, newcomer, .. } = &mut self.role else { return };
        *newcomer = Some((node, command, now));
        followers.entry(node).or_insert_with(|| Progress::new(next, now));
        self.keep_to_voters(now);
        self.feed(now, node);
    }

    /// Proposes the newcomer as a voter when it has caught up, or gives up after a timeout.
    fn look_after_newcomer(&mut self, now: Time) {
        let commit = self.commit;
        let Role::Leader { followers, newcomer, .. } = &mut self.role else { return };
        let Some((node, _, since)) = newcomer else { return };
        let matched = followers.get(node).map_or(0, |progress| progress.matched);
        if matched >= commit {
            let (_, command, _) = newcomer.take().expect("looked at above");
            self.proposed.push(command);
        } else if now.since(*since) > GROUP_LEARNER_TIMEOUT {
            *newcomer = None;
            self.unplanned = true;
            self.keep_to_voters(now);
        }
    }

    fn replicate(&mut self, now: Time) {
        let Role::Leader { followers, .. } = &self.role else { return };
        for node in followers.keys().copied().collect::<Vec<_>>() {
            self.feed(now, node);
        }
    }

    /// Sends a follower the entries that it is known to lack. Without new entries this is a
    /// heartbeat.
    fn feed(&mut self, now: Time, node: u32) {
        let commit = self.commit;
        let Role::Leader { followers, .. } = &mut self.role else { return };
        let Some(progress) = followers.get_mut(&node) else { return };
        let prev_index = progress.next - 1;
        let Some(prev_term) = self.log.term(prev_index) else {
            return self.send_snapshot(now, node);
        };
        let entries = self.log.from(progress.next, self.append_entries_max);
        progress.next += entries.len() as u64;
        let sent_ns = now.0;
        let append = wire::AppendEntries { prev_index, prev_term, entries, commit, sent_ns };
        self.say(node, Body::AppendEntries(append));
    }

    /// Sends a snapshot to a follower that needs compacted entries, or to a blank voter. The
    /// entries after the snapshot are sent as if it had arrived. If it has not, the follower
    /// refuses them, and the leader repeats the snapshot after [`GROUP_SNAPSHOT_TIMEOUT`].
    fn send_snapshot(&mut self, now: Time, node: u32) {
        let snapshot = self.snapshot();
        let Role::Leader { followers, .. } = &mut self.role else { return };
        let Some(progress) = followers.get_mut(&node) else { return };
        progress.next = snapshot.index + 1;
        if progress.snapshot_at.is_none_or(|at| now.since(at) >= GROUP_SNAPSHOT_TIMEOUT) {
            progress.snapshot_at = Some(now);
            self.say(node, Body::Install(snapshot));
        }
    }

    /// The state at the commit index.
    fn snapshot(&self) -> wire::GroupSnapshot {
        let term = self.log.term(self.commit).expect("what is agreed on last is kept");
        let map = Some(self.map.as_ref().clone());
        wire::GroupSnapshot { index: self.commit, term, map }
    }

    /// Sends heartbeats, or steps down if a majority has not answered for [`LEADER_TIMEOUT`].
    pub(super) fn beat(&mut self, now: Time) {
        let me = self.me;
        let Role::Leader { followers, beat_at, .. } = &mut self.role else { return };
        *beat_at = now + GROUP_HEARTBEAT;
        self.unplanned |= std::mem::take(&mut self.plan_at_beat);
        let heard = followers.iter().filter(|(_, it)| now.since(it.heard_at) < LEADER_TIMEOUT);
        let heard: BTreeSet<u32> = heard.map(|(&node, _)| node).chain([me]).collect();
        if self.is_majority(&heard) {
            self.look_after_newcomer(now);
            self.replicate(now);
        } else {
            mark(Mark::LeaderSteps);
            self.leader = None;
            self.follow(now);
        }
    }

    pub(super) fn on_append_entries(&mut self, now: Time, from: u32, append: wire::AppendEntries) {
        assert!(
            !self.is_leader() || self.mutant.is_some(),
            "two leaders in term {}: n{} and n{from}",
            self.term,
            self.me
        );
        self.hear_leader(now, from);
        if self.blank {
            let sent_ns = append.sent_ns;
            let reply = wire::AppendReply { ok: false, index: 0, needs_snapshot: true, sent_ns };
            return self.say(from, Body::AppendReply(reply));
        }
        if let Some(hint) = self.refusal(&append) {
            self.hear_of_agreement(append.commit);
            return self.say(from, append_reply(false, hint, append.sent_ns));
        }
        let known = append.prev_index + append.entries.len() as u64;
        for entry in append.entries {
            if entry.index <= self.log.snapshot_index()
                || self.log.term(entry.index) == Some(entry.term)
            {
                continue;
            }
            self.truncate(entry.index);
            self.writes.push(records::entry(&entry));
            self.log.push(entry);
        }
        self.look_at_entries();
        if self.is(Mutant::TruncateAlways) {
            self.truncate(known.max(self.log.snapshot_index()) + 1);
        }
        let trusted =
            if self.is(Mutant::CommitBeyondMatch) { self.log.last_index() } else { known };
        self.commit_to(append.commit.min(trusted));
        self.hear_of_agreement(append.commit);
        if !self.is_all_synced() {
            // The acknowledgement of the entries waits for the disk; this sign of life does not.
            self.say(from, append_reply(true, 0, append.sent_ns));
        }
        self.say(from, append_reply(true, known.max(self.log.snapshot_index()), append.sent_ns));
    }

    fn hear_leader(&mut self, now: Time, from: u32) {
        self.follow(now);
        self.leader = Some(from);
        self.heard_at = Some(now);
        self.retired = false;
        self.forget_elections();
    }

    /// Stores the commit index that a leader reported. Every later leader has these entries. A
    /// majority that has lost them must not elect another node.
    fn hear_of_agreement(&mut self, index: u64) {
        if index > self.agreed.max(self.log.last_index()) {
            self.agreed = index;
            self.save_promise();
        }
    }

    /// With entries in its log the voter can compare logs, so it is no longer fresh.
    fn look_at_entries(&mut self) {
        if self.fresh && self.log.last_index() > 0 {
            self.fresh = false;
            self.save_promise();
        }
    }

    fn forget_elections(&mut self) {
        (self.tries, self.stands) = (0, 0);
    }

    /// The index after which the leader should continue, if the entries do not match this log.
    fn refusal(&self, append: &wire::AppendEntries) -> Option<u64> {
        let prev = append.prev_index;
        if prev < self.log.snapshot_index() || self.is(Mutant::SkipLogCheck) {
            return (prev > self.log.last_index()).then(|| self.log.last_index());
        }
        let Some(term) = self.log.term(prev) else { return Some(self.log.last_index()) };
        if term == append.prev_term {
            return None;
        }
        // No entry of that term needs to match.
        let mut hint = prev - 1;
        while hint > self.commit && self.log.term(hint) == Some(term) {
            hint -= 1;
        }
        Some(hint)
    }

    /// Removes uncommitted entries of another leader.
    fn truncate(&mut self, index: u64) {
        assert!(
            index > self.commit || index > self.log.last_index() || self.mutant.is_some(),
            "n{} would take back entry {index}, which is agreed on",
            self.me
        );
        let last = self.log.last_index();
        if self.log.truncate(index) > 0 {
            self.writes.extend((index..=last).map(records::no_entry));
            self.stable = self.stable.min(index - 1);
            for (_, last) in &mut self.unsynced {
                *last = (*last).min(index - 1);
            }
        }
    }

    pub(super) fn on_install(&mut self, now: Time, from: u32, snapshot: wire::GroupSnapshot) {
        self.hear_leader(now, from);
        let wire::GroupSnapshot { index, term, map } = snapshot;
        let Some(map) = map.filter(|map| crate::check_map(map).is_ok()) else { return };
        if index <= self.commit && !self.blank {
            return self.say(from, append_reply(true, self.commit, 0));
        }
        if self.blank {
            self.blank = false;
            self.save_promise();
        }
        self.take_snapshot(index, term, map);
        self.look_at_entries();
        self.news = News::Whole;
        self.say(from, append_reply(true, index, 0));
    }

    fn take_snapshot(&mut self, index: u64, term: u64, map: wire::ClusterMap) {
        let gone = self.log.replace(index, term, map.voters.clone());
        self.writes.extend(gone.into_iter().map(records::no_entry));
        let record = wire::GroupSnapshot { index, term, map: Some(map) };
        self.writes.push(records::snapshot(&record));
        self.map = Arc::new(record.map.expect("put there above"));
        self.commit = index;
        self.unplanned = true;
        let last = self.log.last_index();
        self.stable = self.stable.clamp(index, last);
        for (_, unsynced) in &mut self.unsynced {
            *unsynced = (*unsynced).clamp(index, last);
        }
    }

    pub(super) fn on_append_reply(&mut self, now: Time, from: u32, reply: &wire::AppendReply) {
        let last = self.log.last_index();
        let Role::Leader { followers, .. } = &mut self.role else { return };
        let Some(progress) = followers.get_mut(&from) else { return };
        let sent_at = Time(reply.sent_ns).min(now);
        progress.heard_at = progress.heard_at.max(sent_at);
        if !reply.ok || reply.index > 0 {
            progress.answered_at = progress.answered_at.max(sent_at);
        }
        if reply.ok {
            progress.matched = progress.matched.max(reply.index.min(last));
            progress.next = progress.next.max(progress.matched + 1);
            progress.snapshot_at = None;
            if progress.next <= last {
                self.feed(now, from);
            }
            self.advance_commit(now);
            self.look_after_newcomer(now);
        } else if reply.needs_snapshot {
            // It has lost all entries that it acknowledged before.
            progress.matched = 0;
            self.send_snapshot(now, from);
        } else {
            // A late refusal, or one that goes back too far, does not revoke acknowledged entries.
            let next = reply.index.max(progress.matched).min(last) + 1;
            if next < progress.next {
                progress.next = next;
                self.feed(now, from);
            }
        }
    }

    /// Commits the entries that a majority has synced. Entries of earlier terms are committed only
    /// together with one of this leader's term (figure 8 of the paper).
    pub(super) fn advance_commit(&mut self, now: Time) {
        let Role::Leader { followers, .. } = &self.role else { return };
        let has = |node: &u32| match followers.get(node) {
            Some(progress) => progress.matched,
            None => self.stable,
        };
        let mut all: Vec<u64> = self.log.voters().iter().map(has).collect();
        all.sort_unstable_by(|a, b| b.cmp(a));
        let agreed = all[all.len() / 2];
        let is_own = self.log.term(agreed) == Some(self.term) || self.is(Mutant::CommitOldTerm);
        if agreed > self.commit && is_own {
            self.commit_to(agreed);
            // Informs the followers about the new commit index at once.
            self.replicate(now);
            if !self.is_voter() {
                self.leader = None;
                self.follow(now);
            }
        }
    }

    /// Applies the newly committed entries.
    fn commit_to(&mut self, index: u64) {
        let index = index.min(self.log.last_index());
        while self.commit < index {
            self.commit += 1;
            let entry = self.log.entry(self.commit).expect("what is not agreed on yet is kept");
            let map = Arc::make_mut(&mut self.map);
            for command in &entry.commands {
                if !membership::apply(map, command) {
                    continue;
                }
                self.unplanned = true;
                match &mut self.news {
                    News::None => self.news = News::Commands(vec![command.clone()]),
                    News::Commands(commands) => commands.push(command.clone()),
                    News::Whole => {}
                }
            }
            debug_assert!(voters_of(entry).is_none_or(|voters| *voters == map.voters));
            // The wish to remove a voter ends if the present map no longer implies it.
            if let Role::Leader { fewer, .. } = &mut self.role {
                let map = &self.map;
                fewer
                    .take_if(|(voters, _)| membership::wanted_voters(map).as_ref() != Some(voters));
            }
        }
        if self.commit - self.log.snapshot_index() >= self.log_entries_max {
            self.compact();
        }
    }

    fn compact(&mut self) {
        let snapshot = self.snapshot();
        self.writes.push(records::snapshot(&snapshot));
        let voters = self.map.voters.clone();
        let gone = self.log.replace(snapshot.index, snapshot.term, voters);
        self.writes.extend(gone.into_iter().map(records::no_entry));
    }
}
