//! Bounds of what is said of copies.

use crate::time::Span;

/// A copy that syncs at once, as a client waits, says that it has logged a change only if the sync
/// takes longer than this: the acknowledgement says more.
pub const LOGGED_REPORT_AFTER: Span = Span::from_millis(2);
