//! The bounds of this folder.

use proto::Span;

/// The maximum election delay after the connection to the leader broke, or before the first leader.
pub(super) const GROUP_ELECTION_SOON: Span = Span::from_millis(150);
/// The maximum time of a term, up to doubled at random, if terms fail because votes sync slowly.
pub(super) const GROUP_ELECTION_SLOW: Span = Span::from_secs(8);
/// The number of entries after which a snapshot replaces the log.
pub(super) const GROUP_LOG_ENTRIES_MAX: u64 = 256;
/// The maximum number of entries in one message, and of proposals in one entry.
pub(super) const GROUP_APPEND_ENTRIES_MAX: usize = 64;
pub(super) const GROUP_ENTRY_COMMANDS_MAX: usize = 1024;
