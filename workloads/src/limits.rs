//! The bounds of this crate.

use proto::limits::CHUNK_BYTES_MAX;

/// A workflow in a client's memory. The paper simulates 128M tasks.
pub(crate) const GRAPH_TASKS_MAX: usize = 1 << 27;
pub(crate) const GRAPH_EDGES_MAX: usize = 1 << 28;
/// The maximum size of one task description. A chunk must hold a description and one task.
pub(crate) const SPEC_BYTES_MAX: usize = 2 << 20;
const _: () = assert!(SPEC_BYTES_MAX < CHUNK_BYTES_MAX);
/// The maximum size of one line in line-based formats, and of one name or value.
pub(crate) const WORKFLOW_LINE_BYTES_MAX: usize = 32 << 20;
pub(crate) const WORKFLOW_WORD_BYTES_MAX: usize = 1 << 20;

/// The size of an unpacked text that is read as a whole: this, and so much for each packed byte.
/// Workflow texts shrink to a tenth or a twentieth.
pub(crate) const UNPACKED_BYTES_MIN: u64 = 16 << 20;
pub(crate) const UNPACKED_RATIO_MAX: u64 = 32;
