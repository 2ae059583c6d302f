//! Events between tasks.

/// The largest event.
pub const EVENT_BYTES_MAX: usize = 64 << 10;
/// The maximum number of events of one turn, and of their bytes.
pub const TURN_EVENTS_MAX: usize = 1024;
pub const TURN_EVENT_BYTES_MAX: usize = 1 << 20;
/// The number of events in one mailbox from which on it is full.
pub const MAILBOX_EVENTS_MAX: usize = 10_000;
