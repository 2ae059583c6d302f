//! Reports and traces of runs: from a cluster, from run records, from the simulator.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;
use starling_tests::{Instance, Sandbox, repository, skip, wait_until};

use crate::cluster::{job, submit};

const HOSTILE: &str = "<img src=x onerror=alert(1)>";

/// Tasks of two kinds, one of which fails, and a name that is HTML.
fn workflow(sandbox: &Sandbox) {
    let text = format!(
        "[[task]]\nname='work-{{i}}'\narray='1-12'\n\
         command=['sh','-c','sleep 0.05; echo {{i}} > {{out:o}}']\n\
         outputs={{o={{file='o{{i}}',keep=true}}}}\n\
         [[task]]\nname='fail-{{i}}'\narray='1-30'\n\
         command=['sh','-c','echo no /tmp/{{i}} >&2; exit 3']\n\
         [[task]]\nname='{HOSTILE}'\ncpus=2\ncommand=['sh','-c','sleep 0.1']\n"
    );
    sandbox.write("mixed.toml", text);
}

fn report(sandbox: &Sandbox, arguments: &[&str]) -> Value {
    let all: Vec<&str> = ["report", "--json"].iter().chain(arguments).copied().collect();
    sandbox.starling(&all).ok().json()
}

/// What the script of a page shows; `None` without a program that runs scripts.
fn shown(page: &Path, places: &[&str]) -> Option<Value> {
    let check = repository().join("lens/page/check.mjs");
    let Ok(ran) = Command::new("node").arg(check).arg(page).args(places).output() else {
        skip("node is absent");
        return None;
    };
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    Some(serde_json::from_slice(&ran.stdout).expect("JSON"))
}

fn assert_near(what: &str, a: f64, b: f64) {
    assert!((a - b).abs() <= 0.02 * a.abs().max(b.abs()) + 0.002, "{what}: {a} and {b}");
}

#[test]
fn a_run_leaves_a_record_that_shows_it_without_a_cluster() {
    let sandbox = Sandbox::new();
    workflow(&sandbox);
    let ran = sandbox.starling(&["run", "--nodes", "2", "--slots", "2", "mixed.toml", "--json"]);
    let ran = ran.expect_code(1);
    let run = ran.json();
    let note = ran.stderr.lines().find(|line| line.contains("run record in")).expect("a note");
    let record = note.split("run record in ").nth(1).unwrap().split(';').next().unwrap();
    assert!(record.starts_with("starling-runs/") && sandbox.path(record).exists(), "{note}");
    let dir = Path::new(record).parent().unwrap().to_str().unwrap();
    for from in [record, dir] {
        let shown = report(&sandbox, &["--from", from]);
        assert_eq!(shown["tasks"]["total"], run["tasks"]["total"], "{shown}");
        assert_eq!(shown["tasks"]["failed"], 30, "{shown}");
        assert_eq!(shown["attempts"], run["tasks"]["executions"], "{shown}");
        assert_eq!(shown["missing"], Value::Array(Vec::new()), "{shown}");
        assert_near(
            "work",
            shown["busy_s"].as_f64().unwrap() - shown["lost_s"].as_f64().unwrap(),
            run["work_s"].as_f64().unwrap(),
        );
        let failures = shown["failures"].as_array().unwrap();
        assert_eq!((failures.len(), &failures[0]["tasks"]), (1, &30.into()), "{failures:?}");
        assert_eq!(failures[0]["exit_code"], 3, "{failures:?}");
        let kinds: Vec<&str> = shown["kinds"]
            .as_array()
            .unwrap()
            .iter()
            .filter_map(|kind| kind["kind"].as_str())
            .collect();
        assert!(kinds.contains(&"work") && kinds.contains(&"fail"), "{kinds:?}");
    }
    let text = sandbox.starling(&["report", "--from", dir]).ok().stdout;
    assert!(text.contains("30 alike: exit code 3, kind 'fail'"), "{text}");
    assert!(text.contains("    | no /tmp/"), "{text}");
    let csv = sandbox.starling(&["report", "--from", dir, "--csv"]).ok().stdout;
    assert_eq!(
        csv.lines().count() as u64,
        1 + run["tasks"]["executions"].as_u64().unwrap(),
        "{csv}"
    );
}

#[test]
fn a_page_is_one_file_and_names_stay_text() {
    let sandbox = Sandbox::new();
    workflow(&sandbox);
    let run = ["run", "--slots", "2", "mixed.toml", "--record", "r.srr"];
    sandbox.starling(&run).expect_code(1);
    sandbox.starling(&["report", "--from", "r.srr", "-o", "r.html"]).ok();
    let page = fs::read_to_string(sandbox.path("r.html")).unwrap();
    assert!(!page.contains("<img") && page.contains("&lt;img src=x"), "{page}");
    assert!(!page.contains("http:") && !page.contains("https:"), "it refers to nothing outside");
    assert!(page.split("<script").next().unwrap().contains("13 of 43 done, 30 failed"));
    let Some(shown) = shown(&sandbox.path("r.html"), &["0.999,0.01", "0.5,0.5"]) else { return };
    assert_eq!((&shown["attempts"], &shown["rows"]), (&43.into(), &2.into()), "{shown}");
    assert!(shown["probes"][0].as_str().unwrap().starts_with("n0 slot 0"), "{shown}");
    assert!(shown["shades"].as_u64() > Some(2), "it has drawn: {shown}");
}

