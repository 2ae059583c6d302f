//! The disk of a simulated node, with the part of its writes that a power cut would undo.
//!
//! It is the model of the RocksDB store of a real node. The same batches and faults leave the same
//! records in both; a test in `daemon` runs them side by side.
//!
//! The disk stores the live image, and undo data for each batch that no sync has covered. The
//! durable image is the live image with these batches undone.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::ops::Bound;

use kvs::replica::{CopyState, copy_record, is_own_record, own_key};
use kvs::{Batch, Page, PageRequest, Record, keys};
use proto::PartitionId;

/// Partition and key, ordered as in the real store.
type Key = Vec<u8>;

#[derive(Clone, Debug, Default)]
pub struct Disk {
    live: BTreeMap<Key, Vec<u8>>,
    last_seq: u64,
    unsynced: VecDeque<Undo>,
    /// The number of entries in `unsynced` from earlier incarnations. Any sync covers them.
    inherited: usize,
    /// By partition: a sum over its records except the replica's own state. It does not depend on
    /// the order of the writes, so equal records have equal sums.
    sums: BTreeMap<PartitionId, u64>,
}

/// The state of a replica after a write of one batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BatchState {
    pub partition: PartitionId,
    pub before: CopyState,
    pub state: CopyState,
    pub sum: u64,
}

/// The values that one write replaced, in the order of the changes.
#[derive(Clone, Debug)]
struct Undo {
    seq: u64,
    /// The number of the previous batch.
    last_seq: u64,
    old: Vec<(Key, Option<Vec<u8>>)>,
    /// The previous states of replicas. The first entry of each partition counts.
    copies: Vec<(PartitionId, CopyState)>,
}

impl Disk {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Applies a batch atomically to the live image. It survives a crash of the process.
    pub fn write(&mut self, batch: &Batch) {
        self.write_noting(batch);
    }

    /// Like [`Self::write`], but returns the state of each replica after its writes, in order.
    pub(crate) fn write_noting(&mut self, batch: &Batch) -> Vec<BatchState> {
        let mut stands: Vec<BatchState> = Vec::new();
        let mut undo = Undo {
            seq: batch.seq,
            last_seq: self.last_seq,
            old: Vec::with_capacity(batch.writes.len()),
            copies: Vec::new(),
        };
        for &partition in &batch.cleared {
            undo.copies.push((partition, self.copy(partition)));
            self.take_prefix(partition, b"", &mut undo.old);
        }
        for write in &batch.writes {
            let partition = write.partition;
            if write.value.is_none() && keys::is_whole_job(&write.key) {
                self.take_prefix(partition, &write.key, &mut undo.old);
                continue;
            }
            let key = keys::stored(partition, &write.key);
            let is_own = is_own_record(&write.key);
            let before = if is_own { self.copy(partition) } else { CopyState::default() };
            let old = self.put(key.clone(), write.value.clone());
            undo.old.push((key, old));
            if is_own {
                undo.copies.push((partition, before));
                let (state, sum) = (self.copy(partition), self.sum(partition));
                stands.push(BatchState { partition, before, state, sum });
            }
        }
        self.last_seq = batch.seq;
        self.unsynced.push_back(undo);
        stands
    }

    /// Stores or removes a value, and returns the previous one.
    fn put(&mut self, key: Key, value: Option<Vec<u8>>) -> Option<Vec<u8>> {
        let (partition, short) = keys::parse_stored(&key).expect("a stored key has a partition");
        let is_own = is_own_record(short);
        let worth = |value: Option<&Vec<u8>>| value.map_or(0, |value| hash(&key, value));
        let new = worth(value.as_ref());
        let old = match value {
            Some(value) => self.live.insert(key.clone(), value),
            None => self.live.remove(&key),
        };
        if !is_own {
            let gone = worth(old.as_ref());
            let sum = self.sums.entry(partition).or_default();
            *sum = sum.wrapping_add(new).wrapping_sub(gone);
        }
        old
    }

    /// The sum of a partition's records.
    pub(crate) fn sum(&self, partition: PartitionId) -> u64 {
        self.sums.get(&partition).copied().unwrap_or_default()
    }

