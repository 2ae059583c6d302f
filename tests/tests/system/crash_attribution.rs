//! Commands on nodes that die or are stopped: no command fails because of that.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use starling_tests::{Instance, is_alive, wait_until};

use crate::cluster::{job, submit};

/// The number of starts that tasks recorded.
fn began(instance: &Instance) -> usize {
    let text = fs::read_to_string(instance.sandbox().path("began")).unwrap_or_default();
    text.lines().count()
}

/// A task that records its start, and sleeps.
fn script(instance: &Instance, sleep_s: u32) -> String {
    format!("echo x >> {}; sleep {sleep_s}", instance.sandbox().path("began").display())
}

/// `task explain` of the first task of a job.
fn explained(instance: &Instance, id: &str) -> String {
    let tasks = instance.json(&["task", "list", id]);
    let task = tasks["tasks"][0]["id"].as_str().unwrap_or_else(|| panic!("{tasks}")).to_owned();
    instance.starling(&["task", "explain", id, &task]).ok().stdout
}

#[test]
fn what_ran_as_all_nodes_were_killed_four_times_ends_well() {
    let mut instance = Instance::up_with_copies(3, 2, 2);
    let script = script(&instance, 3);
    let id = submit(&instance, &["--array", "1-4", "--", "sh", "-c", &script]);
    let mut before = 0;
    for _ in 0..4 {
        wait_until("some of them run", || began(&instance) > before);
        std::thread::sleep(Duration::from_millis(500));
        let pids: Vec<u32> = (0..3).map(|node| instance.pid(node)).collect();
        for &pid in &pids {
            let pid = Pid::from_raw(pid.cast_signed()).expect("a process");
            kill_process(pid, Signal::KILL).expect("the node runs");
        }
        wait_until("all are gone", || !pids.iter().any(|&pid| is_alive(pid)));
        // The nodes may start them before all are back.
        before = began(&instance);
        instance.start_missing();
    }
    instance.starling(&["job", "wait", &id]).ok();
    assert_eq!(job(&instance, &id)["tasks"]["done"], 4);
    let explained = explained(&instance, &id);
    assert!(explained.contains("which is not counted"), "{explained}");
    instance.down();
}

#[test]
fn what_ran_as_its_only_node_was_stopped_four_times_ends_well() {
    let mut instance = Instance::up(1, 2);
    let script = script(&instance, 2);
    let id = submit(&instance, &["--", "sh", "-c", &script]);
    for round in 1..=4 {
        wait_until("it runs", || began(&instance) >= round);
        instance.starling(&["down"]).ok();
        instance.start_missing();
    }
    instance.starling(&["job", "wait", &id]).ok();
    let explained = explained(&instance, &id);
    assert!(explained.contains("stopped in order"), "{explained}");
    instance.down();
}

#[test]
fn a_command_of_a_node_that_stops_is_asked_first() {
    let mut instance = Instance::up(1, 1);
    let asked = instance.sandbox().path("asked").display().to_string();
    let began = instance.sandbox().path("began").display().to_string();
    let script = format!(
        "test -e {asked} && exit 0; trap 'echo x > {asked}; exit 1' TERM; echo x >> {began}; \
         while true; do sleep 0.05; done"
    );
    let id = submit(&instance, &["--", "sh", "-c", &script]);
    wait_until("it runs", || fs::exists(&began).unwrap_or(false));
    instance.starling(&["down"]).ok();
    assert!(fs::exists(&asked).unwrap_or(false), "it had time to act on the signal");
    instance.start_missing();
    instance.starling(&["job", "wait", &id]).ok();
    instance.down();
}

/// A batch system signals all processes of a step one after another. The commands may end before
/// their node gets the signal.
#[test]
fn commands_that_are_stopped_just_before_their_node_have_not_failed() {
    let mut instance = Instance::up(1, 2);
    let began = instance.sandbox().path("began").display().to_string();
    let ready = instance.sandbox().path("ready").display().to_string();
    let script = |acts: &str| {
        format!(
            "test -e {ready} && exit 0; {acts} echo $$ >> {began}; while sleep 0.05; do :; done"
        )
    };
    let dies = submit(&instance, &["--", "sh", "-c", &script("")]);
    let acts = submit(&instance, &["--", "sh", "-c", &script("trap 'exit 3' TERM;")]);
    wait_until("both run", || self::began(&instance) == 2);
    // The end of a command that handles the signal is doubtful for a share of its runtime.
    std::thread::sleep(Duration::from_secs(3));
    let signal = |pid: u32| {
        let pid = Pid::from_raw(pid.cast_signed()).expect("a process");
        kill_process(pid, Signal::TERM).expect("it runs");
    };
    for line in fs::read_to_string(&began).expect("both have written").lines() {
        signal(line.parse().expect("a number"));
    }
    std::thread::sleep(Duration::from_millis(200));
    let node = instance.pid(0);
    signal(node);
    wait_until("the node has ended", || !is_alive(node));
    instance.sandbox().write("ready", "");
    instance.start_missing();
    for id in [dies, acts] {
        instance.starling(&["job", "wait", &id]).ok();
        let explained = explained(&instance, &id);
        assert!(explained.contains("stopped in order"), "{explained}");
    }
    instance.down();
}

#[test]
fn a_limit_counts_no_node_that_stops_in_order() {
    let mut instance = Instance::up_with_copies(3, 2, 2);
    let ready = instance.sandbox().path("ready").display().to_string();
    let script = script(&instance, 0) + &format!("; until test -e {ready}; do sleep 0.1; done");
    let never = ["--crash-limit", "never-restart", "--array", "1-6", "--", "sh", "-c", &script];
    let id = submit(&instance, &never);
    for round in 1..=2 {
        wait_until("all run", || began(&instance) >= round * 6);
        instance.starling(&["down"]).ok();
        instance.start_missing();
    }
    instance.sandbox().write("ready", "");
    instance.starling(&["job", "wait", &id]).ok();
    let explained = explained(&instance, &id);
    assert!(explained.contains("stopped in order"), "{explained}");
    instance.down();
}

#[test]
fn a_limit_counts_every_death() {
    let mut instance = Instance::up(1, 2);
    let script = script(&instance, 60);
    let never = ["--crash-limit", "never-restart", "--", "sh", "-c", &script];
    let id = submit(&instance, &never);
    wait_until("it runs", || began(&instance) >= 1);
    instance.kill(0);
    instance.start_missing();
    instance.starling(&["job", "wait", &id]).expect_code(1);
    let state = job(&instance, &id);
    let error = state["failures"][0]["error"].as_str().unwrap_or_default();
    assert!(error.contains("died once (its crash limit is 1)"), "{state}");
    let wrong = ["submit", "--crash-limit", "many", "--", "true"];
    let said = instance.starling(&wrong).expect_code(2).stderr;
    assert!(said.contains("never-restart"), "{said}");
    instance.down();
}
