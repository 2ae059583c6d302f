//! The only source of chance: one stream of numbers per seed.

use proto::Span;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// Draws everything that a run leaves to chance.
#[derive(Clone, Debug)]
pub struct SimRng {
    rng: ChaCha8Rng,
}

impl SimRng {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { rng: ChaCha8Rng::seed_from_u64(seed) }
    }
    /// For parts that take any generator.
    pub fn rng(&mut self) -> &mut ChaCha8Rng {
        &mut self.rng
    }
    pub fn number(&mut self) -> u64 {
        self.rng.next_u64()
    }
    /// Evenly from `0..end`.
    ///
    /// # Panics
    /// When `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        assert!(end > 0, "nothing to choose from");
        // The bias of a 128-bit product is below end / 2^64.
        ((u128::from(self.number()) * u128::from(end)) >> 64) as u64
    }
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }
    /// Evenly from `low..=high`.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "an empty range: {low}..={high}");
        low + self.below(high - low + 1)
    }
    pub fn span(&mut self, low: Span, high: Span) -> Span {
        Span(self.between(low.0, high.0))
    }
    /// True `permille` times out of a thousand.
    pub fn chance(&mut self, permille: u64) -> bool {
        permille > 0 && self.below(1000) < permille
    }
    /// An exponential span with this mean, cut off at eight times the mean.
    pub fn around(&mut self, mean: Span) -> Span {
        let unit = (self.number() >> 11) as f64 / (1u64 << 53) as f64;
        let factor = -(1.0 - unit).ln();
        Span((mean.0 as f64 * factor.min(8.0)) as u64)
    }
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.index(from.len())]
    }
    /// A stream of its own, for a part whose use of chance should not disturb the rest.
    #[must_use]
    pub fn fork(&mut self) -> Self {
        Self::new(self.number())
    }
}
