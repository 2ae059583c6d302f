//! The witness of a search is checked by a program that shares no code with it.

use std::process::{Command, Output};

use serde_json::{Value, json};
use starling_tests::{Sandbox, has_python, repository};

const TSP: &str = "NAME: small\nTYPE: TSP\nDIMENSION: 5\nEDGE_WEIGHT_TYPE: EUC_2D\n\
    NODE_COORD_SECTION\n1 0 0\n2 10 10\n3 10 0\n4 0 10\n5 5 20\nEOF\n";
const KNAPSACK: &str = "4 11\n6 2\n10 4\n12 6\n13 7\n";
const QAP: &str = "3\n0 1 2\n1 0 3\n2 3 0\n0 9 1\n9 0 4\n1 4 0\n";
const JOBSHOP: &str = "# two jobs\n2 2\n0 3 1 2\n1 4 0 1\n";

fn verify(sandbox: &Sandbox, result: &str) -> Output {
    let mut command = Command::new("python3");
    command.arg(repository().join("scripts/verify-search"));
    command.args(["--optimal", "optimal.csv", result]).current_dir(sandbox.path("."));
    command.output().expect("python3 runs")
}

fn with(result: &Value, field: &str, value: Value) -> Value {
    let mut changed = result.clone();
    changed[field] = value;
    changed
}

#[test]
fn right_witnesses_pass_and_wrong_ones_do_not() {
    if !has_python() {
        return;
    }
    let sandbox = Sandbox::new();
    sandbox.write("optimal.csv", "name,optimal\nsmall,52\nitems,23\nsites,40\nshop,6\n");
    for (problem, file, text, optimum) in [
        ("tsp", "small.tsp", TSP, 52),
        ("tsp-paths", "small.tsp", TSP, 52),
        ("knapsack", "items", KNAPSACK, 23),
        ("qap", "sites.dat", QAP, 40),
        ("jobshop", "shop", JOBSHOP, 6),
    ] {
        sandbox.write(file, text);
        let name = format!("{problem}:{file}");
        let found = sandbox.starling(&["search", name.as_str(), "--json"]).ok();
        sandbox.write("result.json", &found.stdout);
        let result = found.json();
        assert_eq!(result["result"], optimum, "{result}");
        let ran = verify(&sandbox, "result.json");
        assert!(ran.status.success(), "{name}: {}", String::from_utf8_lossy(&ran.stderr));

        let mut worse = result["witness"].clone();
        worse[0] = worse[1].clone();
        for wrong in [
            with(&result, "result", json!(optimum + 1)),
            with(&result, "witness", worse),
            with(&result, "witness", json!([0])),
        ] {
            sandbox.write("wrong.json", wrong.to_string());
            let ran = verify(&sandbox, "wrong.json");
            let errors = String::from_utf8_lossy(&ran.stderr).into_owned();
            assert_eq!(ran.status.code(), Some(1), "{name}: {wrong} passed: {errors}");
            assert!(errors.contains("wrong"), "{errors}");
        }
        sandbox.write("broken.json", "{\"problem\":");
        assert_eq!(verify(&sandbox, "broken.json").status.code(), Some(2));
    }
}

#[test]
fn an_error_in_a_problem_names_file_and_line() {
    let sandbox = Sandbox::new();
    sandbox.write("bad.tsp", TSP.replace("EUC_2D", "XRAY1"));
    let ran = sandbox.starling(&["search", "tsp:bad.tsp"]).expect_code(4);
    assert!(ran.stderr.contains("bad.tsp, line 4: EDGE_WEIGHT_TYPE is XRAY1"), "{}", ran.stderr);
}
