//! What verbs read from a running cluster.

pub mod kept_outputs;
pub mod logs;
pub mod made;
pub mod survival;
mod unpack;
