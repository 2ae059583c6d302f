//! Every benchmark runs with small sizes and reports its figures. The values are not judged.

use std::process::Command;

use serde_json::Value;

fn bench(args: &[&str]) -> Value {
    let output = Command::new(env!("CARGO_BIN_EXE_starling"))
        .arg("bench")
        .args(args)
        .args(["--rounds", "2", "--json"])
        .output()
        .expect("the binary was built for this test");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{args:?}: {error}");
    let text = String::from_utf8(output.stdout).expect("JSON is UTF-8");
    assert!(text.starts_with(r#"{"schema":1,"#), "{text}");
    let report: Value = serde_json::from_str(&text).expect("one JSON value");
    assert_eq!(report["bench"], args[0]);
    assert_eq!(report["runs"].as_array().map(Vec::len), Some(2));
    report
}

/// Median, least and most of each of these figures, in that order of size.
fn assert_figures(report: &Value, names: &[&str]) {
    for name in names {
        let figure = |part: &str| report[name][part].as_f64().unwrap_or(f64::NAN);
        let (median, min, max) = (figure("median"), figure("min"), figure("max"));
        assert!(min <= median && median <= max, "{name} in {report}");
    }
}

#[test]
fn noop_runs_here_and_as_processes() {
    for place in [&["noop", "--tasks", "500"][..], &["noop", "--tasks", "500", "--processes"]] {
        let report = bench(place);
        assert_eq!((&report["tasks"], &report["nodes"]), (&500.into(), &4.into()));
        assert_eq!(report["processes"], place.len() == 4);
        assert!(report["cpu_us_per_task"].as_f64().unwrap() > 0.0);
        assert_figures(&report, &["per_s", "wall_s", "accept_s"]);
    }
}

#[test]
fn sleep_and_submit_run() {
    let report = bench(&["sleep", "--tasks", "64", "--duration-ms", "5"]);
    assert_figures(&report, &["per_s", "wall_over_ideal"]);
    assert_figures(&bench(&["submit", "--tasks", "2000"]), &["per_s"]);
}

#[test]
fn a_chain_runs_across_nodes_and_on_one() {
    let report = bench(&["chain", "--tasks", "48"]);
    assert_figures(&report, &["cross_us_per_hop", "home_us_per_hop", "cross_over_unary"]);
    // Two homes have 24 tasks each: every hop crosses.
    assert_eq!(report["hops_between_nodes"]["min"], 47.0);
}

#[test]
fn commands_and_kv_run() {
    assert_figures(&bench(&["command", "--tasks", "20"]), &["per_s", "bare_per_s", "over_bare"]);
    let report = bench(&["kv", "--tasks", "2000", "--batch", "10", "--callers", "4"]);
    assert_figures(&report, &["insert_per_s", "lookup_batched_per_s", "insert_atomic_batch_per_s"]);
}

#[test]
fn memory_is_measured_while_tasks_wait() {
    let report = bench(&["memory", "--tasks", "2000", "--nodes", "2"]);
    assert_figures(&report, &["bytes_per_task", "after_mib"]);
    assert_eq!(report["processes"], true);
}

/// A node deletes objects of unknown jobs; these objects must stay.
#[test]
fn transfer_finds_its_objects_in_every_round() {
    for door in [&[][..], &["--insecure"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_starling"))
            .args(["bench", "transfer", "--most", "4KiB", "--rounds", "2", "--json"])
            .args(door)
            .output()
            .expect("the binary was built for this test");
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{door:?}: {error}");
        let report: Value = serde_json::from_slice(&output.stdout).expect("one JSON value");
        let cases = report["cases"].as_array().expect("a list");
        assert_eq!(cases.len(), 1, "{report}");
        assert_eq!((&cases[0]["size_bytes"], &cases[0]["at_once"]), (&4096.into(), &1.into()));
        assert_figures(&cases[0], &["ours_bytes_per_s", "over_raw_memory", "over_raw_file"]);
    }
}
