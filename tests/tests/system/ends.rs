//! Nodes that know when they end.

use starling_tests::{Instance, wait_until};

use crate::cluster::submit;

#[test]
fn a_task_with_a_time_request_starts_only_where_it_can_end() {
    let instance = Instance::up_with_flags(1, &["--slots", "1", "--time-limit", "1h"]);
    let long = submit(&instance, &["--time-request", "2h", "--", "true"]);
    instance.starling(&["submit", "--wait", "--time-request", "10s", "--", "true"]).ok();
    let jobs = instance.json(&["job", "list"])["jobs"].clone();
    let row = jobs.as_array().expect("a list").iter().find(|row| row["job"] == *long);
    let row = row.expect("the job is listed");
    assert_eq!((&row["state"], &row["waiting"]), (&"running".into(), &true.into()), "{row}");
    let tasks = instance.json(&["task", "list", &long]);
    let id = tasks["tasks"][0]["id"].as_str().expect("an id").to_owned();
    let why = instance.starling(&["task", "explain", &long, &id]).ok().stdout;
    assert!(why.contains("no node that is there lives that long"), "{why}");
    instance.starling(&["job", "cancel", &long]).ok();
    instance.down();
}

#[test]
fn a_node_stops_in_order_at_its_end_and_its_task_runs_later() {
    let mut instance = Instance::up_with_flags(2, &["--slots", "1", "--time-limit", "10s"]);
    let sandbox = instance.sandbox();
    let (runs, go) = (sandbox.path("runs"), sandbox.path("go"));
    let command =
        format!("echo run >> {}; [ -e {} ] || exec sleep 600", runs.display(), go.display());
    let id = submit(&instance, &["--crash-limit", "1", "--", "sh", "-c", &command]);
    wait_until("both nodes have ended", || instance.starling(&["node", "list"]).code == 3);
    std::fs::write(&go, "").expect("a file");
    instance.start_missing();
    instance.starling(&["job", "wait", &id]).ok();
    let runs = std::fs::read_to_string(&runs).expect("it ran");
    assert_eq!(runs.lines().count(), 2, "once before the end, and once after it");
    instance.down();
}

#[test]
fn an_end_that_has_passed_is_refused() {
    let sandbox = starling_tests::Sandbox::new();
    let refused = sandbox.starling(&["up", "--ends-at", "1000"]).expect_code(2).stderr;
    assert!(refused.contains("would have ended"), "{refused}");
    let both = ["up", "--ends-at", "9999999999", "--time-limit", "1h"];
    sandbox.starling(&both).expect_code(2);
}
