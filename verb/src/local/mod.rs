//! Clusters on this machine.

pub mod embed;
pub mod plan;
pub mod processes;
mod run_dir;
