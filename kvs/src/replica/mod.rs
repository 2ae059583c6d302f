//! Copies of partitions: what each holds, what is sent to it, and what every copy is known to have.
//!
//! The primary of a partition orders its changes and numbers them: a [`Position`] counts them and
//! names the epoch of the primary that made the last one. A [`wire::Change`] tells the position it
//! follows and the one it leads to, and a copy takes it only if it stands exactly there
//! ([`Copies`]).
//! So copies at equal positions hold equal records, whatever was lost, repeated or sent by a
//! primary that was one no more. The position is a record of the partition, written with the
//! change.
//!
//! A primary says nothing that depends on a batch before every member of the configuration has it
//! ([`Shipping`]; primary-backup with write-all, as PacificA does it: Lin, Yang, Zhang, Zhang and
//! Zhou, "PacificA: Replication in Log-Based Distributed Storage Systems", 2008).
//!
//! A new primary first has every other member promise its epoch, durably: from then on no change of
//! an earlier one is taken, so the primary before it cannot complete another batch.

mod copies;
mod recent;
mod shipping;

pub use copies::{Copies, CopyState, Refused, copy_record, is_own_record, own_key};
pub use shipping::Shipping;

use proto::wire;

/// Where a copy stands in the history of its partition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Position {
    /// Of the primary that made the last change; 0: nothing was ever copied.
    pub epoch: u64,
    pub seq: u64,
}

impl From<Position> for wire::Position {
    fn from(position: Position) -> Self {
        Self { epoch: position.epoch, seq: position.seq }
    }
}

impl From<&wire::Position> for Position {
    fn from(position: &wire::Position) -> Self {
        Self { epoch: position.epoch, seq: position.seq }
    }
}

/// Absent on the wire is the position of a copy that never was one.
#[must_use]
pub fn position(told: Option<&wire::Position>) -> Position {
    told.map(Position::from).unwrap_or_default()
}
