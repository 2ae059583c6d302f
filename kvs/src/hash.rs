//! The hash that maps keys and jobs to partitions: xxh3-64 over bytes, integers little-endian.
//!
//! All nodes and clients must agree on it. It is part of the disk and wire format and never
//! changes.

use std::hash::{BuildHasher, Hasher};

use proto::{JobId, PartitionId};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// The partition that stores the record of a job.
///
/// # Panics
/// When `partitions` is not a power of two.
#[must_use]
pub fn job_partition(job: JobId, partitions: u32) -> PartitionId {
    masked(xxh3_64(&job.0.to_le_bytes()), partitions)
}

/// The partition that stores a user's key.
///
/// # Panics
/// When `partitions` is not a power of two.
#[must_use]
pub fn key_partition(key: &[u8], partitions: u32) -> PartitionId {
    masked(xxh3_64(key), partitions)
}

fn masked(hash: u64, partitions: u32) -> PartitionId {
    assert!(partitions.is_power_of_two(), "{partitions} partitions are not a power of two");
    PartitionId(hash as u32 & (partitions - 1))
}

/// The hasher of the consistent hash ring. The ring's crate hashes through `std::hash::Hash`.
///
/// `Hash` writes integers in native byte order and `usize` in native width. This hasher writes all
/// of them little-endian and `usize` as 64 bits, so every machine builds the same ring.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StableHash;

impl BuildHasher for StableHash {
    type Hasher = StableHasher;
    fn build_hasher(&self) -> StableHasher {
        StableHasher(0)
    }
}

#[derive(Debug)]
pub(crate) struct StableHasher(u64);

impl Hasher for StableHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    // A single write into a new hasher equals the plain xxh3-64 of its bytes.
    fn write(&mut self, bytes: &[u8]) {
        self.0 = xxh3_64_with_seed(bytes, self.0);
    }
    fn write_u8(&mut self, n: u8) {
        self.write(&[n]);
    }
    fn write_u16(&mut self, n: u16) {
        self.write(&n.to_le_bytes());
    }
    fn write_u32(&mut self, n: u32) {
        self.write(&n.to_le_bytes());
    }
    fn write_u64(&mut self, n: u64) {
        self.write(&n.to_le_bytes());
    }
    fn write_u128(&mut self, n: u128) {
        self.write(&n.to_le_bytes());
    }
    fn write_usize(&mut self, n: usize) {
        self.write_u64(n as u64);
    }
    fn write_i8(&mut self, n: i8) {
        self.write_u8(n as u8);
    }
    fn write_i16(&mut self, n: i16) {
        self.write_u16(n as u16);
    }
    fn write_i32(&mut self, n: i32) {
        self.write_u32(n as u32);
    }
    fn write_i64(&mut self, n: i64) {
        self.write_u64(n as u64);
    }
    fn write_i128(&mut self, n: i128) {
        self.write_u128(n as u128);
    }
    fn write_isize(&mut self, n: isize) {
        self.write_u64(n as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partitions_are_golden() {
        // A published test vector of xxh3-64: the crate implements the standard hash.
        assert_eq!(xxh3_64(b""), 0x2d06_8005_38d3_94c2);
        let jobs = [0, 1, 2, 42, u64::MAX].map(|job| job_partition(JobId(job), 4096).0);
        assert_eq!(jobs, [3289, 2350, 579, 1992, 1043]);
        let keys =
            [&b""[..], b"a", b"starling", &[0xff; 300]].map(|key| key_partition(key, 4096).0);
        assert_eq!(keys, [1218, 3615, 935, 102]);
    }

    #[test]
    fn a_wider_mask_refines_a_narrower_one() {
        for job in 0..1000 {
            let wide = job_partition(JobId(job), 1 << 12).0;
            assert_eq!(wide & 0xff, job_partition(JobId(job), 1 << 8).0);
            assert_eq!(job_partition(JobId(job), 1).0, 0);
        }
    }

    #[test]
    fn integers_are_fed_little_endian() {
        assert_eq!(StableHash.hash_one(7u64), xxh3_64(&7u64.to_le_bytes()));
        assert_eq!(StableHash.hash_one(7usize), StableHash.hash_one(7u64));
        assert_eq!(StableHash.hash_one(7i32), xxh3_64(&7u32.to_le_bytes()));
    }
}
