//! The user's keys and values of the partitions this node is home of, all in memory.
//!
//! **A batch** lies in one partition and takes effect whole or not at all. Its operations see the
//! effect of those before them in the batch.
//!
//! | operation | does | status |
//! |---|---|---|
//! | insert | sets the value | `OK` |
//! | lookup | answers the value | `OK`, or `ABSENT` |
//! | remove | removes the key | `OK`, or `ABSENT` when there was none |
//! | append | adds to the end; an absent key counts as empty | `OK` |
//! | cas | sets the value if the key holds what is expected | `OK`, or `CONFLICT` |
//!
//! A cas expects the bytes of `expected`, or with `expect_absent` that the key is absent.
//! The first `CONFLICT` undoes the batch: its result tells the value and version found, every
//! other result is `ABORTED`. `ABSENT` undoes nothing. An error undoes the batch as well.
//!
//! **Versions.** A partition counts the batches that changed it; a key's version is that count when
//! it last changed, and 0 while it is absent. Every result tells the version of its key after the
//! operation. A version is never used twice, not even across removal and restart: a batch that
//! removes writes the count down too. So a watcher that compares versions misses no last state.
//!
//! **Once.** A batch with a number takes effect at most once, see [`numbers`].
//!
//! **On disk** a value is its version (u64, little-endian) followed by the user's bytes, under
//! [`crate::keys::user`]; the count of a partition is the record of the empty user key.

mod error;
mod numbers;
mod step;

use std::sync::Arc;

use bytes::Bytes;
use foldhash::fast::FixedState;
use hashbrown::HashMap;
use proto::limits::{
    KEY_BYTES_MAX, KV_NODE_BYTES_MAX, KV_NUMBERS_SHARE, KV_OPS_MAX, VALUE_BYTES_MAX,
};
use proto::{NodeId, PartitionId, wire};

pub use error::{DamagedRecord, StoreError};

use crate::{Record, Write, home, key_partition, keys};
use numbers::{Numbers, Room};

/// What an entry costs beside its key and value: table slot, allocations, version.
const ENTRY_OVERHEAD_BYTES: u64 = 96;

/// The user's tables of one node. See the head of this file for what each operation means.
#[derive(Debug)]
pub struct Store {
    node: NodeId,
    map: Arc<wire::ClusterMap>,
    tables: HashMap<PartitionId, Table, FixedState>,
    used_bytes: u64,
    /// Of that, for numbers of batches.
    numbers_bytes: u64,
    budget_bytes: u64,
    room: Room,
}

#[derive(Debug, Default)]
struct Table {
    /// How many batches have changed it.
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
    /// An empty store. `map` has passed [`crate::check_map`].
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

    /// With another bound on memory than [`KV_NODE_BYTES_MAX`].
    #[must_use]
    pub fn with_budget(mut self, budget_bytes: u64) -> Self {
        self.budget_bytes = budget_bytes;
        self
    }

    /// With other bounds on what each partition remembers of numbered batches.
    #[cfg(test)]
    fn with_room(mut self, room: Room) -> Self {
        self.room = room;
        self
    }

    /// The store that an earlier incarnation's records describe; records of other namespaces are
    /// passed over.
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

    /// Takes one stored record of a key or of a numbered batch back in, in any order.
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

    /// Another node is home of the partition from now on.
    pub fn forget(&mut self, partition: PartitionId) {
        let Some(table) = self.tables.remove(&partition) else { return };
        let bytes = table.entries.iter().map(|(key, entry)| entry.cost_bytes(key));
        let numbers_bytes = table.numbers.bytes();
        self.used_bytes -= bytes.sum::<u64>() + numbers_bytes;
        self.numbers_bytes -= numbers_bytes;
    }

    /// Who holds what has changed.
    pub fn set_map(&mut self, map: Arc<wire::ClusterMap>) {
        assert_eq!(map.partitions.len(), self.map.partitions.len(), "the partitions are fixed");
        self.map = map;
    }

    /// Applies a batch: one result per operation, and in `writes` what must be in the log (and
    /// synced, before the client is told). On an error no key has changed; that a numbered batch
    /// was refused is written too.
    pub fn apply(
        &mut self,
        batch: &wire::KvBatch,
        writes: &mut Vec<Write>,
    ) -> Result<Vec<wire::KvResult>, StoreError> {
        let mut results = Vec::with_capacity(batch.ops.len());
        self.apply_into(batch, writes, &mut results)?;
        Ok(results)
    }

    /// As [`Self::apply`], with the results behind others; on an error there are none more.
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

    /// Looks at all that a request is about, before any of it is done. Each operation finds its key
    /// through several places in memory, each of which tells the next; so what is in no cache comes
    /// for many operations at the same time, and not for one after the other.
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
        std::hint::black_box(seen); // Nobody wants it: to have looked is all.
    }

    /// The version of a key, 0 while it is absent.
    #[must_use]
    pub fn version(&self, partition: PartitionId, key: &[u8]) -> u64 {
        self.entry(partition, key).map_or(0, |entry| entry.version)
    }

    /// What a lookup would answer.
    #[must_use]
    pub fn lookup(&self, partition: PartitionId, key: &[u8]) -> wire::KvResult {
        step::looked_up(self.entry(partition, key))
    }

    /// What to tell a watcher that last saw the key at `seen_version` (0: absent); `None` when that
    /// is still its state.
    #[must_use]
    pub fn changed_since(
        &self,
        partition: PartitionId,
        key: &[u8],
        seen_version: u64,
    ) -> Option<wire::KvResult> {
        let entry = self.entry(partition, key);
        // Unequal, not greater: a removal takes the version back to 0.
        let now = entry.map_or(0, |entry| entry.version);
        (now != seen_version).then(|| step::looked_up(entry))
    }

    /// Refuses a request that went to the wrong node or was made with another epoch's map.
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

    /// Whether changes of this key are seen here.
    pub fn check_watch(&self, partition: PartitionId, key: &[u8]) -> Result<(), StoreError> {
        self.own_entry(partition)?;
        if key_partition(key, self.map.partitions.len() as u32) != partition {
            return Err(StoreError::WrongPartition { at: 0, partition: partition.0 });
        }
        Ok(())
    }

    /// How many keys this node holds.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tables.values().map(|table| table.entries.len()).sum()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.tables.values().all(|table| table.entries.is_empty())
    }

    /// Keys, values and their overhead in memory.
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
