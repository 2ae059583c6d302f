//! Bugs on purpose. Each is one decision of the protocol turned wrong, so that the simulator's
//! checkers can be seen to bite: `starling check --mutant NAME` must fail. A real node never sets
//! one.

/// A seeded bug.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    /// Credits are counted, not recorded as a set: a repeated one counts twice.
    CounterInsteadOfSet,
    /// Packets and replies leave before the batch they speak of is written.
    SpeakBeforeWriting,
    /// Credits are sent once and never kept for a home that has not acknowledged them.
    NoOutbox,
    /// A completion counts whatever its attempt.
    CompletionWithoutAttempt,
    /// The victim of a steal forgets the tasks when it sends them.
    VictimForgetsEarly,
    /// Messages are acknowledged before what they caused is durable.
    AckBeforeDurable,
    /// What a restarted holder held is not placed again.
    NoReplaceOnRestart,
    /// At the bound of its interval a thief stops for good and nobody hints (as the published code
    /// does).
    StealingRetires,
    /// Staged tasks run before their job is committed.
    RunBeforeCommit,
    /// A task is launched without waiting for its inputs to arrive.
    LaunchWithoutInputs,
    /// Reports of a partition are added up instead of replaced.
    RelativeCounts,
    /// Packets addressed to, or sent by, an earlier incarnation are taken for current ones.
    IgnoreIncarnation,
    /// The end of a job is told to the client before it is durable.
    TellBeforeDurable,
    /// A cancelled task's holder is not told.
    CancelMissesHolder,
    /// A cancelled task that is held somewhere is left to its holder: its home keeps it open.
    CancelTrustsHolder,
    /// A holder does not look among the tasks that are on their way to a thief.
    CancelForgetsTransit,
    /// A restarted home does not know any more that a job is cancelled.
    CancelForgottenOnRestart,
    /// A restarted home does not know any more when a job was submitted, from which release times
    /// are counted.
    ReleaseForgottenOnRestart,
    /// A stolen task is passed on before its home knows of the first move.
    PassOnEarly,
    /// A steal request that the network repeats is granted once more.
    GrantTwice,
    /// A thief does not tell the homes what it has, only the victim.
    ThiefTellsNobody,
    /// A copy is evicted while a task uses it.
    EvictPinned,
    /// An object goes when the first of its readers has ended.
    DeleteOnFirstRead,
    /// Homes do not hear of evictions, and who does not find a copy does not turn to its maker.
    NoFetchFallback,
    /// Numbers of a home that took a partition over follow its own incarnation.
    TermOfIncarnation,
    /// What a dead node held is left to it.
    GoneHolderKeeps,
    /// Credits between partitions that have the same home are left out of the records.
    LocalCreditsUnwritten,
    /// What a dead node has not acknowledged is lost with it.
    NothingRerouted,
    /// A home that took over does not ask holders what they have.
    HoldersUnasked,
    /// Who has ended a task says that it does not have it, whoever has heard of the end.
    EndsForgotten,
    /// Who hands a home over does not write down what runs there, and stops it.
    HandedOnUnsaid,
    /// Lost inputs are not made again.
    NothingRebuilt,
    /// A skip of an earlier round of a job ends a task of this one.
    RoundIgnored,
    /// A home that restarts or takes over makes the summaries of ended jobs again.
    SummaryMadeAgain,
    /// No member that was away hears that a job was forgotten.
    ForgottenReturns,
    /// A member confirms that a job is forgotten before its shell has removed what it has of it.
    ConfirmedBeforeErased,
    /// A numbered batch of the key-value store is applied as often as it comes.
    NumberIgnored,
    /// A restarted node, or one that takes a partition over, does not know the numbers of before.
    NumbersForgotten,
    /// Whatever a task that is done again reads is made again as well.
    AllRebuilt,
    /// What depends on a batch is said before any copy has it.
    AckBeforeBackups,
    /// Messages and launches do not wait for copies; answers do.
    ReleaseBeforeBackups,
    /// A new primary serves without anybody having promised its epoch.
    ActivateWithoutPromise,
    /// A node that the map takes for dead goes on.
    IgnoreFence,
    /// A copy tells where it stands and what it has promised before that is synced.
    PromiseUnsynced,
    /// A copy tells that it has synced what it has only logged.
    LoggedIsSynced,
    /// A primary answers when its copies have synced, and has not done so itself.
    OwnSyncUncounted,
    /// Of several copies only the first is waited for.
    FirstCopyCounts,
    /// What a copy refuses counts as taken.
    RefusalsIgnored,
    /// One of three copies goes on when it is alone.
    ShortServes,
    /// A primary that is left alone does not wait until the map says so.
    LoneUnregistered,
    /// What was sent to an earlier incarnation of a copy is answered for by the next.
    RestartedMembers,
    /// A learner that has begun anew is taken for as far as the last one was.
    RestartedLearners,
    /// A learner counts before it has what was sent to it.
    LearnersCountEarly,
    /// A copy tells where it stands although a newer map may make it let go.
    LearnersAnswerEarly,
    /// A copy takes a change that does not follow on what it has.
    ChangesAnywhere,
    /// What is written while a copy is filled is not sent to it.
    FillingForgets,
    /// A copy is filled when it has the first page.
    FillingEndsEarly,
    /// A page brings records that were changed since.
    PagesOverwrite,
    /// Who has left a configuration lets its copy go before anybody has registered without it.
    FormersLetGo,
    /// A new primary asks a majority of its members.
    MajorityActivates,
    /// A new primary does not bring the other members to where it is.
    TailsUnsent,
    /// A new primary does not take what others have and it has not.
    ShortestWins,
    /// Epochs are promised while an earlier primary may hold a lease.
    LeasesUnwaited,
    /// ... or while it may hold one that an earlier incarnation gave.
    LeasesForgotten,
    /// A primary answers without a lease.
    ReadsUnleased,
    /// The clock of a machine stands still while it is suspended.
    ClockStandsStill,
    /// What was promised by a disk that is gone counts for the one in its place.
    StoresAlike,
    /// A process that starts again takes itself for the one before.
    RestartUnnoticed,
    /// Deaths of those who run a command are not counted.
    CrashesUncounted,
    /// ... or are forgotten with the home that counts them.
    CrashesForgotten,
    /// Other tasks run beside one with which nodes have died.
    SuspectsTogether,
    /// A holder starts such a task before its home knows.
    SuspectsUnasked,
    /// A death counts, however few nodes lived through it.
    AllDiedCounts,
    /// A node that was stopped in order counts as dead.
    StopCountsAsCrash,
    /// The last credit of some tasks does not wake them.
    WakeUpLost,
    /// Copies of what a dead node has made go like any others.
    LastCopyGoes,
    /// What was staged behind a long task waits for it, whoever else is idle.
    StagedForGood,
    /// The end of a task is told before others have what is to be kept of it.
    KeptAlone,
    /// Who starts anew does not ask whether others have what it keeps.
    FoundAlone,
    /// A node says that all it keeps has its copies.
    LackingUnsaid,
    /// Nodes that come get no copies of what was kept before.
    NewcomersUnasked,
    /// A keeper does not say that it is one.
    KeepersUnsaid,
    /// A home that reads its records again, or those of another, knows no more how much tasks have
    /// printed.
    CapturedForgotten,
    /// Nobody tells that a node is slow.
    SlowNeverTold,
    /// A task that is done again counts whatever bytes it has made.
    ChecksumIgnored,
    /// Readers of other bytes are not taken back.
    ReadersKept,
    /// A restart forgets which ends were taken back.
    RecallForgotten,
}

