//! Seeded bugs (mutants) of a node. Each inverts one decision, to prove that the simulator's
//! checkers find it: `starling check --mutant NAME` must fail. A real node never sets one.

// The list of a mutant determines the tests that must find it.
proto::mutants! {
    /// A seeded bug of a node, or of its scheduler.
    Mutant, or Scheduler(scheduler::Mutant);

    /// Mutants of the order of effects, and of packets.
    OF_EFFECTS by Simulator {
        /// Packets and answers leave before the batch on which they depend is written.
        SendBeforeWriting "speak-before-writing",
        /// Messages are acknowledged before their effects are durable.
        AckBeforeDurable "ack-before-durable",
        /// Packets to or from an earlier incarnation count as current.
        IgnoreIncarnation "ignore-incarnation",
        /// The end of a job is reported to the client before it is durable.
        ReportBeforeDurable "tell-before-durable",
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
        /// A replica reports its position although a newer map may make it drop its records.
        LearnersAnswerEarly "learners-answer-early",
        /// Promises of a disk that is lost count for the disk in its place.
        ReplacedStoreUnnoticed "stores-alike",
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

    /// Mutants of slow nodes.
    OF_SLOWNESS by Simulator {
        /// No node reports that another node is slow.
        SlowNeverReported "slow-never-told",
    }

    /// Mutants of numbered batches of the key-value store.
    OF_NUMBERS by Simulator {
        /// A numbered batch of the key-value store is applied as often as it arrives.
        NumberIgnored "number-ignored",
        /// A restarted node, or one that takes a partition over, has forgotten the earlier numbers.
        NumbersForgotten "numbers-forgotten",
    }

    /// Mutants of keepers.
    OF_KEEPERS by Simulator {
        /// A keeper does not announce that it is one.
        KeepersUnreported "keepers-unsaid",
    }
}

impl Mutant {
    /// The mutant of the node's scheduler, if it is one.
    pub(crate) const fn of_scheduler(self) -> Option<scheduler::Mutant> {
        match self {
            Self::Scheduler(mutant) => Some(mutant),
            _ => None,
        }
    }
}
