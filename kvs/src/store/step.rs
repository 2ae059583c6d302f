//! Applies one batch to one table in place, and undoes it after a conflict or an error.

use bytes::{Bytes, BytesMut};
use hashbrown::hash_map::EntryRef;
use proto::PartitionId;
use proto::limits::{KV_REPLY_BYTES_MAX, VALUE_BYTES_MAX};
use proto::wire::{KvBatch, KvKind, KvOp, KvResult, KvStatus};

use super::{Entry, StoreError, Table};
use crate::{Write, keys};

/// The effect of a batch on the table. After a conflict it is empty.
pub(super) struct Outcome {
    pub(super) changes: Changes,
    pub(super) grown_bytes: i64,
}

/// The operations that were the first to touch their key, and whether the batch removed a key. A
/// removal requires a write of the partition's count.
#[derive(Default)]
pub(super) struct Changes {
    touched: Vec<usize>,
    removed: bool,
}

/// The reason why a batch stopped before its end.
enum Stop {
    Conflict(KvResult),
    Refused(StoreError),
}

struct Step<'a> {
    table: &'a mut Table,
    version: u64,
    /// The previous entry for the first touch of each key, with the index of the operation.
    undo: Vec<(usize, Option<Entry>)>,
    grown_bytes: i64,
    reply_bytes: usize,
    removed: bool,
}

/// Runs a batch that has passed all checks that need no table. Appends its results to `results`.
/// After an error the caller discards them.
pub(super) fn run(
    table: &mut Table,
    batch: &KvBatch,
    left_bytes: u64,
    results: &mut Vec<KvResult>,
) -> Result<Outcome, StoreError> {
    let version = table.version + 1;
    let mut step =
        Step { table, version, undo: Vec::new(), grown_bytes: 0, reply_bytes: 0, removed: false };
    let before = results.len();
    for (at, op) in batch.ops.iter().enumerate() {
        match step.run(at, op) {
            Ok(result) => results.push(result),
            Err(Stop::Conflict(result)) => {
                step.roll_back(batch);
                results.truncate(before);
                conflict(batch.ops.len(), at, result, results);
                return Ok(Outcome { changes: Changes::default(), grown_bytes: 0 });
            }
            Err(Stop::Refused(error)) => {
                step.roll_back(batch);
                return Err(error);
            }
        }
    }
    if step.grown_bytes > 0 && step.grown_bytes.unsigned_abs() > left_bytes {
        step.roll_back(batch);
        return Err(StoreError::Full { left_bytes });
    }
    if !step.undo.is_empty() {
        step.table.version = version;
    }
    let touched = step.undo.iter().map(|&(at, _)| at).collect();
    let changes = Changes { touched, removed: step.removed };
    Ok(Outcome { changes, grown_bytes: step.grown_bytes })
}

fn conflict(ops: usize, at: usize, result: KvResult, results: &mut Vec<KvResult>) {
    let aborted = KvResult { status: KvStatus::Aborted as i32, ..KvResult::default() };
    let first = results.len();
    results.resize(first + ops, aborted);
    results[first + at] = result;
}

pub(super) fn looked_up(entry: Option<&Entry>) -> KvResult {
    match entry {
        None => KvResult { status: KvStatus::Absent as i32, ..KvResult::default() },
        Some(entry) => KvResult {
            status: KvStatus::Ok as i32,
            value: entry.value.clone(),
            version: entry.version,
        },
    }
}

