//! The bounds of this folder.

use proto::Span;
use proto::limits::FRAGMENT_BYTES;
use proto::limits::MESSAGE_BYTES_MAX;

/// The maximum number of reliable messages in one packet, and of unacknowledged messages on a link.
pub(super) const PACKET_MESSAGES_MAX: usize = 256;
pub(super) const LINK_WINDOW_MESSAGES: usize = 1024;
/// The maximum number of messages that are kept after a gap.
pub(super) const LINK_REORDER_MESSAGES_MAX: usize = 1024;
pub(super) const RETRANSMIT_AFTER: Span = Span::from_millis(300);
pub(super) const RETRANSMIT_AFTER_MAX: Span = Span::from_secs(5);
const _: () = assert!(FRAGMENT_BYTES * LINK_WINDOW_MESSAGES > MESSAGE_BYTES_MAX);
