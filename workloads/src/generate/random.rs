//! Stateless random numbers, identical on every machine: a hash of seed and index.

/// SplitMix64's finisher over the counter `index` of the stream `seed`.
pub(crate) fn random(seed: u64, stream: u64, index: u64) -> u64 {
    let start = mix(seed ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03));
    mix(start.wrapping_add(index.wrapping_mul(GOLDEN)))
}

/// A whole number from `low` to `high`, both included.
pub(crate) fn uniform(low: u64, high: u64, random: u64) -> u64 {
    debug_assert!(low <= high, "{low} > {high}");
    let span = u128::from(high - low) + 1;
    low + ((u128::from(random) * span) >> 64) as u64
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

pub(crate) fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(GOLDEN);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// A sequence of numbers from one, if a value needs more than one draw.
#[derive(Debug)]
pub(crate) struct Stream(u64);

impl Stream {
    pub(crate) fn new(random: u64) -> Self {
        Self(random)
    }

    /// A number above 0 and below 1.
    pub(crate) fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        ((mix(self.0) >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }
}

/// The rounds of the permutation; four make neighbouring inputs unrelated.
const ROUNDS: u64 = 4;

/// A shuffle of `0..count`, computed for each position without a table. A Feistel network over the
/// next even number of bits is applied until the result is in range.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shuffle {
    key: u64,
    count: u64,
    half_bits: u32,
}

impl Shuffle {
    pub(crate) fn new(seed: u64, stream: u64, count: u64) -> Self {
        let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
        Self { key: random(seed, stream, count), count, half_bits: bits.div_ceil(2).max(1) }
    }

    /// The number at position `at`; each number below `count` is at exactly one.
    pub(crate) fn at(&self, at: u64) -> u64 {
        debug_assert!(at < self.count, "{at} is not a place among {}", self.count);
        let mask = (1_u64 << self.half_bits) - 1;
        let mut number = at;
        loop {
            let (mut left, mut right) = (number >> self.half_bits, number & mask);
            for round in 0..ROUNDS {
                let scrambled = mix(self.key.wrapping_add(round) ^ right.wrapping_mul(GOLDEN));
                (left, right) = (right, left ^ (scrambled & mask));
            }
            number = left << self.half_bits | right;
            if number < self.count {
                return number;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shuffle_meets_everything_once_and_leaves_little_in_place() {
        for count in [1, 2, 3, 5, 64, 500, 1000, 4097] {
            let shuffle = Shuffle::new(7, 3, count);
            let mut met: Vec<u64> = (0..count).map(|at| shuffle.at(at)).collect();
            let in_place = (0..count).filter(|at| met[*at as usize] == *at).count();
            assert!(count < 64 || in_place < 10, "{in_place} of {count} stayed");
            met.sort_unstable();
            assert_eq!(met, (0..count).collect::<Vec<_>>());
        }
        let places = |seed| (0..100).map(move |at| Shuffle::new(seed, 0, 100).at(at));
        assert!(!places(1).eq(places(2)), "the seed decides");
    }
}
