//! Files that a submitter uploads with its job.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde_json::Value;
use starling_tests::{Instance, is_alive, wait_until};

use crate::cluster::{job, submit};
use crate::data::files;

const BYTES: usize = 3_000_000;

#[test]
fn files_of_this_machine_travel_with_their_job() {
    let instance = Instance::up_with_copies(2, 1, 1);
    instance.sandbox().write("data.txt", "some words of mine");
    instance.sandbox().write("empty", "");
    let script = "cat $STARLING_INPUTS > out";
    let mut all = vec!["submit", "--upload", "data.txt", "empty", "--out", "out", "--wait"];
    all.extend(["--json", "--", "sh", "-c", script]);
    let ended = instance.starling(&all).ok().stdout;
    let line = ended.lines().last().expect("a job");
    let value: Value = serde_json::from_str(line).expect("it is JSON");
    assert_eq!((&value["tasks"], &value["state"]), (&3.into(), &"finished".into()), "{value}");
    let kept = [0, 1].map(|node| files(&instance, node, "objects")).concat();
    let texts: Vec<_> = kept.iter().filter_map(|path| fs::read_to_string(path).ok()).collect();
    assert!(texts.iter().any(|text| text == "some words of mine"), "{kept:?}");
    let uploads = || [0, 1].map(|node| files(&instance, node, "uploads")).concat().len();
    wait_until("uploads go with their job", || uploads() == 0);
    let missing = ["submit", "--upload", "no-such-file", "--", "true"];
    let ran = instance.starling(&missing);
    assert!(ran.code != 0 && ran.stderr.contains("no-such-file"), "{ran:?}");
    instance.down();
}

/// Kills a node and removes its disk permanently.
fn lose(instance: &mut Instance, node: u32) {
    instance.kill(node);
    fs::remove_dir_all(instance.directory().join(format!("nodes/{node}"))).expect("ours");
}

/// A job with one task that reads the file, writes its node's number, and waits.
fn reader(instance: &Instance) -> (String, PathBuf) {
    // Readers run where their data is, and are never stolen.
    instance.starling(&["node", "set", "--policy", "mdl"]).ok();
    let bytes: Vec<u8> = (0..BYTES).map(|at| (at / 7) as u8).collect();
    instance.sandbox().write("data.bin", bytes);
    let ran = instance.sandbox().path("ran");
    let script = format!(
        "cmp {{in:1}} {} && echo $STARLING_NODE >> {}; sleep 300",
        instance.sandbox().path("data.bin").display(),
        ran.display()
    );
    (submit(instance, &["--upload", "data.bin", "--", "sh", "-c", &script]), ran)
}

/// The node on which the n-th attempt has read the file.
fn nth_reader(ran: &Path, n: usize) -> u32 {
    let nodes = || fs::read_to_string(ran).unwrap_or_default();
    wait_until("its reader has the file", || nodes().lines().count() >= n);
    nodes().lines().nth(n - 1).expect("seen before").parse().expect("a node")
}

/// Each lost node takes the reading task and its copies of the file along.
#[test]
fn an_upload_outlives_nodes_that_are_lost_one_after_another() {
    let mut instance = Instance::up_with_copies(5, 1, 2);
    instance.wait_for_copies();
    let (id, ran) = reader(&instance);
    nth_reader(&ran, 1);
    // A node with the file links it: only nodes without it fetch the upload task's output.
    let inodes = |node: u32, folder: &str| {
        let files = files(&instance, node, folder).into_iter();
        files.map(|file| file.metadata().expect("it is there").ino()).collect::<Vec<_>>()
    };
    let holders: Vec<u32> = (0..5).filter(|&node| !inodes(node, "uploads").is_empty()).collect();
    assert_eq!(holders.len(), 2, "{holders:?}");
    for node in holders {
        let objects = inodes(node, "objects");
        assert!(objects.contains(&inodes(node, "uploads")[0]), "n{node}: {objects:?}");
    }
    for number in 1..=2 {
        let node = nth_reader(&ran, number);
        instance.wait_for_copies();
        lose(&mut instance, node);
    }
    nth_reader(&ran, 3);
    instance.starling(&["job", "cancel", &id]).ok();
    instance.starling(&["job", "wait", &id]).expect_code(1);
    let uploads = |node| files(&instance, node, "uploads").len();
    wait_until("uploads go with their job", || (0..5).map(uploads).sum::<usize>() == 0);
    instance.down();
}

/// All slots are taken when the file arrives. So only the home of its task and the nodes with
/// replicas have it.
fn waiting_upload(instance: &Instance) -> (String, Vec<u32>) {
    let text = "[[task]]\nname='busy-{i}'\narray='1-40'\ncommand=['sleep','3']\n";
    instance.sandbox().write("busy.toml", text);
    submit(instance, &["--file", "busy.toml"]);
    instance.sandbox().write("data.bin", vec![7; BYTES]);
    let script = "test $(wc -c < {in:1}) = 3000000 && cp {in:1} out";
    let id = submit(instance, &["--upload", "data.bin", "--out", "out", "--", "sh", "-c", script]);
    let has_file = |node: &u32| !files(instance, *node, "uploads").is_empty();
    (id, (0..5).filter(has_file).collect())
}

