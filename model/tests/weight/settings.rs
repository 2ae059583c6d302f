//! The settings of the model, and its seeded bugs.

/// Seeded bugs. Those of the first group are alternatives of the design, those of the second are
/// rules that the model has added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mutant {
    /// The job ends when as many tasks have ended as were made, by sums of counts of different
    /// times.
    EndBySums,
    /// A part that gets work takes the returned weight back.
    WeightTakenBack,
    WeightNotHalved,
    /// A part reports what it has not synced.
    ReturnUnwritten,
    /// A chunk leaves before the sender has synced it.
    AdoptBeforeLog,
    /// A repeated parcel is taken again.
    AdoptTwice,
    ReopenWithoutWeight,
    RetryWithoutWeight,
    ChunkWithoutWeight,
    /// A part of an open job returns its weight when it runs empty.
    ReturnsBeforeClose,
    /// Inner nodes of the tree sum the parts that report to them, not a fixed range.
    SumOfNodes,

    /// A receiver acknowledges what it has not synced.
    AcknowledgedBeforeSync,
    /// The job's home sends weight before the issue is synced.
    GrantBeforeLog,
    /// Only a part that still has the chunk in memory takes the weight that it asked for.
    GrantOnlyIfAwaited,
    /// A part that has an output again keeps no weight of a request, and returns none.
    RequestWeightDropped,
    /// Requests are recognised by child, slot and lost attempt; a repeat brings no weight.
    RequestByKey,
    /// The job's home still issues weight after `close`.
    GrantAfterClose,
    /// The job's home announces a close that is not synced.
    CloseBeforeLog,
}

#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// Open tasks by part at the commit. The source of the lost output, in part 0, is not counted.
    pub(crate) tasks: [u8; 3],
    /// Part 0 has the source of an output that the tasks of the others read.
    pub(crate) has_source: bool,
    /// Whether the job is open to chunks of clients.
    pub(crate) is_open: bool,
    pub(crate) chunks: u8,
    pub(crate) requests: u8,
    pub(crate) client_chunks: u8,
    pub(crate) retries: u8,
    /// How often a part loses what it has not synced: power cut or take-over.
    pub(crate) cuts: u8,
    /// The same of the job's home.
    pub(crate) home_cuts: u8,
    /// Whether parts report through a tree, and how often an inner node is replaced.
    pub(crate) tree: bool,
    pub(crate) moves: u8,
    pub(crate) mutant: Option<Mutant>,
}

const NOTHING: Options = Options {
    tasks: [0; 3],
    has_source: false,
    is_open: false,
    chunks: 0,
    requests: 0,
    client_chunks: 0,
    retries: 0,
    cuts: 0,
    home_cuts: 0,
    tree: false,
    moves: 0,
    mutant: None,
};
/// Two parts start; the third gets work from either.
pub(crate) const CHUNKS: Options = Options { tasks: [1, 1, 0], chunks: 2, cuts: 2, ..NOTHING };
/// Work wanders from the only part that starts.
pub(crate) const CHAIN: Options = Options { tasks: [1, 0, 0], chunks: 3, ..NOTHING };
pub(crate) const REQUESTS: Options =
    Options { tasks: [0, 1, 1], has_source: true, requests: 2, cuts: 2, ..NOTHING };
pub(crate) const MIXED: Options =
    Options { tasks: [0, 1, 0], has_source: true, requests: 1, chunks: 1, cuts: 1, ..NOTHING };
pub(crate) const OPEN: Options =
    Options { is_open: true, client_chunks: 2, cuts: 1, home_cuts: 1, ..NOTHING };
pub(crate) const OPEN_SPAWNS: Options =
    Options { is_open: true, client_chunks: 2, chunks: 1, ..NOTHING };
pub(crate) const RETRY: Options =
    Options { tasks: [1, 0, 0], chunks: 1, retries: 1, cuts: 1, home_cuts: 1, ..NOTHING };
pub(crate) const RANGES: Options =
    Options { tasks: [1, 0, 1], chunks: 1, cuts: 1, tree: true, moves: 2, ..NOTHING };

/// Each mutant with the property that it violates, and a setting that shows it.
pub(crate) fn found() -> Vec<(Mutant, &'static str, Options)> {
    vec![
        (Mutant::EndBySums, "quiesce", CHUNKS),
        (Mutant::WeightTakenBack, "quiesce", CHUNKS),
        (Mutant::WeightNotHalved, "weight", CHUNKS),
        (Mutant::ReturnUnwritten, "quiesce", CHUNKS),
        (Mutant::AdoptBeforeLog, "quiesce", CHUNKS),
        (Mutant::AdoptTwice, "weight", CHUNKS),
        (Mutant::ReopenWithoutWeight, "quiesce", REQUESTS),
        (Mutant::RetryWithoutWeight, "quiesce", RETRY),
        (Mutant::ChunkWithoutWeight, "quiesce", OPEN),
        (Mutant::ReturnsBeforeClose, "quiesce", OPEN),
        (Mutant::SumOfNodes, "quiesce", RANGES),
        (Mutant::AcknowledgedBeforeSync, "weight", CHUNKS),
        (Mutant::GrantBeforeLog, "weight", OPEN),
        (Mutant::GrantOnlyIfAwaited, "ends well", OPEN),
        (Mutant::RequestWeightDropped, "ends well", REQUESTS),
        (Mutant::RequestByKey, "ends well", REQUESTS),
        (Mutant::GrantAfterClose, "quiesce", OPEN),
        (Mutant::CloseBeforeLog, "refusals", OPEN),
    ]
}
