//! A cluster that follows its nodes: replicas grow with it, launches may have other sizes, and
//! keepers run no tasks.

use std::fs;
use std::path::Path;

use serde_json::Value;
use starling_tests::{Instance, Running, Sandbox, wait_until};

use crate::cluster::submit;
use crate::launchers::rank;

const MAKERS: u64 = 30;
const UPLOAD_BYTES: usize = 70_000;

/// Each file has different bytes.
fn submit_makers(instance: &Instance) -> String {
    let text = format!(
        "[[task]]\nname='make-{{i}}'\narray='1-{MAKERS}'\n\
         outputs={{k={{file='k{{i}}',keep=true}}}}\n\
         command=['sh','-c','seq {{i}} 2000 > k{{i}}']\n"
    );
    instance.sandbox().write("w.toml", text);
    let id = submit(instance, &["--file", "w.toml"]);
    instance.starling(&["job", "wait", &id]).ok();
    id
}

fn fetch(instance: &Instance, id: &str, to: &Path) {
    instance.starling(&["job", "fetch", id, "-o", &to.display().to_string()]).ok();
    for number in 1..=MAKERS {
        let kept = fs::read_to_string(to.join(format!("k{number}"))).expect("it was fetched");
        let lines: Vec<String> = (number..=2000).map(|line| line.to_string()).collect();
        assert_eq!(kept, lines.join("\n") + "\n", "k{number}");
    }
}

/// A file of the submitter, with a reader that waits for permission.
fn submit_upload(instance: &Instance, go: &Path) -> String {
    let bytes: Vec<u8> = (0..UPLOAD_BYTES).map(|at| (at * 31 % 251) as u8).collect();
    instance.sandbox().write("data.bin", bytes);
    let wait = format!("while ! test -e {}; do sleep 0.1; done; cat data.bin > out", go.display());
    submit(instance, &["--upload", "data.bin", "--out", "out", "--", "sh", "-c", &wait])
}

fn survived(instance: &Instance) -> (bool, u64) {
    let list = instance.json(&["node", "list"]);
    let survived = list["losses_survived"].as_u64().expect("a number");
    (list["fully_replicated"] == true, survived)
}

fn wait_until_survived(instance: &Instance, losses: u64) {
    wait_until("as many losses are survived as should be", || survived(instance) == (true, losses));
}

fn node(instance: &Instance, node: u64) -> Value {
    let list = instance.json(&["node", "list"]);
    let nodes = list["nodes"].as_array().expect("a list of nodes").clone();
    nodes.into_iter().find(|it| it["id"] == node).expect("the node is listed")
}

/// As if a machine was lost permanently with its disk.
fn lose(instance: &mut Instance, node: u32) {
    instance.kill(node);
    let state = instance.directory().join(format!("nodes/{node}/state"));
    fs::remove_dir_all(state).expect("its state was there");
}

#[test]
fn a_permanently_lost_node_is_removed_and_not_drained() {
    let mut instance = Instance::up_with_copies(3, 1, 2);
    let id = submit_makers(&instance);
    wait_until_survived(&instance, 1);
    let up = instance.starling(&["node", "remove", "n2"]).expect_code(4);
    assert!(up.stderr.contains("n2 is up") && up.stderr.contains("node drain n2"), "{up:?}");
    lose(&mut instance, 2);
    wait_until("the others have given it up", || node(&instance, 2)["given_up"] == true);
    let drain = instance.starling(&["node", "drain", "n2"]).expect_code(4);
    assert!(drain.stderr.contains("n2 is down"), "{drain:?}");
    assert!(drain.stderr.contains("hint:") && drain.stderr.contains("node remove"), "{drain:?}");
    instance.starling(&["node", "remove", "n2"]).ok();
    let list = instance.json(&["node", "list"]);
    assert_eq!(list["nodes"].as_array().expect("a list").len(), 2, "{list}");
    wait_until_survived(&instance, 0);
    fetch(&instance, &id, &instance.sandbox().path("two"));
    // Now there are only two nodes: the cluster can be drained to one.
    instance.starling(&["node", "drain", "n1"]).ok();
    fetch(&instance, &id, &instance.sandbox().path("one"));
}

