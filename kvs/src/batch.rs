//! What one step of a node writes, atomically.

use proto::PartitionId;

/// One write to one partition. `key` begins with a namespace byte (see [`crate::keys`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    pub partition: PartitionId,
    pub key: Vec<u8>,
    /// `None` removes the key.
    pub value: Option<Vec<u8>>,
}

/// All writes of one step. They reach the log together or not at all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    /// Grows by one with each batch of an incarnation.
    pub seq: u64,
    pub writes: Vec<Write>,
}

/// A stored record, as recovery reads it: by partition, then by key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    pub partition: PartitionId,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}
