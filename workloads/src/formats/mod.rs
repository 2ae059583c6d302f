//! Readers and writers of workflow texts.

mod alibaba;
pub(crate) mod command;
mod dax;
pub(crate) mod detect;
mod deviations;
mod dot;
pub(crate) mod error;
mod estee;
mod file_graph;
mod json_guard;
mod names;
mod recorded;
mod stg;
mod swf;
mod text;
pub(crate) mod toml_file;
mod unicode;
mod weighted;
pub mod wfformat;
pub(crate) mod write;
