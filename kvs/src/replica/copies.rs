//! The copies one node keeps: where each stands, what it has promised, and its latest changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message as _;
use proto::PartitionId;
use proto::marks::{Mark, mark};
use proto::wire::{self, SnapshotChunk};

use super::recent::{self, Recent};
use super::{Position, position};
use crate::{Batch, DamagedRecord, Record, Write};

/// The key, within its partition, of what a store says of its copy.
const RECORD: &[u8] = b"mcopy";

/// Why a change was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// A later epoch was promised to another primary.
    Promised { epoch: u64 },
    /// It does not follow on what is here.
    Elsewhere { at: Position },
    /// It is part of a snapshot that was never begun here.
    NotInstalling,
}

/// One copy of a partition.
#[derive(Debug, Default)]
struct Copy {
    position: Position,
    installing_snapshot: bool,
    promised: u64,
}

/// The copies of one node, those of which it is primary among them.
#[derive(Debug, Default)]
pub struct Copies {
    all: BTreeMap<PartitionId, Copy>,
    recent: Recent,
}

impl Copies {
    /// Takes what the store says of a copy; other records are passed over.
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

    /// Where the copy stands; the beginning for one that is not known.
    #[must_use]
    pub fn position(&self, partition: PartitionId) -> Position {
        self.all.get(&partition).map_or_else(Position::default, |copy| copy.position)
    }
    /// Its records are not complete.
    #[must_use]
    pub fn is_installing_snapshot(&self, partition: PartitionId) -> bool {
        self.all.get(&partition).is_some_and(|copy| copy.installing_snapshot)
    }
    #[must_use]
    pub fn promised(&self, partition: PartitionId) -> u64 {
        self.all.get(&partition).map_or(0, |copy| copy.promised)
    }

    /// Promises to take nothing more from primaries of earlier epochs; it counts when the batch is
    /// synced.
    pub fn promise(&mut self, partition: PartitionId, epoch: u64, batch: &mut Batch) {
        let copy = self.all.entry(partition).or_default();
        if copy.promised < epoch {
            copy.promised = epoch;
            batch.writes.push(copy.record(partition));
        }
    }

    /// Numbers what the primary of `epoch` writes to a partition, and adds its new position.
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

    /// Takes a primary's change into the batch, or tells why not.
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

    /// The records go; the promise stays, and nothing but a snapshot is taken any more.
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

    /// The changes that lead from a position to the present one, if all of them are still at hand.
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

/// What a store says of a copy: for checks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CopyState {
    pub position: Position,
    /// Its records are complete.
    pub is_whole: bool,
    pub promised: u64,
}

impl Default for CopyState {
    /// Nothing was ever copied, and nothing is missing.
    fn default() -> Self {
        Self { position: Position::default(), is_whole: true, promised: 0 }
    }
}

/// What a store says of a copy, if that is what is under this key.
#[must_use]
pub fn copy_record(key: &[u8], value: &[u8]) -> Option<CopyState> {
    let state = wire::ReplicaRecord::decode(value).ok().filter(|_| is_own_record(key))?;
    let position = position(state.position.as_ref());
    Some(CopyState { position, is_whole: !state.installing_snapshot, promised: state.promised })
}

/// The key of what a store says of a copy.
#[must_use]
pub fn own_key() -> &'static [u8] {
    RECORD
}

/// Whether a stored key is the copy's own: it is never shipped, each copy writes its own.
#[must_use]
pub fn is_own_record(key: &[u8]) -> bool {
    key == RECORD
}

#[cfg(test)]
#[path = "copies_tests.rs"]
mod tests;