impl Step<'_> {
    fn run(&mut self, at: usize, op: &KvOp) -> Result<KvResult, Stop> {
        let kind = KvKind::try_from(op.kind)
            .map_err(|_| Stop::Refused(StoreError::UnknownKind { at, kind: op.kind }))?;
        match kind {
            KvKind::Lookup => self.lookup(at, op),
            KvKind::Insert => Ok(self.set(at, op, Bytes::copy_from_slice(&op.value))),
            KvKind::Append => self.append(at, op),
            KvKind::Remove => Ok(self.remove(at, op)),
            KvKind::Cas => self.compare_and_swap(at, op),
        }
    }

    fn lookup(&mut self, at: usize, op: &KvOp) -> Result<KvResult, Stop> {
        let result = looked_up(self.table.entries.get(&op.key[..]));
        self.answer(at, result)
    }

    /// Adds the size of the result's value to the reply size. One frame must hold all results.
    fn answer(&mut self, at: usize, result: KvResult) -> Result<KvResult, Stop> {
        self.reply_bytes += result.value.len();
        if self.reply_bytes > KV_REPLY_BYTES_MAX {
            return Err(Stop::Refused(StoreError::ReplyTooLong { at }));
        }
        Ok(result)
    }

    fn compare_and_swap(&mut self, at: usize, op: &KvOp) -> Result<KvResult, Stop> {
        let entry = self.table.entries.get(&op.key[..]);
        let as_expected = match entry {
            None => op.expect_absent,
            Some(entry) => !op.expect_absent && entry.value == op.expected,
        };
        if !as_expected {
            let found = looked_up(entry);
            return Err(Stop::Conflict(KvResult { status: KvStatus::Conflict as i32, ..found }));
        }
        Ok(self.set(at, op, Bytes::copy_from_slice(&op.value)))
    }

    fn append(&mut self, at: usize, op: &KvOp) -> Result<KvResult, Stop> {
        let Some(entry) = self.table.entries.get_mut(&op.key[..]) else {
            return Ok(self.set(at, op, Bytes::copy_from_slice(&op.value)));
        };
        let bytes = entry.value.len() + op.value.len();
        if bytes > VALUE_BYTES_MAX {
            return Err(Stop::Refused(StoreError::ValueTooLong { at, bytes }));
        }
        // From the second append to a key in one batch on, the batch is the only owner of the bytes
        // and extends them in place. Small appends to a long value thus take linear time.
        let own = entry.version == self.version;
        let old = if own { std::mem::take(&mut entry.value) } else { entry.value.clone() };
        let mut longer = old.try_into_mut().unwrap_or_else(|shared| {
            let mut copy = BytesMut::with_capacity(bytes);
            copy.extend_from_slice(&shared);
            copy
        });
        longer.extend_from_slice(&op.value);
        if !own {
            return Ok(self.set(at, op, longer.freeze()));
        }
        entry.value = longer.freeze();
        self.grown_bytes += op.value.len() as i64;
        Ok(done(self.version))
    }

    fn set(&mut self, at: usize, op: &KvOp, value: Bytes) -> KvResult {
        let entry = Entry { version: self.version, value };
        self.grown_bytes += entry.cost_bytes(&op.key) as i64;
        let old = match self.table.entries.entry_ref(&op.key[..]) {
            EntryRef::Occupied(mut place) => Some(place.insert(entry)),
            EntryRef::Vacant(place) => {
                place.insert_with_key(op.key[..].into(), entry);
                None
            }
        };
        self.remember(at, op, old);
        done(self.version)
    }

    fn remove(&mut self, at: usize, op: &KvOp) -> KvResult {
        let Some(old) = self.table.entries.remove(&op.key[..]) else {
            return looked_up(None);
        };
        self.removed = true;
        self.remember(at, op, Some(old));
        done(0)
    }

    fn remember(&mut self, at: usize, op: &KvOp, old: Option<Entry>) {
        if let Some(old) = &old {
            self.grown_bytes -= old.cost_bytes(&op.key) as i64;
            // An earlier operation of this batch made the entry and recorded its previous state.
            if old.version == self.version {
                return;
            }
        }
        self.undo.push((at, old));
    }

    fn roll_back(self, batch: &KvBatch) {
        for (at, old) in self.undo.into_iter().rev() {
            let key = &batch.ops[at].key[..];
            match old {
                None => drop(self.table.entries.remove(key)),
                Some(old) => drop(self.table.entries.insert(key.into(), old)),
            }
        }
    }
}

fn done(version: u64) -> KvResult {
    KvResult { status: KvStatus::Ok as i32, value: Bytes::new(), version }
}

impl Changes {
    /// Writes the final state of each touched key once.
    pub(super) fn write(
        self,
        table: &Table,
        partition: PartitionId,
        batch: &KvBatch,
        writes: &mut Vec<Write>,
    ) {
        let key_of = |at: usize| &batch.ops[at].key[..];
        let mut touched = self.touched;
        if self.removed {
            // Only a removed key can appear twice among the first touches.
            touched.sort_unstable_by_key(|&at| key_of(at));
            touched.dedup_by_key(|at| key_of(*at));
            writes.push(Write {
                partition,
                key: keys::user(b""),
                value: Some(table.version.to_le_bytes().to_vec()),
            });
        }
        writes.extend(touched.into_iter().map(key_of).map(|key| Write {
            partition,
            key: keys::user(key),
            value: table.entries.get(key).map(stored_value),
        }));
    }
}

fn stored_value(entry: &Entry) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(8 + entry.value.len());
    bytes.extend_from_slice(&entry.version.to_le_bytes());
    bytes.extend_from_slice(&entry.value);
    bytes
}
