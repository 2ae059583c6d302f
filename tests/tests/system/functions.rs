//! Calls of functions: workflow files, the command line, and what nodes leave behind.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use starling_tests::{Instance, has_python, is_alive, wait_until};

use crate::cluster::submit;

const MODULE: &str = r#"
import os, sys, time

def numbers(count):
    print("numbers", count)
    return list(range(count))

def double(values, by=2):
    return [value * by for value in values]

def total(parts, scale=1.0, name=None):
    return {"sum": sum(sum(part) for part in parts) * scale, "name": name}

def large(count):
    return "x" * count

def length(text):
    return len(text)

def words(path):
    with open(path) as file:
        return len(file.read().split())

def fail():
    print("it begins")
    raise KeyError("absent")

def wait(mark):
    with open(mark, "w") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(300)
"#;

const WORKFLOW: &str = r#"
[[task]]
name = "numbers"
function = "work:numbers"
args = [100]

[[task]]
name = "double"
array = "1-20"
function = "work:double"
args = [{ "$result" = "numbers" }]
kwargs = { by = "{i}" }

[[task]]
name = "total"
function = "work:total"
args = [{ "$result" = "double-1..20" }]
kwargs = { scale = 0.5, name = "all" }
outputs = { result = { file = "total.json", keep = true } }

[[task]]
name = "show"
command = ["sh", "-c", "echo $(cat {in:t}) and more > {out:o}"]
inputs = { t = "total.json" }
outputs = { o = "shown.txt" }

[[task]]
name = "words"
function = "work:words"
inputs = { s = "shown.txt" }
args = ["{in:s}"]
outputs = { n = { file = "words.json", keep = true } }

[[task]]
name = "large"
function = "work:large"
args = [3000000]

[[task]]
name = "length"
function = "work:length"
args = [{ "$result" = "large" }]
outputs = { n = { file = "length.json", keep = true } }
"#;

#[test]
fn results_travel_between_functions_and_commands_on_two_nodes() {
    if !has_python() {
        return;
    }
    let instance = Instance::up(2, 2);
    instance.sandbox().write("work.py", MODULE);
    instance.sandbox().write("w.toml", WORKFLOW);
    let id = submit(&instance, &["--file", "w.toml"]);
    instance.starling(&["job", "wait", &id]).ok();
    let results = instance.sandbox().path("results");
    instance.starling(&["job", "fetch", &id, "-o", &results.display().to_string()]).ok();
    let read = |name: &str| fs::read_to_string(results.join(name)).expect("it was fetched");
    let sum = f64::from((0..100).sum::<u32>() * (1..=20).sum::<u32>()) * 0.5;
    let total: serde_json::Value = serde_json::from_str(&read("total.json")).expect("JSON");
    assert_eq!(total, serde_json::json!({"sum": sum, "name": "all"}));
    assert_eq!(read("length.json"), "3000000");
    assert_eq!(read("words.json"), (read("total.json").split(' ').count() + 2).to_string());
    let printed = instance.starling(&["job", "output", &id]).ok();
    assert!(printed.stdout.contains("numbers 100"), "{}", printed.stdout);
    instance.down();
}

#[test]
fn a_function_from_the_command_line_and_its_failures() {
    if !has_python() {
        return;
    }
    let instance = Instance::up(1, 2);
    instance.sandbox().write("work.py", MODULE);
    let arguments = ["--wait", "--function", "work:total", "--", "[[1, 2], [3]]", "2"];
    let id = submit(&instance, &arguments);
    let results = instance.sandbox().path("results");
    instance.starling(&["job", "fetch", &id, "-o", &results.display().to_string()]).ok();
    let names = fs::read_dir(&results).expect("results").map(|it| it.expect("one").path());
    let texts: Vec<String> = names.map(|path| fs::read_to_string(path).expect("text")).collect();
    let total: serde_json::Value = serde_json::from_str(&texts[0]).expect("JSON");
    assert_eq!((texts.len(), &total["sum"]), (1, &serde_json::json!(12)));

    let failed = instance.starling(&["submit", "--wait", "--function", "work:fail"]).expect_code(1);
    assert!(failed.stderr.contains("KeyError: 'absent'"), "{}", failed.stderr);
    let id = failed.stdout.trim();
    let printed = instance.starling(&["job", "output", id, "--stderr"]).ok();
    assert!(printed.stdout.contains("in fail"), "{}", printed.stdout);

    let refused = instance.starling(&["submit", "--function", "nonsense"]).expect_code(4);
    assert!(refused.stderr.contains("is not module:name"), "{}", refused.stderr);
    let refused = instance.starling(&["submit", "--function", "work:total", "--", "{x"]);
    assert!(refused.expect_code(4).stderr.contains("is not JSON"));
    instance.down();
}

#[test]
fn a_killed_node_leaves_no_worker_and_its_calls_run_again() {
    if !has_python() {
        return;
    }
    let mut instance = Instance::up(1, 2);
    instance.sandbox().write("work.py", MODULE);
    let mark = instance.sandbox().path("mark");
    let argument = format!("{:?}", mark.display().to_string());
    submit(&instance, &["--function", "work:wait", "--", &argument]);
    let pid = || -> Option<u32> {
        let text = fs::read_to_string(&mark).ok()?;
        text.ends_with('\n').then(|| text.trim().parse().expect("a number"))
    };
    wait_until("the call runs", || pid().is_some());
    let first = pid().expect("it runs");
    let node = Pid::from_raw(i32::try_from(instance.pid(0)).expect("small")).expect("not zero");
    kill_process(node, Signal::KILL).expect("it runs");
    wait_until("the worker has ended", || !is_alive(first));
    fs::remove_file(&mark).expect("it is there");
    instance.start_missing();
    wait_until("the call runs again", || pid().is_some());
    let second = pid().expect("it runs");
    assert_ne!(first, second);
    instance.down();
    wait_until("the worker has ended", || !is_alive(second));
}
