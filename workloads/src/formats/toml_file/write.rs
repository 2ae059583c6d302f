//! Writes a workflow file with one table per task; arrays are expanded.

use std::fmt::Write as _;
use std::time::Duration;

use proto::wire;

use super::function::{RESULT, SLOT, result_of};
use crate::graph::crash_limit::CrashLimit;
use crate::graph::job_options::JobOptions;
use crate::graph::needs::{PATIENCE, Requested};
use crate::graph::notice::Notice;
use crate::graph::quantity::format_duration_ns;
use crate::graph::{Graph, TaskView, expand};

/// The graph as a workflow file. Reading it yields the same tasks and edges.
pub(crate) fn write(graph: &Graph) -> String {
    let names = crate::formats::write::unique_names(graph);
    let files = crate::formats::write::output_files(graph, &names);
    let mut text = format!("name = {}\n", quote(graph.name()));
    if graph.has_loads() && !graph.clock_starts_after_loads() {
        line(&mut text, "data_load", &quote("clocked"));
    }
    job(&mut text, graph.job_options());
    for task in graph.tasks().filter(|task| !is_upload(task)) {
        text.push_str("\n[[task]]\n");
        line(&mut text, "name", &quote(&names[task.index as usize]));
        if !task.spec.kind.is_empty() {
            line(&mut text, "kind", &quote(&task.spec.kind));
        }
        body(&mut text, &task);
        inputs(&mut text, graph, &task, &files);
        outputs(&mut text, graph, &task, &files[task.index as usize]);
        let mut after: Vec<u32> = graph
            .parents(task.index)
            .filter(|edge| edge.output == 0)
            .map(|edge| edge.task)
            .collect();
        after.sort_unstable();
        if !after.is_empty() {
            let parents = after.iter().map(|parent| quote(&names[*parent as usize]));
            line(&mut text, "after", &list(parents));
        }
        needs(&mut text, &task);
    }
    text
}

fn job(text: &mut String, options: &JobOptions) {
    if *options == JobOptions::default() {
        return;
    }
    text.push_str("\n[job]\n");
    if let Some(at_most) = options.at_most {
        line(text, "at_most", &at_most.to_string());
    }
    let after = options.after.iter().map(|one| quote(&proto::after::text_of(one)));
    let after: Vec<_> = after.collect();
    if !after.is_empty() {
        line(text, "after_job", &list(after.into_iter()));
    }
    let variables = options.variables.iter().map(|one| {
        let rule = proto::variable::text_of_rule(one);
        format!("{} = {}", quote(&one.name), quote(&rule))
    });
    let variables: Vec<_> = variables.collect();
    if !variables.is_empty() {
        line(text, "var", &table(variables.into_iter()));
    }
}

/// True if the task is an uploaded file, which is written as an input of other tasks.
fn is_upload(task: &TaskView<'_>) -> bool {
    matches!(task.spec.body, Some(wire::spec::Body::Upload(_)))
}

fn line(text: &mut String, key: &str, value: &str) {
    writeln!(text, "{key} = {value}").expect("strings take text");
}

fn quote(text: &str) -> String {
    toml::Value::from(text).to_string()
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(", "))
}

fn body(text: &mut String, task: &TaskView<'_>) {
    use wire::spec::Body;
    let fill = |template: &String| quote(&expand(template, task.entry));
    let name = match &task.spec.body {
        Some(Body::Command(command)) => {
            line(text, "command", &list(command.argv.iter().map(fill)));
            if !command.env.is_empty() {
                let pairs = command
                    .env
                    .iter()
                    .map(|env| format!("{} = {}", quote(&env.name), fill(&env.value)));
                line(text, "env", &table(pairs));
            }
            if !command.cwd.is_empty() {
                line(text, "cwd", &fill(&command.cwd));
            }
            if !command.stdin.is_empty() {
                line(text, "stdin", &fill(&command.stdin));
            }
            if task.duration_ns > 0 {
                let estimate = format_duration_ns(task.duration_ns);
                line(text, "duration_estimate", &quote(&estimate));
            }
            return;
        }
        Some(Body::Call(call)) => return function(text, task, call),
        Some(Body::Sleep(_)) => "sleep",
        Some(Body::Spin(_)) => "spin",
        Some(Body::Noop(_) | Body::Upload(_)) | None => "noop",
    };
    line(text, "body", &quote(name));
    if task.duration_ns > 0 {
        line(text, "duration", &quote(&format_duration_ns(task.duration_ns)));
    }
}

