//! The user's keys and values in memory, for the partitions of which this node is primary.
//!
//! **A batch** belongs to one partition and takes effect completely or not at all. Each operation
//! sees the effects of the earlier operations of its batch.
//!
//!  operation | effect | status |
//! |---|---|---|
//! | insert | sets the value | `OK` |
//! | lookup | returns the value | `OK`, or `ABSENT` |
//! | remove | removes the key | `OK`, or `ABSENT` if the key is absent |
//! | append | appends to the value; an absent key counts as empty | `OK` |
//! | cas | sets the value if the present value is the expected one | `OK`, or `CONFLICT` |
//!
//! A cas expects the bytes of `expected`, or an absent key if `expect_absent` is set. The first
//! `CONFLICT` undoes the batch. Its result contains the version and value found, and all other
//! results are `ABORTED`. `ABSENT` undoes nothing. An error undoes the batch as well.
//!
//! **Versions.** A partition counts the batches that changed it. A key's version is this count at
//! the key's last change, and 0 while the key is absent. Every result contains the version of its
//! key after the operation. No version is used twice, even after a removal and a restart, because a
//! batch with a removal also stores the count. So a watcher that compares versions detects every
//! last state.
//!
//! **At most once.** A numbered batch takes effect at most once, see [`numbers`].
//!
//! **On disk** a value is its version (u64, little-endian) followed by the user's bytes, under
//! [`crate::keys::user`]. The record of the empty user key holds the partition's count.

mod error;
mod numbers;
mod step;

use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use proto::limits::{KEY_BYTES_MAX, KV_OPS_MAX, VALUE_BYTES_MAX};
use proto::{NodeId, PartitionId, wire};

pub use error::{DamagedRecord, StoreError};

use crate::limits::{KV_NODE_BYTES_MAX, KV_NUMBERS_SHARE};
use crate::{Record, Write, home, key_partition, keys};
use numbers::{Numbers, Room};

/// The memory cost of an entry besides its key and value: table slot, allocations, version.
const ENTRY_OVERHEAD_BYTES: u64 = 96;

/// The key-value tables of one node. The module documentation defines the operations.
#[derive(Debug)]
pub struct Store {
    node: NodeId,
    map: Arc<wire::ClusterMap>,
    tables: HashMap<PartitionId, Table, FixedState>,
    used_bytes: u64,
    /// The part of `used_bytes` that remembered batch numbers take.
    numbers_bytes: u64,
    budget_bytes: u64,
    room: Room,
}

#[derive(Debug, Default)]
struct Table {
    /// The number of batches that changed the table.
    version: u64,
    entries: HashMap<Box<[u8]>, Entry, FixedState>,
    numbers: Numbers,
}

#[derive(Clone, Debug)]
struct Entry {
    version: u64,
    value: Bytes,
}

impl Entry {
    fn cost_bytes(&self, key: &[u8]) -> u64 {
        ENTRY_OVERHEAD_BYTES + key.len() as u64 + self.value.len() as u64
    }
}

impl Store {
    /// An empty store. `map` must have passed [`crate::check_map`].
    #[must_use]
    pub fn new(node: NodeId, map: Arc<wire::ClusterMap>) -> Self {
        let tables = HashMap::with_hasher(FixedState::default());
        Self {
            node,
            map,
            tables,
            used_bytes: 0,
            numbers_bytes: 0,
            budget_bytes: KV_NODE_BYTES_MAX,
            room: Room::default(),
        }
    }

    /// Replaces the memory budget, which is `KV_NODE_BYTES_MAX` by default.
    #[must_use]
    pub fn with_budget(mut self, budget_bytes: u64) -> Self {
        self.budget_bytes = budget_bytes;
        self
    }

    /// Replaces the limits on the numbered batches that each partition remembers.
    #[cfg(test)]
    fn with_room(mut self, room: Room) -> Self {
        self.room = room;
        self
    }

    /// Rebuilds the store from the records of an earlier incarnation. Skips records of other
    /// namespaces.
    pub fn recover(
        node: NodeId,
        map: Arc<wire::ClusterMap>,
        records: impl IntoIterator<Item = Record>,
    ) -> Result<Self, DamagedRecord> {
        let mut store = Self::new(node, map);
        for record in records {
            if matches!(keys::namespace(&record.key), Some(keys::USER | keys::NUMBERS)) {
                store.load(&record)?;
            }
        }
        Ok(store)
    }

