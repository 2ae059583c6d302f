//! What programs of different times must have in common.

/// Of the files in an instance directory that nodes and clients share.
pub const FORMAT_VERSION: u32 = 1;
/// Of calls between clients and nodes: fields are only ever added.
pub const CALL_VERSION: u32 = 1;
/// Of what the nodes of one cluster say to each other; they copy each other's records.
pub const PEER_VERSION: u32 = 2;
/// Of a node's state directory: what a node writes, and all that it reads.
pub const STATE_VERSION: u32 = 2;
pub const STATE_VERSIONS_READ: [u32; 2] = [1, STATE_VERSION];
