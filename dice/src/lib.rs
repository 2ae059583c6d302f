//! Random numbers from a seed, for election timeouts, small simulations and tests.
//!
//! The same seed gives the same numbers on every machine and in every version: the seeds of the
//! simulations keep their meaning.

/// SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `0..end`; `end` must not be 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.number() % end
    }

    /// An index of a list with this length, which must not be 0.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("it is below a length")
    }

    /// True in this number of 1,000 cases.
    pub fn chance(&mut self, permille: u64) -> bool {
        self.below(1_000) < permille
    }

    /// One of a list that is not empty.
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.index(all.len())]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first numbers of the published generator for the seed 1234567.
    #[test]
    fn a_seed_gives_the_published_numbers() {
        let mut dice = Dice::new(1_234_567);
        let numbers: Vec<u64> = (0..3).map(|_| dice.number()).collect();
        assert_eq!(
            numbers,
            [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]
        );
    }

    #[test]
    fn numbers_stay_below_their_end() {
        let mut dice = Dice::new(7);
        assert!((0..1_000).all(|_| dice.below(3) < 3));
        assert!((0..1_000).all(|_| dice.index(5) < 5));
        assert!((0..100).all(|_| dice.chance(1_000) && !dice.chance(0)));
        assert!((0..100).all(|_| [2, 4].contains(&dice.pick(&[2, 4]))));
    }
}
