//! Open jobs from the command line: tasks are added while the job runs.

use std::fs;

use starling_tests::{Instance, Ran, wait_until};

use crate::cluster::job;

fn open(instance: &Instance) -> String {
    let id = instance.starling(&["submit", "--open", "--name", "steps"]).ok().stdout;
    id.trim().to_owned()
}

/// Adds a task and returns its id.
fn add(instance: &Instance, job: &str, options: &[&str], command: &[&str]) -> String {
    let ran = try_to_add(instance, job, options, command).ok();
    ran.stdout.trim().to_owned()
}

fn try_to_add(instance: &Instance, job: &str, options: &[&str], command: &[&str]) -> Ran {
    let mut arguments = vec!["submit", "--job", job];
    arguments.extend(options);
    arguments.push("--");
    arguments.extend(command);
    instance.starling(&arguments)
}

fn wait_so_far(instance: &Instance, job: &str) -> Ran {
    instance.starling(&["job", "wait", job, "--without-close", "--timeout", "60s"])
}

#[test]
fn later_tasks_read_outputs_of_ended_ones_until_they_are_released() {
    let instance = Instance::up(2, 2);
    let id = open(&instance);
    wait_so_far(&instance, &id).ok(); // Nothing was submitted.
    let make = ["sh", "-c", "echo 41 > n"];
    let first = add(&instance, &id, &["--out", "n"], &make);
    wait_so_far(&instance, &id).ok();
    let info = job(&instance, &id);
    assert_eq!((&info["state"], &info["open"]), (&"running".into(), &true.into()), "{info}");
    assert_eq!(info["held_bytes"], 3, "{info}");
    let text = instance.starling(&["job", "info", &id]).ok().stdout;
    assert!(text.contains("tasks can be added; 3 B of outputs are held"), "{text}");

    let out = instance.sandbox().path("sum").display().to_string();
    let sum = format!("echo $(($(cat n) + 1)) > {out}");
    let read = format!("{first}:n");
    let second = add(&instance, &id, &["--in", &read], &["sh", "-c", &sum]);
    wait_so_far(&instance, &id).ok();
    assert_eq!(fs::read_to_string(&out).expect("it ran").trim(), "42");

    instance.starling(&["job", "release", &id, &first]).ok();
    wait_until("the bytes are free", || job(&instance, &id)["held_bytes"] == 0);
    instance.starling(&["job", "release", &id, &first]).ok(); // Again.
    let array = add(&instance, &id, &["--array", "1-20", "--after", &second], &["true"]);
    assert_eq!(array.lines().count(), 20, "{array}");
    instance.starling(&["job", "close", &id]).ok();
    instance.starling(&["job", "close", &id]).ok();
    instance.starling(&["job", "wait", &id, "--timeout", "60s"]).ok();
    let info = job(&instance, &id);
    assert_eq!((&info["tasks"]["total"], &info["tasks"]["done"]), (&22.into(), &22.into()));
    assert_eq!((&info["state"], &info["open"]), (&"finished".into(), &false.into()), "{info}");
    instance.down();
}

#[test]
fn a_failed_parent_skips_later_tasks_and_the_job_fails() {
    let instance = Instance::up(1, 1);
    let id = open(&instance);
    let failed = add(&instance, &id, &[], &["false"]);
    wait_so_far(&instance, &id).expect_code(1);
    add(&instance, &id, &["--after", &failed], &["true"]);
    wait_so_far(&instance, &id).expect_code(1);
    instance.starling(&["job", "close", &id]).ok();
    instance.starling(&["job", "wait", &id, "--timeout", "60s"]).expect_code(1);
    let info = job(&instance, &id);
    assert_eq!((&info["tasks"]["failed"], &info["tasks"]["skipped"]), (&1.into(), &1.into()));
    let retried = instance.starling(&["job", "retry", &id]).expect_code(4);
    assert!(retried.stderr.contains("was open: it is not retried"), "{retried:?}");
    instance.down();
}

#[test]
fn the_job_is_the_last_one_and_its_tasks_have_names() {
    let instance = Instance::up(1, 1);
    let id = open(&instance);
    add(&instance, "last", &["--name", "a", "--out", "n"], &["sh", "-c", "echo 41 > n"]);
    add(&instance, "last", &["--name", "b", "--in", "a:n"], &["grep", "41", "n"]);
    let absent = try_to_add(&instance, "last", &["--in", "c:n"], &["true"]).expect_code(4);
    assert!(absent.stderr.contains("no task 'c'"), "{absent:?}");
    let to = instance.sandbox().path("kept").display().to_string();
    let fetched = instance.starling(&["job", "fetch", &id, "-o", &to]).expect_code(4);
    assert!(fetched.stderr.contains("an open job keeps none"), "{fetched:?}");
    instance.starling(&["job", "close", &id]).ok();
    instance.starling(&["job", "wait", &id, "--timeout", "60s"]).ok();
}

