//! Writes graphs as text, for `workload make` and `workload convert`.

use hashbrown::HashSet;

use crate::graph::{Graph, expand};

/// A text format for graphs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OutputFormat {
    WfFormat,
    Toml,
    Dot,
}

impl std::str::FromStr for OutputFormat {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "wfformat" | "json" => Ok(Self::WfFormat),
            "toml" => Ok(Self::Toml),
            "dot" => Ok(Self::Dot),
            _ => Err(format!("unknown format '{text}': known are wfformat, toml, dot")),
        }
    }
}

impl OutputFormat {
    /// The format for a file's extension: `.json`, `.toml`, `.dot` or `.gv`.
    #[must_use]
    pub fn of_path(path: &std::path::Path) -> Option<Self> {
        match path.extension()?.to_str()? {
            "json" => Some(Self::WfFormat),
            "toml" => Some(Self::Toml),
            "dot" | "gv" => Some(Self::Dot),
            _ => None,
        }
    }
}

/// The graph as text.
#[must_use]
pub fn write(graph: &Graph, format: OutputFormat) -> String {
    let mut text = Vec::new();
    write_to(graph, format, &mut text).expect("memory takes every write");
    String::from_utf8(text).expect("all formats are text")
}

/// Writes the graph as text. WfFormat is written incrementally.
///
/// # Errors
/// The output cannot be written.
pub fn write_to(
    graph: &Graph,
    format: OutputFormat,
    out: &mut dyn std::io::Write,
) -> std::io::Result<()> {
    match format {
        OutputFormat::WfFormat => crate::formats::wfformat::write(graph, None, out),
        OutputFormat::Toml => out.write_all(crate::formats::toml_file::write(graph).as_bytes()),
        OutputFormat::Dot => out.write_all(dot(graph).as_bytes()),
    }
}

/// Writes a run of the graph as an instance in WfFormat 1.5.
///
/// # Errors
/// The output cannot be written.
///
/// # Panics
/// When the run has not one entry for each task, or names a machine that it does not have.
pub fn write_run(
    graph: &Graph,
    run: &crate::formats::wfformat::Run,
    out: &mut dyn std::io::Write,
) -> std::io::Result<()> {
    assert_eq!(run.tasks.len(), graph.len(), "an entry for each task");
    crate::formats::wfformat::write(graph, Some(run), out)
}

/// Graphviz: a node per task with its duration, an edge per pair of tasks with its bytes. `size` is
/// for SimGrid: flops, here at 1e9 flop/s, and bytes.
fn dot(graph: &Graph) -> String {
    use std::fmt::Write as _;
    let names = unique_names(graph);
    let mut text = format!("digraph {} {{\n", quote(graph.name()));
    for task in graph.tasks() {
        let duration = crate::graph::quantity::format_duration_ns(task.duration_ns);
        let name = &names[task.index as usize];
        let label = quote(&format!("{name}\n{duration}"));
        let flops = task.duration_ns;
        writeln!(text, "  {} [size=\"{flops}\", label={label}];", quote(name))
            .expect("strings take text");
    }
    for child in graph.indices() {
        let mut bytes = std::collections::BTreeMap::new();
        for edge in graph.parents(child) {
            *bytes.entry(edge.task).or_insert(0_u64) += graph.edge_bytes(edge.task, edge.output);
        }
        for (parent, bytes) in bytes {
            let (from, to) = (quote(&names[parent as usize]), quote(&names[child as usize]));
            let size = match bytes {
                0 => String::new(),
                bytes => format!(" [size=\"{bytes}\", label=\"{bytes} B\"]"),
            };
            writeln!(text, "  {from} -> {to}{size};").expect("strings take text");
        }
    }
    text.push_str("}\n");
    text
}

fn quote(text: &str) -> String {
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("\"{escaped}\"")
}

/// The tasks' names, made unique by appended numbers.
pub(crate) fn unique_names(graph: &Graph) -> Vec<String> {
    let mut seen: HashSet<String, foldhash::fast::FixedState> = HashSet::default();
    let unique = |task: u32| {
        let mut name = graph.task_name(task);
        while !seen.insert(name.clone()) {
            name = format!("{name}-{task}");
        }
        name
    };
    graph.indices().map(unique).collect()
}

/// The files that each task writes, by output. The task's name is added to a file name that is
/// already used.
pub(crate) fn output_files(graph: &Graph, names: &[String]) -> Vec<Vec<String>> {
    let mut seen: HashSet<String, foldhash::fast::FixedState> = HashSet::default();
    let mut files = Vec::with_capacity(graph.len());
    for task in graph.tasks() {
        let unique = |output: &proto::wire::Output| {
            let mut file = expand(&output.file, task.entry);
            while !seen.insert(file.clone()) {
                file = format!("{}.{file}", names[task.index as usize]);
            }
            file
        };
        files.push(task.spec.outputs.iter().map(unique).collect());
    }
    files
}
