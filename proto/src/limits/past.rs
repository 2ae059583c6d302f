//! Of what is kept of ended jobs.

use crate::Span;

/// How long the home of an ended job waits for what the nodes did for it.
pub const PARTS_PATIENCE: Span = Span::from_secs(10);
/// Nodes that are told apart in a summary; those that did least are told together.
pub const PARTS_KEPT_MAX: usize = 64;
/// Buckets of the busy time in a summary.
pub const BUSY_KEPT_MAX: usize = 64;
/// Jobs of which a node counts what it does, or did until their homes have stored it.
pub const TALLIES_MAX: usize = 4096;
/// In a larger cluster nodes are not told of the beginning of a job: of what they do as a whole
/// nothing is known then.
pub const BEGINNINGS_NODES_MAX: usize = 1024;
