//! Versions that programs of different releases must agree on.

/// The version of the files that nodes and clients share in an instance directory.
pub const FORMAT_VERSION: u32 = 1;
/// The version of calls between clients and nodes. Fields are only ever added.
pub const CALL_VERSION: u32 = 1;
/// The version of messages between the nodes of one cluster, which replicate each other's records.
pub const PEER_VERSION: u32 = 2;
/// The version of a node's state directory that a node writes, and the versions that it reads.
pub const STATE_VERSION: u32 = 2;
pub const STATE_VERSIONS_READ: [u32; 2] = [1, STATE_VERSION];
