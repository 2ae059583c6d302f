//! Lower bounds of recorded workflows, compared with independently computed figures.

use std::path::Path;

use analysis::{Bounds, PaperBound, PaperModel};
use serde_json::Value;
use workloads::LoadOptions;

/// The figures are rounded to microseconds.
fn assert_close(what: &str, file: &str, ours_s: f64, expected_s: f64) {
    let allowed = 1e-6 + expected_s * 1e-9;
    assert!((ours_s - expected_s).abs() <= allowed, "{file}: {what} {ours_s}, not {expected_s}");
}

#[test]
fn bounds_of_recorded_workflows_agree() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared/data");
    let Ok(expected) = std::fs::read_to_string(data.join("expected.jsonl")) else {
        println!("skipped: {} is not there", data.join("expected.jsonl").display());
        return;
    };
    let mut checked = 0;
    for line in expected.lines() {
        let row: Value = serde_json::from_str(line).expect("a JSON value a line");
        let file = row["file"].as_str().expect("every row names its file");
        if !file.starts_with("wfinstances/") {
            continue;
        }
        let graph = workloads::load(data.join(file), None, &LoadOptions::default())
            .unwrap_or_else(|error| panic!("{file}: {error}"));
        let figure = |value: &Value| value.as_f64().expect("a number");
        for (slots, of_slots) in row["P"].as_object().expect("figures by slots") {
            let slots = slots.parse().expect("a number of slots");
            let bounds = Bounds::of(&graph, slots);
            let path_s = bounds.critical_path.as_secs_f64();
            assert_close("critical path", file, path_s, figure(&row["critical_path"]));
            assert_close("area", file, bounds.area.as_secs_f64(), figure(&of_slots["area"]));
            // A known schedule: no bound may exceed its length.
            let found_s = figure(&of_slots["ub"]);
            assert!(bounds.lower().as_secs_f64() <= found_s + 1e-6, "{file} on {slots}");
        }
        let paper = PaperBound::of(&graph, &PaperModel::on(4));
        assert!(paper.timespan_s >= figure(&row["critical_path"]) - 1e-6, "{file}");
        checked += 1;
    }
    assert_eq!(checked, 36);
}
