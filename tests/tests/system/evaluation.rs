//! The paper's evaluation, at fractions of its scale.

use starling_tests::{Sandbox, shared_data};

#[test]
fn the_evaluation_writes_its_page_and_can_be_repeated() {
    let sandbox = Sandbox::new();
    let evaluate = |more: &[&str]| {
        let mut arguments = vec!["eval", "paper", "--quick", "-o", "page", "--json"];
        arguments.extend(more);
        sandbox.starling(&arguments)
    };
    let recorded = shared_data().map(|data| data.join("wfinstances").display().to_string());
    let workflows = recorded.iter().flat_map(|folder| ["--workflows", folder]);
    let first = evaluate(&workflows.collect::<Vec<_>>()).ok().json();
    assert_eq!(first["schema"], 1);
    let runs = first["runs"].as_array().expect("a list");
    assert!(runs.len() > 60, "{} runs", runs.len());
    let arms = |arm: &str| runs.iter().filter(|run| run["arm"] == arm).count();
    assert!(arms("simulated") > 40 && arms("real") > 8 && arms("computed") == 4, "{runs:?}");
    let claims = first["claims"].as_array().expect("a list");
    assert!(claims.iter().all(|claim| claim["verdict"] != "absent"), "{claims:?}");

    let page = std::fs::read_to_string(sandbox.path("page/index.html")).expect("it is there");
    let figures = ["5a", "5b", "6a", "6b", "7:", "8:", "9b", "11:", "12:", "13:"]
        .map(|name| format!("Figure {name}"));
    for heading in figures.iter().map(String::as_str).chain([
        "Table 4",
        "85.9",
        "7,300",
        "2,330,000",
        "Kodiak itself",
        "service times of",
    ]) {
        assert!(page.contains(heading), "{heading}");
    }
    assert!(page.matches("<svg").count() >= 12, "charts are in the page");
    let absent = usize::from(recorded.is_none());
    assert_eq!(page.matches("Not to be had").count(), absent, "every point that can be had ended");
    assert_eq!(page.matches("no recorded workflows were found").count(), absent);
    for file in ["fig6a.csv", "fig8-flds.svg", "table4.csv", "claims.csv", "results.json"] {
        let length = std::fs::metadata(sandbox.path("page").join(file)).map(|file| file.len());
        assert!(length.as_ref().is_ok_and(|length| *length > 100), "{file}: {length:?}");
    }

    // Simulated results depend only on the command line.
    let again = evaluate(&["--only", "fig6a", "--seed", "1", "--reuse"]).ok().json();
    assert!(again["runs"].as_array().expect("a list").iter().all(|run| run["reused"] == true));
    // They do not depend on the user's settings.
    sandbox.write("starling.toml", "policy = \"mdl\"\nbandwidth = \"1Mbit\"\n");
    let fresh = evaluate(&["--only", "fig6a", "--seed", "1"]).ok().json();
    let efficiency = |told: &serde_json::Value| told["runs"][0]["report"]["efficiency"].clone();
    assert!(efficiency(&again).is_number());
    assert_eq!(efficiency(&again), efficiency(&fresh));
    let policies = |told: &serde_json::Value| -> Vec<serde_json::Value> {
        let runs = told["runs"].as_array().expect("a list");
        runs.iter().map(|run| run["report"]["policy"].clone()).collect()
    };
    assert_eq!(policies(&again), policies(&fresh));
    evaluate(&["--only", "fig99"]).expect_code(2);
}

#[test]
fn an_evaluation_leaves_run_records_if_asked() {
    let sandbox = Sandbox::new();
    let evaluate = |more: &[&str]| {
        let common = ["eval", "paper", "--quick", "--only", "fig5b,fig13", "-o", "page", "--json"];
        sandbox.starling(&[&common, more].concat()).ok().json()
    };
    let records = |told: &serde_json::Value| -> Vec<String> {
        let runs = told["runs"].as_array().expect("a list").iter();
        runs.filter_map(|run| run["record"].as_str().map(str::to_owned)).collect()
    };
    assert_eq!(records(&evaluate(&[])), Vec::<String>::new());
    let told = evaluate(&["--records"]);
    let records = records(&told);
    let is_of_nodes = |run: &&serde_json::Value| {
        let command = run["command"].as_str().expect("a text");
        command.starts_with("starling run") || command.starts_with("starling sim")
    };
    let runs = told["runs"].as_array().expect("a list").iter().filter(is_of_nodes);
    assert_eq!(records.len(), runs.count(), "{told}");
    let shown = sandbox.starling(&["report", "--from", &records[0], "--json"]).ok().json();
    assert_eq!(shown["state"], "finished", "{shown}");
    let page = std::fs::read_to_string(sandbox.path("page/index.html")).expect("it is there");
    assert!(page.contains(&format!("starling report --from {}", records[0])));
}
