//! WfFormat, the JSON of recorded workflows: schema 1.0 to 1.6.
//!
//! `file_graph.rs` defines the meaning of recorded tasks and their files.

mod schema;
mod write;

use crate::formats::detect::LoadOptions;
use crate::formats::deviations::Deviations;
use crate::formats::error::Problem;
use crate::formats::text::{Misread, Source};
use crate::graph::Graph;
pub(crate) use write::write;
pub use write::{Machine, Run, TaskRun};

/// The versions of the schema that are read.
pub const VERSIONS: [&str; 7] = ["1.0", "1.1", "1.2", "1.3", "1.4", "1.5", "1.6"];

/// Reads a workflow; `name` is the default name.
pub(crate) fn read(
    source: &mut Source<'_>,
    name: &str,
    options: &LoadOptions,
    deviations: &Deviations,
) -> Result<Graph, Misread> {
    let (graph, own) = schema::read(source, deviations)?;
    graph.finish(own.as_deref().filter(|own| !own.is_empty()).unwrap_or(name), options)
}

pub(crate) fn json_error(error: &serde_json::Error) -> Misread {
    let text = error.to_string();
    // Separates the place from the sentence.
    let place = format!(" at line {} column {}", error.line(), error.column());
    let reason = text.strip_suffix(&place).unwrap_or(&text);
    let reason = reason.replace("EOF while parsing", "the text ends within");
    let problem = match error.classify() {
        serde_json::error::Category::Data => Problem::NotAWorkflow { reason },
        serde_json::error::Category::Io => return Problem::Unreadable { reason }.into(),
        _ => Problem::Syntax { reason: format!("broken JSON: {reason}") },
    };
    Misread { at: Some((error.line(), error.column())), problem }
}
