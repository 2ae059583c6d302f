//! The replicas that one node keeps: the position of each, its promised epoch, and its latest
//! changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message as _;
use proto::PartitionId;
use proto::marks::{Mark, mark};
use proto::wire::{self, SnapshotChunk};

use super::recent::{self, Recent};
use super::{Position, position};
use crate::{Batch, DamagedRecord, Record, Write};

/// The key, within its partition, of the record with the replica's state.
const RECORD: &[u8] = b"mcopy";

/// The reason why a replica refused a change.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The replica has promised a later epoch to another primary.
    Promised { epoch: u64 },
    /// The change does not follow the replica's position.
    Elsewhere { at: Position },
    /// The change belongs to a snapshot transfer that this replica has not begun.
    NotInstalling,
}

/// The state of one replica.
#[derive(Debug, Default)]
struct Copy {
    position: Position,
    installing_snapshot: bool,
    promised: u64,
}

/// The replicas of one node, including those of which it is primary.
#[derive(Debug, Default)]
pub struct Copies {
    all: BTreeMap<PartitionId, Copy>,
    recent: Recent,
}

impl Copies {
    /// Loads the record of a replica's state. Skips other records.
    pub fn load(&mut self, record: &Record) -> Result<(), DamagedRecord> {
        if record.key != RECORD {
            return Ok(());
        }
        let partition = record.partition;
        let damaged = DamagedRecord { partition, reason: "the position of its copy" };
        let state = wire::ReplicaRecord::decode(record.value.as_slice()).map_err(|_| damaged)?;
        let copy = self.all.entry(partition).or_default();
        copy.position = position(state.position.as_ref());
        copy.installing_snapshot = state.installing_snapshot;
        copy.promised = state.promised;
        Ok(())
    }

    /// The position of the replica; the initial position if it is unknown.
    #[must_use]
    pub fn position(&self, partition: PartitionId) -> Position {
        self.all.get(&partition).map_or_else(Position::default, |copy| copy.position)
    }
    /// True during a snapshot transfer, while records are missing.
    #[must_use]
    pub fn is_installing_snapshot(&self, partition: PartitionId) -> bool {
        self.all.get(&partition).is_some_and(|copy| copy.installing_snapshot)
    }
    #[must_use]
    pub fn promised(&self, partition: PartitionId) -> u64 {
        self.all.get(&partition).map_or(0, |copy| copy.promised)
    }

    /// Promises to refuse changes of earlier epochs. The promise holds once the batch is synced.
    pub fn promise(&mut self, partition: PartitionId, epoch: u64, batch: &mut Batch) {
        let copy = self.all.entry(partition).or_default();
        if copy.promised < epoch {
            copy.promised = epoch;
            batch.writes.push(copy.record(partition));
        }
    }

    /// Numbers the writes of the primary of `epoch` to a partition, and adds the new position to
    /// the batch.
    pub fn advance(
        &mut self,
        partition: PartitionId,
        epoch: u64,
        mut writes: Vec<wire::RecordWrite>,
        batch: &mut Batch,
    ) -> Arc<wire::Change> {
        let copy = self.all.entry(partition).or_default();
        assert!(!copy.installing_snapshot, "{partition} has a primary with half its records");
        let before = copy.position;
        copy.position = Position { epoch: epoch.max(before.epoch), seq: before.seq + 1 };
        writes.shrink_to_fit();
        let change = Arc::new(wire::Change {
            partition: partition.0,
            epoch,
            before: Some(before.into()),
            after: Some(copy.position.into()),
            snapshot_chunk: SnapshotChunk::NoChunk as i32,
            writes,
        });
        batch.writes.push(copy.record(partition));
        self.recent.add(partition, Arc::clone(&change));
        change
    }

