//! Bugs on purpose: each is one presumption of a command, or one thing that it does, left out. The
//! random histories of `safety_tests.rs` find them. Only tests can set one.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mutant {
    /// What a command says of an earlier epoch of a partition counts.
    StaleEpoch,
    /// Who left since the last primary registered is not remembered.
    FormerForgotten,
    /// ... nor who is passed over by one that is at hand.
    PassedOver,
    /// Who comes back with another disk is taken for who it was.
    OtherDiskStays,
    /// A partition is given up though somebody who left has all of it.
    LostTooEarly,
    /// A new primary is another one, and the epoch the same.
    SameEpoch,
}

impl Mutant {
    #[cfg(test)]
    pub(super) const ALL: [Self; 6] = [
        Self::StaleEpoch,
        Self::FormerForgotten,
        Self::PassedOver,
        Self::OtherDiskStays,
        Self::LostTooEarly,
        Self::SameEpoch,
    ];
}

#[cfg(test)]
thread_local! {
    pub(super) static SET: std::cell::Cell<Option<Mutant>> = const { std::cell::Cell::new(None) };
}

/// Whether this thread's maps change wrongly in this way.
#[cfg(test)]
pub(super) fn is(mutant: Mutant) -> bool {
    SET.get() == Some(mutant)
}

#[cfg(not(test))]
pub(super) const fn is(_: Mutant) -> bool {
    false
}