#[test]
fn a_node_that_partitions_wait_for_is_not_removed() {
    let instance = Instance::up_with_copies(4, 1, 2);
    wait_until_survived(&instance, 1);
    instance.starling(&["kv", "insert", "city", "Chicago"]).ok();
    instance.starling(&["down"]).ok();
    instance.starling(&["up", "--nodes", "2"]).ok();
    let waits_for = || instance.json(&["node", "list"])["waits_for"].clone();
    wait_until("partitions wait", || waits_for() == serde_json::json!([2, 3]));
    for name in ["n2", "n3"] {
        let refused = instance.starling(&["node", "remove", name]).expect_code(4);
        assert!(refused.stderr.contains("would be lost"), "{refused:?}");
    }
    instance.starling(&["up"]).ok();
    wait_until_survived(&instance, 1);
    assert!(instance.starling(&["kv", "lookup", "city"]).ok().stdout.contains("Chicago"));
}

#[test]
fn what_one_node_had_survives_it_once_there_are_three() {
    let mut instance = Instance::up(1, 1);
    let id = submit_makers(&instance);
    let go = instance.sandbox().path("go");
    let reader = submit_upload(&instance, &go);
    instance.starling(&["kv", "insert", "city", "Chicago"]).ok();
    assert_eq!(survived(&instance).1, 0);
    instance.starling(&["up", "--nodes", "2", "--slots", "1"]).ok();
    wait_until_survived(&instance, 0); // One of two nodes decides alone.
    instance.starling(&["up", "--nodes", "3", "--slots", "1"]).ok();
    wait_until_survived(&instance, 1);
    lose(&mut instance, 0);
    // All data of the three nodes are there, bit by bit.
    fetch(&instance, &id, &instance.sandbox().path("without-n0"));
    let city = instance.starling(&["kv", "lookup", "city"]).ok();
    assert!(city.stdout.contains("Chicago"), "{city:?}");
    fs::write(go, "").unwrap();
    instance.starling(&["job", "wait", &reader]).ok();
    // The first node has no state: the other nodes know it, and fill it.
    instance.starling(&["up"]).ok();
    wait_until_survived(&instance, 1);
    assert_eq!(node(&instance, 0)["state"], "up");
    // A joined node is lost with every trace of its identity: a new one replaces it.
    lose(&mut instance, 2);
    fetch(&instance, &id, &instance.sandbox().path("without-n2"));
    let more = instance.json(&["up", "--nodes", "3", "--slots", "1"]);
    assert_eq!(more["started"], serde_json::json!([3]), "{more}");
    wait_until_survived(&instance, 1);
    instance.down();
}

#[test]
fn as_many_copies_are_made_as_were_asked_for_when_there_are_nodes() {
    let mut instance = Instance::up_with_copies(1, 1, 3);
    let id = submit_makers(&instance);
    instance.starling(&["up", "--nodes", "5", "--slots", "1"]).ok();
    wait_until_survived(&instance, 2);
    for gone in [0, 3] {
        lose(&mut instance, gone);
    }
    fetch(&instance, &id, &instance.sandbox().path("without-two"));
    let more = instance.json(&["up", "--nodes", "5", "--slots", "1"]);
    assert_eq!(more["started"], serde_json::json!([0, 5]), "{more}");
    wait_until_survived(&instance, 2);
    // Nodes leave in order, and their data remain. (The lost one counts as a member.)
    for node in ["n5", "n4", "n2"] {
        instance.starling(&["node", "drain", node]).ok();
    }
    fetch(&instance, &id, &instance.sandbox().path("with-two"));
    submit(&instance, &["--wait", "--", "true"]);
    instance.down();
}

