//! The allocator, job selectors, the settings file, and summaries of runs.

pub(crate) mod allocator;
pub(crate) mod selector;
pub(crate) mod settings_file;
pub(crate) mod summary;