    /// Removes all records of a partition with keys that begin with `prefix`.
    pub fn remove_prefix(&mut self, partition: PartitionId, prefix: &[u8]) {
        let (seq, copies) = (self.last_seq, vec![(partition, self.copy(partition))]);
        let mut undo = Undo { seq, last_seq: seq, old: Vec::new(), copies };
        self.take_prefix(partition, prefix, &mut undo.old);
        self.unsynced.push_back(undo);
    }

    fn take_prefix(
        &mut self,
        partition: PartitionId,
        prefix: &[u8],
        old: &mut Vec<(Key, Option<Vec<u8>>)>,
    ) {
        let from = keys::stored(partition, prefix);
        let to = keys::after_prefix(&from).expect("a partition's first byte is never 0xff");
        let gone: Vec<Key> = self.live.range(from..to).map(|(key, _)| key.clone()).collect();
        old.extend(gone.into_iter().map(|key| {
            let value = self.put(key.clone(), None);
            (key, value)
        }));
    }

    /// True if any partition has a record with a key that begins with `prefix`.
    pub(crate) fn has_records(&self, prefix: &[u8]) -> bool {
        let short =
            |key: &Key| keys::parse_stored(key).is_some_and(|(_, short)| short.starts_with(prefix));
        self.live.keys().any(short)
    }

    /// The stored state of the replica of a partition.
    pub(crate) fn copy(&self, partition: PartitionId) -> CopyState {
        let value = self.live.get(&keys::stored(partition, own_key()));
        value.and_then(|value| copy_record(own_key(), value)).unwrap_or_default()
    }

    pub(crate) fn value(&self, partition: PartitionId, key: &[u8]) -> Option<&[u8]> {
        self.live.get(&keys::stored(partition, key)).map(Vec::as_slice)
    }

    /// [`Self::copy`] after a power cut.
    pub(crate) fn durable_copy(&self, partition: PartitionId) -> CopyState {
        let unsynced = self.unsynced.iter().flat_map(|undo| &undo.copies);
        let first = unsynced.into_iter().find(|(of, _)| *of == partition);
        first.map_or_else(|| self.copy(partition), |&(_, state)| state)
    }

    /// A page of a partition's current records.
    #[must_use]
    pub fn page(&self, request: &PageRequest) -> Page {
        let PageRequest { partition, after, .. } = request;
        let first = keys::stored(*partition, after.as_deref().unwrap_or_default());
        let end = keys::after_prefix(&keys::stored(*partition, b""));
        let end = end.expect("a partition's first byte is never 0xff");
        let from = if after.is_some() { Bound::Excluded(first) } else { Bound::Included(first) };
        let records = self.live.range((from, Bound::Excluded(end))).map(|(key, value)| {
            let (partition, key) = keys::parse_stored(key).expect("a stored key has a partition");
            Ok::<_, Infallible>(Record { partition, key: key.to_vec(), value: value.clone() })
        });
        let Ok(page) = Page::fill(request, records);
        page
    }

    /// Makes durable all batches of this incarnation up to `seq`, and all writes of earlier ones.
    pub fn sync(&mut self, seq: u64) {
        self.unsynced.drain(..self.inherited);
        self.inherited = 0;
        let covered = self.unsynced.iter().take_while(|undo| undo.seq <= seq).count();
        self.unsynced.drain(..covered);
    }

    /// The process dies. Its writes remain, but are no more durable than before.
    pub fn crash(&mut self) {
        self.inherited = self.unsynced.len();
    }

    /// The machine loses power: all unsynced writes but the first `writes` are undone. Batches are
    /// never torn apart. A torn tail of the log corresponds to a number above 0.
    pub fn power_cut_keeping(&mut self, writes: usize) {
        while self.unsynced.len() > writes {
            let undo = self.unsynced.pop_back().expect("there are more than that");
            for (key, old) in undo.old.into_iter().rev() {
                self.put(key, old);
            }
            self.last_seq = undo.last_seq;
        }
        // The remaining writes are durable.
        self.unsynced.clear();
        self.inherited = 0;
    }

    /// The number of writes that no sync has covered.
    #[must_use]
    pub fn unsynced(&self) -> usize {
        self.unsynced.len()
    }

    /// The number of the last batch, or 0.
    #[must_use]
    pub fn last_seq(&self) -> u64 {
        self.last_seq
    }

