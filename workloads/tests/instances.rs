//! Recorded workflows, compared with independently computed figures.

use std::path::PathBuf;

use workloads::{Graph, LoadOptions, OutputFormat, load, write};

/// The shared data beside the repository, if present.
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
        // With the recorded cores only the work can change.
        let options = LoadOptions { recorded_cores: true, ..LoadOptions::default() };
        let recorded = load(&path, None, &options).expect(file);
        assert_eq!(u64::from(recorded.info().cpus_max), row["max_cores"].as_u64().expect("cores"));
    }
}

/// Every graph of the table with times in seconds.
#[test]
fn other_formats_have_the_expected_figures() {
    let Some(data) = data() else { return };
    let rows = rows(&data, &["stg/", "estee/"]);
    assert_eq!(rows.len(), 185 + 27, "185 task graphs in STG, 27 of Estee");
    for row in &rows {
        let file = row["file"].as_str().expect("a row names its file");
        let options = LoadOptions { recorded_cores: true, ..LoadOptions::default() };
        let graph = load(data.join(file), None, &options).expect(file);
        check(&graph, row, file);
        assert_eq!(u64::from(graph.info().cpus_max), row["max_cores"].as_u64().expect("cores"));
        if let (Some(mib), Some(outputs)) = (row["mib"].as_f64(), row["outputs"].as_u64()) {
            let info = graph.info();
            assert_eq!(info.files, outputs, "{file}: outputs");
            // The table is rounded to 1e-6 MiB, each size to a byte.
            let error_bytes = (info.bytes_produced as f64 - mib * 1048576.0).abs();
            assert!(error_bytes <= outputs as f64 / 2.0 + 1.0, "{file}: {error_bytes} bytes off");
        }
    }
}

#[test]
fn dot_files_have_the_expected_figures() {
    let Some(data) = data() else { return };
    let is_dot = |row: &serde_json::Value| row["format"] == "DOT";
    let rows: Vec<_> = rows(&data, &["dot/", "simgrid/"]).into_iter().filter(is_dot).collect();
    assert_eq!(rows.len(), 7, "six graphs of daggen and one of SimGrid");
    for mut row in rows {
        let file = row["file"].as_str().expect("a row names its file").to_owned();
        // The table counts flops: at 1e9 flop/s each takes a nanosecond.
        for key in ["total_work", "critical_path"] {
            row[key] = (row[key].as_f64().expect("a figure is a number") / 1e9).into();
        }
        let mut bytes = row["bytes"].as_f64().expect("bytes are a number");
        if file == "simgrid/dag.dot" {
            // The table's reader skips `8->9 ;`, which has no attributes. SimGrid does not: in its
            // own output task 9 starts when 8 has ended. Task 9 has 10000000079 flops.
            let right =
                [("edges", 11), ("roots", 2), ("sinks", 2), ("depth", 10), ("max_level_width", 2)];
            for (key, value) in right {
                row[key] = value.into();
            }
            row["critical_path"] = 100.000001121.into();
            bytes = bytes.round();
        }
        let graph = load(data.join(&file), None, &LoadOptions::default()).expect(&file);
        check(&graph, &row, &file);
        assert_eq!(graph.info().bytes_produced as f64, bytes, "{file}: bytes");
    }
}

#[test]
fn dax_files_have_the_expected_figures() {
    let Some(data) = data() else { return };
    let is_dax = |row: &serde_json::Value| row["format"] == "DAX";
    let rows: Vec<_> = rows(&data, &["dax/", "simgrid/"]).into_iter().filter(is_dax).collect();
    assert_eq!(rows.len(), 11, "ten of Pegasus and one of SimGrid");
    for row in &rows {
        let file = row["file"].as_str().expect("a row names its file");
        let graph = load(data.join(file), None, &LoadOptions::default()).expect(file);
        check(&graph, row, file);
        let info = graph.info();
        let bytes = row["bytes"].as_u64().expect("bytes are whole");
        // Most of these files have several sizes, or several writers, for one file. The table uses
        // the last size of each. Here the writer's size counts, and each writer counts.
        let off = (info.bytes_produced + info.external_bytes).abs_diff(bytes);
        let most = if file.ends_with("HEFT_paper.xml") { 0 } else { bytes / 20 };
        assert!(off <= most, "{file}: {off} bytes off {bytes}");
    }
}

