//! Cancelled tasks and jobs: the whole subtree ends permanently, with its processes.

use std::fs;

use serde_json::Value;
use starling_tests::{Instance, is_alive, wait_until};

use crate::cluster::{job, submit, wait_for_pid};

fn state_of(instance: &Instance, id: &str, name: &str) -> String {
    let list = instance.json(&["task", "list", id]);
    let tasks = list["tasks"].as_array().expect("a list of tasks");
    let task = tasks.iter().find(|task| task["name"] == name);
    task.and_then(|task| task["state"].as_str()).unwrap_or_default().to_owned()
}

fn ended(info: &Value) -> u64 {
    let tasks = &info["tasks"];
    let count = |name: &str| tasks[name].as_u64().unwrap_or(0);
    count("done") + count("failed") + count("cancelled") + count("skipped")
}

#[test]
fn a_cancelled_task_takes_its_subtree_with_it_and_nothing_else() {
    let instance = Instance::up_with_copies(2, 2, 1);
    let pid_file = instance.sandbox().path("pid").display().to_string();
    let text = format!(
        "[[task]]\nname='root'\noutputs={{x='x'}}\n\
         command=['sh','-c','echo $$ > {pid_file}.new; mv {pid_file}.new {pid_file}; sleep 1000']\n\
         [[task]]\nname='child-{{i}}'\narray='1-3'\ninputs={{x='x'}}\noutputs={{y='y{{i}}'}}\n\
         command=['cp','x','y{{i}}']\n\
         [[task]]\nname='grandchild'\ninputs={{y=['y1..3']}}\ncommand=['true']\n\
         [[task]]\nname='other'\noutputs={{z='z'}}\ncommand=['touch','z']\n\
         [[task]]\nname='after-other'\ninputs={{z='z'}}\ncommand=['true']\n"
    );
    instance.sandbox().write("tree.toml", text);
    let id = submit(&instance, &["--file", "tree.toml"]);
    let pid = wait_for_pid(&pid_file);
    wait_until("the other branch is done", || state_of(&instance, &id, "after-other") == "done");

    let unknown = instance.starling(&["task", "cancel", &id, "unknown-task"]);
    assert_ne!(unknown.code, 0, "{unknown:?}");
    assert!(unknown.stderr.contains("unknown-task"), "{}", unknown.stderr);

    let answer = instance.json(&["task", "cancel", &id, "root,other"]);
    assert_eq!((&answer["cancelled"], &answer["ended"]), (&1.into(), &1.into()), "{answer}");
    wait_until("the command is gone", || !is_alive(pid));
    // The job did not do all that was asked for.
    instance.starling(&["job", "wait", &id]).expect_code(1);
    let info = job(&instance, &id);
    assert_eq!(info["tasks"]["cancelled"], 5, "the root, its children, their child: {info}");
    assert_eq!(info["tasks"]["done"], 2, "{info}");
    assert_eq!(info["tasks"]["skipped"], 0, "{info}");
    assert!(info["cancelled_by"].as_str().is_some_and(|by| by.contains('@')), "{info}");
    for name in ["root", "child-2", "grandchild"] {
        assert_eq!(state_of(&instance, &id, name), "cancelled", "{name}");
    }
    instance.down();
}

#[test]
fn what_was_cancelled_stays_so_when_all_nodes_die_at_once() {
    let mut instance = Instance::up_with_copies(3, 2, 1);
    let log = instance.sandbox().path("ran").display().to_string();
    let text = format!(
        "[[task]]\nname='t-{{i}}'\narray='1-60'\n\
         command=['sh','-c','echo {{i}} >> {log}; sleep 1000']\n"
    );
    instance.sandbox().write("long.toml", text);
    let id = submit(&instance, &["--file", "long.toml"]);
    let ran = || fs::read_to_string(&log).unwrap_or_default().lines().count();
    wait_until("all slots are busy", || ran() >= 6);
    instance.starling(&["job", "cancel", &id]).ok();
    for node in 0..3 {
        instance.kill(node);
    }
    // A shell that was forked just before the death of its node may not have written yet.
    std::thread::sleep(std::time::Duration::from_secs(2));
    let before = ran();
    instance.start_missing();
    wait_until("every task has ended", || ended(&job(&instance, &id)) == 60);
    let info = job(&instance, &id);
    assert_eq!(info["state"], "cancelled", "{info}");
    assert_eq!(info["tasks"]["cancelled"], 60, "{info}");
    assert_eq!(ran(), before, "nothing of it was started again");
    instance.down();
}

#[test]
fn cancellations_that_race_with_completions_add_up() {
    let instance = Instance::up_with_copies(2, 2, 1);
    let text = "[[task]]\nname='t-{i}'\narray='1-200'\noutputs={o='o{i}'}\n\
                command=['sh','-c','touch o{i}; sleep 0.01']\n\
                [[task]]\nname='u-{i}'\narray='1-200'\ninputs={o='o{i}'}\ncommand=['true']\n";
    instance.sandbox().write("race.toml", text);
    let id = submit(&instance, &["--file", "race.toml"]);
    let (mut cancelled, mut had_ended) = (0, 0);
    for step in 0..10 {
        let names: Vec<String> = (0..4).map(|k| format!("t-{}", 1 + step * 20 + k * 5)).collect();
        let answer = instance.json(&["task", "cancel", &id, &names.join(",")]);
        cancelled += answer["cancelled"].as_u64().expect("a count");
        had_ended += answer["ended"].as_u64().expect("a count");
    }
    assert_eq!(cancelled + had_ended, 40, "every named task is one or the other");
    // The job did not do all that was asked for.
    instance.starling(&["job", "wait", &id]).expect_code(1);
    let tasks = &job(&instance, &id)["tasks"];
    // Each cancels the one task that waits for it as well.
    assert_eq!(tasks["cancelled"], 2 * cancelled, "{tasks}");
    assert_eq!(tasks["done"], 400 - 2 * cancelled, "{tasks}");
    instance.down();
}

fn waiting(instance: &Instance) -> u64 {
    let list = instance.json(&["node", "list"]);
    let nodes = list["nodes"].as_array().expect("a list of nodes");
    nodes.iter().map(|node| node["waiting"].as_u64().expect("a count")).sum()
}

#[test]
fn what_a_dead_client_had_half_submitted_can_be_cancelled() {
    let instance = Instance::up_with_copies(2, 1, 1);
    let client = instance.start(&["submit", "--file", "bag:tasks=2000000,duration=1s"]);
    wait_until("some tasks have arrived", || waiting(&instance) > 0);
    client.signal(rustix::process::Signal::KILL);
    client.end();
    let jobs = instance.json(&["job", "list"])["jobs"].as_array().cloned().unwrap_or_default();
    assert!(jobs.is_empty(), "it was killed before its commit: {jobs:?}");
    assert!(waiting(&instance) > 0, "the nodes keep what came, for a while");
    instance.starling(&["job", "cancel", "1"]).ok();
    wait_until("nothing of it is left", || waiting(&instance) == 0);
    let info = job(&instance, "1");
    assert_eq!((&info["state"], &info["tasks"]["done"]), (&"cancelled".into(), &0.into()));
    // No job has this id.
    assert_ne!(instance.starling(&["job", "cancel", "77"]).code, 0);
    instance.down();
}