    /// Adds a primary's change to the batch, or returns the reason for the refusal.
    pub fn take(&mut self, change: &Arc<wire::Change>, batch: &mut Batch) -> Result<(), Refused> {
        let partition = PartitionId(change.partition);
        let copy = self.all.entry(partition).or_default();
        if change.epoch < copy.promised {
            mark(Mark::ChangeOfEarlier);
            return Err(Refused::Promised { epoch: copy.promised });
        }
        let after = position(change.after.as_ref());
        match change.snapshot_chunk() {
            SnapshotChunk::NoChunk => {
                if copy.installing_snapshot || copy.position != position(change.before.as_ref()) {
                    mark(Mark::ChangeElsewhere);
                    return Err(Refused::Elsewhere { at: copy.position });
                }
                copy.position = after;
                match recent::is_kept(change) {
                    true => self.recent.add(partition, recent::of_its_own(change)),
                    false => self.recent.forget(partition),
                }
            }
            SnapshotChunk::First => {
                batch.clear(partition);
                (copy.position, copy.installing_snapshot) = (Position::default(), true);
                self.recent.forget(partition);
            }
            SnapshotChunk::More | SnapshotChunk::Last if !copy.installing_snapshot => {
                return Err(Refused::NotInstalling);
            }
            SnapshotChunk::More => {}
            SnapshotChunk::Last => (copy.position, copy.installing_snapshot) = (after, false),
        }
        batch.writes.extend(change.writes.iter().map(|write| Write {
            partition,
            key: write.key.to_vec(),
            value: (!write.removed).then(|| write.value.to_vec()),
        }));
        if change.snapshot_chunk() != SnapshotChunk::More {
            batch.writes.push(copy.record(partition));
        }
        Ok(())
    }

    /// Deletes the records of a replica. The promise stays, and the replica accepts only a new
    /// snapshot transfer.
    pub fn give_up(&mut self, partition: PartitionId, epoch: u64, batch: &mut Batch) {
        let Some(copy) = self.all.get_mut(&partition) else { return };
        if copy.installing_snapshot
            && copy.position == Position::default()
            && copy.promised >= epoch
        {
            return;
        }
        mark(Mark::CopyGivenUp);
        batch.clear(partition);
        (copy.position, copy.installing_snapshot) = (Position::default(), true);
        copy.promised = copy.promised.max(epoch);
        self.recent.forget(partition);
        batch.writes.push(copy.record(partition));
    }

    /// The changes from a position to the present one, if all of them are still in memory.
    #[must_use]
    pub fn since(&self, partition: PartitionId, from: Position) -> Option<Vec<Arc<wire::Change>>> {
        if self.position(partition) == from {
            return Some(Vec::new());
        }
        self.recent.since(partition, |change| position(change.before.as_ref()) == from)
    }
}

impl Copy {
    fn record(&self, partition: PartitionId) -> Write {
        let state = wire::ReplicaRecord {
            position: Some(self.position.into()),
            installing_snapshot: self.installing_snapshot,
            promised: self.promised,
        };
        Write { partition, key: RECORD.to_vec(), value: Some(state.encode_to_vec()) }
    }
}

/// The stored state of a replica, for checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyState {
    pub position: Position,
    /// All records are present.
    pub is_whole: bool,
    pub promised: u64,
}

impl Default for CopyState {
    /// The initial state: nothing was replicated, and nothing is missing.
    fn default() -> Self {
        Self { position: Position::default(), is_whole: true, promised: 0 }
    }
}

/// Decodes the state of a replica if `key` is the key of that record.
#[must_use]
pub fn copy_record(key: &[u8], value: &[u8]) -> Option<CopyState> {
    let state = wire::ReplicaRecord::decode(value).ok().filter(|_| is_own_record(key))?;
    let position = position(state.position.as_ref());
    Some(CopyState { position, is_whole: !state.installing_snapshot, promised: state.promised })
}

/// The key of the record with a replica's state.
#[must_use]
pub fn own_key() -> &'static [u8] {
    RECORD
}

/// True for the key of the replica's own state. It is never sent; each replica writes its own.
#[must_use]
pub fn is_own_record(key: &[u8]) -> bool {
    key == RECORD
}

#[cfg(test)]
#[path = "copies_tests.rs"]
mod tests;
