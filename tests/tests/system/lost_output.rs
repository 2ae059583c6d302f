//! Printed output that a node has lost is reported, never silently left out.

use std::fs;
use std::path::PathBuf;

use serde_json::Value;
use starling_tests::{Instance, Sandbox, files_below, wait_until};

use crate::cluster::submit;

/// A job of tasks that print one line each on three nodes, and the node that ran the most.
fn printed_on_three_nodes(instance: &Instance) -> (String, u32) {
    let script = "echo line {i}; echo oops {i} >&2; sleep 0.1";
    let id = submit(instance, &["--array", "1-12", "--wait", "--", "sh", "-c", script]);
    let list = instance.json(&["task", "list", &id]);
    let tasks = list["tasks"].as_array().expect("a list of tasks");
    let ran = |node: u32| tasks.iter().filter(|task| task["node"] == node).count();
    (id, (0..3).max_by_key(|&node| ran(node)).expect("there are three"))
}

fn entries_of(instance: &Instance, id: &str, node: u32) -> Vec<String> {
    let list = instance.json(&["task", "list", id]);
    let tasks = list["tasks"].as_array().expect("a list of tasks");
    let of_node = tasks.iter().filter(|task| task["node"] == node);
    of_node.map(|task| task["id"].as_str().expect("a text").to_owned()).collect()
}

/// The `missing` list in the last row of JSON.
fn missing(rows: &str) -> Vec<Value> {
    let last: Value = serde_json::from_str(rows.lines().last().expect("a row")).expect("JSON");
    last["missing"].as_array().expect("a list").clone()
}

/// Other nodes' copies of a node's output packs.
fn copied_packs(instance: &Instance, node: u32) -> Vec<PathBuf> {
    let all = files_below(&instance.directory().join("nodes"));
    let is_copy = |path: &PathBuf| {
        let text = path.to_string_lossy();
        text.contains(&format!("/copies/{node}-")) && text.ends_with(".pack")
    };
    all.into_iter().filter(is_copy).collect()
}

/// Removes a node's disk after another node has a copy of its printed output.
fn lose_a_disk(instance: &mut Instance, victim: u32) {
    let pack = instance.directory().join(format!("nodes/{victim}/state/streams/000000.pack"));
    let length = |path: &PathBuf| fs::metadata(path).map_or(0, |metadata| metadata.len());
    wait_until("another node has a copy of what was printed", || {
        copied_packs(instance, victim).iter().any(|copy| length(copy) == length(&pack))
    });
    instance.kill(victim);
    let state = instance.directory().join(format!("nodes/{victim}"));
    fs::remove_dir_all(state).expect("its node is dead");
}

#[test]
fn output_that_went_with_a_disk_is_read_from_its_copy() {
    let mut instance = Instance::up_with_copies(3, 2, 2);
    instance.wait_for_copies();
    let (id, victim) = printed_on_three_nodes(&instance);
    let whole = instance.starling(&["job", "output", &id]).ok();
    lose_a_disk(&mut instance, victim);
    // While the node is down, and after it has returned with an empty disk.
    let away = instance.starling(&["job", "output", &id]).ok();
    assert_eq!(away.stdout, whole.stdout, "{away:?}");
    instance.start_missing();
    instance.wait_for_copies();
    for stderr in [false, true] {
        let more: &[&str] = if stderr { &["--stderr"] } else { &[] };
        let ran = instance.starling(&[&["job", "output", &id], more].concat()).ok();
        assert_eq!((ran.stdout.lines().count(), ran.stderr.as_str()), (12, ""));
    }
    // Its copy of the previous node's output is sent to it again.
    let before = (victim + 2) % 3;
    let streams = instance.directory().join(format!("nodes/{before}/state/streams"));
    wait_until("it has the copy that it is to have", || {
        let own = instance.directory().join(format!("nodes/{victim}/"));
        let is_there = copied_packs(&instance, before).iter().any(|copy| copy.starts_with(&own));
        is_there || !streams.join("000000.pack").exists()
    });
    instance.down();
}

