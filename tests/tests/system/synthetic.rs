//! The benchmark graphs of the paper, with each kind of body and policy.

use serde_json::Value;
use starling_tests::Sandbox;

fn run(generator: &str, more: &[&str]) -> Value {
    let sandbox = Sandbox::new();
    let mut arguments = vec!["run", generator, "--json"];
    arguments.extend(more);
    sandbox.starling(&arguments).ok().json()
}

fn check(report: &Value, tasks: u64, edges: u64) {
    assert_eq!(report["state"], "finished", "{report}");
    assert_eq!(report["tasks"]["total"], tasks, "{report}");
    assert_eq!(report["tasks"]["edges"], edges, "{report}");
    assert_eq!(report["tasks"]["done"], tasks, "{report}");
    assert_eq!(report["tasks"]["executions"], tasks, "{report}");
    assert_eq!(report["reconciler_wakeups"], 0, "{report}");
}

#[test]
fn a_bag_of_no_ops() {
    check(&run("bag:tasks=5000,body=noop", &["--nodes", "4", "--slots", "2"]), 5000, 0);
}

#[test]
fn a_pipeline_of_sleeps() {
    let report = run("pipeline:tasks=200,length=10,duration=1ms", &["--nodes", "3"]);
    check(&report, 200, 180);
    let work = report["work_s"].as_f64().expect("a number");
    assert!(work >= 0.2, "200 sleeps of a millisecond are work: {work}");
}

#[test]
fn a_fan_out_of_spins() {
    let generator = "fan-out:tasks=500,degree=10,body=spin,duration=100us";
    let report = run(generator, &["--nodes", "2", "--slots", "1"]);
    check(&report, 500, report["tasks"]["edges"].as_u64().expect("a number"));
    assert_eq!(report["tasks"]["edges"], 499, "a tree has one edge fewer than tasks");
}

#[test]
fn a_fan_in_with_data_under_every_policy() {
    for policy in ["mlb", "mdl", "rlds"] {
        let generator = "fan-in:tasks=300,degree=10,duration=1ms,output=10kB,body=sleep";
        let report = run(generator, &["--nodes", "4", "--slots", "2", "--policy", policy]);
        assert_eq!(report["policy"], policy);
        check(&report, 300, 299);
    }
}

#[test]
fn real_bytes_cross_between_nodes() {
    let generator = "fan-in:tasks=111,degree=10,output=100kB,body=noop";
    let more = ["--nodes", "4", "--slots", "1", "--data", "real", "--placement", "hash"];
    let report = run(generator, &more);
    check(&report, 111, 110);
    assert_eq!(report["data"]["bytes_produced"], 11_100_000);
    assert!(report["data"]["bytes_moved"].as_u64().is_some_and(|bytes| bytes > 0), "{report}");
}

#[test]
fn the_nodes_of_a_run_may_be_processes() {
    let more = ["--nodes", "3", "--slots", "1", "--processes"];
    check(&run("pipeline:tasks=300,length=3,body=noop", &more), 300, 200);
}

#[test]
fn work_submitted_to_one_node_is_stolen_by_the_others() {
    let generator = "bag:tasks=400,duration=5ms,body=sleep";
    let report = run(generator, &["--nodes", "4", "--slots", "1", "--submit", "worst"]);
    check(&report, 400, 0);
    let stolen = report["steals"]["tasks"].as_u64().expect("a number");
    assert!(stolen > 0, "three nodes had nothing of their own: {report}");
}

#[test]
fn a_trace_holds_every_task() {
    let sandbox = Sandbox::new();
    let trace = sandbox.path("trace.json").display().to_string();
    let arguments = ["run", "pipeline:tasks=50,length=5,duration=1ms", "--trace", &trace, "--json"];
    check(&sandbox.starling(&arguments).ok().json(), 50, 40);
    let text = std::fs::read_to_string(&trace).expect("the trace was written");
    let value: Value = serde_json::from_str(&text).expect("a trace is JSON");
    let events = value["traceEvents"].as_array().or(value.as_array()).expect("a list of events");
    let ran = events.iter().filter(|event| event["ph"] == "X").count();
    assert!(ran >= 50, "{ran} spans for 50 tasks");
    let of = |phase: &str| {
        let flows = events.iter().filter(|it| it["ph"] == phase && it["cat"] == "data");
        flows.map(|it| it["id"].as_u64().expect("a number")).collect::<Vec<u64>>()
    };
    assert_eq!(of("s").len(), 40, "a flow for each edge");
    assert_eq!(of("s"), of("f"));
}

/// Extreme graphs: one parent of very many tasks, one child of very many, and one very long chain.
#[test]
fn wide_and_deep_graphs_run() {
    for generator in [
        "fan-out:tasks=40001,degree=40000,body=noop",
        "fan-in:tasks=40001,degree=40000,body=noop",
        "pipeline:tasks=40001,length=40001,body=noop",
    ] {
        check(&run(generator, &["--nodes", "3", "--slots", "2"]), 40_001, 40_000);
    }
}
