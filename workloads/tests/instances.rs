//! Recorded workflows against figures that were computed independently.

use std::path::PathBuf;

use workloads::{Graph, LoadOptions, OutputFormat, load, write};

/// The shared data beside the repository; it is not part of it.
#[expect(clippy::print_stdout, reason = "a skipped test says why")]
fn data() -> Option<PathBuf> {
    let data = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    if data.join("expected.jsonl").exists() {
        return Some(data);
    }
    println!("skipped: there is no {}", data.display());
    None
}

fn rows(data: &std::path::Path, family: &[&str]) -> Vec<serde_json::Value> {
    let text = std::fs::read_to_string(data.join("expected.jsonl")).expect("the table is there");
    let rows = text.lines().map(|line| serde_json::from_str(line).expect("each line is JSON"));
    rows.filter(|row: &serde_json::Value| {
        let file = row["file"].as_str().expect("a row names its file");
        family.iter().any(|folder| file.starts_with(folder))
    })
    .collect()
}

fn check(graph: &Graph, row: &serde_json::Value, what: &str) {
    let info = graph.info();
    let whole = |key: &str| row[key].as_u64().unwrap_or_else(|| panic!("{what}: no {key}"));
    assert_eq!(info.tasks, whole("tasks"), "{what}: tasks");
    assert_eq!(info.edges, whole("edges"), "{what}: edges");
    assert_eq!(info.roots, whole("roots"), "{what}: roots");
    assert_eq!(info.sinks, whole("sinks"), "{what}: sinks");
    assert_eq!(info.depth, whole("depth"), "{what}: depth");
    assert_eq!(info.level_width_max, whole("max_level_width"), "{what}: width");
    // The table is rounded to 1e-6 s, each duration to 1e-9 s.
    let near = |ns: f64, key: &str| {
        let expected_s = row[key].as_f64().expect("a figure is a number");
        let error_s = (ns / 1e9 - expected_s).abs();
        assert!(error_s < 2e-6, "{what}: {key}: {} instead of {expected_s}", ns / 1e9);
    };
    near(info.work_ns as f64, "total_work");
    near(info.critical_path_ns as f64, "critical_path");
}

#[test]
fn recorded_workflows_have_the_expected_figures() {
    let Some(data) = data() else { return };
    let rows = rows(&data, &["wfinstances/", "schema_versions/"]);
    assert_eq!(rows.len(), 36 - 2 + 2 + 11, "36 instances and 11 schema versions");
    for row in &rows {
        let file = row["file"].as_str().expect("a row names its file");
        let path = data.join(file);
        let graph = load(&path, None, &LoadOptions::default()).expect(file);
        check(&graph, row, file);
        let info = graph.info();
        let bytes = row["bytes"].as_u64().expect("bytes are whole");
        assert_eq!(info.bytes_produced + info.external_bytes, bytes, "{file}: bytes");
        let initial = row["initial_input_bytes"].as_u64().expect("bytes are whole");
        assert_eq!(info.external_bytes, initial, "{file}: bytes from outside");
        // With the recorded cores nothing but the work can change.
        let options = LoadOptions { recorded_cores: true };
        let recorded = load(&path, None, &options).expect(file);
        assert_eq!(u64::from(recorded.info().cpus_max), row["max_cores"].as_u64().expect("cores"));
    }
}

#[test]
fn written_workflows_read_the_same() {
    let Some(data) = data() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    for row in rows(&data, &["wfinstances/nextflow", "wfinstances/helloworld", "schema_versions"]) {
        let file = row["file"].as_str().expect("a row names its file");
        let graph = load(data.join(file), None, &LoadOptions::default()).expect(file);
        for (format, name) in [(OutputFormat::WfFormat, "w.json"), (OutputFormat::Toml, "w.toml")] {
            let path = directory.path().join(name);
            std::fs::write(&path, write(&graph, format)).expect("it is written");
            let again = load(&path, None, &LoadOptions::default()).expect(file);
            check(&again, &row, &format!("{file} as {name}"));
            let (before, after) = (graph.info(), again.info());
            assert_eq!(before.bytes_produced, after.bytes_produced, "{file} as {name}");
            assert_eq!(before.external_bytes, after.external_bytes, "{file} as {name}");
            assert_eq!(graph.edges(), again.edges(), "{file} as {name}");
        }
    }
}
