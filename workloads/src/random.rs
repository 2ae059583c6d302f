//! Random numbers that are the same on every machine and need no state: a hash of seed and index.

/// SplitMix64's finisher over the counter `index` of the stream `seed`.
pub(crate) fn random(seed: u64, stream: u64, index: u64) -> u64 {
    let start = mix(seed ^ stream.wrapping_mul(0xd1b5_4a32_d192_ed03));
    mix(start.wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
}

/// A whole number from `low` to `high`, both included.
pub(crate) fn uniform(low: u64, high: u64, random: u64) -> u64 {
    debug_assert!(low <= high, "{low} > {high}");
    let span = u128::from(high - low) + 1;
    low + ((u128::from(random) * span) >> 64) as u64
}

pub(crate) fn mix(mut z: u64) -> u64 {
    z = z.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
