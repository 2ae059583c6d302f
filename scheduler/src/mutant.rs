//! Seeded bugs (mutants). Each inverts one decision of the protocol, to prove that the simulator's
//! checkers find it: `starling check --mutant NAME` must fail. A real node never sets one.

/// The tests that find a mutant.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FoundBy {
    /// Seeds or scenarios of the fault simulator: `sim/tests/mutants.rs`.
    Simulator,
    /// Scenarios of one node: `node/src/replica/mutant_tests.rs`.
    NodeTests,
    /// The take-over simulation: `scheduler/tests/takeover/`.
    TakeOverTests,
    /// Tests of one home: `scheduler/src/tests/turn_mutant_tests.rs`.
    HomeTests,
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

            /// All mutants of all lists.
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

// The list of a mutant determines the tests that must find it.
mutants! {
    /// Mutants of one node's decisions, with or without replicated partitions.
    ALL by Simulator {
        /// Credits are counted, not recorded as a set: a repeated one counts twice.
        CounterInsteadOfSet "counter-instead-of-set",
        /// Packets and answers leave before the batch on which they depend is written.
        SendBeforeWriting "speak-before-writing",
        /// Credits are sent once and not kept until they are acknowledged.
        NoOutbox "no-outbox",
        /// A completion counts whatever its attempt.
        CompletionWithoutAttempt "completion-without-attempt",
        /// The victim of a steal forgets the tasks when it sends them.
        VictimForgetsEarly "victim-forgets-early",
        /// Messages are acknowledged before their effects are durable.
        AckBeforeDurable "ack-before-durable",
        /// Tasks that a restarted holder held are not placed again.
        NoReplaceOnRestart "no-replace-on-restart",
        /// At the bound of its interval a thief stops permanently, and no node sends hints (as in
        /// the published code).
        StealingRetires "stealing-retires",
        /// Staged tasks run before their job is committed.
        RunBeforeCommit "run-before-commit",
        /// A task is launched without waiting for its inputs to arrive.
        LaunchWithoutInputs "launch-without-inputs",
        /// Reports of a partition are added up instead of replaced.
        RelativeCounts "relative-counts",
        /// Packets to or from an earlier incarnation count as current.
        IgnoreIncarnation "ignore-incarnation",
        /// The end of a job is reported to the client before it is durable.
        ReportBeforeDurable "tell-before-durable",
        /// The holder of a cancelled task is not informed.
        CancelMissesHolder "cancel-misses-holder",
        /// A cancelled task with a holder is left to the holder: its home keeps it open.
        CancelTrustsHolder "cancel-trusts-holder",
        /// A holder does not look for a cancelled task among those in transit to a thief.
        CancelForgetsUnackedGrants "cancel-forgets-transit",
        /// A restarted home has forgotten that a job is cancelled.
        CancelForgottenOnRestart "cancel-forgotten-on-restart",
        /// A restarted home has forgotten when a job was submitted, from which release times count.
        ReleaseForgottenOnRestart "release-forgotten-on-restart",
        /// A stolen task is passed on before its home knows of the first move.
        PassOnEarly "pass-on-early",
        /// A steal request that the network repeats is granted again.
        GrantTwice "grant-twice",
        /// A thief informs the victim, but not the homes of the tasks.
        ThiefReportsToNoOwner "thief-tells-nobody",
        /// A copy is evicted while a task uses it.
        EvictPinned "evict-pinned",
        /// An object is deleted when the first of its readers has ended.
        DeleteOnFirstRead "delete-on-first-read",
        /// Homes are not informed of evictions, and a node that finds no copy does not ask the
        /// maker.
        NoFetchFallback "no-fetch-fallback",
        /// Copies of a failed node's outputs are evicted like any others.
        LastCopyGoes "last-copy-goes",
        /// Tasks that are staged behind a long task wait for it, even if other nodes are idle.
        StagedNeverRequeued "staged-for-good",
        /// The end of a task is reported before other nodes have its kept outputs.
        EndReportedBeforeCopy "kept-alone",
        /// A restarted node does not ask whether other nodes have the outputs that it keeps.
        FoundOutputsUnchecked "found-alone",
        /// A home that loads records has forgotten how much tasks have printed.
        CapturedForgotten "captured-forgotten",
    }

    /// Mutants of turns: tasks that spawn tasks.
    OF_TURNS by Simulator {
        /// The tasks that a fenced turn spawned exist as well.
        AbortedChildrenLive "aborted-children-live",
        /// A turn counts whatever its attempt and number.
        TurnWithoutAttempt "turn-without-attempt",
        /// A turn that the holder repeats is committed again.
        SeqIgnored "seq-ignored",
        /// A task that gives its slot back too often fails.
        YieldCountsAsStrike "yield-counts-as-strike",
        /// The next attempt of a task that gave its slot back starts without its state.
        YieldDropsState "yield-drops-state",
        /// A job ends with the number of tasks that were submitted.
        EndsAtSubmittedTotal "ends-at-submitted-total",
        /// Spawned tasks start before the turn that made them is synced.
        BornBeforeSync "born-before-sync",
    }

    /// Mutants of the variables of jobs.
    OF_VARIABLES by Simulator {
        /// The home of a job keeps the value that came last.
        StaleBoundWins "stale-bound-wins",
        /// The home of a job keeps a value without its witness.
        BoundWithoutWitness "bound-without-witness",
        /// A later home of a job has forgotten the values.
        VarForgottenOnTakeover "var-forgotten-on-takeover",
    }

    /// More mutants of turns. Each is found by a test of one home
    /// (`src/tests/turn_mutant_tests.rs` of this crate).
    OF_ONE_HOME by HomeTests {
        /// A later home counts on the attempt that has given its slot back with its last turn.
        YieldKeepsAttempt "yield-keeps-attempt",
        /// A node does not report an attempt that it drops for a later one or after a fence.
        ReplacedUnreported "replaced-unreported",
        /// The second answer to a refused turn counts as the answer to the next turn.
        TurnNumberIgnored "turn-number-ignored",
        /// A turn does not wait for the values that it rests on.
        EndBeforeBound "end-before-bound",
        /// A node takes each announced value for a synced one.
        UsedBeforeSynced "used-before-synced",
        /// What a fenced turn adds counts as well.
        SumBeforeCommit "sum-before-commit",
    }

    /// Mutants of open jobs.
    OF_OPEN_JOBS by Simulator {
        /// A home stores a chunk of an open job although the part holds no weight.
        ChunkWithoutWeight "chunk-without-weight",
        /// A part without open tasks returns its weight before the job is closed.
        ReturnsBeforeClose "returns-before-close",
        /// A home that loads records has forgotten the edges that came later than their parents.
        LateEdgeForgotten "late-edge-forgotten",
        /// The readers that come later than their parents are not counted.
        ReleaseBeforeReaderCounted "release-before-reader-counted",
    }

    /// Mutants of replicated partitions.
    OF_COPIES by Simulator {
        /// Messages and answers that depend on a batch leave before any backup has the batch.
        AckBeforeBackups "ack-before-backups",
        /// Messages and launches do not wait for backups; answers do.
        ReleaseBeforeBackups "release-before-backups",
        /// A new primary serves without any promise of its epoch.
        ActivateWithoutPromise "activate-without-promise",
        /// A node that the map declares failed continues.
        IgnoreFence "ignore-fence",
        /// A replica reports its position and its promise before they are synced.
        PromiseUnsynced "promise-unsynced",
        /// A replica reports changes as synced that it has only logged.
        LoggedIsSynced "logged-is-synced",
        /// A primary answers when its backups have synced, before its own sync.
        OwnSyncUncounted "own-sync-uncounted",
        /// A primary waits only for the first of several backups.
        FirstCopyCounts "first-copy-counts",
        /// One of three replicas continues when it is alone.
        ShortServes "short-serves",
        /// A primary that is left alone does not wait until the map lists it alone.
        LoneUnregistered "lone-unregistered",
        /// Changes sent to an earlier incarnation of a replica count as acknowledged by the next
        /// one.
        RestartedMembers "restarted-members",
        /// A learner that has started over counts as being at its earlier position.
        RestartedLearners "restarted-learners",
        /// A learner counts before it has the changes that were sent to it.
        LearnersCountEarly "learners-count-early",
        /// A replica accepts a change that does not follow its position.
        ChangesAnywhere "changes-anywhere",
        /// Writes during the fill of a replica are not sent to it.
        SnapshotForgets "filling-forgets",
        /// A replica counts as filled when it has the first page.
        SnapshotEndsEarly "filling-ends-early",
        /// A page of a fill overwrites records that have changed since.
        PagesOverwrite "pages-overwrite",
        /// A new primary asks only a majority of its members.
        MajorityActivates "majority-activates",
        /// Epochs are promised while an earlier primary may hold a lease.
        LeasesUnwaited "leases-unwaited",
        /// A primary answers without a lease.
        ReadsUnleased "reads-unleased",
        /// The clock of a machine stops while the machine is suspended.
        ClockStandsStill "clock-stands-still",
        /// A replica reports its position although a newer map may make it drop its records.
        LearnersAnswerEarly "learners-answer-early",
        /// Promises of a disk that is lost count for the disk in its place.
        ReplacedStoreUnnoticed "stores-alike",
        /// A restarted process takes itself for its earlier incarnation.
        RestartUnnoticed "restart-unnoticed",
    }

    /// More mutants of replicated partitions, which seeds hardly ever show. Each is found by a
    /// scenario of one node (`node/src/replica/mutant_tests.rs`).
    OF_ONE_SIDE by NodeTests {
        /// Changes that a replica refuses count as accepted.
        RefusalsIgnored "refusals-ignored",
        /// A former member drops its replica before a primary has registered without it.
        FormerMembersDropReplica "formers-let-go",
        /// A new primary does not send the other members the changes that they lack.
        TailsUnsent "tails-unsent",
        /// A new primary does not fetch the changes that it lacks from other members.
        ShortestWins "shortest-wins",
        /// Epochs are promised while an earlier primary may hold a lease of an earlier incarnation.
        LeasesForgotten "leases-forgotten",
    }

    /// Mutants of homes that move, found by `tests/takeover/` of this crate.
    OF_TAKE_OVER by TakeOverTests {
        /// A home that took a partition over derives its numbers from its own incarnation.
        TermOfIncarnation "term-of-incarnation",
        /// Tasks that a failed node held are left to it.
        GoneHolderKeeps "gone-holder-keeps",
        /// Credits between partitions that have the same home are not recorded.
        LocalCreditsUnwritten "local-credits-unwritten",
        /// Messages that a failed node has not acknowledged are lost.
        NothingRerouted "nothing-rerouted",
        /// A home that took over does not ask the holders which tasks they have.
        HoldersNotQueried "holders-unasked",
        /// A home that hands a partition over does not record the tasks that run there, and stops
        /// them.
        HandOverUnrecorded "handed-on-unsaid",
        /// A node that has ended a task answers that it does not hold it, whichever home knows the
        /// end.
        RecentCompletionsForgotten "ends-forgotten",
        /// Lost inputs are not made again.
        NothingRebuilt "nothing-rebuilt",
        /// All inputs of a task that runs again are made again too.
        AllRebuilt "all-rebuilt",
    }

    /// Mutants of tasks that take their nodes down, and of jobs without progress.
    OF_CRASHES by Simulator {
        /// Further attempts of a call get the arguments of its spec, not its own.
        ArgumentsOnce "arguments-once",
        /// Deaths of nodes that run a command are not counted.
        CrashesUncounted "crashes-uncounted",
        /// Counted deaths are forgotten with the home that counts them.
        CrashesForgotten "crashes-forgotten",
        /// Other tasks run beside a task that has deaths on record.
        SuspectsTogether "suspects-together",
        /// A holder starts such a task before its home knows.
        StartWithoutPermission "suspects-unasked",
        /// A death counts, however few nodes lived through it.
        AllDiedCounts "all-died-counts",
        /// A node that lived through a death answers that it did not.
        WitnessesSilent "witnesses-silent",
        /// A node that was stopped in order counts as dead.
        StopCountsAsCrash "stop-counts-as-crash",
        /// The last credit of some tasks does not make them ready.
        WakeUpLost "wake-up-lost",
    }

    /// Mutants of slow nodes.
    OF_SLOWNESS by Simulator {
        /// No node reports that another node is slow.
        SlowNeverReported "slow-never-told",
    }

    /// Mutants of tasks that do not make the same bytes each time.
    OF_OTHER_BYTES by Simulator {
        /// The end of a task that runs again counts, whatever bytes it has made.
        ChecksumIgnored "checksum-ignored",
        /// Readers of other bytes are not recalled.
        ReadersKept "readers-kept",
        /// A restart forgets which ends were revoked.
        RecallForgotten "recall-forgotten",
        /// A repeated answer of the job's home counts as the answer of readers.
        RecallAnswerMistaken "recall-answer-mistaken",
        /// The child's home does not request recalled inputs from the parent's home.
        RecalledUnrequested "recalled-unrequested",
    }

    /// Mutants of rounds of jobs.
    OF_ROUNDS by Simulator {
        /// A skip of an earlier round of a job ends a task of this one.
        RoundIgnored "round-ignored",
    }

    /// Mutants of numbered batches of the key-value store.
    OF_NUMBERS by Simulator {
        /// A numbered batch of the key-value store is applied as often as it arrives.
        NumberIgnored "number-ignored",
        /// A restarted node, or one that takes a partition over, has forgotten the earlier numbers.
        NumbersForgotten "numbers-forgotten",
    }

    /// Mutants of clusters that grow.
    OF_GROWTH by Simulator {
        /// A node reports that all its kept outputs have their replicas.
        LackingUnreported "lacking-unsaid",
        /// Nodes that join get no replicas of outputs that were kept before.
        NewNodesGetNoCopies "newcomers-unasked",
        /// A keeper does not announce that it is one.
        KeepersUnreported "keepers-unsaid",
    }

    /// Mutants of the resources of tasks.
    OF_RESOURCES by Simulator {
        /// The claim of an attempt that ends is not freed.
        ClaimNotFreed "claim-not-freed",
        /// Claims leave their indices and amounts free.
        ClaimGivenTwice "claim-given-twice",
        /// A node grants and starts tasks with a request that does not fit.
        ClassIgnored "class-ignored-by-thief",
        /// Tasks go on passing the task for which resources are reserved.
        ReservationForgotten "reservation-forgotten",
        /// A node starts tasks that cannot end before its own end.
        StartsPastItsEnd "starts-past-its-end",
    }

    /// Mutants of jobs that run a limited number of tasks at once.
    OF_THROTTLES by Simulator {
        /// The home of such a job does not count tasks that other nodes hold.
        ThrottleForgetsOthers "throttle-forgets-others",
    }

    /// Mutants of gangs.
    OF_GANGS by Simulator {
        /// An older gang takes no node from a younger one that only holds it.
        WoundIgnoresAge "wound-ignores-age",
        /// A gang starts as soon as its nodes are held.
        StartWithoutLock "start-without-lock",
    }

    /// Mutants of the history of ended jobs.
    OF_THE_PAST by Simulator {
        /// A home that restarts or takes over makes the summaries of ended jobs again.
        SummaryMadeAgain "summary-made-again",
        /// A member that was away is not informed that a job was forgotten.
        ForgottenReturns "forgotten-returns",
        /// A member confirms that a job is forgotten before its shell has removed its data.
        ConfirmedBeforeErased "confirmed-before-erased",
    }
}
