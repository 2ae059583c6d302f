//! `starling node pause` and `resume`.

use starling_tests::{Instance, wait_until};

#[test]
fn a_paused_node_finishes_what_runs_and_starts_nothing() {
    let instance = Instance::up(2, 2);
    let go = instance.sandbox().path("go");
    let command = format!("until [ -e {} ]; do sleep 0.05; done", go.display());
    let submit = |array: &str, command: &str| {
        let job = instance.starling(&["submit", "--array", array, "--", "sh", "-c", command]);
        job.ok().stdout.trim().to_owned()
    };
    let long = submit("1-4", &command);
    let running = || {
        let nodes = instance.json(&["node", "list"]);
        let nodes = nodes["nodes"].as_array().expect("there are nodes").clone();
        nodes.iter().map(|node| node["running"].as_u64().unwrap_or(0)).sum::<u64>()
    };
    wait_until("all slots are busy", || running() == 4);
    instance.starling(&["node", "pause", "n0"]).ok();
    let nodes = instance.json(&["node", "list"]);
    assert_eq!(nodes["nodes"][0]["paused"], true, "{nodes}");
    assert!(nodes["nodes"][1].get("paused").is_none(), "{nodes}");
    std::fs::write(&go, "").expect("there is room");
    instance.starling(&["job", "wait", &long, "--timeout", "60s"]).ok();

    let short = submit("1-12", "true");
    instance.starling(&["job", "wait", &short, "--timeout", "60s"]).ok();
    let tasks = instance.json(&["task", "list", &short]);
    for task in tasks["tasks"].as_array().expect("there are tasks") {
        assert!(task["node"] == 1 || task["node"] == "n1", "a paused node starts nothing: {task}");
    }

    instance.starling(&["node", "pause", "n1"]).ok();
    let waits = submit("1-2", "true");
    let late = instance.starling(&["job", "wait", &waits, "--timeout", "1s"]);
    assert_eq!(late.code, 124, "{}", late.stderr);
    let tasks = instance.json(&["task", "list", &waits]);
    let id = &tasks["tasks"][0]["id"];
    let id = id.as_str().map_or_else(|| id.to_string(), str::to_owned);
    let why = instance.starling(&["task", "explain", &waits, &id]).ok().stdout;
    assert!(why.contains("is paused"), "{why}");
    instance.starling(&["node", "resume", "n0", "n1"]).ok();
    instance.starling(&["job", "wait", &waits, "--timeout", "60s"]).ok();
    instance.down();
}
