//! Seeded bugs; the simulation must find each of them.

/// A bug on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    /// An owner submits although its lease has lapsed.
    LapsedOwnerSubmits,
    /// An owner submits before its intent is written.
    IntentNotWritten,
    /// A batch job works although another one has its intent.
    ClaimUnchecked,
    /// An intent without a job id is never closed, so its demand is never met.
    NeverUnknown,
}