    /// The records for recovery, by partition and then by key.
    pub fn records(&self) -> impl Iterator<Item = Record> + '_ {
        self.live.iter().map(|(key, value)| {
            let (partition, key) = keys::parse_stored(key).expect("a stored key has a partition");
            Record { partition, key: key.to_vec(), value: value.clone() }
        })
    }
}

/// A hash of a record, for sums. It is the same in every run.
fn hash(key: &[u8], value: &[u8]) -> u64 {
    let mix = |sum: u64, bytes: &[u8]| {
        let words = bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        words.fold(sum ^ bytes.len() as u64, |sum, word| {
            (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29)
        })
    };
    mix(mix(0xcbf2_9ce4_8422_2325, key), value).wrapping_mul(0x0100_0000_01b3)
}

/// A record with a value that has changed on disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct FlippedRecord {
    pub(crate) partition: PartitionId,
    pub(crate) key: Vec<u8>,
    /// The written value. Writing it again repairs the record.
    pub(crate) value: Vec<u8>,
}

#[cfg(test)]
mod tests {
    use kvs::Write;

    use super::*;

    fn batch(seq: u64, key: &str, value: Option<&str>) -> Batch {
        let value = value.map(|value| value.as_bytes().to_vec());
        Batch {
            seq,
            cleared: Vec::new(),
            writes: vec![Write { partition: PartitionId(3), key: key.into(), value }],
        }
    }

    fn contents(disk: &Disk) -> Vec<(String, String)> {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        disk.records().map(|record| (text(record.key), text(record.value))).collect()
    }

    fn pair(key: &str, value: &str) -> (String, String) {
        (key.to_owned(), value.to_owned())
    }

    #[test]
    fn a_power_cut_takes_back_what_no_sync_covered() {
        let mut disk = Disk::new();
        disk.write(&batch(1, "a", Some("old")));
        disk.write(&batch(2, "b", Some("x")));
        disk.sync(1);
        disk.write(&batch(3, "a", None));
        assert_eq!(contents(&disk), [pair("b", "x")]);
        let mut torn = disk.clone();
        torn.power_cut_keeping(1);
        assert_eq!((contents(&torn), torn.last_seq()), (vec![pair("a", "old"), pair("b", "x")], 2));
        disk.power_cut_keeping(0);
        assert_eq!((contents(&disk), disk.last_seq()), (vec![pair("a", "old")], 1));
    }

    #[test]
    fn a_crash_keeps_all_but_makes_nothing_durable() {
        let mut disk = Disk::new();
        disk.write(&batch(7, "a", Some("1")));
        disk.crash();
        assert_eq!(contents(&disk), [pair("a", "1")]);
        // The next incarnation counts from 1 again; its first sync covers the inherited writes.
        disk.write(&batch(1, "b", Some("2")));
        let mut cut = disk.clone();
        cut.power_cut_keeping(0);
        assert_eq!(contents(&cut), []);
        disk.sync(0);
        disk.power_cut_keeping(0);
        assert_eq!(contents(&disk), [pair("a", "1")]);
    }

    #[test]
    fn tearing_keeps_a_prefix() {
        for kept in 0..=3 {
            let mut disk = Disk::new();
            for (seq, key) in [(1, "a"), (2, "b"), (3, "c")] {
                disk.write(&batch(seq, key, Some("")));
            }
            disk.power_cut_keeping(kept);
            assert_eq!(contents(&disk), [pair("a", ""), pair("b", ""), pair("c", "")][..kept]);
            assert_eq!((disk.last_seq(), disk.unsynced()), (kept as u64, 0));
        }
    }

    #[test]
    fn a_removed_prefix_comes_back_with_the_power_cut() {
        let mut disk = Disk::new();
        for (seq, key) in [(1, "a"), (2, "b1"), (3, "b2"), (4, "c")] {
            disk.write(&batch(seq, key, Some("")));
        }
        disk.sync(4);
        disk.remove_prefix(PartitionId(2), b"b");
        assert_eq!(contents(&disk).len(), 4);
        disk.remove_prefix(PartitionId(3), b"b");
        assert_eq!(contents(&disk), [pair("a", ""), pair("c", "")]);
        disk.power_cut_keeping(0);
        assert_eq!(contents(&disk).len(), 4);
    }
}