    /// Loads one stored record of a key or of a numbered batch. The order of calls does not matter.
    ///
    /// # Panics
    /// When the record belongs to another namespace.
    pub fn load(&mut self, record: &Record) -> Result<(), DamagedRecord> {
        let partition = record.partition;
        let damaged = |reason| DamagedRecord { partition, reason };
        if partition.0 as usize >= self.map.partitions.len() {
            return Err(damaged("the cluster has no such partition"));
        }
        if keys::namespace(&record.key) == Some(keys::NUMBERS) {
            let numbers = &mut self.tables.entry(partition).or_default().numbers;
            let bytes = numbers.load(&record.key, &record.value).map_err(damaged)?;
            self.used_bytes += bytes;
            self.numbers_bytes += bytes;
            return Ok(());
        }
        let [keys::USER, key @ ..] = &record.key[..] else {
            panic!("a record of another namespace was given to the user's store");
        };
        let (version, value) =
            record.value.split_first_chunk::<8>().ok_or_else(|| damaged("it has no version"))?;
        let version = u64::from_le_bytes(*version);
        if version == 0 {
            return Err(damaged("its version is 0"));
        }
        let table = self.tables.entry(partition).or_default();
        table.version = table.version.max(version);
        if key.is_empty() {
            return if value.is_empty() { Ok(()) } else { Err(damaged("the count has a value")) };
        }
        if key_partition(key, self.map.partitions.len() as u32) != partition {
            return Err(damaged("its key belongs to another partition"));
        }
        let entry = Entry { version, value: Bytes::copy_from_slice(value) };
        self.used_bytes += entry.cost_bytes(key);
        if let Some(old) = table.entries.insert(key.into(), entry) {
            self.used_bytes -= old.cost_bytes(key);
        }
        Ok(())
    }

    /// Drops a partition that has another primary from now on.
    pub fn forget(&mut self, partition: PartitionId) {
        let Some(table) = self.tables.remove(&partition) else { return };
        let bytes = table.entries.iter().map(|(key, entry)| entry.cost_bytes(key));
        let numbers_bytes = table.numbers.bytes();
        self.used_bytes -= bytes.sum::<u64>() + numbers_bytes;
        self.numbers_bytes -= numbers_bytes;
    }

    /// Installs a new cluster map.
    pub fn set_map(&mut self, map: Arc<wire::ClusterMap>) {
        assert_eq!(map.partitions.len(), self.map.partitions.len(), "the partitions are fixed");
        self.map = map;
    }

    /// Applies a batch and returns one result per operation. `writes` receives the records that
    /// must be synced before the client gets an answer. On an error no key has changed; the refusal
    /// of a numbered batch is written as well.
    pub fn apply(
        &mut self,
        batch: &wire::KvBatch,
        writes: &mut Vec<Write>,
    ) -> Result<Vec<wire::KvResult>, StoreError> {
        let mut results = Vec::with_capacity(batch.ops.len());
        self.apply_into(batch, writes, &mut results)?;
        Ok(results)
    }

    /// As [`Self::apply`], but appends to `results`. On an error it appends nothing.
    pub fn apply_into(
        &mut self,
        batch: &wire::KvBatch,
        writes: &mut Vec<Write>,
        results: &mut Vec<wire::KvResult>,
    ) -> Result<(), StoreError> {
        let partition = PartitionId(batch.partition);
        self.check_home(partition, batch.epoch)?;
        self.check_limits(batch)?;
        let Self { tables, used_bytes, numbers_bytes, budget_bytes, room, .. } = self;
        let table = tables.entry(partition).or_default();
        if let Some(number) = &batch.number
            && let Some(answer) = table.numbers.answer(number)?
        {
            results.extend(answer);
            return Ok(());
        }
        let left_bytes = budget_bytes.saturating_sub(*used_bytes);
        let before = results.len();
        let outcome = step::run(table, batch, left_bytes, results).map(|outcome| {
            *used_bytes = used_bytes.saturating_add_signed(outcome.grown_bytes);
            outcome.changes.write(table, partition, batch, writes);
        });
        if outcome.is_err() {
            results.truncate(before);
        }
        if let Some(number) = &batch.number {
            let told = outcome.is_ok().then_some(&results[before..]);
            let is_scarce = *numbers_bytes >= *budget_bytes / KV_NUMBERS_SHARE;
            let room = if is_scarce { room.scarce() } else { *room };
            let grown = table.numbers.note(partition, number, told, room, writes);
            *used_bytes = used_bytes.saturating_add_signed(grown);
            *numbers_bytes = numbers_bytes.saturating_add_signed(grown);
        }
        outcome
    }