/// The function of a task, with its arguments.
fn function(text: &mut String, task: &TaskView<'_>, call: &wire::Call) {
    line(text, "function", &quote(&String::from_utf8_lossy(&call.body)));
    let payload = if task.payload.is_empty() { &call.payload[..] } else { task.payload };
    let mut arguments: serde_json::Value = serde_json::from_slice(payload).unwrap_or_default();
    if let Some(kwargs) = arguments.get_mut("kwargs").map(serde_json::Value::take) {
        line(text, "kwargs", &argument(&kwargs, task));
        arguments = arguments["args"].take();
    }
    line(text, "args", &argument(&arguments, task));
    let runtime = call.runtime.clone().unwrap_or_default();
    if let Some(python) = runtime.argv.first() {
        line(text, "python", &quote(python));
    }
    if !runtime.preload.is_empty() {
        line(text, "preload", &list(runtime.preload.iter().map(|module| quote(module))));
    }
    if !runtime.env.is_empty() {
        let pairs = runtime.env.iter();
        let pairs = pairs.map(|env| format!("{} = {}", quote(&env.name), quote(&env.value)));
        line(text, "env", &table(pairs));
    }
    line(text, "cwd", &quote(&runtime.directory));
}

/// An argument as a value of the file. An input is named by its key.
fn argument(value: &serde_json::Value, task: &TaskView<'_>) -> String {
    use serde_json::Value;
    match value {
        Value::Array(values) => list(values.iter().map(|value| argument(value, task))),
        Value::Object(map) => match map.get(SLOT).and_then(Value::as_u64) {
            Some(slot) => {
                let input = task.spec.inputs.get(slot as usize);
                let key = input.map_or("", |input| input.key.as_str());
                match result_of(key) {
                    Some(name) => {
                        let name = quote(&expand(name, task.entry));
                        format!("{{ \"{RESULT}\" = {name} }}")
                    }
                    None => quote(&format!("{{in:{key}}}")),
                }
            }
            None => {
                let pair = |(key, value): (&String, _)| {
                    format!("{} = {}", quote(key), argument(value, task))
                };
                table(map.iter().map(pair))
            }
        },
        Value::String(text) => quote(text),
        Value::Null => quote(""),
        Value::Bool(_) | Value::Number(_) => value.to_string(),
    }
}

fn table(pairs: impl Iterator<Item = String>) -> String {
    let pairs: Vec<String> = pairs.collect();
    if pairs.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", pairs.join(", ")) }
}

fn inputs(text: &mut String, graph: &Graph, task: &TaskView<'_>, files: &[Vec<String>]) {
    let mut keyed: Vec<(String, Vec<String>)> = Vec::new();
    let mut uploads = Vec::new();
    for edge in graph.parents(task.index).filter(|edge| edge.output > 0) {
        let named = task.spec.inputs.get(edge.slot as usize);
        if named.is_some_and(|input| result_of(&input.key).is_some()) {
            continue; // The arguments name it.
        }
        let key = named.map_or_else(|| "in".to_owned(), |input| input.key.clone());
        let parent = graph.task(edge.task);
        if is_upload(&parent) {
            uploads.push((key, format!("{{ file = {}, upload = true }}", quote(parent.name))));
            continue;
        }
        let file = quote(&files[edge.task as usize][edge.output as usize - 1]);
        match keyed.last_mut().filter(|(last, _)| *last == key) {
            Some((_, list)) => list.push(file),
            None => keyed.push((free_key(&keyed, key), vec![file])),
        }
    }
    let mut pairs: Vec<String> = Vec::new();
    for (key, files) in &keyed {
        let value =
            if let [file] = files.as_slice() { file.clone() } else { list(files.iter().cloned()) };
        pairs.push(format!("{} = {value}", quote(key)));
    }
    for external in &task.spec.externals {
        let key = free_key(&keyed, external.key.clone());
        let value = if external.path.is_empty() {
            let file = quote(&expand(&external.file, task.entry));
            format!("{{ file = {file}, size = \"{}\" }}", external.size_bytes)
        } else if external.staged {
            format!("{{ file = {}, stage = true }}", quote(&expand(&external.path, task.entry)))
        } else {
            quote(&expand(&external.path, task.entry))
        };
        pairs.push(format!("{} = {value}", quote(&key)));
        keyed.push((key, Vec::new()));
    }
    for (key, value) in uploads {
        let key = free_key(&keyed, key);
        pairs.push(format!("{} = {value}", quote(&key)));
        keyed.push((key, Vec::new()));
    }
    if !pairs.is_empty() {
        line(text, "inputs", &table(pairs.into_iter()));
    }
}

