//! Bounds of views and of run records.

/// The number of separate nodes, and of pairs of nodes between which data moved. Beyond it
/// neighbours share a sum.
pub const VIEW_NODES_MAX: usize = 256;
pub const VIEW_LINKS_MAX: usize = 4096;
/// The number of separate kinds of tasks in a view; further ones are added together.
pub const VIEW_KINDS_MAX: usize = 64;
