//! The bounds of this folder.

use proto::Span;

/// A node that gets no answer about an object's location asks the producing node after this.
pub(super) const LOCATE_TIMEOUT: Span = Span::from_secs(2);
/// The maximum number of attempts with outputs that a leaving node transfers at a time. It offers
/// each to one node `HANDOVER_TRIES_MAX` times before the next one. Nodes without space are asked
/// again after `HANDOVER_PAUSE`.
pub(super) const HANDOVERS_AT_A_TIME_MAX: usize = 256;
pub(super) const HANDOVER_TRIES_MAX: u32 = 4;
pub(super) const HANDOVER_PAUSE: Span = Span::from_secs(2);