/// Makes a key unique in its table.
fn free_key(taken: &[(String, Vec<String>)], key: String) -> String {
    let is_taken = |key: &str| taken.iter().any(|(other, _)| other == key);
    if !is_taken(&key) {
        return key;
    }
    (2..).map(|n| format!("{key}_{n}")).find(|key| !is_taken(key)).expect("numbers do not end")
}

fn outputs(text: &mut String, graph: &Graph, task: &TaskView<'_>, files: &[String]) {
    if files.is_empty() {
        return;
    }
    let pairs = task.spec.outputs.iter().zip(files).enumerate().map(|(at, (output, file))| {
        let size_bytes = graph.output_bytes(task.index, at);
        let word = match output.form() {
            wire::OutputForm::File => "file",
            wire::OutputForm::Directory => "dir",
            wire::OutputForm::Files => "glob",
        };
        let mut value = format!("{word} = {}", quote(file));
        if size_bytes > 0 {
            write!(value, ", size = \"{size_bytes}\"").expect("strings take text");
        }
        if output.keep {
            value.push_str(", keep = true");
        }
        if output.optional {
            value.push_str(", optional = true");
        }
        if output.replicas > 0 {
            write!(value, ", replicas = {}", output.replicas).expect("strings take text");
        }
        format!("{} = {{ {value} }}", quote(&output.key))
    });
    line(text, "outputs", &table(pairs));
}

fn needs(text: &mut String, task: &TaskView<'_>) {
    let spec = task.spec;
    let fill = |template: &String| quote(&expand(template, task.entry));
    let variants = Requested::variants_of(spec);
    if !variants.is_empty() {
        let commands = match &spec.body {
            Some(wire::spec::Body::Command(command)) => &command.variants[..],
            _ => &[],
        };
        let variants: Vec<String> = (0..)
            .zip(&variants)
            .map(|(at, needs)| match commands.iter().find(|it| it.variant == at) {
                Some(own) => {
                    let argv = list(own.argv.iter().map(&fill));
                    format!("{{ needs = {}, command = {argv} }}", quote(needs))
                }
                None => quote(needs),
            })
            .collect();
        line(text, "variants", &format!("[{}]", variants.join(", ")));
        let is_told = |patience: &Duration| *patience != PATIENCE && spec.nodes < 2;
        if let Some(patience) = Requested::patience_of(spec).filter(is_told) {
            let patience_ns = u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX);
            line(text, "patience", &quote(&format_duration_ns(patience_ns)));
        }
    } else {
        // A gang without needs would hold whole nodes.
        if spec.cpus > 1 || spec.nodes > 1 {
            line(text, "cpus", &spec.cpus.max(1).to_string());
        }
        if spec.memory_bytes > 0 {
            let unit = if spec.memory_bytes < 1 << 20 { "B" } else { "" };
            line(text, "memory", &quote(&format!("{}{unit}", spec.memory_bytes)));
        }
    }
    if spec.nodes > 1 {
        line(text, "nodes", &spec.nodes.to_string());
    }
    if spec.priority != 0 {
        line(text, "priority", &spec.priority.to_string());
    }
    if spec.rank > 0 {
        line(text, "rank", &spec.rank.to_string());
    }
    if spec.time_request_ns > 0 {
        line(text, "time_request", &quote(&format_duration_ns(spec.time_request_ns)));
    }
    if spec.retries > 0 {
        line(text, "retries", &spec.retries.to_string());
    }
    if spec.crash_limit > 0 {
        line(text, "crash_limit", &CrashLimit(spec.crash_limit).to_toml());
    }
    if spec.time_limit_ns > 0 {
        line(text, "time_limit", &quote(&format_duration_ns(spec.time_limit_ns)));
    }
    let Some(wire::spec::Body::Command(command)) = &spec.body else { return };
    if let Some(notice) = &command.notice {
        line(text, "signal", &quote(&Notice::text_of(notice)));
    }
    if let Some(word) = command.pin().word() {
        line(text, "pin", &quote(word));
    }
}
