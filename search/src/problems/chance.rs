//! Pseudo-random numbers for heuristics: the same seed gives the same numbers everywhere.

/// A generator of Marsaglia's xorshift family, with Vigna's multiplier.
#[derive(Clone, Debug)]
pub(crate) struct Chance {
    state: u64,
}

impl Chance {
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1 }
    }

    /// A number below `limit`, which is not 0.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        let high = self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33;
        let limit = u64::try_from(limit).unwrap_or(u64::MAX);
        usize::try_from(high % limit).unwrap_or(0)
    }
}
