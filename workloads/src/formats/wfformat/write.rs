//! Writes WfFormat 1.5, task by task.

use std::io::{Result, Write};

use hashbrown::{HashMap, HashSet};
use proto::Time;
use proto::wire::spec::Body;
use serde_json::{Value, json};

use crate::graph::{Graph, TaskView, expand};

/// The record of a workflow's run, for a WfFormat instance.
#[derive(Clone, Debug)]
pub struct Run {
    /// The time of the submission.
    pub started: Time,
    pub makespan_s: f64,
    /// The name and version of the runtime system.
    pub system: (String, String),
    pub machines: Vec<Machine>,
    /// By task; `None` for tasks that never finished.
    pub tasks: Vec<Option<TaskRun>>,
}

/// A node of the run.
#[derive(Clone, Debug)]
pub struct Machine {
    /// The host name.
    pub name: String,
    pub slots: u32,
    /// 0: unknown.
    pub memory_bytes: u64,
    pub architecture: String,
    /// The kernel release.
    pub release: String,
}

/// The attempt of a task that counted.
#[derive(Clone, Debug, Default)]
pub struct TaskRun {
    pub started: Time,
    pub runtime_s: f64,
    /// The index among the run's machines.
    pub machine: usize,
    pub read_bytes: u64,
    pub written_bytes: u64,
    /// The actual sizes of outputs; empty if they are as declared.
    pub output_sizes: Vec<u64>,
}

/// The graph as WfFormat 1.5, with its run if there is one. Properties outside the format
/// (environment, retries, limits, empty arguments) are left out. Outputs without a file name get
/// one from the task, and characters outside the schema become `_`.
pub(crate) fn write(graph: &Graph, run: Option<&Run>, out: &mut dyn Write) -> Result<()> {
    let writer = Writer { graph, run, names: Named::new(graph) };
    writeln!(out, "{{")?;
    writeln!(out, "  \"name\": {},", Value::from(non_empty(graph.name(), "workflow")))?;
    if let Some(run) = run {
        let (name, version) = &run.system;
        let created = run.started.utc();
        writeln!(out, "  \"createdAt\": {},", Value::from(created))?;
        let system = json!({"name": name, "version": version});
        writeln!(out, "  \"runtimeSystem\": {system},")?;
    }
    writeln!(out, "  \"schemaVersion\": \"1.5\",")?;
    writeln!(out, "  \"workflow\": {{\n    \"specification\": {{")?;
    list(out, "tasks", graph.tasks().map(|task| writer.specified(&task)))?;
    writeln!(out, ",")?;
    list(out, "files", writer.files())?;
    write!(out, "\n    }}")?;
    let ran = |task: &TaskView<'_>| run.is_none_or(|run| run.tasks[task.index as usize].is_some());
    // A list of runs may not be empty.
    if graph.tasks().any(|task| ran(&task)) {
        let makespan_s = run.map_or(0.0, |run| run.makespan_s);
        let at = run.map_or_else(|| "unknown".to_owned(), |run| run.started.utc());
        writeln!(out, ",\n    \"execution\": {{")?;
        writeln!(out, "      \"makespanInSeconds\": {},", Value::from(makespan_s))?;
        writeln!(out, "      \"executedAt\": {},", Value::from(at))?;
        list(out, "tasks", graph.tasks().filter(ran).map(|task| writer.executed(&task)))?;
        if let Some(run) = run {
            writeln!(out, ",")?;
            list(out, "machines", run.machines.iter().map(machine))?;
        }
        write!(out, "\n    }}")?;
    }
    writeln!(out, "\n  }}\n}}")
}

/// One element per line.
fn list(out: &mut dyn Write, key: &str, elements: impl Iterator<Item = Value>) -> Result<()> {
    write!(out, "      \"{key}\": [")?;
    for (number, element) in elements.enumerate() {
        let comma = if number > 0 { "," } else { "" };
        write!(out, "{comma}\n        {element}")?;
    }
    write!(out, "\n      ]")
}

fn non_empty<'t>(text: &'t str, other: &'t str) -> &'t str {
    if text.is_empty() { other } else { text }
}

fn machine(machine: &Machine) -> Value {
    let mut row = json!({
        "system": "linux",
        "architecture": non_empty(&machine.architecture, "unknown"),
        "release": non_empty(&machine.release, "unknown"),
        "nodeName": machine.name,
        "cpu": {"coreCount": machine.slots},
    });
    if machine.memory_bytes > 0 {
        row["memoryInBytes"] = machine.memory_bytes.into();
    }
    row
}

/// Unique names that the schema allows.
struct Named {
    ids: Vec<String>,
    /// By task and output.
    outputs: Vec<Vec<String>>,
    /// Files from outside, by their name in the graph, with their sizes.
    externals: HashMap<String, (String, u64), foldhash::fast::FixedState>,
}

type Seen = HashSet<String, foldhash::fast::FixedState>;

