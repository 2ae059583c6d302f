//! Verbs with workflows of all formats, and runs written as WfFormat instances.

use std::fs;
use std::path::Path;

use serde_json::Value;
use starling_tests::{Sandbox, shared_data};

/// One small file of each format, with its tasks and edges in the shared table.
const FILES: &[(&str, u64, u64)] = &[
    ("simgrid/Montage_25.xml", 25, 45),
    ("dot/daggen-100-0.25-0.9-0.3-2.dot", 102, 130),
    ("stg/app/fft.stg", 15, 20),
    ("estee/elementary/splitters.estee.json", 255, 254),
    ("schema_versions/montage-chameleon-2mass-005d-001__v1.3.json", 58, 114),
];

fn schema(data: &Path) -> Value {
    let path = data.join("wfinstances/wfcommons-schema-1.5.json");
    let text = fs::read_to_string(path).expect("the schema is there");
    serde_json::from_str(&text).expect("the schema is JSON")
}

fn valid(schema: &Value, path: &Path, what: &str) -> Value {
    let text = fs::read_to_string(path).expect("it was written");
    let instance: Value = serde_json::from_str(&text).expect("it is JSON");
    let mut wrong = Vec::new();
    validate(schema, &instance, "", &mut wrong);
    assert!(wrong.is_empty(), "{what}: {} wrong: {:?}", wrong.len(), wrong.first());
    instance
}

/// The part of JSON Schema that this schema uses. An unknown keyword is a failure.
fn validate(schema: &Value, value: &Value, at: &str, wrong: &mut Vec<String>) {
    let mut demand = |holds: bool, word: &str| {
        if !holds {
            wrong.push(format!("{at}: {word}: {value}"));
        }
    };
    let rules = schema.as_object().expect("a schema is an object");
    let length = |least: &Value, size: usize| size as u64 >= least.as_u64().expect("a length");
    for (word, rule) in rules {
        match word.as_str() {
            "type" => demand(is_of_type(value, rule.as_str().expect("a type")), word),
            "enum" => demand(rule.as_array().expect("a list").contains(value), word),
            "minLength" => {
                demand(value.as_str().is_none_or(|text| length(rule, text.chars().count())), word);
            }
            "minItems" => demand(value.as_array().is_none_or(|l| length(rule, l.len())), word),
            "minimum" => demand(value.as_f64() >= rule.as_f64(), word),
            "pattern" => demand(value.as_str().is_none_or(|text| matches(text, rule)), word),
            "required" => {
                let keys = rule.as_array().expect("a list").iter().filter_map(Value::as_str);
                for key in keys {
                    demand(value.get(key).is_some(), &format!("{word} {key}"));
                }
            }
            "properties" | "items" => {}
            "format" => {
                let is_known = ["date-time", "uri", "email", "hostname"].map(Value::from);
                assert!(is_known.contains(rule), "format {rule} is not known");
            }
            "$schema" | "description" | "title" | "$comment" | "examples" => {}
            other => panic!("{at}: the schema says '{other}', which is not known"),
        }
    }
    if let (Some(rules), Some(object)) = (rules.get("properties"), value.as_object()) {
        for (key, value) in object {
            if let Some(rule) = rules.get(key) {
                validate(rule, value, &format!("{at}/{key}"), wrong);
            }
        }
    }
    if let (Some(rule), Some(list)) = (rules.get("items"), value.as_array()) {
        for (number, value) in list.iter().enumerate() {
            validate(rule, value, &format!("{at}/{number}"), wrong);
        }
    }
}

fn is_of_type(value: &Value, name: &str) -> bool {
    match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_u64() || value.is_i64(),
        other => panic!("type {other} is not known"),
    }
}

/// `^[...]*$` with digits, both kinds of letters and some further characters.
fn matches(text: &str, pattern: &Value) -> bool {
    let class = pattern.as_str().and_then(|p| p.strip_prefix("^[0-9a-zA-Z")?.strip_suffix("]*$"));
    let further = class.expect("a pattern of the known form");
    text.chars().all(|c| c.is_ascii_alphanumeric() || further.contains(c))
}

#[test]
fn the_schema_finds_what_is_wrong() {
    let Some(data) = shared_data() else { return };
    let schema = schema(&data);
    let row = |id: &str| serde_json::json!({"name": "a", "id": id, "parents": [], "children": []});
    let instance = |row: Value, version: &str| {
        let specification = serde_json::json!({"specification": {"tasks": [row]}});
        serde_json::json!({"name": "w", "schemaVersion": version, "workflow": specification})
    };
    let wrong = |instance: &Value| {
        let mut wrong = Vec::new();
        validate(&schema, instance, "", &mut wrong);
        wrong.len()
    };
    assert_eq!(wrong(&instance(row("a"), "1.5")), 0);
    assert_eq!(wrong(&instance(row(""), "1.4")), 2, "an empty id and a version");
    let mut bad = row("a");
    bad["parents"] = serde_json::json!(["a b", 3]);
    assert_eq!(wrong(&instance(bad, "1.5")), 2, "a character and a type");
    assert_eq!(wrong(&serde_json::json!({"name": "w", "schemaVersion": "1.5"})), 1, "no workflow");
}

