//! Marks on rare paths: how often each was gone, so that a run of many seeds can tell which of them
//! no seed ever went.
//!
//! Each thread counts for itself, and no room reads what it counted: a run does the same with and
//! without them. A path is marked where something seldom happens that must not go wrong.

use std::cell::Cell;

macro_rules! marks {
    ($($name:ident $text:literal,)*) => {
        /// A rare path.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum Mark {
            $(#[doc = $text] $name,)*
        }

        impl Mark {
            pub const ALL: [Self; COUNT] = [$(Self::$name,)*];

            /// What happens there.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }

        /// How many there are.
        pub const COUNT: usize = [$(Mark::$name,)*].len();
    };
}

marks! {
    ChangeElsewhere "a copy refuses a change that does not follow on what it has",
    ChangeOfEarlier "a copy refuses a change of a primary of an earlier epoch",
    CopyGivenUp "a copy goes because others have everything",
    MemberRefuses "a member of a configuration refuses, and has to leave it",
    LearnerRefuses "a learner refuses, and is asked again where it stands",
    LearnerRestarted "a learner that may be counted at any moment begins anew",
    LearnerByTail "a learner lags a little and gets the changes that it lacks",
    FilledByPages "a copy is filled with more than one page",
    PageIsOlder "a page has a record that was changed since it was asked for",
    DrainWaits "a primary that was replaced still waits for copies",
    PromiseWaits "a promise waits for a lease to run out",
    AnswerUnleased "answers wait, as a lease has run out",
    TailTaken "a new primary takes what others have and it has not",
    MemberBrought "a new primary brings a member to where it is",
    LeftAlone "a primary is left alone and registers anew",
    FormerFollows "somebody who left a configuration is to become its primary",
    DropWhileActivating "a copy refuses while its primary activates",
    Fenced "an incarnation ends because the map takes it for dead",
    AllGone "a node takes all others for dead and asks around whether it is so",
    FlapperWaits "a node that has died often lately waits until it is taken for alive",
    CalledSlow "enough nodes say that one is slow, and it is proposed",
    CalledWell "enough nodes say that a slow one is well again, and it is proposed",
    VotersStranded "a change of voters is refused, as too few of them answer",
    LeaderSteps "a leader steps down, as it hears from no majority",
    SentAgain "what was sent and not acknowledged is sent again",
    AheadOfGap "a message is kept that came ahead of a gap",
    Rerouted "what a dead node had not acknowledged goes to who follows it",
    Bounced "a message goes back, as its home is another node",
    Parked "a message waits until its partition has a home",
    GrantRepeated "a request for tasks comes a second time",
    VictimNotHome "a thief has tasks of a victim that was their home and is not any more",
    CompletionStale "an attempt ends that does not count any more",
    CreditRepeated "a credit comes a second time",
    OtherBytes "a task that is done again makes other bytes than before",
    OtherBytesUsed "a task fails because other bytes of it were already used",
    ReaderRecalled "a task that had ended runs again because it read other bytes",
    InputsLost "an attempt does not find its inputs anywhere",
    JobRetried "an ended job goes on with what is not done of it",
    JobForgotten "a client has an ended job forgotten",
    JobThinned "retention removes the task records of an ended job",
    JobDropped "retention removes the record of a job",
    JobRecorded "what the nodes did for a job is stored with it",
    PartMissing "a node does not tell what it did for a job",
    RoundOpened "a home opens a further round of a job for a partition",
    CreditOfEarlierRound "a skip comes late, of an earlier round of its job",
    AskDeferred "a home is asked in a round that it has not heard of yet",
    Rebuilt "a task that was done is done again for what it made",
    CrashCounted "a node dies with a command that it ran",
    CrashLimitReached "a command fails because too many died with it",
    StallNamed "a job gets no further, and is said to",
}

thread_local! {
    static GONE: Cell<[u32; COUNT]> = const { Cell::new([0; COUNT]) };
}

/// The path was gone once more.
pub fn mark(mark: Mark) {
    GONE.with(|gone| {
        let mut counts = gone.get();
        let count = &mut counts[mark as usize];
        *count = count.saturating_add(1);
        gone.set(counts);
    });
}

/// How often each was gone by this thread since this was asked last.
#[must_use]
pub fn take() -> [u32; COUNT] {
    GONE.with(|gone| gone.replace([0; COUNT]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_counted_and_taken() {
        let _ = take();
        mark(Mark::Rebuilt);
        mark(Mark::Rebuilt);
        mark(Mark::Fenced);
        let counts = take();
        assert_eq!(counts[Mark::Rebuilt as usize], 2);
        assert_eq!(counts[Mark::Fenced as usize], 1);
        assert_eq!(counts.iter().sum::<u32>(), 3);
        assert_eq!(take(), [0; COUNT]);
        assert!(Mark::ALL.iter().all(|mark| !mark.text().is_empty()));
    }
}
