//! The bounds of this folder.

use proto::Span;

/// A node that was late itself multiplies its timeouts up to this factor.
pub(super) const TIMEOUT_STRETCH_MAX: u64 = 4;
/// The interval at which a node repeats proposals that the map does not show.
pub(super) const PROPOSE_AGAIN: Span = Span::from_millis(500);
pub(super) const PROPOSALS_MAX: usize = 4096;
/// The leader declares a node slow, or well, after reports of `SLOW_REPORTS_MIN` other nodes, or of
/// all that can report if they are fewer. A report counts for `SLOW_REPORT_KEPT`.
pub(super) const SLOW_REPORTS_MIN: usize = 2;
pub(super) const SLOW_REPORT_KEPT: Span = Span::from_secs(3);
pub(super) const SLOW_REPORTS_KEPT_MAX: usize = 4096;
pub(super) const MAP_ASK_AGAIN: Span = Span::from_millis(300);
/// The leader sends each change to at most this number of members without a vote. The others
/// receive it from members.
pub(super) const MAP_UPDATES_SENT_MAX: usize = 64;
/// The number of commands that a node keeps for members with an older map.
pub(super) const MAP_COMMANDS_KEPT_MAX: usize = 1024;
