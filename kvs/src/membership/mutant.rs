//! Seeded bugs (mutants) of the map's commands: each omits one precondition or one effect. The
//! random histories of `safety_tests.rs` must find them. Only tests can set one.

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mutant {
    /// Commands of an earlier epoch of a partition are accepted.
    StaleEpoch,
    /// A node that left since the last primary registered is not recorded in `former`.
    FormerForgotten,
    /// Members that are skipped because another node is up are not recorded in `former`.
    PassedOver,
    /// A node that returns with another disk counts as if it still had its data.
    OtherDiskStays,
    /// A partition is declared lost although a node in `former` has all its data.
    LostTooEarly,
    /// A hand-over changes the primary without a new epoch.
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

/// True if this thread has set this mutant.
#[cfg(test)]
pub(super) fn is(mutant: Mutant) -> bool {
    SET.get() == Some(mutant)
}

#[cfg(not(test))]
pub(super) const fn is(_: Mutant) -> bool {
    false
}