impl Mutant {
    /// Of copies of partitions.
    pub const OF_COPIES: [Self; 24] = [
        Self::AckBeforeBackups,
        Self::ReleaseBeforeBackups,
        Self::ActivateWithoutPromise,
        Self::IgnoreFence,
        Self::PromiseUnsynced,
        Self::LoggedIsSynced,
        Self::OwnSyncUncounted,
        Self::FirstCopyCounts,
        Self::ShortServes,
        Self::LoneUnregistered,
        Self::RestartedMembers,
        Self::RestartedLearners,
        Self::LearnersCountEarly,
        Self::ChangesAnywhere,
        Self::FillingForgets,
        Self::FillingEndsEarly,
        Self::PagesOverwrite,
        Self::MajorityActivates,
        Self::LeasesUnwaited,
        Self::ReadsUnleased,
        Self::ClockStandsStill,
        Self::LearnersAnswerEarly,
        Self::StoresAlike,
        Self::RestartUnnoticed,
    ];
    /// Of copies too, which seeds show hardly ever: each is found by a story of one node's side
    /// (`node/src/replica/mutant_tests.rs`).
    pub const OF_ONE_SIDE: [Self; 5] = [
        Self::RefusalsIgnored,
        Self::FormersLetGo,
        Self::TailsUnsent,
        Self::ShortestWins,
        Self::LeasesForgotten,
    ];
    /// Of homes that move: found by `tests/takeover/` of this crate.
    pub const OF_TAKE_OVER: [Self; 9] = [
        Self::TermOfIncarnation,
        Self::GoneHolderKeeps,
        Self::LocalCreditsUnwritten,
        Self::NothingRerouted,
        Self::HoldersUnasked,
        Self::HandedOnUnsaid,
        Self::EndsForgotten,
        Self::NothingRebuilt,
        Self::AllRebuilt,
    ];

