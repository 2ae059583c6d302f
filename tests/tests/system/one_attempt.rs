//! A task with random output runs again: all final results come from one attempt of it.

use std::fs;
use std::path::Path;

use starling_tests::{Instance, wait_until};

const WORKFLOW: &str = r#"
[[task]]
name = "A"
command = ["sh", "-c", "od -An -N8 -tx8 /dev/urandom > {out:x}; cp {out:x} {out:d}"]
outputs = { x = { file = "x", keep = true }, d = "d" }
[[task]]
name = "B"
command = ["sh", "-c", "cp {in:x} {out:b}"]
inputs = { x = "x" }
outputs = { b = { file = "b", keep = true } }
[[task]]
name = "below"
command = ["sh", "-c", "cp {in:b} {out:e}"]
inputs = { b = "b" }
outputs = { e = { file = "e", keep = true } }
[[task]]
name = "gate"
command = ["sh", "-c", "while [ ! -e GATE ]; do sleep 0.1; done; echo > {out:g}"]
outputs = { g = "g" }
[[task]]
name = "C"
command = ["sh", "-c", "cp {in:d} {out:c}"]
inputs = { d = "d", g = "g" }
outputs = { c = { file = "c", keep = true } }
"#;

/// Starts a job and waits until all but two tasks have ended. Returns the job, the node of its
/// first task, and the file that lets it continue.
fn begun(instance: &Instance) -> (String, u32, std::path::PathBuf) {
    let gate = instance.sandbox().path("gate");
    let file = instance.sandbox().path("w.toml");
    fs::write(&file, WORKFLOW.replace("GATE", &gate.display().to_string())).expect("a file");
    let job = instance.json(&["submit", "--file", &file.display().to_string()])["job"].clone();
    let job = job.as_str().expect("a job's id").to_owned();
    let done = |name: &str| {
        let tasks = instance.json(&["task", "list", &job]);
        let task = tasks["tasks"].as_array().and_then(|tasks| {
            tasks.iter().find(|task| task["name"] == name && task["state"] == "done").cloned()
        });
        task.map(|task| task["node"].as_u64().expect("a node"))
    };
    wait_until("all but the last to be done", || done("below").is_some());
    let node = done("A").expect("it was done before its reader");
    (job, u32::try_from(node).expect("a small number"), gate)
}

fn read(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name)).unwrap_or_default()
}

#[test]
fn readers_of_other_bytes_run_again() {
    let mut instance = Instance::up_with_copies(3, 2, 2);
    let (job, node, gate) = begun(&instance);
    instance.kill(node);
    fs::write(gate, "").expect("a file");
    instance.starling(&["job", "wait", &job]).ok();
    let out = instance.sandbox().path("out");
    instance.starling(&["job", "fetch", &job, "-o", &out.display().to_string()]).ok();
    let x = read(&out, "x");
    assert!(!x.is_empty());
    for name in ["b", "c", "e"] {
        assert_eq!(read(&out, name), x, "{name} has read another attempt's bytes");
    }
}

#[test]
fn what_was_fetched_is_not_replaced() {
    let mut instance = Instance::up_with_copies(3, 2, 2);
    let (job, node, gate) = begun(&instance);
    let early = instance.sandbox().path("early");
    instance.starling(&["job", "fetch", &job, "-o", &early.display().to_string()]).ok();
    assert_eq!(read(&early, "x"), read(&early, "b"));
    instance.kill(node);
    fs::write(gate, "").expect("a file");
    let waited = instance.starling(&["job", "wait", &job]).expect_code(1);
    let text = format!("{}{}", waited.stdout, waited.stderr);
    assert!(text.contains("task 'A' is not deterministic; its output"), "{text}");
    // What was done stays done, and what was kept is there; only the waiting task failed.
    let tasks = instance.json(&["task", "list", &job]);
    let state = |name: &str| {
        let rows = tasks["tasks"].as_array().expect("a list");
        rows.iter().find(|row| row["name"] == name).expect("a task")["state"].clone()
    };
    assert_eq!(
        ["A", "B", "below", "gate", "C"].map(state),
        ["done", "done", "done", "done", "failed"]
    );
    let late = instance.sandbox().path("late");
    instance.starling(&["job", "fetch", &job, "-o", &late.display().to_string()]);
    for name in ["x", "b", "e"] {
        assert_eq!(read(&late, name), read(&early, "x"), "{name}");
    }
    // The task that failed is the one that a retry runs, and it cannot be done any more.
    let again = instance.starling(&["job", "retry", &job, "C", "--wait"]).expect_code(1);
    let text = format!("{}{}", again.stdout, again.stderr);
    assert!(text.contains("task 'A' is not deterministic; its output"), "{text}");
}
