//! The bounds of this folder.

use proto::Span;
use proto::limits::{FRAME_BYTES_MAX, MESSAGE_BYTES_MAX, PACKET_BYTES_MAX};

/// Larger messages are sent in fragments of this size.
pub(super) const FRAGMENT_BYTES: usize = 2 << 20;
/// A node sends its load to a peer at most this often.
pub(super) const LOAD_INTERVAL: Span = Span::from_millis(10);

/// The maximum number of reliable messages in one packet, and of unacknowledged messages on a link.
pub(super) const PACKET_MESSAGES_MAX: usize = 256;
pub(super) const LINK_WINDOW_MESSAGES: usize = 1024;
/// The maximum number of messages that are kept after a gap.
pub(super) const LINK_REORDER_MESSAGES_MAX: usize = 1024;
pub(super) const RETRANSMIT_AFTER: Span = Span::from_millis(300);
pub(super) const RETRANSMIT_AFTER_MAX: Span = Span::from_secs(5);
const _: () = assert!(PACKET_BYTES_MAX + FRAGMENT_BYTES < FRAME_BYTES_MAX);
const _: () = assert!(FRAGMENT_BYTES * LINK_WINDOW_MESSAGES > MESSAGE_BYTES_MAX);
