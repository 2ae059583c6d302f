//! Marks on rare code paths: counters that let a run of many seeds name the paths that no seed
//! took.
//!
//! Each thread counts separately. No state machine reads the counts, so a run behaves the same with
//! and without them. A path is marked if it is rare and must be correct.

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

            /// A description of the path.
            #[must_use]
            pub fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }

        /// The number of marks.
        pub const COUNT: usize = [$(Mark::$name,)*].len();
    };
}

marks! {
    ChangeElsewhere "a replica refuses a change that does not follow its position",
    ChangeOfEarlier "a replica refuses a change of a primary of an earlier epoch",
    CopyGivenUp "a node drops its replica because other nodes have all changes",
    MemberRefuses "a member of a configuration refuses a change and must leave it",
    LearnerRefuses "a learner refuses a change, and its position is asked again",
    LearnerRestarted "a learner restarts that the map may count as a member at any moment",
    LearnerByTail "a learner lags a little and gets only the changes that it lacks",
    FilledByPages "a replica is filled with more than one page",
    PageIsOlder "a page has a record that has changed since the page was requested",
    DrainWaits "a previous primary still waits for its backups",
    PromiseWaits "a promise waits until a lease expires",
    AnswerUnleased "answers wait because a lease has expired",
    TailTaken "a new primary fetches records that it lacks from other replicas",
    MemberBrought "a new primary sends a member the changes that it lacks",
    LeftAlone "a primary without backups registers again",
    FormerFollows "a former member of a configuration becomes its primary",
    DropWhileActivating "a replica refuses a change while its primary activates",
    Fenced "an incarnation ends because the map lists it as failed",
    AllGone "a node suspects all other nodes and asks them for the map",
    FlapperWaits "a node that failed repeatedly waits until it counts as alive",
    CalledSlow "enough nodes report a slow node, and the leader proposes that",
    CalledWell "enough nodes report that a slow node is fast again, and the leader proposes that",
    VotersStranded "a change of voters is refused because too few of them answer",
    LeaderSteps "a leader without answers of a majority steps down",
    SentAgain "unacknowledged messages are sent again",
    AheadOfGap "a message that arrives before its predecessors is kept",
    Rerouted "messages that a failed node has not acknowledged are sent to the next home",
    Bounced "a message is returned because another node is its home",
    Parked "a message waits until its partition has a home",
    GrantRepeated "a request for tasks arrives a second time",
    VictimNotHome "a thief has tasks of a victim that is not their home any more",
    CompletionStale "a stale attempt ends",
    CreditRepeated "a credit arrives a second time",
    OtherBytes "a task that runs again makes other bytes than before",
    OtherBytesUsed "other bytes of a task that ran again were already used",
    ReaderRecalled "a task that had ended runs again because it read other bytes",
    InputsLost "an attempt finds no source of its inputs",
    JobRetried "the tasks of an ended job that are not done run again",
    JobForgotten "a client removes an ended job",
    JobThinned "retention removes the task records of an ended job",
    JobDropped "retention removes the record of a job",
    JobRecorded "the tallies of all nodes are stored with a job",
    PartMissing "a node does not report its tally of a job",
    RoundOpened "a home opens a further round of a job for a partition",
    CreditOfEarlierRound "a skip of an earlier round of its job arrives late",
    AskDeferred "a request names a round that the home does not know yet",
    Rebuilt "a task that was done runs again because its outputs are needed",
    CrashCounted "a node dies while it runs a command",
    CrashLimitReached "a command fails because too many nodes died while they ran it",
    StallNamed "a job without progress is reported",
    EarlierEndCounts "a task that was done runs again without a result, and stays done",
}

thread_local! {
    static GONE: Cell<[u32; COUNT]> = const { Cell::new([0; COUNT]) };
}

/// Counts one more use of the path.
pub fn mark(mark: Mark) {
    GONE.with(|gone| {
        let mut counts = gone.get();
        let count = &mut counts[mark as usize];
        *count = count.saturating_add(1);
        gone.set(counts);
    });
}

/// The counts of this thread since the last call.
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
