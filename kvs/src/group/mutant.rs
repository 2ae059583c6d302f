//! Bugs on purpose: each is what an implementation of Raft could get wrong, and is found by the
//! group's own simulation.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mutant {
    /// Votes again in a term in which it has voted.
    VoteTwice,
    /// Its vote is not in its records.
    ForgetVote,
    /// Votes for a candidate whose log lacks what it has.
    VoteForShorterLog,
    /// Says what it has written before that is synced.
    SpeakBeforeSync,
    /// The leader counts its own entries before they are synced.
    CountUnsynced,
    /// Commits entries of earlier terms by counting who has them.
    CommitOldTerm,
    /// Takes entries of a leader of an older term.
    AcceptStaleAppend,
    /// Cuts the log off after what a message brought, though nothing contradicts it.
    TruncateAlways,
    /// Believes the leader's commit index beyond what it knows to match.
    CommitBeyondMatch,
    /// Changes the voters again before the last change is agreed on.
    TwoVoterChanges,
    /// Lets a voter go though too few of the others answer.
    StrandVoters,
    /// Who has nothing yet becomes a voter at once.
    BlankVoters,
    /// Entries before the first one that does not match are not compared.
    SkipLogCheck,
    /// Who begins without records votes for who has entries.
    FreshVotes,
    /// Who has heard that more is agreed on stands without it, and votes for who lacks it.
    LackingStands,
    /// Terms that come to nothing are not given more time.
    StandAgainSoon,
    /// What promises nothing waits for a sync, too.
    HoldEverything,
}

#[cfg(test)]
impl Mutant {
    /// Those that only slow disks show.
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
