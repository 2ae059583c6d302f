//! Bounds of the acknowledgements between replicas.

use crate::time::Span;

/// A replica acknowledges that it has logged a change only if the sync that a client waits for
/// takes longer than this. The acknowledgement of the sync implies the other one.
pub const LOGGED_REPORT_AFTER: Span = Span::from_millis(2);
