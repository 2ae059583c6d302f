//! Seeded bugs. The tests demand that each is found.

/// A bug that a test switches on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mutant {
    /// A freed claim keeps its last whole index.
    ClaimLeaks,
    /// A part of an index is claimed, and the free part does not shrink.
    FractionGivenTwice,
    /// A part that comes back complete does not become a whole index.
    PartStaysBroken,
    /// A strict policy takes more groups than needed.
    StrictIgnored,
    /// Couplings do not count.
    CouplingIgnored,
    /// A sum may be exceeded by one unit.
    SumOver,
    /// A claim that fails at its second pool keeps the first one.
    ClaimHalf,
    /// Compact takes the first groups that are enough, not the fewest.
    CompactTakesFirst,
    /// `all` is satisfied by the free rest of a pool.
    AllTakesRest,
}

impl Mutant {
    pub const ALL: [Self; 9] = [
        Self::ClaimLeaks,
        Self::FractionGivenTwice,
        Self::PartStaysBroken,
        Self::StrictIgnored,
        Self::CouplingIgnored,
        Self::SumOver,
        Self::ClaimHalf,
        Self::CompactTakesFirst,
        Self::AllTakesRest,
    ];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ClaimLeaks => "claim-leaks",
            Self::FractionGivenTwice => "fraction-given-twice",
            Self::PartStaysBroken => "part-stays-broken",
            Self::StrictIgnored => "strict-ignored",
            Self::CouplingIgnored => "coupling-ignored",
            Self::SumOver => "sum-over",
            Self::ClaimHalf => "claim-half",
            Self::CompactTakesFirst => "compact-takes-first",
            Self::AllTakesRest => "all-takes-rest",
        }
    }
}
