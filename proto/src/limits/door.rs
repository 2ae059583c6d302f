//! Bounds of a node's door: the local socket by which running commands reach their node.

/// The length of the secret of an attempt.
pub const DOOR_TOKEN_BYTES: usize = 16;
/// The size of one frame. It is checked before memory is taken.
pub const DOOR_FRAME_BYTES_MAX: usize = 1 << 20;
