//! Bugs on purpose. Each is one decision of the protocol turned wrong, so that the simulator's
//! checkers can be seen to bite: `starling check --mutant NAME` must fail. A real node never sets
//! one.

/// The tests that find a mutant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FoundBy {
    /// Seeds of the fault simulator, or a story of it: `sim/tests/mutants.rs`.
    Simulator,
    /// Stories of one node: `node/src/replica/mutant_tests.rs`.
    NodeTests,
    /// The take-over simulation: `scheduler/tests/takeover/`.
    TakeOverTests,
}

macro_rules! mutants {
    ($($(#[doc = $of:literal])* $list:ident by $found_by:ident {
        $($(#[doc = $bug:literal])+ $mutant:ident $name:literal,)+
    })+) => {
        /// A seeded bug.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Mutant {
            $($($(#[doc = $bug])+ $mutant,)+)+
        }

        impl Mutant {
            $(
                $(#[doc = $of])*
                pub const $list: [Self; [$($name,)+].len()] = [$(Self::$mutant,)+];
            )+

            /// Every one of every list.
            pub fn every() -> impl Iterator<Item = Self> {
                [$(&Self::$list[..],)+].into_iter().flatten().copied()
            }

            #[must_use]
            pub fn found_by(self) -> FoundBy {
                match self {
                    $($(Self::$mutant)|+ => FoundBy::$found_by,)+
                }
            }

            /// The name on the command line.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $($(Self::$mutant => $name,)+)+
                }
            }
        }
    };
}

// The list of a mutant says which tests find it.
mutants! {
    /// Of one node's decisions, whether or not partitions have copies.
    ALL by Simulator {
        /// Credits are counted, not recorded as a set: a repeated one counts twice.
        CounterInsteadOfSet "counter-instead-of-set",
        /// Packets and replies leave before the batch they speak of is written.
        SendBeforeWriting "speak-before-writing",
        /// Credits are sent once and never kept for a home that has not acknowledged them.
        NoOutbox "no-outbox",
        /// A completion counts whatever its attempt.
        CompletionWithoutAttempt "completion-without-attempt",
        /// The victim of a steal forgets the tasks when it sends them.
        VictimForgetsEarly "victim-forgets-early",
        /// Messages are acknowledged before what they caused is durable.
        AckBeforeDurable "ack-before-durable",
        /// What a restarted holder held is not placed again.
        NoReplaceOnRestart "no-replace-on-restart",
        /// At the bound of its interval a thief stops for good and nobody hints (as the published
        /// code does).
        StealingRetires "stealing-retires",
        /// Staged tasks run before their job is committed.
        RunBeforeCommit "run-before-commit",
        /// A task is launched without waiting for its inputs to arrive.
        LaunchWithoutInputs "launch-without-inputs",
        /// Reports of a partition are added up instead of replaced.
        RelativeCounts "relative-counts",
        /// Packets addressed to, or sent by, an earlier incarnation are taken for current ones.
        IgnoreIncarnation "ignore-incarnation",
        /// The end of a job is told to the client before it is durable.
        ReportBeforeDurable "tell-before-durable",
        /// A cancelled task's holder is not told.
        CancelMissesHolder "cancel-misses-holder",
        /// A cancelled task that is held somewhere is left to its holder: its home keeps it open.
        CancelTrustsHolder "cancel-trusts-holder",
        /// A holder does not look among the tasks that are on their way to a thief.
        CancelForgetsUnackedGrants "cancel-forgets-transit",
        /// A restarted home does not know any more that a job is cancelled.
        CancelForgottenOnRestart "cancel-forgotten-on-restart",
        /// A restarted home does not know any more when a job was submitted, from which release
        /// times are counted.
        ReleaseForgottenOnRestart "release-forgotten-on-restart",
        /// A stolen task is passed on before its home knows of the first move.
        PassOnEarly "pass-on-early",
        /// A steal request that the network repeats is granted once more.
        GrantTwice "grant-twice",
        /// A thief does not tell the homes what it has, only the victim.
        ThiefReportsToNoOwner "thief-tells-nobody",
        /// A copy is evicted while a task uses it.
        EvictPinned "evict-pinned",
        /// An object goes when the first of its readers has ended.
        DeleteOnFirstRead "delete-on-first-read",
        /// Homes do not hear of evictions, and who does not find a copy does not turn to its maker.
        NoFetchFallback "no-fetch-fallback",
        /// Copies of what a dead node has made go like any others.
        LastCopyGoes "last-copy-goes",
        /// What was staged behind a long task waits for it, whoever else is idle.
        StagedNeverRequeued "staged-for-good",
        /// The end of a task is told before others have what is to be kept of it.
        EndReportedBeforeCopy "kept-alone",
        /// Who starts anew does not ask whether others have what it keeps.
        FoundOutputsUnchecked "found-alone",
        /// A home that reads its records again, or those of another, knows no more how much tasks
        /// have printed.
        CapturedForgotten "captured-forgotten",
    }

    /// Of replicas of partitions.
    OF_COPIES by Simulator {
        /// What depends on a batch is said before any copy has it.
        AckBeforeBackups "ack-before-backups",
        /// Messages and launches do not wait for copies; answers do.
        ReleaseBeforeBackups "release-before-backups",
        /// A new primary serves without anybody having promised its epoch.
        ActivateWithoutPromise "activate-without-promise",
        /// A node that the map takes for dead goes on.
        IgnoreFence "ignore-fence",
        /// A copy tells where it stands and what it has promised before that is synced.
        PromiseUnsynced "promise-unsynced",
        /// A copy tells that it has synced what it has only logged.
        LoggedIsSynced "logged-is-synced",
        /// A primary answers when its copies have synced, and has not done so itself.
        OwnSyncUncounted "own-sync-uncounted",
        /// Of several copies only the first is waited for.
        FirstCopyCounts "first-copy-counts",
        /// One of three copies goes on when it is alone.
        ShortServes "short-serves",
        /// A primary that is left alone does not wait until the map says so.
        LoneUnregistered "lone-unregistered",
        /// What was sent to an earlier incarnation of a copy is answered for by the next.
        RestartedMembers "restarted-members",
        /// A learner that has begun anew is taken for as far as the last one was.
        RestartedLearners "restarted-learners",
        /// A learner counts before it has what was sent to it.
        LearnersCountEarly "learners-count-early",
        /// A copy takes a change that does not follow on what it has.
        ChangesAnywhere "changes-anywhere",
        /// What is written while a copy is filled is not sent to it.
        SnapshotForgets "filling-forgets",
        /// A copy is filled when it has the first page.
        SnapshotEndsEarly "filling-ends-early",
        /// A page brings records that were changed since.
        PagesOverwrite "pages-overwrite",
        /// A new primary asks a majority of its members.
        MajorityActivates "majority-activates",
        /// Epochs are promised while an earlier primary may hold a lease.
        LeasesUnwaited "leases-unwaited",
        /// A primary answers without a lease.
        ReadsUnleased "reads-unleased",
        /// The clock of a machine stands still while it is suspended.
        ClockStandsStill "clock-stands-still",
        /// A copy tells where it stands although a newer map may make it let go.
        LearnersAnswerEarly "learners-answer-early",
        /// What was promised by a disk that is gone counts for the one in its place.
        ReplacedStoreUnnoticed "stores-alike",
        /// A process that starts again takes itself for the one before.
        RestartUnnoticed "restart-unnoticed",
    }

    /// Of copies too, which seeds show hardly ever: each is found by a story of one node's side
    /// (`node/src/replica/mutant_tests.rs`).
    OF_ONE_SIDE by NodeTests {
        /// What a copy refuses counts as taken.
        RefusalsIgnored "refusals-ignored",
        /// Who has left a configuration lets its copy go before anybody has registered without it.
        FormerMembersDropReplica "formers-let-go",
        /// A new primary does not bring the other members to where it is.
        TailsUnsent "tails-unsent",
        /// A new primary does not take what others have and it has not.
        ShortestWins "shortest-wins",
        /// ... or while it may hold one that an earlier incarnation gave.
        LeasesForgotten "leases-forgotten",
    }

    /// Of homes that move: found by `tests/takeover/` of this crate.
    OF_TAKE_OVER by TakeOverTests {
        /// Numbers of a home that took a partition over follow its own incarnation.
        TermOfIncarnation "term-of-incarnation",
        /// What a dead node held is left to it.
        GoneHolderKeeps "gone-holder-keeps",
        /// Credits between partitions that have the same home are left out of the records.
        LocalCreditsUnwritten "local-credits-unwritten",
        /// What a dead node has not acknowledged is lost with it.
        NothingRerouted "nothing-rerouted",
        /// A home that took over does not ask holders what they have.
        HoldersNotQueried "holders-unasked",
        /// Who hands a home over does not write down what runs there, and stops it.
        HandOverUnrecorded "handed-on-unsaid",
        /// Who has ended a task says that it does not have it, whoever has heard of the end.
        RecentCompletionsForgotten "ends-forgotten",
        /// Lost inputs are not made again.
        NothingRebuilt "nothing-rebuilt",
        /// Whatever a task that is done again reads is made again as well.
        AllRebuilt "all-rebuilt",
    }

    /// Of tasks that take down what runs them, and of jobs that get no further.
    OF_CRASHES by Simulator {
        /// Deaths of those who run a command are not counted.
        CrashesUncounted "crashes-uncounted",
        /// ... or are forgotten with the home that counts them.
        CrashesForgotten "crashes-forgotten",
        /// Other tasks run beside one with which nodes have died.
        SuspectsTogether "suspects-together",
        /// A holder starts such a task before its home knows.
        StartWithoutPermission "suspects-unasked",
        /// A death counts, however few nodes lived through it.
        AllDiedCounts "all-died-counts",
        /// A node that lived through a death answers that it did not.
        WitnessesSilent "witnesses-silent",
        /// A node that was stopped in order counts as dead.
        StopCountsAsCrash "stop-counts-as-crash",
        /// The last credit of some tasks does not wake them.
        WakeUpLost "wake-up-lost",
    }

    /// Of nodes that are slow.
    OF_SLOWNESS by Simulator {
        /// Nobody tells that a node is slow.
        SlowNeverReported "slow-never-told",
    }

    /// Of tasks that do not make the same bytes each time.
    OF_OTHER_BYTES by Simulator {
        /// A task that is done again counts whatever bytes it has made.
        ChecksumIgnored "checksum-ignored",
        /// Readers of other bytes are not taken back.
        ReadersKept "readers-kept",
        /// A restart forgets which ends were taken back.
        RecallForgotten "recall-forgotten",
    }

    /// Of rounds of jobs.
    OF_ROUNDS by Simulator {
        /// A skip of an earlier round of a job ends a task of this one.
        RoundIgnored "round-ignored",
    }

    /// Of numbered batches of the key-value store.
    OF_NUMBERS by Simulator {
        /// A numbered batch of the key-value store is applied as often as it comes.
        NumberIgnored "number-ignored",
        /// A restarted node, or one that takes a partition over, does not know the numbers of
        /// before.
        NumbersForgotten "numbers-forgotten",
    }

    /// Of clusters that grow.
    OF_GROWTH by Simulator {
        /// A node says that all it keeps has its copies.
        LackingUnreported "lacking-unsaid",
        /// Nodes that come get no copies of what was kept before.
        NewNodesGetNoCopies "newcomers-unasked",
        /// A keeper does not say that it is one.
        KeepersUnreported "keepers-unsaid",
    }

    /// Of what is kept of ended jobs, and what is not.
    OF_THE_PAST by Simulator {
        /// A home that restarts or takes over makes the summaries of ended jobs again.
        SummaryMadeAgain "summary-made-again",
        /// No member that was away hears that a job was forgotten.
        ForgottenReturns "forgotten-returns",
        /// A member confirms that a job is forgotten before its shell has removed its data.
        ConfirmedBeforeErased "confirmed-before-erased",
    }
}
