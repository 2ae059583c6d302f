//! WfFormat, the JSON of recorded workflows: schema 1.0 to 1.6.
//!
//! A recorded task becomes a sleep of its runtime. Its output files become its objects with their
//! recorded sizes. A file that another task writes is a data edge, whether or not that task is
//! listed as a parent; a listed parent that shares no file only orders. Files nobody writes exist
//! before the run.

mod schema;
mod write;

use std::io::Read as _;

use hashbrown::{HashMap, HashSet};
use proto::wire;

use crate::builder::{GraphBuilder, TaskInit};
use crate::detect::LoadOptions;
use crate::error::Problem;
use crate::graph::Graph;
use crate::recorded;
use crate::text::{Misread, Source};
use schema::{Document, Head, Record};
pub(crate) use write::write;

/// Versions of the schema that are read.
pub const VERSIONS: [&str; 7] = ["1.0", "1.1", "1.2", "1.3", "1.4", "1.5", "1.6"];

type FixedState = foldhash::fast::FixedState;

/// Reads a workflow; `name` is for one that has none.
pub(crate) fn read(
    source: &mut Source<'_>,
    name: &str,
    options: &LoadOptions,
) -> Result<Graph, Misread> {
    let mut bytes = Vec::new();
    source.read_to_end(&mut bytes)?;
    let head: Head = serde_json::from_slice(&bytes).map_err(|error| json_error(&error))?;
    let version = head.version().ok_or_else(|| {
        let reason = "the JSON has no schemaVersion".to_owned();
        Problem::NotAWorkflow { reason }
    })?;
    if !VERSIONS.contains(&version.as_str()) {
        return Err(Problem::UnknownSchema { version }.into());
    }
    let document: Document = serde_json::from_slice(&bytes).map_err(|error| json_error(&error))?;
    let own = document.name.clone().filter(|name| !name.is_empty());
    let records = document.records()?;
    let name = own.unwrap_or_else(|| name.to_owned());
    Ok(assemble(&name, &records, options)?)
}

pub(crate) fn json_error(error: &serde_json::Error) -> Misread {
    let text = error.to_string();
    // The place is told apart from the sentence.
    let place = format!(" at line {} column {}", error.line(), error.column());
    let reason = text.strip_suffix(&place).unwrap_or(&text).to_owned();
    let problem = match error.classify() {
        serde_json::error::Category::Data => Problem::NotAWorkflow { reason },
        serde_json::error::Category::Io => return Problem::Unreadable { reason }.into(),
        _ => Problem::Syntax { reason: format!("broken JSON: {reason}") },
    };
    Misread { at: Some((error.line(), error.column())), problem }
}

fn assemble(name: &str, records: &[Record], options: &LoadOptions) -> Result<Graph, Problem> {
    let mut numbers: HashMap<&str, u32, FixedState> = HashMap::default();
    let mut writers: HashMap<&str, Vec<(u32, u32)>, FixedState> = HashMap::default();
    for (task, record) in records.iter().enumerate() {
        let task = task as u32;
        if numbers.insert(&record.id, task).is_some() {
            return Err(Problem::DuplicateTask { task: record.id.clone() });
        }
        for (output, file) in record.outputs.iter().enumerate() {
            writers.entry(&file.name).or_default().push((task, output as u32));
        }
    }
    let declared = declared_edges(records, &numbers)?;
    let mut builder = GraphBuilder::new(name);
    builder.reserve(records.len(), declared.len());
    let mut data_edges: Vec<(u32, u32, u32)> = Vec::new();
    for (task, record) in records.iter().enumerate() {
        let task = task as u32;
        let mut spec = spec(record, options);
        for file in &record.inputs {
            let from = sources(task, &file.name, &writers, &declared);
            for &(parent, output) in &from {
                data_edges.push((parent, task, output + 1));
                spec.inputs.push(wire::Input { key: file.name.clone(), file: inside(&file.name) });
            }
            if from.is_empty() {
                spec.externals.push(wire::External {
                    key: file.name.clone(),
                    path: String::new(),
                    file: inside(&file.name),
                    size_bytes: file.size_bytes,
                    staged: false,
                });
            }
        }
        let spec = builder.spec(spec);
        let duration_ns = duration_ns(record)?;
        builder.task(TaskInit { duration_ns, ..TaskInit::of(spec) });
    }
    for (parent, child, output) in data_edges {
        builder.edge(parent, child, output);
    }
    let mut ordered: Vec<(u32, u32)> = declared.into_iter().collect();
    ordered.sort_unstable_by_key(|(parent, child)| (*child, *parent));
    for (parent, child) in ordered {
        builder.edge(parent, child, 0);
    }
    Ok(builder.finish()?)
}

type Pairs = HashSet<(u32, u32), FixedState>;

fn declared_edges(
    records: &[Record],
    numbers: &HashMap<&str, u32, FixedState>,
) -> Result<Pairs, Problem> {
    let mut declared = Pairs::default();
    for (task, record) in records.iter().enumerate() {
        let task = task as u32;
        let find = |other: &String, list: &'static str| {
            numbers.get(other.as_str()).copied().ok_or_else(|| Problem::UnknownTask {
                task: record.id.clone(),
                parent: other.clone(),
                list,
            })
        };
        for parent in &record.parents {
            declared.insert((find(parent, "parents")?, task));
        }
        for child in &record.children {
            declared.insert((task, find(child, "children")?));
        }
    }
    Ok(declared)
}

/// The tasks whose output the file is, as (task, output). Where several write it, those that are
/// declared as parents; a task never waits for itself.
fn sources(
    task: u32,
    file: &str,
    writers: &HashMap<&str, Vec<(u32, u32)>, FixedState>,
    declared: &Pairs,
) -> Vec<(u32, u32)> {
    let Some(writers) = writers.get(file) else { return Vec::new() };
    let mut others = writers.clone();
    others.retain(|(writer, _)| *writer != task);
    if others.len() > 1 && others.iter().any(|(writer, _)| declared.contains(&(*writer, task))) {
        others.retain(|(writer, _)| declared.contains(&(*writer, task)));
    }
    others
}

fn spec(record: &Record, options: &LoadOptions) -> wire::Spec {
    let outputs = record.outputs.iter().map(|file| wire::Output {
        key: file.name.clone(),
        file: inside(&file.name),
        size_bytes: file.size_bytes,
        keep: false,
    });
    wire::Spec {
        kind: record.kind.clone(),
        name: record.id.clone(),
        cpus: if options.recorded_cores { record.cores } else { 1 },
        memory_bytes: if options.recorded_cores { record.memory_bytes } else { 0 },
        body: Some(wire::spec::Body::Sleep(wire::Sleep {})),
        outputs: outputs.collect(),
        ..wire::Spec::default()
    }
}

/// A recorded path as one that stays inside a task's directory.
fn inside(name: &str) -> String {
    let is_plain = |part: &&str| !matches!(*part, "" | "." | "..");
    let parts: Vec<&str> = name.split('/').filter(is_plain).collect();
    if parts.is_empty() { "file".to_owned() } else { parts.join("/") }
}

fn duration_ns(record: &Record) -> Result<u64, Problem> {
    recorded::duration_ns(record.runtime_s).map_err(|reason| Problem::BadTask {
        task: record.id.clone(),
        reason,
        hint: None,
    })
}
