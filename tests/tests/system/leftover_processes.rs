//! Leftovers of commands and killed processes, and the rule of one process for each node.

use std::fs;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use starling_tests::{Instance, Sandbox, is_alive, wait_until};

/// The processes of this machine with this variable in their environment.
fn with_variable(variable: &str) -> Vec<u32> {
    let entries = fs::read_dir("/proc").expect("processes are listed");
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let has = |pid: &u32| {
        let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|one| one == variable.as_bytes())
    };
    pids.filter(has).collect()
}

/// Like `rm -rf`, repeated while running nodes still create files there.
fn remove_from_living(directory: &Path) {
    wait_until("the directory is gone", || {
        let _ = fs::remove_dir_all(directory);
        !directory.exists()
    });
}

/// The children of a process.
fn children(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).expect("the process runs");
    let lists = threads.filter_map(|it| fs::read_to_string(it.ok()?.path().join("children")).ok());
    let numbers = |list: String| list.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    lists.flat_map(numbers).map(|number| number.parse().expect("a number")).collect()
}

fn signal(pid: u32, signal: Signal) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("small")).expect("not zero");
    kill_process(pid, signal).expect("the process runs");
}

#[test]
fn what_left_its_session_ends_with_its_attempt_and_nothing_else_does() {
    let instance = Instance::up(1, 3);
    let variable = |name: &str| format!("LEFT_BEHIND={}-{name}", std::process::id());
    let submit = |name: &str, script: &str, more: &[&str]| {
        let variable = variable(name);
        let arguments = ["submit", "--env", &variable];
        let all = [&arguments[..], more, &["--", "sh", "-c", script]].concat();
        let submitted = instance.json(&all);
        let job = submitted["job"].as_str().expect("the job's number").to_owned();
        (variable, job)
    };
    let other = submit("other", "setsid sleep 300 & sleep 299", &[]);
    wait_until("the other job runs", || with_variable(&other.0).len() >= 3);
    let limited = submit("limit", "setsid sleep 300 & sleep 299", &["--time-limit", "1s"]);
    let ended = submit("end", "setsid sleep 300 & sleep 0.2", &[]);
    instance.starling(&["job", "wait", &ended.1]).ok();
    wait_until("nothing of an ended task is left", || with_variable(&ended.0).is_empty());
    instance.starling(&["job", "wait", &limited.1]).expect_code(1);
    wait_until("nothing is left at a time limit", || with_variable(&limited.0).is_empty());
    assert!(with_variable(&other.0).len() >= 3, "another job's processes were not touched");
    instance.starling(&["job", "cancel", &other.1]).ok();
    wait_until("nothing is left of a cancelled job", || with_variable(&other.0).is_empty());
    let last = submit("down", "setsid sleep 300 & sleep 299", &[]);
    wait_until("the last job runs", || with_variable(&last.0).len() >= 3);
    instance.starling(&["down"]).ok();
    wait_until("nothing is left after down", || with_variable(&last.0).is_empty());
}

#[test]
fn a_spawner_that_hangs_is_replaced_and_its_task_runs_again() {
    let instance = Instance::up(1, 1);
    let count = instance.sandbox().path("count");
    let script = format!("echo x >> {0}; [ $(wc -l < {0}) -gt 1 ] || sleep 300", count.display());
    let submitted = instance.json(&["submit", "--", "sh", "-c", &script]);
    let job = submitted["job"].as_str().expect("the job's number");
    wait_until("the task runs", || count.exists());
    let spawners = children(instance.pid(0));
    assert_eq!(spawners.len(), 1);
    signal(spawners[0], Signal::STOP);
    wait_until("it is said why no command starts", || {
        let told = instance.starling(&["task", "explain", job]).ok().stdout;
        told.contains("n0 starts no commands now: its spawner process hangs")
    });
    instance.starling(&["job", "wait", job, "--timeout", "50s"]).ok();
    let told = instance.starling(&["task", "explain", job]).ok().stdout;
    assert!(!told.contains("starts no commands"), "{told}");
    assert!(!is_alive(spawners[0]), "it was killed");
    let log = fs::read_to_string(instance.directory().join("nodes/0/node.log")).unwrap();
    assert!(log.contains("hangs"), "{log}");
}