    /// Of tasks that take down what runs them, and of jobs that get no further.
    pub const OF_CRASHES: [Self; 7] = [
        Self::CrashesUncounted,
        Self::CrashesForgotten,
        Self::SuspectsTogether,
        Self::SuspectsUnasked,
        Self::AllDiedCounts,
        Self::StopCountsAsCrash,
        Self::WakeUpLost,
    ];

    /// Of tasks that do not make the same bytes each time.
    pub const OF_OTHER_BYTES: [Self; 3] =
        [Self::ChecksumIgnored, Self::ReadersKept, Self::RecallForgotten];

    /// Of nodes that are slow.
    pub const OF_SLOWNESS: [Self; 1] = [Self::SlowNeverTold];

    /// Of clusters that grow.
    pub const OF_GROWTH: [Self; 3] =
        [Self::LackingUnsaid, Self::NewcomersUnasked, Self::KeepersUnsaid];

    /// Of rounds of jobs.
    pub const OF_ROUNDS: [Self; 1] = [Self::RoundIgnored];
    /// Of what is kept of ended jobs, and what is not.
    pub const OF_THE_PAST: [Self; 3] =
        [Self::SummaryMadeAgain, Self::ForgottenReturns, Self::ConfirmedBeforeErased];

    /// Of numbered batches of the key-value store.
    pub const OF_NUMBERS: [Self; 2] = [Self::NumberIgnored, Self::NumbersForgotten];

    pub const ALL: [Self; 29] = [
        Self::CounterInsteadOfSet,
        Self::SpeakBeforeWriting,
        Self::NoOutbox,
        Self::CompletionWithoutAttempt,
        Self::VictimForgetsEarly,
        Self::AckBeforeDurable,
        Self::NoReplaceOnRestart,
        Self::StealingRetires,
        Self::RunBeforeCommit,
        Self::LaunchWithoutInputs,
        Self::RelativeCounts,
        Self::IgnoreIncarnation,
        Self::TellBeforeDurable,
        Self::CancelMissesHolder,
        Self::CancelTrustsHolder,
        Self::CancelForgetsTransit,
        Self::CancelForgottenOnRestart,
        Self::ReleaseForgottenOnRestart,
        Self::PassOnEarly,
        Self::GrantTwice,
        Self::ThiefTellsNobody,
        Self::EvictPinned,
        Self::DeleteOnFirstRead,
        Self::NoFetchFallback,
        Self::LastCopyGoes,
        Self::StagedForGood,
        Self::KeptAlone,
        Self::FoundAlone,
        Self::CapturedForgotten,
    ];

    /// Every one of every list.
    pub fn every() -> impl Iterator<Item = Self> {
        let lists = [&Self::ALL[..], &Self::OF_COPIES, &Self::OF_ONE_SIDE, &Self::OF_TAKE_OVER];
        let few = Self::OF_CRASHES.iter().chain(&Self::OF_SLOWNESS);
        let few = few.chain(&Self::OF_OTHER_BYTES).chain(&Self::OF_ROUNDS);
        let few = few.chain(&Self::OF_NUMBERS).chain(&Self::OF_GROWTH).chain(&Self::OF_THE_PAST);
        lists.into_iter().flatten().chain(few).copied()
    }

