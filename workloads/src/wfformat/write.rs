//! Writes WfFormat 1.5.

use serde_json::{Value, json};

use crate::graph::{Graph, TaskView, expand};

/// The graph as WfFormat 1.5. What the format cannot say (environment, retries, limits) is left
/// out; outputs without a file name of their own get one from the task.
pub(crate) fn write(graph: &Graph) -> String {
    let names = crate::write::unique_names(graph);
    let files = crate::write::output_files(graph, &names);
    let mut specified = Vec::with_capacity(graph.len());
    let mut executed = Vec::with_capacity(graph.len());
    let mut file_table: Vec<Value> = Vec::new();
    let mut externals = std::collections::BTreeSet::new();
    for task in graph.tasks() {
        let name = &names[task.index as usize];
        let related = |tasks: Vec<u32>| {
            let mut tasks = tasks;
            tasks.sort_unstable();
            tasks.dedup();
            tasks.into_iter().map(|task| Value::from(names[task as usize].as_str())).collect()
        };
        let parents: Vec<Value> = related(graph.parents(task.index).map(|e| e.task).collect());
        let children: Vec<Value> = related(graph.children(task.index).map(|e| e.task).collect());
        let mut inputs: Vec<String> = graph
            .parents(task.index)
            .filter(|edge| edge.output > 0)
            .map(|edge| files[edge.task as usize][edge.output as usize - 1].clone())
            .collect();
        for external in &task.spec.externals {
            let file = expand(&external.file, task.entry);
            if externals.insert(file.clone()) {
                file_table.push(json!({"id": file, "sizeInBytes": external.size_bytes}));
            }
            inputs.push(file);
        }
        let outputs = &files[task.index as usize];
        for (output, file) in outputs.iter().enumerate() {
            let size_bytes = graph.output_bytes(task.index, output);
            file_table.push(json!({"id": file, "sizeInBytes": size_bytes}));
        }
        specified.push(json!({
            "name": name, "id": name, "parents": parents, "children": children,
            "inputFiles": inputs, "outputFiles": outputs,
        }));
        executed.push(execution(graph, &task, name));
    }
    let document = json!({
        "name": graph.name(),
        "schemaVersion": "1.5",
        "workflow": {
            "specification": {"tasks": specified, "files": file_table},
            "execution": {"makespanInSeconds": 0, "executedAt": "", "tasks": executed},
        },
    });
    let mut text = serde_json::to_string_pretty(&document).expect("JSON values have text");
    text.push('\n');
    text
}

fn execution(graph: &Graph, task: &TaskView<'_>, name: &str) -> Value {
    let mut row = json!({
        "id": name,
        "runtimeInSeconds": task.duration_ns as f64 / 1e9,
        "coreCount": graph.cpus(task.index),
    });
    if task.spec.memory_bytes > 0 {
        row["memoryInBytes"] = task.spec.memory_bytes.into();
    }
    if let Some(proto::wire::spec::Body::Command(command)) = &task.spec.body {
        let argv: Vec<String> = command.argv.iter().map(|arg| expand(arg, task.entry)).collect();
        if let Some((program, arguments)) = argv.split_first() {
            row["command"] = json!({"program": program, "arguments": arguments});
        }
    } else if !task.spec.kind.is_empty() {
        row["command"] = json!({"program": task.spec.kind, "arguments": []});
    }
    row
}
