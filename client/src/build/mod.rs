//! The description of work: specs of tasks, and graphs of them.

mod graph;
mod spec;

pub use graph::{GraphBuilder, GraphTask};
pub use spec::TaskSpec;
