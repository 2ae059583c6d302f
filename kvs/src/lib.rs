//! The zero-hop store: map, ring, partitions, operations, batches, recovery.
mod batch;
pub use batch::{Batch, Record, Write};