#[test]
fn one_copy_that_was_asked_for_stays_one() {
    let instance = Instance::up_with_copies(1, 1, 1);
    let more = instance.starling(&["up", "--nodes", "2"]).expect_code(4);
    assert!(more.stderr.contains("--replicas 1"), "{more:?}");
    let keeper = instance.starling(&["node", "--rank", "0", "--slots", "0"]);
    assert!(keeper.code != 0 && keeper.stderr.contains("--replicas"), "{keeper:?}");
    assert_eq!(survived(&instance), (true, 0));
    instance.down();
}

#[test]
fn fewer_nodes_are_launched_and_what_waits_for_the_others_is_named() {
    let instance = Instance::up(4, 1);
    instance.wait_for_copies();
    let id = submit_makers(&instance);
    instance.starling(&["down"]).ok();
    let fewer = instance.json(&["up", "--nodes", "2"]);
    assert_eq!(fewer["started"], serde_json::json!([0, 1]), "{fewer}");
    assert_eq!(fewer["away"], serde_json::json!([2, 3]), "{fewer}");
    assert_eq!(fewer["waits_for"], serde_json::json!([2, 3]), "{fewer}");
    assert!(fewer["waiting_partitions"].as_u64() > Some(0), "{fewer}");
    let list = instance.json(&["node", "list"]);
    assert_eq!(list["waits_for"], fewer["waits_for"], "{list}");
    assert_eq!(list["fully_replicated"], false, "{list}");
    let shown = instance.starling(&["node", "list"]).ok();
    assert!(shown.stderr.contains("starling node drain n2 n3"), "{shown:?}");
    // A launch cannot remove running nodes.
    let less = instance.starling(&["up", "--nodes", "1"]).expect_code(4);
    assert!(less.stderr.contains("drain n1"), "{less:?}");
    // They return for draining, and nothing is lost.
    let all = instance.json(&["up", "--nodes", "4"]);
    assert_eq!(all["away"], serde_json::json!([]), "{all}");
    instance.starling(&["node", "drain", "n2", "n3"]).ok();
    wait_until_survived(&instance, 0);
    assert_eq!(instance.json(&["node", "list"])["waits_for"], serde_json::json!([]));
    fetch(&instance, &id, &instance.sandbox().path("drained"));
    // The cluster grows again. The numbers of nodes that have left are not reused.
    let grown = instance.json(&["up", "--nodes", "4", "--slots", "1"]);
    assert_eq!(grown["started"], serde_json::json!([4, 5]), "{grown}");
    wait_until_survived(&instance, 1);
    instance.down();
}

/// The ranks of a launch, which end together with `down`.
fn launch(sandbox: &Sandbox, directory: &str, size: u32) -> Vec<Running> {
    (0..size).map(|number| rank(sandbox, directory, number, size, &[])).collect()
}

#[test]
fn launches_of_other_sizes_go_on_in_the_same_directory() {
    let sandbox = Sandbox::new();
    let directory = sandbox.path("meet").display().to_string();
    let verb = |arguments: &[&str]| {
        let mut all = vec!["--dir", directory.as_str()];
        all.extend(arguments);
        sandbox.starling(&all)
    };
    let list = || {
        let ran = verb(&["node", "list", "--json"]);
        if ran.code == 0 { ran.json() } else { Value::Null }
    };
    let up = |list: &Value| {
        let nodes = list["nodes"].as_array().cloned().unwrap_or_default();
        nodes.iter().filter(|node| node["state"] == "up").count()
    };
    for (size, waits) in [(4, false), (2, true), (6, false), (3, true), (6, false)] {
        let ranks = launch(&sandbox, &directory, size);
        wait_until("the ranks are up, and the others given up", || {
            let list = list();
            let gone = list["nodes"].as_array().map_or(0, Vec::len) - up(&list);
            let given_up = list["nodes"].as_array().is_some_and(|nodes| {
                nodes.iter().filter(|node| node["given_up"] == true).count() == gone
            });
            up(&list) == size as usize && given_up
        });
        match waits {
            true => assert_ne!(list()["waits_for"], serde_json::json!([]), "{}", list()),
            false => wait_until("all is copied", || list()["fully_replicated"] == true),
        }
        if !waits {
            verb(&["submit", "--array", "1-20", "--wait", "--", "true"]).ok();
        }
        verb(&["down"]).ok();
        for rank in ranks {
            let ran = rank.end();
            assert_eq!(ran.code, 0, "every rank ends well: {ran:?}");
        }
    }
}

