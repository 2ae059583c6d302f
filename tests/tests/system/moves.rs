//! Signals before an end, and tasks that move from a node that is drained.

use std::path::Path;

use starling_tests::{Instance, wait_until};

use crate::cluster::submit;

fn lines(path: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

/// The first task of a job: its id and its node.
fn task_of(instance: &Instance, job: &str) -> (String, String) {
    let task = instance.json(&["task", "list", job])["tasks"][0].clone();
    let text = |key: &str| task[key].as_str().map_or_else(|| task[key].to_string(), str::to_owned);
    let node = text("node");
    let node = if node.starts_with('n') { node } else { format!("n{node}") };
    (text("id"), node)
}

/// Adds a line for each start, and waits for the file `go`. `on_signal`: what it does on USR1.
fn waits(instance: &Instance, on_signal: &str) -> String {
    let path = |name: &str| instance.sandbox().path(name).display().to_string();
    format!(
        "trap '{on_signal}' USR1; echo start >> {}; until [ -e {} ]; do sleep 0.1; done",
        path("starts"),
        path("go")
    )
}

#[test]
fn a_command_gets_its_signal_before_its_time_limit() {
    let instance = Instance::up(1, 1);
    let told = instance.sandbox().path("told");
    let command = format!(
        "trap 'echo told >> {}' USR1; for i in 1 2 3 4 5 6 7 8; do sleep 0.25; done",
        told.display()
    );
    let limited = ["submit", "--wait", "--time-limit", "60s", "--signal", "USR1@59s"];
    let limited = limited.iter().copied().chain(["--", "sh", "-c", &command]);
    instance.starling(&limited.collect::<Vec<_>>()).ok();
    assert_eq!(lines(&told), ["told"], "once");

    let file = instance.sandbox().write(
        "late.toml",
        "[[task]]\nname = \"late\"\ncommand = [\"sh\", \"-c\", \"trap 'exit 0' USR1; while :; do \
         sleep 0.1; done\"]\ntime_limit = \"60s\"\nsignal = \"USR1@58s\"\n",
    );
    let file = file.display().to_string();
    instance.starling(&["submit", "--wait", "--timeout", "60s", "--file", &file]).ok();

    let wrong = |signal: &str, code: i32, text: &str| {
        let limited = ["submit", "--time-limit", "9s", "--signal", signal, "--", "true"];
        let refused = instance.starling(&limited).expect_code(code);
        assert!(refused.stderr.contains(text), "{refused:?}");
    };
    wrong("USR1@9s", 4, "when the command starts");
    wrong("KILL@1s", 2, "no program can handle");
    wrong("USR7@1s", 2, "no signal such as USR1");
    instance.down();
}

#[test]
fn a_drained_node_moves_a_command_that_exits_after_its_signal() {
    let instance = Instance::up_with_copies(3, 1, 2);
    instance.wait_for_copies();
    let command = waits(&instance, "exit 9");
    let job = submit(&instance, &["--signal", "USR1@1s", "--", "sh", "-c", &command]);
    let starts = instance.sandbox().path("starts");
    wait_until("it runs", || lines(&starts).len() == 1);
    let (id, first) = task_of(&instance, &job);
    instance.starling(&["node", "drain", &first, "--timeout", "120s"]).ok();
    wait_until("it runs again", || lines(&starts).len() == 2);
    assert_ne!(task_of(&instance, &job).1, first);
    std::fs::write(instance.sandbox().path("go"), "").expect("there is room");
    // It has no retries, and exited with 9.
    instance.starling(&["job", "wait", &job, "--timeout", "60s"]).ok();
    let why = instance.starling(&["task", "explain", &job, &id]).ok().stdout;
    // If its home was the node that left, no node has the events of the first attempt.
    let knows_first = why.contains(&format!("node {first}"));
    assert!(!knows_first || why.contains("it was moved"), "{why}");
    assert_eq!(lines(&starts).len(), 2);
    instance.down();
}

#[test]
fn at_the_deadline_of_a_drain_a_deaf_command_is_moved() {
    let instance = Instance::up_with_copies(3, 1, 2);
    instance.wait_for_copies();
    let command = waits(&instance, "");
    let deaf = ["--crash-limit", "1", "--signal", "USR1@1s", "--", "sh", "-c", &command];
    let job = submit(&instance, &deaf);
    let starts = instance.sandbox().path("starts");
    wait_until("it runs", || lines(&starts).len() == 1);
    let (_, first) = task_of(&instance, &job);
    let drain = ["node", "drain", &first, "--deadline", "1s", "--timeout", "120s"];
    instance.starling(&drain).ok();
    wait_until("it runs again", || lines(&starts).len() == 2);
    std::fs::write(instance.sandbox().path("go"), "").expect("there is room");
    instance.starling(&["job", "wait", &job, "--timeout", "60s"]).ok();
    instance.down();
}
