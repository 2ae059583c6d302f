//! The layout of record keys. Records that are read together are adjacent in key order.
//!
//! A record's key within its partition begins with one namespace byte. The node's store prefixes it
//! with the partition. Numbers inside keys are big-endian, so byte order equals number order.

use proto::{JobId, PartitionId};

/// User key-value records: `u ‖ user's key`.
pub const USER: u8 = b'u';
/// Numbered batches that a partition remembers: `n ‖ client ‖ place`.
pub const NUMBERS: u8 = b'n';
/// Task records of the scheduler's ledger: `t ‖ job ‖ kind ‖ index ...`.
pub const TASK: u8 = b't';
/// Job records: `j ‖ job ...`.
pub const JOB: u8 = b'j';
/// The node's own records, which belong to no partition.
pub const META: u8 = b'm';
/// The partition number under which a node stores records that belong to no partition.
pub const META_PARTITION: PartitionId = PartitionId(u32::MAX);

/// The namespace byte of a key. The empty key has none, and no record has the empty key.
#[must_use]
pub fn namespace(key: &[u8]) -> Option<u8> {
    key.first().copied()
}

/// The key of a user's record. The empty user key holds the partition's version (see
/// [`crate::Store`]).
#[must_use]
pub fn user(key: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1 + key.len());
    bytes.push(USER);
    bytes.extend_from_slice(key);
    bytes
}

/// The key of a client's numbered batch. No client has the number 0: that record counts forgotten
/// clients (see [`crate::Store`]).
#[must_use]
pub fn number(client: u64, place: u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(10);
    bytes.push(NUMBERS);
    bytes.extend_from_slice(&client.to_be_bytes());
    bytes.push(place);
    bytes
}

/// Splits a key of [`number`] into client and place.
#[must_use]
pub fn parse_number(key: &[u8]) -> Option<(u64, u8)> {
    let key: &[u8; 10] = key.try_into().ok()?;
    let client = key[1..].first_chunk::<8>()?;
    Some((u64::from_be_bytes(*client), key[9]))
}

/// `namespace ‖ job`: the common prefix of all records of one job in one namespace and partition.
#[must_use]
pub fn job_prefix(namespace: u8, job: JobId) -> [u8; 9] {
    let mut bytes = [namespace; 9];
    bytes[1..].copy_from_slice(&job.0.to_be_bytes());
    bytes
}

/// `namespace ‖ job ‖ kind ‖ index`: orders the records of one kind of one job by index.
#[must_use]
pub fn job_record(namespace: u8, job: JobId, kind: u8, index: u64) -> [u8; 18] {
    let mut bytes = [kind; 18];
    bytes[..9].copy_from_slice(&job_prefix(namespace, job));
    bytes[10..].copy_from_slice(&index.to_be_bytes());
    bytes
}

/// Splits a key of [`job_record`] into job, kind and index.
#[must_use]
pub fn parse_job_record(key: &[u8]) -> Option<(JobId, u8, u64)> {
    let key: &[u8; 18] = key.try_into().ok()?;
    let number = |at: usize| key[at..].first_chunk::<8>().map(|bytes| u64::from_be_bytes(*bytes));
    Some((JobId(number(1)?), key[9], number(10)?))
}

/// True for the [`job_prefix`] of the ledger's records. Its removal removes all records of the job
/// in a partition. No record has such a key.
#[must_use]
pub fn is_whole_job(key: &[u8]) -> bool {
    key.len() == 9 && namespace(key) == Some(TASK)
}

/// True if the removal of the key `removed` also removes the record at `key`.
#[must_use]
pub fn goes_with(key: &[u8], removed: &[u8]) -> bool {
    is_whole_job(removed) && key.starts_with(removed)
}

/// The key of a record in the node's store: `partition ‖ key`.
#[must_use]
pub fn stored(partition: PartitionId, key: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(4 + key.len());
    bytes.extend_from_slice(&partition.0.to_be_bytes());
    bytes.extend_from_slice(key);
    bytes
}

/// Splits a key of [`stored`] into partition and key.
#[must_use]
pub fn parse_stored(bytes: &[u8]) -> Option<(PartitionId, &[u8])> {
    let (partition, key) = bytes.split_first_chunk::<4>()?;
    Some((PartitionId(u32::from_be_bytes(*partition)), key))
}

/// The first key after all keys with this prefix. `None` if no such key exists (all bytes 0xff).
#[must_use]
pub fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != u8::MAX)?;
    let mut end = prefix[..=last].to_vec();
    end[last] += 1;
    Some(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_order_is_number_order() {
        let numbers = [0, 1, 255, 256, 1 << 32, u64::MAX];
        let keys: Vec<_> = numbers
            .iter()
            .flat_map(|&job| numbers.iter().map(move |&index| (job, index)))
            .map(|(job, index)| job_record(TASK, JobId(job), 3, index))
            .collect();
        assert!(keys.is_sorted());
        assert!(keys.iter().all(|key| parse_job_record(key).is_some_and(|(_, kind, _)| kind == 3)));
        let stored: Vec<_> =
            [0, 1, 256, 65_536].map(|partition| stored(PartitionId(partition), b"zz")).to_vec();
        assert!(stored.is_sorted());
        assert_eq!(parse_stored(&stored[3]), Some((PartitionId(65_536), &b"zz"[..])));
        assert_eq!(parse_stored(b"abc"), None);
        assert_eq!(parse_job_record(b"t"), None);
        let job = job_prefix(TASK, JobId(3));
        assert!(is_whole_job(&job) && goes_with(&job_record(TASK, JobId(3), 1, 7), &job));
        assert!(!goes_with(&job_record(TASK, JobId(4), 1, 7), &job));
        assert!(!is_whole_job(&job_record(JOB, JobId(3), 0, 0)) && !is_whole_job(b"uabcdefgh"));
    }

    #[test]
    fn a_prefix_ends_where_the_next_one_begins() {
        assert_eq!(after_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after_prefix(&[1, 0xff, 0xff]), Some(vec![2]));
        assert_eq!(after_prefix(&[0xff]), None);
        assert_eq!(after_prefix(b""), None);
    }
}
