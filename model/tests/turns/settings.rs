//! The settings of the model, and its seeded bugs.

/// Seeded bugs. Those of the first group are alternatives of the design, those of the second are
/// rules that the model has added.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mutant {
    /// An `Adopt` leaves before the turn is synced.
    AdoptBeforeLog,
    /// A repeated `Adopt` is taken again.
    AdoptTwice,
    /// `Adopt` is recognised by the visible chunk, which a merge deletes.
    AdoptAfterMerge,
    /// A question about an undecided turn of the current attempt is answered with `Drop`.
    DropWithoutFence,
    /// Such a question fences the current attempt.
    AskFencesTheLiving,
    TurnWithoutAttempt,
    /// A repeated turn is applied again.
    SeqIgnored,
    /// The record of a turn replaces the outbox of the former one.
    TurnForgetsOutbox,

    /// `Drop` is answered because another attempt is current, without a record of that.
    DropNotLogged,
    /// `Drop` is answered while a new home still asks the nodes for running attempts.
    DropWhileAsking,
    /// A home that was replaced without knowing it answers `Drop`, because it does not know the
    /// attempt.
    ReplacedHomeAnswers,
    /// A turn leaves before its children are synced.
    TurnBeforePrepared,
    /// A repeated `seq` is answered as done, whichever attempt committed it.
    RepeatBySeqAlone,
    /// A turn is answered before it is synced, and a gap in `seq` does not end the attempt.
    GapKeepsAttempt,
    /// The end of a task deletes its outbox.
    EndForgetsOutbox,
    /// A node with a dropped chunk ends its attempt, and does not report that.
    StopsUnreported,
    /// A node replaces an attempt by a later one, and does not report that.
    ReplacedUnreported,
    /// The record of a turn that releases the slot does not fence its attempt.
    YieldKeepsAttempt,
}

#[derive(Clone, Debug)]
pub(crate) struct Options {
    /// The number of attempts that a home issues in a term.
    pub(crate) attempts: u8,
    pub(crate) take_overs: u8,
    /// How many of the take-overs, and how many losses of the children's part, lose what is not
    /// synced.
    pub(crate) cuts: u8,
    pub(crate) child_cuts: u8,
    /// Nodes that the map declares failed. They may go on.
    pub(crate) failures: u8,
    /// Whether the part of the children merges ended chunks.
    pub(crate) merges: bool,
    pub(crate) mutant: Option<Mutant>,
}

const NOTHING: Options = Options {
    attempts: 2,
    take_overs: 0,
    cuts: 0,
    child_cuts: 0,
    failures: 0,
    merges: false,
    mutant: None,
};
/// The home changes twice; the nodes run.
const HOMES: Options = Options { take_overs: 2, attempts: 1, ..NOTHING };
const FAILS: Options = Options { take_overs: 1, failures: 1, ..NOTHING };
const POWER: Options = Options { take_overs: 1, cuts: 1, child_cuts: 1, ..NOTHING };
const MERGES: Options = Options { child_cuts: 1, merges: true, ..NOTHING };
const ALL_ONCE: Options =
    Options { take_overs: 1, cuts: 1, child_cuts: 1, failures: 1, attempts: 1, ..NOTHING };
pub(crate) const ALL: [(&str, Options); 5] = [
    ("homes", HOMES),
    ("failure", FAILS),
    ("power", POWER),
    ("merges", MERGES),
    ("all once", ALL_ONCE),
];

/// Each mutant with the property that it violates, and a setting that shows it.
pub(crate) fn found() -> Vec<(Mutant, &'static str, Options)> {
    vec![
        (Mutant::AdoptBeforeLog, "born", POWER),
        (Mutant::AdoptTwice, "once", NOTHING),
        (Mutant::AdoptAfterMerge, "once", MERGES),
        (Mutant::DropWithoutFence, "cover", NOTHING),
        (Mutant::AskFencesTheLiving, "living", NOTHING),
        (Mutant::TurnWithoutAttempt, "cover", FAILS),
        (Mutant::TurnWithoutAttempt, "turns", POWER),
        (Mutant::SeqIgnored, "turns", NOTHING),
        (Mutant::TurnForgetsOutbox, "cover", NOTHING),
        (Mutant::DropNotLogged, "cover", HOMES),
        (Mutant::DropWhileAsking, "cover", HOMES),
        (Mutant::ReplacedHomeAnswers, "cover", HOMES),
        (Mutant::TurnBeforePrepared, "cover", POWER),
        (Mutant::RepeatBySeqAlone, "answered", HOMES),
        (Mutant::GapKeepsAttempt, "ends well", POWER),
        (Mutant::EndForgetsOutbox, "cover", NOTHING),
        (Mutant::StopsUnreported, "ends well", HOMES),
        (Mutant::ReplacedUnreported, "ends well", HOMES),
        (Mutant::YieldKeepsAttempt, "ends well", HOMES),
    ]
}