#[test]
fn a_node_without_its_directory_leaves_and_up_starts_one() {
    let mut instance = Instance::up_with_copies(3, 1, 2);
    let first = instance.pid(2);
    remove_from_living(&instance.directory().join("nodes/2"));
    instance.start_missing();
    wait_until("the process without a directory has left", || !is_alive(first));
    let second = instance.pid(2);
    instance.starling(&["submit", "--wait", "--timeout", "50s", "--", "true"]).ok();
    // `down` also finds the nodes without their files.
    remove_from_living(&instance.directory().join("nodes"));
    instance.starling(&["down"]).ok();
    // It may have noticed by itself, and be about to end.
    wait_until("the second process has left", || !is_alive(second));
}

#[test]
fn up_gives_a_missing_node_the_slots_that_it_had() {
    let mut instance = Instance::up_with_copies(2, 3, 2);
    // The list of a node that has missed the last change of the map may be old.
    let slots_are = |instance: &Instance, slots: u64| {
        wait_until("node 1 has its slots", || {
            let nodes = instance.json(&["node", "list"]);
            nodes["nodes"][1]["state"] == "up" && nodes["nodes"][1]["slots"] == slots
        });
    };
    instance.kill(1);
    instance.starling(&["up"]).ok();
    slots_are(&instance, 3);
    instance.kill(1);
    instance.starling(&["up", "--slots", "2"]).ok();
    instance.kill(1);
    instance.starling(&["up"]).ok();
    slots_are(&instance, 2);
}

#[test]
fn control_characters_reach_no_table_and_no_error() {
    let instance = Instance::up(1, 1);
    let name = "a\n999\tforged\x1b[2J\x07\u{202e}";
    let script = "printf '\\033[31m\\007' >&2; exit 3";
    let arguments = ["submit", "--wait", "--name", name, "--", "sh", "-c", script];
    let ran = instance.starling(&arguments).expect_code(1);
    let mut texts = vec![ran.stdout + &ran.stderr];
    for verb in [&["job", "list"][..], &["job", "info", "1"], &["task", "list", "1"]] {
        let ran = instance.starling(verb).ok();
        texts.push(ran.stdout + &ran.stderr);
    }
    for text in &texts {
        assert!(!text.contains(['\x1b', '\x07', '\u{202e}']), "{text:?}");
        assert!(!text.lines().any(|line| line.starts_with("999")), "{text:?}");
    }
    assert_eq!(instance.json(&["job", "list"])["jobs"][0]["name"], name);
}

#[test]
fn a_killed_run_leaves_nothing_for_longer_than_the_next_one() {
    let sandbox = Sandbox::new();
    let directories = || {
        let entries = fs::read_dir(std::env::temp_dir()).unwrap().filter_map(Result::ok);
        let names = entries.map(|entry| entry.path());
        names.filter(|path| is_run(path)).collect::<Vec<_>>()
    };
    let before = directories();
    let run = sandbox.start(&["run", "bag:tasks=1,duration=60s"]);
    let mine = |pid: u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        let links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        let lock = links.into_iter().find(|link| link.ends_with("run.lock"))?;
        lock.parent().map(Path::to_owned)
    };
    let mut found = None;
    wait_until("the run has a directory", || {
        found = mine(run.pid());
        found.is_some()
    });
    let directory = found.expect("waited for");
    assert!(!before.contains(&directory));
    run.signal(Signal::KILL);
    let _ = run.end_within(Duration::from_secs(10));
    assert!(directory.exists());
    sandbox.starling(&["run", "bag:tasks=1"]).ok();
    assert!(!directory.exists(), "the next run has removed it");
}

fn is_run(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("starling-run-"))
}
