//! The bounds of this crate.

/// The number of records of runs that stay; older ones are removed.
pub(crate) const RECORDS_KEPT: usize = 20;
