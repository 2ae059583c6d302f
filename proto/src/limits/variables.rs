//! Variables of jobs.

use crate::Span;

/// The maximum number of variables of a job, and the longest name.
pub const VARIABLES_MAX: usize = 16;
pub const VARIABLE_NAME_BYTES_MAX: usize = 64;
/// The longest text of a variable, and the longest witness.
pub const VARIABLE_TEXT_BYTES_MAX: usize = 1024;
pub const WITNESS_BYTES_MAX: usize = 4096;
/// A node repeats values that are not known to be synced after this time.
pub const VARIABLE_AGAIN: Span = Span::from_secs(1);
/// A command waits this long for the home of its job to say which variables there are.
pub const VARIABLE_PATIENCE: Span = Span::from_secs(10);