impl Named {
    fn new(graph: &Graph) -> Self {
        let mut seen = Seen::default();
        let id = |task: u32| {
            let name = allowed(&graph.task_name(task), "_-.#");
            distinct(&mut seen, name, |name| format!("{name}-{task}"))
        };
        let ids: Vec<String> = graph.indices().map(id).collect();
        let mut seen = Seen::default();
        let mut outputs = Vec::with_capacity(graph.len());
        for task in graph.tasks() {
            let id = &ids[task.index as usize];
            let file = |output: &proto::wire::Output| {
                let file = allowed(&expand(&output.file, task.entry), "_-.#/:");
                distinct(&mut seen, file, |file| format!("{id}.{file}"))
            };
            outputs.push(task.spec.outputs.iter().map(file).collect());
        }
        let mut externals = HashMap::default();
        for task in graph.tasks() {
            for external in &task.spec.externals {
                let name = expand(&external.file, task.entry);
                externals.entry(name).or_insert_with_key(|name| {
                    let file = allowed(name, "_-.#/:");
                    let file = distinct(&mut seen, file, |file| format!("in.{file}"));
                    (file, external.size_bytes)
                });
            }
        }
        Self { ids, outputs, externals }
    }
}

/// The text with `_` for each character that is neither alphanumeric nor in `also`.
fn allowed(text: &str, also: &str) -> String {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || also.contains(c);
    non_empty(text, "_").chars().map(|c| if is_allowed(c) { c } else { '_' }).collect()
}

fn distinct(seen: &mut Seen, mut name: String, other: impl Fn(&str) -> String) -> String {
    while !seen.insert(name.clone()) {
        name = other(&name);
    }
    name
}

struct Writer<'g> {
    graph: &'g Graph,
    run: Option<&'g Run>,
    names: Named,
}

impl Writer<'_> {
    fn specified(&self, task: &TaskView<'_>) -> Value {
        let Self { graph, names, .. } = self;
        let related = |mut tasks: Vec<u32>| -> Vec<Value> {
            tasks.sort_unstable();
            tasks.dedup();
            tasks.into_iter().map(|task| names.ids[task as usize].as_str().into()).collect()
        };
        let parents = related(graph.parents(task.index).map(|edge| edge.task).collect());
        let children = related(graph.children(task.index).map(|edge| edge.task).collect());
        let objects = graph.parents(task.index).filter(|edge| edge.output > 0);
        let mut inputs: Vec<&str> = objects
            .map(|edge| names.outputs[edge.task as usize][edge.output as usize - 1].as_str())
            .collect();
        let external = |name: String| names.externals[&name].0.as_str();
        let externals = task.spec.externals.iter();
        inputs.extend(externals.map(|file| external(expand(&file.file, task.entry))));
        let name = graph.task_name(task.index);
        json!({
            "name": non_empty(&name, "_"), "id": names.ids[task.index as usize],
            "parents": parents, "children": children,
            "inputFiles": inputs, "outputFiles": names.outputs[task.index as usize],
        })
    }

    fn files(&self) -> impl Iterator<Item = Value> {
        let row = |file: &str, size_bytes: u64| json!({"id": file, "sizeInBytes": size_bytes});
        let written = self.graph.indices().flat_map(move |task| {
            let ran = self.task_run(task);
            let files = self.names.outputs[task as usize].iter().enumerate();
            files.map(move |(output, file)| {
                let came_out = ran.and_then(|ran| ran.output_sizes.get(output).copied());
                row(file, came_out.unwrap_or_else(|| self.graph.output_bytes(task, output)))
            })
        });
        let mut externals: Vec<&(String, u64)> = self.names.externals.values().collect();
        externals.sort_unstable();
        written.chain(externals.into_iter().map(move |(file, size_bytes)| row(file, *size_bytes)))
    }

    fn task_run(&self, task: u32) -> Option<&TaskRun> {
        self.run.and_then(|run| run.tasks[task as usize].as_ref())
    }

    fn executed(&self, task: &TaskView<'_>) -> Value {
        let ran = self.task_run(task.index);
        let mut row = json!({
            "id": self.names.ids[task.index as usize],
            "runtimeInSeconds": ran.map_or(task.duration_ns as f64 / 1e9, |ran| ran.runtime_s),
            "coreCount": self.graph.cpus(task.index),
        });
        if task.spec.memory_bytes > 0 {
            row["memoryInBytes"] = task.spec.memory_bytes.into();
        }
        if let (Some(run), Some(ran)) = (self.run, ran) {
            row["executedAt"] = ran.started.utc().into();
            row["readBytes"] = ran.read_bytes.into();
            row["writtenBytes"] = ran.written_bytes.into();
            row["machines"] = json!([run.machines[ran.machine].name]);
        }
        if let Some(Body::Command(command)) = &task.spec.body {
            let argv: Vec<String> =
                command.argv.iter().map(|arg| expand(arg, task.entry)).collect();
            if let Some((program, arguments)) = argv.split_first() {
                let arguments: Vec<&String> =
                    arguments.iter().filter(|argument| !argument.is_empty()).collect();
                row["command"] = json!({"program": program, "arguments": arguments});
            }
        } else if !task.spec.kind.is_empty() {
            row["command"] = json!({"program": task.spec.kind, "arguments": []});
        }
        row
    }
}
