//! What verbs read from a running cluster.

pub mod kept_outputs;
pub mod logs;
pub mod survival;
mod unpack;
