//! Verbs that need no cluster: workflow files and the simulator.

use starling_tests::Sandbox;

#[test]
fn a_workflow_survives_every_format() {
    let sandbox = Sandbox::new();
    let generator = "fan-in:tasks=111,degree=10,duration=3ms,output=2kB,body=sleep";
    sandbox.starling(&["workload", "make", generator, "-o", "made.json"]).ok();
    sandbox.starling(&["workload", "convert", "made.json", "--to", "toml", "-o", "made.toml"]).ok();
    for file in ["made.json", "made.toml", generator] {
        let info = sandbox.starling(&["workload", "info", file, "--json"]).ok().json();
        assert_eq!((&info["tasks"], &info["edges"]), (&111.into(), &110.into()), "{file}: {info}");
        assert_eq!(info["bytes_produced"], 222_000, "{file}: {info}");
        let run = ["run", file, "--nodes", "2", "--json"];
        let report = sandbox.starling(&run).ok().json();
        assert_eq!(report["tasks"]["done"], 111, "{file}: {report}");
    }
    let dot = sandbox.starling(&["workload", "convert", "made.json", "--to", "dot"]).ok();
    assert_eq!(dot.stdout.matches(" -> ").count(), 110);
}

#[test]
fn the_simulator_repeats_itself_and_finds_a_bug_on_purpose() {
    let sandbox = Sandbox::new();
    let check = |more: &[&str]| {
        let mut arguments = vec!["check", "--json"];
        arguments.extend(more);
        sandbox.starling(&arguments)
    };
    let first = check(&["--seeds", "20"]).ok().json();
    assert_eq!(first["seeds"], 20);
    assert_eq!(first["failed"].as_array().map(Vec::len), Some(0), "{first}");
    let again = check(&["--seeds", "20", "--threads", "1"]).ok().json();
    assert_eq!(first["trace_hash"], again["trace_hash"]);
    let mutant = check(&["--seeds", "400", "--mutant", "speak-before-writing"]).expect_code(1);
    assert!(mutant.json()["failed"].as_array().is_some_and(|failed| !failed.is_empty()));
    check(&["--mutant", "no-such-bug"]).expect_code(2);
    // Bugs that seeds rarely show are found by their scenario at once.
    let told = check(&["--mutant", "reads-unleased"]).expect_code(1).json();
    assert_eq!(told["failed"][0]["story"], "a primary is silent", "{told}");
    assert_eq!((&told["seeds"], &told["mutant"]), (&0.into(), &"reads-unleased".into()), "{told}");
}
