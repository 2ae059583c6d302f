//! Variables of jobs.

/// The maximum number of variables of a job, and the longest name.
pub const VARIABLES_MAX: usize = 16;
pub const VARIABLE_NAME_BYTES_MAX: usize = 64;
/// The longest text of a variable, and the longest witness.
pub const VARIABLE_TEXT_BYTES_MAX: usize = 1024;
pub const WITNESS_BYTES_MAX: usize = 4096;