    /// Prefetches the entries that these batches use, before the first batch is applied. Finding a
    /// key follows a chain of dependent memory accesses. Prefetching overlaps the cache misses of
    /// many operations.
    pub fn look_ahead(&self, batches: &[wire::KvBatch]) {
        let tables =
            batches.iter().filter_map(|batch| self.tables.get(&PartitionId(batch.partition)));
        let mut seen: u64 = tables.map(|table| table.version).fold(0, u64::wrapping_add);
        for batch in batches {
            let Some(table) = self.tables.get(&PartitionId(batch.partition)) else { continue };
            for op in &batch.ops {
                let entry = table.entries.get(&op.key[..]);
                let first = entry.and_then(|entry| entry.value.first());
                seen = seen.wrapping_add(first.map_or(0, |&byte| u64::from(byte)));
            }
        }
        std::hint::black_box(seen); // Keeps the compiler from removing the reads.
    }

    /// The version of a key; 0 while the key is absent.
    #[must_use]
    pub fn version(&self, partition: PartitionId, key: &[u8]) -> u64 {
        self.entry(partition, key).map_or(0, |entry| entry.version)
    }

    /// The result of a lookup.
    #[must_use]
    pub fn lookup(&self, partition: PartitionId, key: &[u8]) -> wire::KvResult {
        step::looked_up(self.entry(partition, key))
    }

    /// The state of a key for a watcher that last saw `seen_version` (0: absent). `None` if the key
    /// has not changed since.
    #[must_use]
    pub fn changed_since(
        &self,
        partition: PartitionId,
        key: &[u8],
        seen_version: u64,
    ) -> Option<wire::KvResult> {
        let entry = self.entry(partition, key);
        // Compares for inequality, because a removal resets the version to 0.
        let now = entry.map_or(0, |entry| entry.version);
        (now != seen_version).then(|| step::looked_up(entry))
    }

    /// Refuses a request to the wrong node, or one that a client made with a map of another epoch.
    pub fn check_home(&self, partition: PartitionId, epoch: u64) -> Result<(), StoreError> {
        let entry = self.own_entry(partition)?;
        if entry.epoch != epoch {
            return Err(StoreError::WrongEpoch { partition, told: epoch, current: entry.epoch });
        }
        Ok(())
    }

    fn own_entry(&self, partition: PartitionId) -> Result<&wire::PartitionEntry, StoreError> {
        let entry = self.map.partitions.get(partition.0 as usize);
        let entry = entry.ok_or(StoreError::NoPartition { partition })?;
        if home(&self.map, partition) != Some(self.node) {
            return Err(StoreError::WrongOwner { partition, node: self.node });
        }
        if !entry.active {
            return Err(StoreError::NotActive { partition });
        }
        Ok(entry)
    }

    /// Checks that this node can watch the key: it is primary, and the key belongs to the
    /// partition.
    pub fn check_watch(&self, partition: PartitionId, key: &[u8]) -> Result<(), StoreError> {
        self.own_entry(partition)?;
        if key_partition(key, self.map.partitions.len() as u32) != partition {
            return Err(StoreError::WrongPartition { at: 0, partition: partition.0 });
        }
        Ok(())
    }

    /// The number of keys in all partitions of this node.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tables.values().map(|table| table.entries.len()).sum()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tables.values().all(|table| table.entries.is_empty())
    }

    /// The memory that keys, values, batch numbers and their overhead take.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    fn entry(&self, partition: PartitionId, key: &[u8]) -> Option<&Entry> {
        self.tables.get(&partition)?.entries.get(key)
    }

    fn check_limits(&self, batch: &wire::KvBatch) -> Result<(), StoreError> {
        if batch.ops.len() > KV_OPS_MAX {
            return Err(StoreError::TooManyOps { ops: batch.ops.len() });
        }
        let partitions = self.map.partitions.len() as u32;
        for (op, at) in batch.ops.iter().zip(0..) {
            if op.key.is_empty() {
                return Err(StoreError::EmptyKey { at });
            }
            if op.key.len() > KEY_BYTES_MAX {
                return Err(StoreError::KeyTooLong { at, bytes: op.key.len() });
            }
            let bytes = op.value.len().max(op.expected.len());
            if bytes > VALUE_BYTES_MAX {
                return Err(StoreError::ValueTooLong { at, bytes });
            }
            if key_partition(&op.key, partitions).0 != batch.partition {
                return Err(StoreError::WrongPartition { at, partition: batch.partition });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod numbers_tests;
#[cfg(test)]
mod tests;