#[test]
fn output_that_went_with_a_disk_and_its_copy_is_named() {
    let mut instance = Instance::up_with_copies(3, 2, 2);
    instance.wait_for_copies();
    let (id, victim) = printed_on_three_nodes(&instance);
    let whole = instance.starling(&["job", "output", &id]).ok();
    assert_eq!((whole.stdout.lines().count(), whole.stderr.as_str()), (12, ""));
    let lost = entries_of(&instance, &id, victim);
    lose_a_disk(&mut instance, victim);
    for copy in copied_packs(&instance, victim) {
        fs::remove_file(copy).expect("it is there");
    }
    instance.start_missing();
    instance.wait_for_copies();

    let after = instance.starling(&["job", "output", &id]).expect_code(3);
    assert_eq!(after.stdout.lines().count(), 12 - lost.len(), "what there is: {after:?}");
    let line = format!("n{victim} does not have it any more");
    assert!(after.stderr.contains(&line), "{after:?}");
    assert!(after.stderr.contains("of the stdout of task"), "{after:?}");
    let tasks = if lost.len() == 1 { "1 task".to_owned() } else { format!("{} tasks", lost.len()) };
    assert!(after.stderr.contains(&format!("error: output of {tasks} is missing")), "{after:?}");

    let rows = instance.starling(&["job", "output", &id, "--stderr", "--json"]).expect_code(3);
    let mut named: Vec<String> = missing(&rows.stdout)
        .iter()
        .map(|row| row["task"].as_str().expect("an id").to_owned())
        .collect();
    named.sort_unstable();
    let mut expected = lost.clone();
    expected.sort_unstable();
    assert_eq!(named, expected);
    // A complete output is no error; a lost one is.
    let list = instance.json(&["task", "list", &id]);
    let tasks = list["tasks"].as_array().expect("a list of tasks");
    let well = tasks.iter().find(|task| task["node"] != victim).expect("others ran some");
    let well = well["id"].as_str().expect("an id");
    instance.starling(&["job", "output", &id, well]).ok();
    instance.starling(&["job", "output", &id, &lost[0]]).expect_code(3);
    instance.down();
}

/// Half of a pack remains. Running tasks have no missing output.
#[test]
fn output_that_was_cut_off_is_named() {
    let instance = Instance::up(1, 2);
    let script = "echo first; echo second; echo third";
    let id = submit(&instance, &["--name", "cut", "--wait", "--", "sh", "-c", script]);
    let running = submit(&instance, &["--", "sh", "-c", "echo begun; sleep 600"]);
    wait_until("it runs", || {
        instance.json(&["task", "list", &running])["tasks"][0]["state"] == "running"
    });
    instance.starling(&["job", "output", &running]).ok();
    let pack = instance.directory().join("nodes/0/state/streams/000000.pack");
    let bytes = fs::read(&pack).expect("something was printed");
    fs::write(&pack, &bytes[..bytes.len() - 3]).expect("it can be written");
    let ran = instance.starling(&["job", "output", &id]).expect_code(3);
    assert!(ran.stderr.contains("stdout of task 'cut': it is damaged on n0"), "{ran:?}");
    fs::remove_file(&pack).expect("it is there");
    let ran = instance.starling(&["job", "output", &id]).expect_code(3);
    assert!(ran.stderr.contains("stdout of task 'cut': "), "{ran:?}");
    instance.starling(&["job", "cancel", &running]).ok();
    instance.down();
}

/// The node's disk does not fill, and the task's error states the reason.
#[test]
fn a_task_that_prints_without_end_is_killed() {
    let sandbox = Sandbox::new();
    let workflow = "[[task]]\nname = 'endless'\ncommand = ['yes']\n";
    sandbox.write("w.toml", workflow);
    let ran = sandbox.starling(&["run", "w.toml", "--captured-limit", "1MiB"]).expect_code(1);
    let told = ran.stderr.contains("of captured output; the limit is 1 MiB (redirect it");
    assert!(told && ran.stderr.contains("task 'endless' failed"), "{ran:?}");
    let ran = sandbox.starling(&["run", "w.toml", "--captured-store", "2MiB"]).expect_code(1);
    assert!(ran.stderr.contains("the limit is 2 MiB (redirect it"), "{ran:?}");
    sandbox.write("starling.toml", "captured_limit = '3MiB'\n");
    let ran = sandbox.starling(&["run", "w.toml", "--processes"]).expect_code(1);
    assert!(ran.stderr.contains("the limit is 3 MiB"), "{ran:?}");
}