/// The home of the upload task, where it waits.
fn home_of_upload(instance: &Instance, id: &str) -> u32 {
    let tasks = instance.json(&["task", "list", id]);
    let is_upload =
        |task: &&Value| task["name"].as_str().is_some_and(|it| it.ends_with("data.bin"));
    let upload = tasks["tasks"].as_array().expect("a list").iter().find(is_upload);
    let task = upload.expect("one is")["id"].as_str().expect("an id").to_owned();
    let text = instance.starling(&["task", "explain", id, &task]).ok().stdout;
    let (_, rest) = text.split_once("it is queued on node n").unwrap_or_else(|| panic!("{text}"));
    let (node, _) = rest.split_once(':').expect("a number");
    node.parse().expect("a number")
}

#[test]
fn a_file_outlives_its_home_before_its_task_has_run() {
    let mut instance = Instance::up_with_copies(5, 1, 3);
    instance.wait_for_copies();
    let (id, holders) = waiting_upload(&instance);
    assert_eq!(holders.len(), 3, "{holders:?}");
    let home = home_of_upload(&instance, &id);
    // The last node in the search: an unrelated node has the only other copy.
    let other = (0..5).rev().find(|node| !holders.contains(node)).expect("two are");
    let kept = files(&instance, home, "uploads").pop().expect("it is there");
    let below = kept.strip_prefix(instance.directory().join(format!("nodes/{home}"))).expect("it");
    let elsewhere = instance.directory().join(format!("nodes/{other}")).join(below);
    fs::create_dir_all(elsewhere.parent().expect("a job's directory")).expect("ours");
    fs::copy(&kept, &elsewhere).expect("there is room");
    for &node in &holders {
        let file = files(&instance, node, "uploads").pop().expect("it is there");
        fs::remove_file(file).expect("ours");
    }
    lose(&mut instance, home);
    instance.starling(&["job", "wait", &id, "--timeout", "110s"]).ok();
    instance.down();
}

/// The reader dies with its node, and the other nodes lose their files in these folders.
fn lose_reader(instance: &mut Instance, ran: &Path, folders: &[&str]) {
    let node = nth_reader(ran, 1);
    for other in (0..3).filter(|&other| other != node) {
        let here = folders.iter().flat_map(|folder| files(instance, other, folder));
        here.for_each(|file| fs::remove_file(file).expect("ours"));
    }
    lose(instance, node);
}

#[test]
fn what_a_task_made_of_an_upload_is_made_again() {
    let mut instance = Instance::up_with_copies(3, 1, 2);
    instance.wait_for_copies();
    let (id, ran) = reader(&instance);
    lose_reader(&mut instance, &ran, &["objects"]);
    nth_reader(&ran, 2);
    instance.starling(&["job", "cancel", &id]).ok();
    instance.down();
}

/// The search includes the dead node for some time, because it may be restarting.
#[test]
fn an_upload_search_can_be_stopped() {
    let mut instance = Instance::up_with_copies(3, 1, 2);
    instance.wait_for_copies();
    let (_, ran) = reader(&instance);
    lose_reader(&mut instance, &ran, &["uploads", "objects"]);
    let looks = |node: &u32| {
        let path = instance.directory().join(format!("nodes/{node}/state/log"));
        fs::read_to_string(path).unwrap_or_default().contains("no file of task")
    };
    wait_until("a node searches for it", || (0..3).any(|node| looks(&node)));
    let looking = (0..3).find(looks).expect("seen before");
    let (pid, _) = instance.address(looking).expect("it runs");
    instance.starling(&["node", "stop", &format!("n{looking}")]).ok();
    wait_until("it ends", || !is_alive(pid));
    instance.down();
}

/// Only the client has the original. If all copies are lost permanently, every reader ends with an
/// error that states it.
#[test]
fn an_upload_that_is_nowhere_ends_its_job_with_a_clear_word() {
    let mut instance = Instance::up_with_copies(3, 1, 2);
    instance.wait_for_copies();
    let (id, ran) = reader(&instance);
    lose_reader(&mut instance, &ran, &["uploads", "objects"]);
    instance.starling(&["job", "wait", &id, "--timeout", "150s"]).expect_code(1);
    let end = job(&instance, &id);
    assert_eq!(end["state"], "failed", "{end}");
    let text = end["failures"].to_string();
    for part in ["gone with the nodes that had it", "submit the job again"] {
        assert!(text.contains(part), "'{part}' is not in {end}");
    }
    let tasks = &end["tasks"];
    // The upload was done once and stays done. Its reader fails.
    assert_eq!((&tasks["done"], &tasks["failed"]), (&1.into(), &1.into()), "{end}");
    assert_eq!((&tasks["total"], &tasks["skipped"]), (&2.into(), &0.into()), "{end}");
    let seen = fs::read_to_string(&ran).expect("seen before");
    assert_eq!(seen.lines().count(), 1, "it cannot have begun again: {seen}");
    instance.down();
}
