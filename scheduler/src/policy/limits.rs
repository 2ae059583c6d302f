//! The bounds of this folder.

use proto::Span;

/// The longest wait or interval that a user may set.
pub(super) const TUNED_SPAN_MAX: Span = Span::from_secs(86_400);
/// FLDS counts the tasks that ended within this window, and checks its queue at this interval.
pub(super) const THROUGHPUT_WINDOW: Span = Span::from_secs(10);
pub(super) const MONITOR_INTERVAL: Span = Span::from_millis(100);
/// The maximum number of tasks that a monitor moves from the local to the shared queue in one step.
pub(super) const STEP_SHIFTS_MAX: usize = 4096;
/// ADAPTIVE compares transfers with work over this window. It keeps a policy for at least as long,
/// doubled with each change up to the maximum.
pub(super) const ADAPT_WINDOW: Span = Span::from_secs(2);
pub(super) const ADAPT_DWELL_MAX: Span = Span::from_secs(128);