    /// The name on the command line.
    #[must_use]
    #[expect(clippy::too_many_lines, reason = "a line each")]
    pub fn name(self) -> &'static str {
        match self {
            Self::CounterInsteadOfSet => "counter-instead-of-set",
            Self::SpeakBeforeWriting => "speak-before-writing",
            Self::NoOutbox => "no-outbox",
            Self::CompletionWithoutAttempt => "completion-without-attempt",
            Self::VictimForgetsEarly => "victim-forgets-early",
            Self::AckBeforeDurable => "ack-before-durable",
            Self::NoReplaceOnRestart => "no-replace-on-restart",
            Self::StealingRetires => "stealing-retires",
            Self::RunBeforeCommit => "run-before-commit",
            Self::LaunchWithoutInputs => "launch-without-inputs",
            Self::RelativeCounts => "relative-counts",
            Self::IgnoreIncarnation => "ignore-incarnation",
            Self::TellBeforeDurable => "tell-before-durable",
            Self::CancelMissesHolder => "cancel-misses-holder",
            Self::CancelTrustsHolder => "cancel-trusts-holder",
            Self::CancelForgetsTransit => "cancel-forgets-transit",
            Self::CancelForgottenOnRestart => "cancel-forgotten-on-restart",
            Self::ReleaseForgottenOnRestart => "release-forgotten-on-restart",
            Self::PassOnEarly => "pass-on-early",
            Self::GrantTwice => "grant-twice",
            Self::ThiefTellsNobody => "thief-tells-nobody",
            Self::EvictPinned => "evict-pinned",
            Self::DeleteOnFirstRead => "delete-on-first-read",
            Self::NoFetchFallback => "no-fetch-fallback",
            Self::TermOfIncarnation => "term-of-incarnation",
            Self::GoneHolderKeeps => "gone-holder-keeps",
            Self::LocalCreditsUnwritten => "local-credits-unwritten",
            Self::NothingRerouted => "nothing-rerouted",
            Self::HoldersUnasked => "holders-unasked",
            Self::EndsForgotten => "ends-forgotten",
            Self::HandedOnUnsaid => "handed-on-unsaid",
            Self::NothingRebuilt => "nothing-rebuilt",
            Self::RoundIgnored => "round-ignored",
            Self::SummaryMadeAgain => "summary-made-again",
            Self::ForgottenReturns => "forgotten-returns",
            Self::ConfirmedBeforeErased => "confirmed-before-erased",
            Self::NumberIgnored => "number-ignored",
            Self::NumbersForgotten => "numbers-forgotten",
            Self::AllRebuilt => "all-rebuilt",
            Self::AckBeforeBackups => "ack-before-backups",
            Self::ReleaseBeforeBackups => "release-before-backups",
            Self::ActivateWithoutPromise => "activate-without-promise",
            Self::IgnoreFence => "ignore-fence",
            Self::PromiseUnsynced => "promise-unsynced",
            Self::LoggedIsSynced => "logged-is-synced",
            Self::OwnSyncUncounted => "own-sync-uncounted",
            Self::FirstCopyCounts => "first-copy-counts",
            Self::RefusalsIgnored => "refusals-ignored",
            Self::ShortServes => "short-serves",
            Self::LoneUnregistered => "lone-unregistered",
            Self::RestartedMembers => "restarted-members",
            Self::RestartedLearners => "restarted-learners",
            Self::LearnersCountEarly => "learners-count-early",
            Self::LearnersAnswerEarly => "learners-answer-early",
            Self::ChangesAnywhere => "changes-anywhere",
            Self::FillingForgets => "filling-forgets",
            Self::FillingEndsEarly => "filling-ends-early",
            Self::PagesOverwrite => "pages-overwrite",
            Self::FormersLetGo => "formers-let-go",
            Self::MajorityActivates => "majority-activates",
            Self::TailsUnsent => "tails-unsent",
            Self::ShortestWins => "shortest-wins",
            Self::LeasesUnwaited => "leases-unwaited",
            Self::LeasesForgotten => "leases-forgotten",
            Self::ReadsUnleased => "reads-unleased",
            Self::ClockStandsStill => "clock-stands-still",
            Self::StoresAlike => "stores-alike",
            Self::RestartUnnoticed => "restart-unnoticed",
            Self::CrashesUncounted => "crashes-uncounted",
            Self::CrashesForgotten => "crashes-forgotten",
            Self::SuspectsTogether => "suspects-together",
            Self::SuspectsUnasked => "suspects-unasked",
            Self::AllDiedCounts => "all-died-counts",
            Self::StopCountsAsCrash => "stop-counts-as-crash",
            Self::WakeUpLost => "wake-up-lost",
            Self::LastCopyGoes => "last-copy-goes",
            Self::StagedForGood => "staged-for-good",
            Self::KeptAlone => "kept-alone",
            Self::FoundAlone => "found-alone",
            Self::LackingUnsaid => "lacking-unsaid",
            Self::NewcomersUnasked => "newcomers-unasked",
            Self::KeepersUnsaid => "keepers-unsaid",
            Self::CapturedForgotten => "captured-forgotten",
            Self::SlowNeverTold => "slow-never-told",
            Self::ChecksumIgnored => "checksum-ignored",
            Self::ReadersKept => "readers-kept",
            Self::RecallForgotten => "recall-forgotten",
        }
    }
}