#[test]
fn every_verb_takes_every_format() {
    let Some(data) = shared_data() else { return };
    let schema = schema(&data);
    let sandbox = Sandbox::new();
    for &(file, tasks, edges) in FILES {
        let path = data.join(file).display().to_string();
        let info = sandbox.starling(&["workload", "info", &path, "--json"]).ok().json();
        assert_eq!((&info["tasks"], &info["edges"]), (&tasks.into(), &edges.into()), "{file}");
        let bound = ["bound", &path, "--nodes", "2", "--slots", "4", "--json"];
        let bound = sandbox.starling(&bound).ok().json();
        assert_eq!(bound["tasks"], tasks, "{file}");
        let shortest = bound["critical_path_s"].as_f64().expect("a critical path");
        assert_eq!(info["critical_path_s"].as_f64(), Some(shortest), "{file}");
        let sim = ["sim", &path, "--nodes", "2", "--slots", "4", "--json"];
        let sim = sandbox.starling(&sim).ok().json();
        assert_eq!(sim["tasks"]["done"], tasks, "{file}");
        assert!(sim["makespan_s"].as_f64().expect("a makespan") >= shortest, "{file}");
        let out = sandbox.path("converted.json");
        let to = out.display().to_string();
        sandbox.starling(&["workload", "convert", &path, "--to", "wfformat", "-o", &to]).ok();
        valid(&schema, &out, file);
        let again = sandbox.starling(&["workload", "info", &to, "--json"]).ok().json();
        for key in ["tasks", "edges", "work_s", "critical_path_s", "bytes_produced"] {
            assert_eq!(again[key], info[key], "{file}: {key}");
        }
    }
}

#[test]
fn a_run_becomes_an_instance_that_validates() {
    let Some(data) = shared_data() else { return };
    let schema = schema(&data);
    let sandbox = Sandbox::new();
    let out = sandbox.path("ran.json");
    let to = out.display().to_string();
    for &(file, tasks, edges) in FILES {
        let path = data.join(file).display().to_string();
        let run = ["run", &path, "--nodes", "3", "--slots", "2", "--scale", "0", "--json"];
        let report = sandbox.starling(&[&run[..], &["--wfformat", &to]].concat()).ok().json();
        assert_eq!(report["tasks"]["done"], tasks, "{file}");
        let instance = valid(&schema, &out, file);
        let execution = &instance["workflow"]["execution"];
        let ran = execution["tasks"].as_array().expect("a list of tasks");
        assert_eq!(ran.len() as u64, tasks, "{file}: each ran");
        let machines = execution["machines"].as_array().expect("a list of machines");
        assert_eq!(machines.len(), 3, "{file}");
        let is_machine = |name: &Value| machines.iter().any(|machine| machine["nodeName"] == *name);
        assert!(ran.iter().all(|task| is_machine(&task["machines"][0])), "{file}");
        assert_eq!(execution["makespanInSeconds"], report["makespan_s"], "{file}");
        let read = sandbox.starling(&["workload", "info", &to, "--json"]).ok().json();
        assert_eq!((&read["tasks"], &read["edges"]), (&tasks.into(), &edges.into()), "{file}");
    }
}

#[test]
fn real_commands_have_their_real_times_and_sizes() {
    let Some(data) = shared_data() else { return };
    let sandbox = Sandbox::new();
    let workflow = "[[task]]\nname = \"make\"\n\
        command = [\"sh\", \"-c\", \"sleep 0.2; head -c 1000 /dev/zero > a; printf xyz > b\"]\n\
        outputs = { a = \"a\", b = \"b\" }\n\
        [[task]]\nname = \"use it\"\ncommand = [\"cat\", \"a\", \"b\"]\ninputs = { a = \"a\", b = \"b\" }\n\
        [[task]]\nname = \"fail\"\ncommand = [\"false\", \"\"]\n";
    let path = sandbox.write("w.toml", workflow);
    let out = sandbox.path("ran.json");
    let (path, to) = (path.display().to_string(), out.display().to_string());
    let ran = sandbox.starling(&["run", &path, "--wfformat", &to, "--json"]);
    assert_eq!(ran.code, 1, "one task fails: {}", ran.stderr);
    let instance = valid(&schema(&data), &out, "commands");
    let execution = &instance["workflow"]["execution"];
    let tasks = execution["tasks"].as_array().expect("a list of tasks");
    let of = |id: &str| tasks.iter().find(|task| task["id"] == id);
    let make = of("make").expect("it ran");
    assert!(make["runtimeInSeconds"].as_f64().is_some_and(|s| (0.2..60.0).contains(&s)), "{make}");
    assert_eq!((&make["writtenBytes"], &make["coreCount"]), (&1003.into(), &1.into()));
    assert_eq!(of("use_it").expect("it ran")["readBytes"], 1003);
    assert!(of("fail").is_none(), "what failed never ran to its end");
    let files = instance["workflow"]["specification"]["files"].as_array().expect("a list of files");
    let size =
        |id: &str| files.iter().find(|file| file["id"] == id).map(|file| &file["sizeInBytes"]);
    assert_eq!((size("a"), size("b")), (Some(&1000.into()), Some(&3.into())));
}
