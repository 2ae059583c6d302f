//! Settings, errors, output and units for all verbs.

pub(crate) mod allocator;
pub(crate) mod errors;
pub(crate) mod history;
pub(crate) mod needs;
pub(crate) mod output;
pub(crate) mod pace;
pub(crate) mod path_templates;
pub(crate) mod progress;
pub(crate) mod selector;
pub(crate) mod settings;
pub(crate) mod settings_file;
pub(crate) mod summary;
pub(crate) mod terminal_text;
pub(crate) mod units;