#[test]
fn wrong_uses_are_refused_with_a_hint() {
    let instance = Instance::up(2, 1);
    let refused = |ran: Ran, part: &str| {
        let ran = ran.expect_code(4);
        assert!(ran.stderr.contains(part), "{part}: {ran:?}");
    };
    let id = open(&instance);
    let task = add(&instance, &id, &["--out", "x"], &["sh", "-c", "echo 1 > x"]);
    refused(try_to_add(&instance, "77", &[], &["true"]), "no job 77");
    let absent = try_to_add(&instance, &id, &["--after", "0.123456"], &["true"]);
    refused(absent, "no task 0.123456");
    let other = format!("{task}:y");
    refused(try_to_add(&instance, &id, &["--in", &other], &["true"]), "its outputs are: x");
    let whole = instance.starling(&["submit", "--", "true"]).ok().stdout.trim().to_owned();
    refused(try_to_add(&instance, &whole, &[], &["true"]), "submit --open");
    refused(instance.starling(&["job", "close", &whole]), "submitted as a whole");
    refused(instance.starling(&["job", "release", &whole, "all"]), "only outputs of open jobs");
    refused(instance.starling(&["job", "release", &id, "0.123456"]), "no task 0.123456");
    instance.starling(&["submit", "--open", "--", "true"]).expect_code(2);
    instance.starling(&["submit", "--after", &task, "--", "true"]).expect_code(2);
    try_to_add(&instance, &id, &["--max-tasks", "5"], &["true"]).expect_code(2);
    instance.starling(&["job", "close", &id]).ok();
    refused(try_to_add(&instance, &id, &[], &["true"]), "is closed");
    instance.starling(&["job", "wait", &id, "--timeout", "60s"]).ok();
    refused(try_to_add(&instance, &id, &[], &["true"]), "is closed");
    // Nothing of that was lost, and nothing was added.
    assert_eq!(job(&instance, &id)["tasks"]["total"], 1);
    let empty = open(&instance);
    instance.starling(&["job", "close", &empty]).ok();
    instance.starling(&["job", "wait", &empty, "--timeout", "60s"]).ok();
    let cancelled = open(&instance);
    instance.starling(&["job", "cancel", &cancelled]).ok();
    refused(try_to_add(&instance, &cancelled, &[], &["true"]), "is closed");
    instance.starling(&["job", "wait", &cancelled, "--timeout", "60s"]).expect_code(1);
    instance.down();
}

#[test]
fn a_killed_home_and_a_restart_of_all_nodes_lose_no_task_and_no_edge() {
    let mut instance = Instance::up(2, 2);
    let id = open(&instance);
    let log = instance.sandbox().path("log");
    let line = format!("echo $STARLING_TASK_ID >> {}", log.display());
    let mut last = add(&instance, &id, &[], &["sh", "-c", &line]);
    let mut all = vec![last.clone()];
    for round in 0..8 {
        // Each waits for the one before, which may have ended.
        last = add(&instance, &id, &["--after", &last], &["sh", "-c", &line]);
        all.push(last.clone());
        if round % 3 == 1 {
            instance.kill(round % 2);
            instance.start_missing();
        }
    }
    instance.kill(0);
    instance.kill(1);
    instance.start_missing();
    last = add(&instance, &id, &["--after", &last], &["sh", "-c", &line]);
    all.push(last);
    wait_so_far(&instance, &id).ok();
    instance.starling(&["job", "close", &id]).ok();
    instance.starling(&["job", "wait", &id, "--timeout", "60s"]).ok();
    let info = job(&instance, &id);
    let done = &info["tasks"]["done"];
    assert_eq!(
        (done, info["tasks"]["total"].as_u64()),
        (&all.len().into(), Some(all.len() as u64))
    );
    // A task that a kill ended may have run twice, but the first lines are in the order of edges.
    let text = fs::read_to_string(&log).expect("the tasks have written it");
    let mut seen: Vec<&str> = Vec::new();
    for line in text.lines() {
        if !seen.contains(&line) {
            seen.push(line);
        }
    }
    assert_eq!(seen, all, "{text}");
    instance.down();
}