#[test]
fn every_job_of_the_alibaba_trace_has_the_expected_figures() {
    let Some(data) = data() else { return };
    let options = LoadOptions::default();
    let rows = rows(&data, &["alibaba2018/"]);
    assert_eq!(rows.len(), 1550, "two samples of the trace");
    for file in ["jobs_a.jsonl", "random_50.jsonl"] {
        let of_file = |row: &&serde_json::Value| {
            row["file"].as_str().is_some_and(|name| name.ends_with(file))
        };
        let rows: Vec<&serde_json::Value> = rows.iter().filter(of_file).collect();
        let path = data.join("alibaba2018").join(file);
        let text = std::fs::read_to_string(&path).expect("the trace is there");
        for (line, row) in text.lines().zip(&rows) {
            let name = row["name"].as_str().expect("a row names its job");
            let graph = workloads::read(line.as_bytes(), name, None, &options).expect(name);
            check(&graph, row, name);
            assert!(!graph.has_releases(), "{name}: one job begins at once");
        }
        // The whole trace: every job at its time.
        let graph = load(&path, None, &options).expect(file);
        let sum = |key: &str| rows.iter().map(|row| row[key].as_u64().unwrap_or(0)).sum::<u64>();
        let info = graph.info();
        assert_eq!((info.tasks, info.edges), (sum("tasks"), sum("edges")), "{file}");
        assert!(graph.has_releases(), "{file}: jobs come one after the other");
        // One of them by its name.
        let last = rows.last().expect("a trace has jobs");
        let job = last["name"].as_str().map(str::to_owned);
        let chosen = load(&path, None, &LoadOptions { job, ..options.clone() }).expect(file);
        check(&chosen, last, file);
    }
}

#[test]
fn workload_logs_have_their_jobs_and_arrivals() {
    let Some(data) = data() else { return };
    for (file, without_time) in [("LCG.jobs-0-5000.swf", 0), ("NASA-iPSC-1993-3.head.swf", 0)] {
        let path = data.join("swf").join(file);
        let text = std::fs::read_to_string(&path).expect("the log is there");
        // Reads the file again, in the simplest way.
        let jobs: Vec<Vec<i64>> = text
            .lines()
            .filter(|line| !line.starts_with(';') && !line.trim().is_empty())
            .map(|line| {
                line.split_whitespace().map(|word| word.parse::<f64>().expect("numbers") as i64)
            })
            .map(Iterator::collect)
            .collect();
        let options = LoadOptions { recorded_cores: true, ..LoadOptions::default() };
        let graph = load(&path, None, &options).expect(file);
        assert_eq!(graph.len(), jobs.len(), "{file}");
        let first_s = jobs.iter().map(|job| job[1]).min().expect("there are jobs");
        for (task, job) in graph.indices().zip(&jobs) {
            assert_eq!(graph.task_name(task), job[0].to_string(), "{file}");
            let seconds = |ns: u64| (ns / 1_000_000_000) as i64;
            assert_eq!(seconds(graph.task(task).duration_ns), job[3].max(0), "{file}");
            assert_eq!(seconds(graph.release_ns(task)), job[1] - first_s, "{file}");
            assert_eq!(i64::from(graph.cpus(task)), job[4].max(1), "{file}");
        }
        assert_eq!(graph.notes().len(), without_time, "{file}: {:?}", graph.notes());
    }
}

#[test]
fn cycles_are_refused_with_their_tasks() {
    let Some(data) = data() else { return };
    let path = data.join("simgrid/dag_with_cycle.dot");
    let error = load(path, None, &LoadOptions::default()).expect_err("it has a cycle").to_string();
    let cycle = "the tasks form a cycle: 1 -> 2 -> 3 -> 4 -> 5 -> 6 -> 1";
    assert!(error.ends_with(cycle), "{error}");
}

#[test]
fn written_workflows_read_the_same() {
    let Some(data) = data() else { return };
    let directory = tempfile::tempdir().expect("a directory");
    for row in rows(&data, &["wfinstances/nextflow", "wfinstances/helloworld", "schema_versions"]) {
        let file = row["file"].as_str().expect("a row names its file");
        let graph = load(data.join(file), None, &LoadOptions::default()).expect(file);
        let dot = directory.path().join("w.dot");
        std::fs::write(&dot, write(&graph, OutputFormat::Dot)).expect("it is written");
        let again = load(&dot, None, &LoadOptions::default()).expect(file);
        check(&again, &row, &format!("{file} as DOT"));
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
