//! The bounds of this folder.

use proto::Span;

/// A snapshot transfer sends pages of this size, one at a time for each replica. One node sends at
/// most `COPIES_FILLING_MAX` snapshots at a time.
pub(super) const COPY_PAGE_BYTES: usize = 256 << 10;
pub(super) const COPIES_FILLING_MAX: usize = 8;
/// The other members promise nothing to another primary for this long after the request. Clocks may
/// differ in speed by a tenth.
pub(super) const LEASE_GIVEN: Span = Span::from_millis(375);
/// A change refused by a replica of a partition that has another primary by now is settled by that
/// primary or by the map. If that takes longer than this, the node restarts, which settles it.
pub(super) const REFUSAL_TIMEOUT: Span = Span::from_secs(5);
