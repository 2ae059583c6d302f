//! Recorded workflows (WfFormat) run completely, with the counts of an independent reader.

use std::fs;
use std::path::Path;

use serde_json::Value;
use starling_tests::{Sandbox, repository, shared_data};

/// One row of the table of expected counts.
struct Expected {
    file: String,
    tasks: u64,
    edges: u64,
}

fn expected(data: &Path, folder: &str) -> Vec<Expected> {
    let text = fs::read_to_string(data.join("expected.jsonl")).expect("the table is readable");
    text.lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("each line is JSON"))
        .filter(|row| row["file"].as_str().is_some_and(|file| file.starts_with(folder)))
        .map(|row| Expected {
            file: row["file"].as_str().expect("a file name").to_owned(),
            tasks: row["tasks"].as_u64().expect("a number of tasks"),
            edges: row["edges"].as_u64().expect("a number of edges"),
        })
        .collect()
}

fn run(sandbox: &Sandbox, file: &Path, nodes: &str) -> Value {
    let file = file.display().to_string();
    let arguments = ["run", &file, "--nodes", nodes, "--slots", "64", "--scale", "0", "--json"];
    sandbox.starling(&arguments).ok().json()
}

fn all_done(report: &Value, file: &str, tasks: u64, edges: u64) {
    assert_eq!(report["state"], "finished", "{file}");
    let counts = &report["tasks"];
    assert_eq!(counts["total"], tasks, "{file}");
    assert_eq!(counts["edges"], edges, "{file}");
    assert_eq!(counts["done"], tasks, "{file}");
    assert_eq!(counts["executions"], tasks, "{file}: without faults each task runs once");
    for none in ["failed", "cancelled", "skipped"] {
        assert_eq!(counts[none], 0, "{file}: {none}");
    }
    assert_eq!(report["reconciler_wakeups"], 0, "{file}");
}

#[test]
fn every_recorded_instance_runs_with_its_tasks_and_edges() {
    let Some(data) = shared_data() else { return };
    let sandbox = Sandbox::new();
    let rows = expected(&data, "wfinstances/");
    assert_eq!(rows.len(), 36);
    for row in rows {
        let report = run(&sandbox, &data.join(&row.file), "4");
        all_done(&report, &row.file, row.tasks, row.edges);
    }
}

#[test]
fn every_version_of_the_schema_gives_the_same_graph() {
    let Some(data) = shared_data() else { return };
    let sandbox = Sandbox::new();
    let rows = expected(&data, "schema_versions/");
    assert!(rows.len() >= 10, "{} rows", rows.len());
    for row in rows {
        let file = data.join(&row.file);
        // Versions 1.0 and 1.2 may be refused, but only by name. No file may be read wrongly.
        let old = row.file.contains("v1.0") || row.file.contains("v1.2");
        let path = file.display().to_string();
        let info = sandbox.starling(&["workload", "info", &path, "--json"]);
        if old && info.code == 4 {
            assert!(info.stderr.contains("schema"), "{}", info.stderr);
            continue;
        }
        let info = info.ok().json();
        assert_eq!((&info["tasks"], &info["edges"]), (&row.tasks.into(), &row.edges.into()));
        let report = run(&sandbox, &file, "2");
        all_done(&report, &row.file, row.tasks, row.edges);
    }
}

#[test]
fn the_mosaic_of_the_examples_runs_and_is_bounded_from_below() {
    let sandbox = Sandbox::new();
    let file = repository().join("examples/mosaic.json").display().to_string();
    let scaled = ["run", &file, "--nodes", "4", "--slots", "4", "--scale", "0.005", "--json"];
    let report = sandbox.starling(&scaled).ok().json();
    all_done(&report, &file, 487, 1209);
    let lower = report["bound"]["lower_s"].as_f64().expect("a lower bound");
    let makespan = report["makespan_s"].as_f64().expect("a makespan");
    assert!(lower > 0.0, "{report}");
    assert!(makespan >= lower, "no run beats the lower bound: {makespan} < {lower}");
}

#[test]
fn files_of_recorded_tasks_move_as_bytes_when_asked_to() {
    let sandbox = Sandbox::new();
    let text = workflow_of_two_nodes();
    let file = sandbox.write("two.json", text).display().to_string();
    let real = ["run", &file, "--nodes", "2", "--slots", "1", "--scale", "0", "--data", "real"];
    let mut real = real.to_vec();
    real.push("--json");
    let report = sandbox.starling(&real).ok().json();
    all_done(&report, &file, 3, 2);
    assert_eq!(report["data"]["bytes_produced"], 300_000 + 50_000 + 1_000);
    let moved = report["data"]["bytes_moved"].as_u64().expect("a number");
    let local = report["data"]["bytes_read_local"].as_u64().expect("a number");
    assert_eq!(moved + local, 350_000, "each input is either here or fetched: {report}");
}

/// Two makers and one reader of both their files.
fn workflow_of_two_nodes() -> &'static str {
    r#"{"name":"two","schemaVersion":"1.5","workflow":{"specification":{
"tasks":[
{"name":"a","id":"a","parents":[],"children":["c"],"inputFiles":[],"outputFiles":["fa"]},
{"name":"b","id":"b","parents":[],"children":["c"],"inputFiles":[],"outputFiles":["fb"]},
{"name":"c","id":"c","parents":["a","b"],"children":[],"inputFiles":["fa","fb"],"outputFiles":["fc"]}],
"files":[{"id":"fa","sizeInBytes":300000},{"id":"fb","sizeInBytes":50000},{"id":"fc","sizeInBytes":1000}]},
"execution":{"makespanInSeconds":1,"executedAt":"2026-01-01T00:00:00Z","tasks":[
{"id":"a","runtimeInSeconds":1},{"id":"b","runtimeInSeconds":1},{"id":"c","runtimeInSeconds":1}]}}}"#
}
