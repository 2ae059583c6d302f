//! Seeded bugs (mutants) of the scheduler. Each inverts one decision, to prove that the simulator's
//! checkers find it: `starling check --mutant NAME` must fail. A real node never sets one.

// The list of a mutant determines the tests that must find it.
proto::mutants! {
    /// A seeded bug of the scheduler.
    Mutant;

    /// Mutants of one node's decisions, with or without replicated partitions.
    ALL by Simulator {
        /// Credits are counted, not recorded as a set: a repeated one counts twice.
        CounterInsteadOfSet "counter-instead-of-set",
        /// Credits are sent once and not kept until they are acknowledged.
        NoOutbox "no-outbox",
        /// A completion counts whatever its attempt.
        CompletionWithoutAttempt "completion-without-attempt",
        /// The victim of a steal forgets the tasks when it sends them.
        VictimForgetsEarly "victim-forgets-early",
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
        ThiefReportsToNoOwner "thief-reports-to-no-owner",
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
        StagedNeverRequeued "staged-never-requeued",
        /// The end of a task is reported before other nodes have its kept outputs.
        EndReportedBeforeCopy "kept-alone",
        /// A restarted node does not ask whether other nodes have the outputs that it keeps.
        FoundOutputsUnchecked "found-alone",
        /// A done task that runs again without a result is not done any more.
        EarlierEndLost "earlier-end-lost",
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
        /// Children that had ended do not credit later ones that name them.
        LateInputUncredited "late-input-uncredited",
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

    /// Mutants of events between tasks.
    OF_MAIL by Simulator {
        /// The events of a turn that is fenced or refused are sent as well.
        EventBeforeCommit "event-before-commit",
        /// A home stores the events of another one again if they are repeated.
        EventTwice "event-twice",
        /// A home does not look for an event when a task begins to wait for one.
        EventLostOnSuspend "event-lost-on-suspend",
        /// A home that restarts or takes over has forgotten the mailboxes.
        MailForgottenOnTakeover "mail-forgotten-on-takeover",
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
        /// A task reads an event before the turn that sent it is synced.
        EventBeforeSync "event-before-sync",
        /// A home that knows no copy of a turned task's output takes it for lost.
        CopiesNotAskedFor "copies-unasked",
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

    /// Mutants of silent clients.
    OF_SILENCE by Simulator {
        /// The home of an open job takes no notice of life signs.
        LifeSignsUnheard "life-signs-unheard",
        /// Silence ends an open job that its client has detached.
        SilenceEndsDetached "silence-ends-detached",
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

    /// Mutants of clusters that grow.
    OF_GROWTH by Simulator {
        /// A node reports that all its kept outputs have their replicas.
        LackingUnreported "lacking-unsaid",
        /// Nodes that join get no replicas of outputs that were kept before.
        NewNodesGetNoCopies "newcomers-unasked",
        /// A drained node leaves although copies that it holds are missing elsewhere then.
        LeavesWithCopies "leaves-with-copies",
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
        /// Tasks take any variant that fits, whatever their patience.
        PatienceIgnored "patience-ignored",
        /// A node starts tasks that cannot end before its own end.
        StartsPastItsEnd "starts-past-its-end",
    }

    /// Mutants of jobs that run a limited number of tasks at once.
    OF_THROTTLES by Simulator {
        /// The home of such a job does not count tasks that other nodes hold.
        ThrottleForgetsOthers "throttle-forgets-others",
    }

    /// Mutants of jobs that wait for other jobs.
    OF_AFTER by Simulator {
        /// A home that loads a waiting job forgets for which jobs it waits.
        AfterForgottenOnTakeover "after-forgotten-on-takeover",
        /// A job that waits starts however the other one has ended.
        AfterIgnoresFailures "after-ignores-failures",
    }

    /// Mutants of paused nodes.
    OF_PAUSES by Simulator {
        /// A paused node starts tasks as before.
        PauseForgotten "pause-forgotten",
    }

    /// Mutants of commands that are moved.
    OF_MOVES by Simulator {
        /// A node does not report that it has moved an attempt.
        MovedUnreported "moved-unreported",
        /// The exit of a command after the signal of its node's end counts.
        MovedFails "moved-fails",
        /// A command is told of the end of its node again and again.
        ToldAgain "told-again",
        /// A command that runs at the deadline of its node's drain runs on.
        DeadlineIgnored "deadline-ignored",
    }

    /// Mutants of gangs.
    OF_GANGS by Simulator {
        /// An older gang takes no node from a younger one that only holds it.
        WoundIgnoresAge "wound-ignores-age",
        /// A gang starts as soon as its nodes are held.
        StartWithoutLock "start-without-lock",
        /// A gang that ends does not free its nodes.
        ReleaseForgotten "release-forgotten",
        /// A node's shell does not hear of the ends of parts.
        PartEndUntold "part-end-untold",
        /// The nodes of a gang may be of several groups.
        GangAcrossGroups "gang-across-groups",
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
