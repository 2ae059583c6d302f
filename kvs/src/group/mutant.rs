//! Seeded bugs (mutants) of the Raft implementation. The group's own simulation must find each of
//! them.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mutant {
    /// Votes again in a term in which it has voted.
    VoteTwice,
    /// Does not store its vote.
    ForgetVote,
    /// Votes for a candidate with a log that lacks some of its entries.
    VoteForShorterLog,
    /// Sends promises before the writes they depend on are synced.
    SpeakBeforeSync,
    /// The leader counts its own entries before they are synced.
    CountUnsynced,
    /// Commits entries of earlier terms by counting replicas.
    CommitOldTerm,
    /// Accepts entries of a leader of an older term.
    AcceptStaleAppend,
    /// Truncates the log after a message's entries without a conflict.
    TruncateAlways,
    /// Accepts the leader's commit index beyond the entries known to match.
    CommitBeyondMatch,
    /// Changes the voters again before the last change is committed.
    TwoVoterChanges,
    /// Removes a voter although too few of the others answer.
    StrandVoters,
    /// Adds a voter that has no entries yet.
    BlankVoters,
    /// Does not compare entries before the first one that does not match.
    SkipLogCheck,
    /// A voter without records votes for a candidate that has entries.
    FreshVotes,
    /// A voter that lacks entries known as committed becomes a candidate, and votes for such
    /// candidates.
    LackingStands,
    /// Unsuccessful terms do not extend the time of the next one.
    StandAgainSoon,
    /// Messages that promise nothing wait for a sync too.
    HoldEverything,
}

#[cfg(test)]
impl Mutant {
    /// The mutants that only slow disks reveal.
    pub(super) const SLOW: [Self; 2] = [Self::StandAgainSoon, Self::HoldEverything];
    pub(super) const ALL: [Self; 17] = [
        Self::VoteTwice,
        Self::ForgetVote,
        Self::VoteForShorterLog,
        Self::SpeakBeforeSync,
        Self::CountUnsynced,
        Self::CommitOldTerm,
        Self::AcceptStaleAppend,
        Self::TruncateAlways,
        Self::CommitBeyondMatch,
        Self::TwoVoterChanges,
        Self::StrandVoters,
        Self::BlankVoters,
        Self::SkipLogCheck,
        Self::FreshVotes,
        Self::LackingStands,
        Self::StandAgainSoon,
        Self::HoldEverything,
    ];
}
