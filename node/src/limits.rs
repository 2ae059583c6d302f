//! The bounds of this crate.

use proto::Span;

/// The number of steps waiting for replicas above which a node accepts no further writes.
pub(crate) const STEPS_HELD_MAX: usize = 4096;
pub(crate) const STEPS_HELD_RETRY: Span = Span::from_millis(100);
