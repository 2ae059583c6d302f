//! Elections: pre-votes, votes, and the durable state that belongs to them.

use std::collections::BTreeSet;

use proto::limits::GROUP_ELECTION_AFTER;
use proto::wire::group_message::Body;
use proto::{NodeId, Span, Time, wire};

use super::mutant::Mutant;
use super::{Group, Role, vote_reply};
use crate::group::limits::{GROUP_ELECTION_SLOW, GROUP_ELECTION_SOON};
use crate::membership::member;

impl Group {
    fn ask_for_votes(&mut self, term: u64, pre_vote: bool) {
        let (last_index, last_term) = (self.log.last_index(), self.log.last_term());
        for node in self.others() {
            let agreed = member(&self.map, NodeId(node)).is_some_and(|member| member.store != 0);
            let knows_your_store = agreed || self.store_of(NodeId(node)).is_some();
            let ask = wire::VoteRequest { pre_vote, last_index, last_term, knows_your_store };
            self.say_in(term, node, Body::VoteRequest(ask));
        }
    }

    /// Asks whether an election would succeed, before a new term disturbs the other voters.
    pub(super) fn ask_for_pre_votes(&mut self, now: Time) {
        self.try_again_later(now);
        self.leader = None;
        self.role = Role::PreCandidate { votes: BTreeSet::from([self.me]) };
        self.ask_for_votes(self.term + 1, true);
        self.count_pre_votes(now);
    }

    /// Delays the next try, at first briefly and then longer, so that simultaneous candidates
    /// spread out.
    fn try_again_later(&mut self, now: Time) {
        self.tries = self.tries.saturating_add(1);
        self.wait_for_answers(now);
    }

    /// Doubles the time for each unsuccessful term, up to [`GROUP_ELECTION_SLOW`]. If a majority
    /// would vote but the terms fail, votes take longer to sync than a term lasts.
    pub(super) fn wait_for_answers(&mut self, now: Time) {
        let stands = if self.is(Mutant::StandAgainSoon) { 0 } else { self.stands };
        let most = Span(GROUP_ELECTION_AFTER.0 << stands).min(GROUP_ELECTION_SLOW);
        let span = Span(GROUP_ELECTION_SOON.0 << self.tries.min(16)).min(most);
        let before = self.election_at;
        self.elect_within(now, span, span);
        self.election_at = self.election_at.max(before);
    }

    /// A granted pre-vote is no promise. It is granted only if no leader sent a message lately. So
    /// a voter that was cut off cannot depose a working leader.
    pub(super) fn on_pre_vote_request(
        &mut self,
        now: Time,
        from: u32,
        term: u64,
        ask: &wire::VoteRequest,
    ) {
        let led = self.is_leader()
            || self.heard_at.is_some_and(|at| now.since(at) < GROUP_ELECTION_AFTER);
        let granted = !led && term > self.term && self.would_follow(ask);
        let term = if granted { term } else { self.term };
        self.say_in(term, from, vote_reply(true, granted));
    }

    pub(super) fn on_pre_vote(&mut self, now: Time, from: u32, term: u64) {
        if term != self.term + 1 {
            return;
        }
        if let Role::PreCandidate { votes } = &mut self.role {
            votes.insert(from);
            self.count_pre_votes(now);
        }
    }

    fn count_pre_votes(&mut self, now: Time) {
        if let Role::PreCandidate { votes } = &self.role
            && self.is_majority(votes)
        {
            self.stand(now);
        }
    }

    /// Starts a term with a vote for itself, which counts when it is synced.
    fn stand(&mut self, now: Time) {
        self.term += 1;
        self.vote = Some(self.me);
        self.fresh = false;
        self.save_promise();
        self.stands = (self.stands + 1).min(8);
        self.try_again_later(now);
        // The record of the vote is written by the next flush.
        self.role = Role::Candidate { votes: BTreeSet::new(), own: self.written + 1 };
        self.ask_for_votes(self.term, false);
    }

    /// True if it would vote for this candidate. It is not blank, and the candidate's log is at
    /// least as up-to-date as its own.
    fn would_follow(&self, ask: &wire::VoteRequest) -> bool {
        let own = (self.log.last_term(), self.log.last_index());
        let is_as_long = (ask.last_term, ask.last_index) >= own;
        // A fresh voter may have lost entries that a majority needed it for. A candidate that knows
        // its disk is safe: messages of a node that knows another disk under this number do not
        // arrive here.
        let may_have_had_more = self.fresh
            && ask.last_index > 0
            && !ask.knows_your_store
            && !self.is(Mutant::FreshVotes);
        let lacks = ask.last_index < self.agreed && !self.is(Mutant::LackingStands);
        (is_as_long || self.is(Mutant::VoteForShorterLog))
            && !self.blank
            && !may_have_had_more
            && !lacks
    }

    pub(super) fn on_vote_request(&mut self, now: Time, from: u32, ask: &wire::VoteRequest) {
        let is_free = self.vote.is_none_or(|vote| vote == from) || self.is(Mutant::VoteTwice);
        let granted = is_free && self.would_follow(ask);
        if granted {
            if self.vote != Some(from) {
                self.vote = Some(from);
                self.fresh = false;
                self.save_promise();
            }
            self.put_election_off(now);
        }
        self.say(from, vote_reply(false, granted));
    }

    pub(super) fn on_vote(&mut self, now: Time, from: u32, granted: bool) {
        if let Role::Candidate { votes, .. } = &mut self.role
            && granted
        {
            votes.insert(from);
            self.count_votes(now);
        }
    }

    pub(super) fn count_own_vote(&mut self, now: Time) {
        let me = self.me;
        if let Role::Candidate { votes, own } = &mut self.role
            && *own <= self.synced
        {
            votes.insert(me);
            self.count_votes(now);
        }
    }

    fn count_votes(&mut self, now: Time) {
        if let Role::Candidate { votes, .. } = &self.role
            && self.is_majority(votes)
        {
            self.lead(now);
        }
    }
}
