//! Tasks that call functions.

use std::path::Path;

use proto::wire::{self, spec::Body};
use serde_json::{Value, json};
use workloads::{CommandOptions, Edge, Graph, LoadError, LoadOptions, OutputFormat, load, write};

const FLOW: &str = r#"
[[task]]
name = "part"
array = "1-3"
function = "work:part"
args = ["{i}", "p{i}.txt", { a = [1.5, true] }]
preload = ["numpy"]
python = "python3.12"

[[task]]
name = "all"
function = "work.inner:Maker.all"
args = [{ "$result" = "part-1..3" }, { "$result" = "part-2" }]
kwargs = { one = { "$result" = ["part-3"] }, path = "{in:t}" }
inputs = { t = "t.txt" }
outputs = { result = { file = "all.json", keep = true } }

[[task]]
name = "show"
command = ["cat", "{in:t}"]
inputs = { t = "all.json" }
outputs = { o = "shown" }

[[task]]
name = "words"
function = "work:words"
inputs = { s = "shown" }
args = ["{in:s}"]
"#;

fn read(directory: &Path, text: &str) -> Result<Graph, LoadError> {
    std::fs::write(directory.join("t.txt"), "text").expect("it is written");
    let path = directory.join("w.toml");
    std::fs::write(&path, text).expect("it is written");
    load(&path, None, &LoadOptions::default())
}

fn call(spec: &wire::Spec) -> &wire::Call {
    match &spec.body {
        Some(Body::Call(call)) => call,
        other => panic!("{other:?} is no call"),
    }
}

fn arguments(graph: &Graph, task: u32) -> Value {
    let view = graph.task(task);
    let own = view.payload;
    let payload = if own.is_empty() { &call(view.spec).payload[..] } else { own };
    serde_json::from_slice(payload).expect("JSON")
}

fn check(graph: &Graph, directory: &Path) {
    assert_eq!(arguments(graph, 0), json!([1, "p1.txt", {"a": [1.5, true]}]));
    assert_eq!(arguments(graph, 2), json!([3, "p3.txt", {"a": [1.5, true]}]));
    let slot = |slot: u32| json!({ "$slot": slot });
    let path = directory.join("t.txt").to_string_lossy().into_owned();
    let kwargs = json!({"one": [slot(4)], "path": path});
    let expected = json!({"args": [[slot(0), slot(1), slot(2)], slot(3)], "kwargs": kwargs});
    assert_eq!(arguments(graph, 3), expected);
    let parents: Vec<Edge> = graph.parents(3).collect();
    let edge = |slot, task| Edge { task, slot, output: 1 };
    assert_eq!(parents, [edge(0, 0), edge(1, 1), edge(2, 2), edge(3, 1), edge(4, 2)]);
    assert_eq!(arguments(graph, 5), json!([slot(0)]));
}

#[test]
fn arguments_name_results_and_files() {
    let directory = tempfile::tempdir().expect("a directory");
    let graph = read(directory.path(), FLOW).expect("it is right");
    check(&graph, directory.path());
    let part = call(graph.task(0).spec);
    assert_eq!((&part.body[..], part.body_codec, part.codec), (&b"work:part"[..], 5, 3));
    let runtime = part.runtime.as_ref().expect("a runtime");
    assert_eq!(runtime.argv, ["python3.12", "{worker}"]);
    assert_eq!(runtime.preload, ["numpy"]);
    assert_eq!(runtime.directory, directory.path().to_string_lossy());
    let (all, words) = (graph.task(3).spec, graph.task(5).spec);
    assert!(all.inputs.iter().all(|input| input.value) && all.outputs[0].keep);
    assert!(!words.inputs[0].value, "the file of a command is a path");
    assert_eq!(graph.task(0).spec.outputs.len(), 1, "a function has a result");
}

#[test]
fn a_written_workflow_makes_the_same_calls() {
    let directory = tempfile::tempdir().expect("a directory");
    let graph = read(directory.path(), FLOW).expect("it is right");
    let text = write(&graph, OutputFormat::Toml);
    let again = read(directory.path(), &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    check(&again, directory.path());
}

#[test]
fn a_command_line_calls_a_function() {
    let options = CommandOptions {
        function: Some("work:total".to_owned()),
        submit_dir: "/here".into(),
        ..CommandOptions::default()
    };
    let graph = Graph::command(vec!["[1, 2]".to_owned(), "\"a\"".to_owned()], &options);
    let graph = graph.expect("it is right");
    assert_eq!(arguments(&graph, 0), json!([[1, 2], "a"]));
    assert_eq!(graph.task_name(0), "work.total");
    assert!(graph.task(0).spec.outputs[0].keep);
    let error = Graph::command(vec!["a".to_owned()], &options).expect_err("no JSON");
    assert!(error.to_string().contains("the argument 'a' is not JSON"), "{error}");
    assert!(error.hint().is_some());
}

#[test]
fn mistakes_are_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let table = [
        ("function = 'work'", "function = 'work' is not module:name"),
        ("function = 'a:b'\ncommand = ['x']", "has a function beside a command"),
        ("command = ['x']\nargs = [1]", "has args without a function"),
        ("function = 'a:b'\nargs = [{ '$result' = 'none' }]", "unknown task 'none' in $result"),
        ("function = 'a:b'\nargs = ['{in:x}']", "{in:x} names no input"),
        ("function = 'a:b'\nargs = [{ '$result' = 'c' }]", "task 'c' calls no function"),
        ("function = 'a:b'\nargs = [{ '$result' = 1 }]", "$result is the name of a task"),
        ("function = 'a:b'\nstdin = 't.txt'", "a function has no standard input"),
        ("function = 'a:b'\noutputs = { d = { dir = 'x' } }", "a function has one output"),
        ("function = 'a:b'\nargs = [nan]", "NaN is not a JSON value"),
    ];
    for (keys, expected) in table {
        let text = format!("[[task]]\nname='c'\ncommand=['x']\n[[task]]\nname='t'\n{keys}\n");
        let error = read(directory.path(), &text).expect_err(keys);
        assert!(error.to_string().contains(expected), "{error}");
    }
    let text = format!("[[task]]\nname='t'\nfunction='a:b'\nargs=['{}']\n", "x".repeat(20_000));
    let error = read(directory.path(), &text).expect_err("too large");
    assert!(error.to_string().contains("its arguments take 20004 bytes"), "{error}");
}
