//! Replicas of partitions: the position of each, the changes sent to it, and the changes that every
//! replica is known to have.
//!
//! The primary of a partition orders and numbers its changes. A [`Position`] counts them and names
//! the epoch of the primary that made the last one. A [`wire::Change`] contains the position that
//! it follows and the position that it leads to. A replica applies it only at exactly the former
//! position ([`Copies`]). So replicas at equal positions hold equal records, even if messages were
//! lost, repeated, or sent by a former primary. The position is a record of the partition, written
//! with the change.
//!
//! A primary sends nothing that depends on a batch before every member of the configuration has
//! that batch ([`Shipping`]). This is primary-backup with write-all, as in PacificA (Lin, Yang,
//! Zhang, Zhang and Zhou, "PacificA: Replication in Log-Based Distributed Storage Systems", 2008).
//!
//! A new primary first makes every other member promise its epoch durably. From then on they refuse
//! changes of earlier epochs, so the previous primary cannot complete another batch.

mod copies;
mod recent;
mod shipping;

pub use copies::{Copies, CopyState, Refused, copy_record, is_own_record, own_key};
pub use shipping::Shipping;

use proto::wire;

/// The position of a replica in the history of its partition.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Position {
    /// The epoch of the primary that made the last change; 0 if nothing was ever replicated.
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

/// Converts a position. An absent one on the wire is the initial position.
#[must_use]
pub fn position(told: Option<&wire::Position>) -> Position {
    told.map(Position::from).unwrap_or_default()
}
