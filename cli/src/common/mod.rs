//! Settings, errors, output and units for all verbs.

pub(crate) mod allocator;
pub(crate) mod selector;
pub(crate) mod settings_file;
pub(crate) mod summary;
