//! Why a batch was refused, or a record could not be taken back.

use proto::limits::{KEY_BYTES_MAX, KV_OPS_MAX, KV_REPLY_BYTES_MAX, VALUE_BYTES_MAX};
use proto::{NodeId, PartitionId, wire};

/// A batch that changed nothing because it cannot be applied. `at` counts operations from 0.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum StoreError {
    #[error("{node} is not the home of {partition}: ask the home that the map names")]
    WrongOwner { partition: PartitionId, node: NodeId },
    #[error("{partition} is at epoch {current}, not {told}: take the newer map and ask again")]
    WrongEpoch { partition: PartitionId, told: u64, current: u64 },
    #[error("{partition} has no active home at present: ask again in a moment")]
    NotActive { partition: PartitionId },
    #[error("the cluster has no {partition}")]
    NoPartition { partition: PartitionId },
    #[error("operation {at}: its key does not belong to p{partition}: one partition per batch")]
    WrongPartition { at: usize, partition: u32 },
    #[error("operation {at}: kind {kind} is unknown to this version")]
    UnknownKind { at: usize, kind: i32 },
    #[error("operation {at}: the key is empty")]
    EmptyKey { at: usize },
    #[error("operation {at}: the key has {bytes} bytes; at most {KEY_BYTES_MAX} are allowed")]
    KeyTooLong { at: usize, bytes: usize },
    #[error("operation {at}: the value has {bytes} bytes; at most {VALUE_BYTES_MAX} are allowed")]
    ValueTooLong { at: usize, bytes: usize },
    #[error("the batch has {ops} operations; split it: at most {KV_OPS_MAX} are allowed")]
    TooManyOps { ops: usize },
    #[error("the answer exceeds {KV_REPLY_BYTES_MAX} bytes at operation {at}: look fewer keys up")]
    ReplyTooLong { at: usize },
    #[error("no memory for keys and values is left here ({left_bytes} bytes): remove some keys")]
    Full { left_bytes: u64 },
    #[error("a client and a sequence number are at least 1")]
    NumberZero,
    #[error("batch {sequence} of this client may have happened: its number is forgotten here")]
    Forgotten { sequence: u64, ticket: u64 },
    #[error("batch {sequence} of this client was answered before, and the answer is not kept")]
    AnswerUnkept { sequence: u64 },
}

impl StoreError {
    /// How the refusal is told on the wire.
    #[must_use]
    pub fn code(&self) -> wire::ErrorCode {
        match self {
            Self::WrongOwner { .. } | Self::WrongEpoch { .. } => wire::ErrorCode::WrongEpoch,
            Self::NotActive { .. } => wire::ErrorCode::Busy,
            Self::Forgotten { .. } => wire::ErrorCode::Forgotten,
            Self::AnswerUnkept { .. } => wire::ErrorCode::AnswerUnkept,
            _ => wire::ErrorCode::Refused,
        }
    }

    /// The ticket that a new number of the client needs where its number was forgotten.
    #[must_use]
    pub fn ticket(&self) -> u64 {
        if let Self::Forgotten { ticket, .. } = self { *ticket } else { 0 }
    }
}

/// A stored record of the user's namespace makes no sense: this copy is lost.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a stored key-value record of {partition} is damaged: {reason}")]
pub struct DamagedRecord {
    pub partition: PartitionId,
    pub reason: &'static str,
}