#[test]
fn a_report_of_a_cluster_has_the_figures_of_job_info() {
    let mut instance = Instance::up_with_copies(3, 2, 2);
    let file = "bag:tasks=300,duration=10ms";
    let id = submit(&instance, &["--wait", "--file", file]);
    wait_until("it is recorded", || job(&instance, &id)["recorded"] == true);
    let info = job(&instance, &id);
    let sandbox = instance.sandbox();
    let report = instance.json(&["report", &id]);
    assert_eq!((&report["tasks"]["done"], &report["attempts"]), (&300.into(), &300.into()));
    assert_eq!((&report["slots"], &report["nodes"]), (&6.into(), &3.into()), "{report}");
    assert_near(
        "makespan",
        report["makespan_s"].as_f64().unwrap(),
        info["makespan_s"].as_f64().unwrap(),
    );
    assert_near("work", report["busy_s"].as_f64().unwrap(), info["work_s"].as_f64().unwrap());
    let busy = report["utilization"].as_f64().unwrap();
    assert_near("utilization", busy, info["utilization"].as_f64().unwrap());
    let causes = report["causes"]["seconds"].as_object().unwrap();
    let sum: f64 = causes.values().filter_map(Value::as_f64).sum();
    assert_near("all slot time", sum, 6.0 * report["makespan_s"].as_f64().unwrap());
    let path = |name: &str| sandbox.path(name).to_str().unwrap().to_owned();
    let [record, page, trace] = ["r.srr", "r.html", "r.pftrace.gz"].map(path);
    instance.starling(&["report", &id, "-o", &record]).ok();
    instance.starling(&["report", &id, "--against", &record, "-o", &page]).ok();
    assert!(fs::read_to_string(&page).unwrap().contains("Comparison"));
    instance.starling(&["trace", &id, "--format", "perfetto", "-o", &trace]).ok();
    assert!(fs::read(&trace).unwrap().starts_with(&[0x1f, 0x8b]));

    // A node without events here is named, and the rest is shown.
    instance.kill(2);
    let partial = instance.json(&["report", &id]);
    assert_eq!(partial["missing"][0]["node"], 2, "{partial}");
    assert_eq!(partial["tasks"]["done"], 300, "outcomes are known all the same");
    assert!(partial["attempts"].as_u64() < Some(300), "{partial}");
    assert!(partial["causes"]["seconds"]["unknown"].as_f64() > Some(0.0), "{partial}");
    // The record does not change.
    let before = instance.json(&["report", "--from", &record]);
    assert_eq!((&before["attempts"], &before["job"]), (&300.into(), &report["job"]));
}

#[test]
fn a_running_job_has_its_end_as_a_range() {
    let instance = Instance::up(1, 2);
    let id = submit(&instance, &["--file", "bag:tasks=400,duration=50ms"]);
    wait_until("some have ended", || job(&instance, &id)["tasks"]["done"].as_u64() > Some(20));
    let report = instance.json(&["report", &id]);
    assert_eq!(report["state"], "running", "{report}");
    let range = &report["eta"]["range"];
    assert!(range["low_s"].as_f64() <= range["high_s"].as_f64(), "{report}");
    assert!((1.0..60.0).contains(&range["high_s"].as_f64().unwrap()), "{report}");
    assert_eq!(report["lost_s"], 0.0, "attempts that run are not lost: {report}");
    let text = instance.starling(&["report", &id]).ok().stdout;
    assert!(text.contains("ends         in "), "{text}");
}

#[test]
fn a_simulation_has_the_same_record() {
    let sandbox = Sandbox::new();
    let sim = ["sim", "bag:tasks=200,duration=10ms", "--nodes", "4", "--slots", "2", "--json"];
    let all: Vec<&str> = sim.iter().copied().chain(["--record", "s.srr"]).collect();
    let ran = sandbox.starling(&all).ok().json();
    let shown = report(&sandbox, &["--from", "s.srr"]);
    assert_eq!((&shown["attempts"], &shown["source"]), (&200.into(), &"sim".into()));
    for (figure, of_run) in [("makespan_s", "makespan_s"), ("utilization", "utilization")] {
        assert_near(figure, shown[figure].as_f64().unwrap(), ran[of_run].as_f64().unwrap());
    }
    sandbox.starling(&["trace", "--from", "s.srr", "-o", "s.json"]).ok();
    let trace: Value = serde_json::from_slice(&fs::read(sandbox.path("s.json")).unwrap()).unwrap();
    let drawn = trace["traceEvents"].as_array().unwrap().iter().filter(|it| it["ph"] == "X");
    assert_eq!(drawn.count(), 200);
}

#[test]
fn files_that_are_no_records_are_refused_with_a_hint() {
    let sandbox = Sandbox::new();
    sandbox.starling(&["sim", "bag:tasks=9", "--record", "s.srr"]).ok();
    let good = fs::read(sandbox.path("s.srr")).unwrap();
    sandbox.write("cut.srr", &good[..good.len() - 3]);
    let mut damaged = good.clone();
    let middle = good.len() / 2;
    damaged[middle] ^= 1;
    sandbox.write("damaged.srr", damaged);
    let mut newer = good;
    newer[8] = 7;
    sandbox.write("newer.srr", newer);
    sandbox.write("text.srr", "hello");
    fs::create_dir(sandbox.path("empty")).unwrap();
    for (file, reason) in [
        ("cut.srr", "is cut"),
        ("damaged.srr", "is damaged"),
        ("newer.srr", "has version 7"),
        ("text.srr", "is not a run record"),
        ("gone.srr", "gone.srr"),
        ("empty", "no run record"),
    ] {
        let ran = sandbox.starling(&["report", "--from", file]).expect_code(4);
        assert!(ran.stderr.contains(reason) && ran.stderr.contains("hint: "), "{}", ran.stderr);
        sandbox.starling(&["trace", "--from", file, "-o", "t.json"]).expect_code(4);
    }
    sandbox.starling(&["report"]).expect_code(2);
    sandbox.starling(&["report", "--from", "s.srr", "-o", "x.pdf"]).expect_code(2);
}