#[test]
fn either_of_two_nodes_may_be_lost_beside_a_keeper() {
    let mut instance = Instance::up(2, 1);
    let joined = instance.json(&["up", "--nodes", "3", "--slots", "0"]);
    assert_eq!(joined["started"], serde_json::json!([2]), "{joined}");
    wait_until_survived(&instance, 1);
    let keeper = node(&instance, 2);
    assert_eq!((&keeper["keeper"], &keeper["slots"]), (&true.into(), &0.into()), "{keeper}");
    let id = submit_makers(&instance);
    let tasks = instance.json(&["task", "list", &id]);
    let ran: Vec<&Value> = tasks["tasks"].as_array().expect("tasks").iter().collect();
    assert!(ran.iter().all(|task| task["node"] != 2), "{tasks}");
    wait_until_survived(&instance, 1);
    assert_eq!(node(&instance, 2)["homes"], 0);
    for gone in [0, 1] {
        lose(&mut instance, gone);
        let to = instance.sandbox().path(&format!("without-{gone}"));
        fetch(&instance, &id, &to);
        submit(&instance, &["--wait", "--", "true"]);
        instance.starling(&["up"]).ok();
        wait_until_survived(&instance, 1);
    }
    // While it is down no loss is survived. It returns as a keeper.
    instance.kill(2);
    wait_until("no loss is survived", || survived(&instance).1 == 0);
    instance.starling(&["up"]).ok();
    wait_until_survived(&instance, 1);
    let keeper = node(&instance, 2);
    assert_eq!((&keeper["keeper"], &keeper["homes"]), (&true.into(), &0.into()), "{keeper}");
    instance.down();
}

#[test]
fn keepers_alone_run_nothing_and_say_so() {
    let sandbox = Sandbox::new();
    let run = sandbox.starling(&["run", "bag:tasks=3", "--slots", "0"]).expect_code(2);
    assert!(run.stderr.contains("0 slots"), "{run:?}");
    let mut instance = Instance::up(2, 0);
    let refused = instance.starling(&["submit", "--", "true"]).expect_code(4);
    assert!(refused.stderr.contains("keepers"), "{refused:?}");
    // A node with slots changes that.
    instance.starling(&["up", "--nodes", "3", "--slots", "1"]).ok();
    wait_until_survived(&instance, 1);
    let id = submit(&instance, &["--wait", "--", "true"]);
    assert_eq!(instance.json(&["job", "info", &id])["state"], "finished");
    wait_until("it is home of everything", || node(&instance, 0)["homes"] == 0);
    // While it is down accepted tasks wait, and report the reason.
    let sleeper = submit(&instance, &["--array", "1-3", "--", "sleep", "2"]);
    instance.kill(2);
    let waiting = || {
        let list = instance.json(&["task", "list", &sleeper]);
        let tasks = list["tasks"].as_array().cloned().unwrap_or_default();
        let waits = tasks.into_iter().find(|task| task["state"] == "waiting")?;
        Some(waits["id"].as_str().expect("an id").to_owned())
    };
    wait_until("some task waits", || waiting().is_some());
    let task = waiting().expect("seen just now");
    wait_until("it says what it waits for", || {
        let why = instance.starling(&["task", "explain", &sleeper, &task]).ok();
        why.stdout.contains("no node that is there")
    });
    instance.starling(&["up"]).ok();
    instance.starling(&["job", "wait", &sleeper]).ok();
    instance.down();
}
