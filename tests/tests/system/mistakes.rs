//! What users get wrong, and what they find broken: the answer names the cause and the next step.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::process::Command;

use serde_json::Value;
use starling_tests::{Instance, Ran, Sandbox, binary, is_alive, wait_until};

use crate::cluster::submit;

fn slots(instance: &Instance) -> Vec<Value> {
    let list = instance.json(&["node", "list"]);
    let nodes = list["nodes"].as_array().expect("nodes").iter();
    nodes.map(|node| node["slots"].clone()).collect()
}

fn says(ran: &Ran, parts: &[&str]) {
    for part in parts {
        assert!(ran.stderr.contains(part), "'{part}' is not in {ran:?}");
    }
}

#[test]
fn up_changes_no_node_that_runs_and_says_so() {
    let mut instance = Instance::up(2, 1);
    instance.starling(&["up"]).ok();
    instance.starling(&["up", "--slots", "1", "--policy", "eft", "--scrub-every", "24h"]).ok();
    let refused = instance.starling(&["up", "--slots", "3"]).expect_code(4);
    says(&refused, &["nothing was changed", "n0, n1 run with --slots 1", "starling down"]);
    let tuning = instance.starling(&["up", "--history", "5GiB"]).expect_code(4);
    says(&tuning, &["nothing was changed", "--history", "'starling node set'"]);
    instance.starling(&["node", "set", "--history", "5GiB"]).ok();
    instance.starling(&["up", "--history", "5GiB"]).ok();
    for flags in [["--captured-limit", "5MB"], ["--slurm", "hide"], ["--scrub-every", "5h"]] {
        let refused = instance.starling(&["up", flags[0], flags[1]]).expect_code(4);
        says(&refused, &["nothing was changed", flags[0]]);
    }
    let refused = instance.starling(&["up", "--insecure"]).expect_code(4);
    says(&refused, &["has a cluster with keys"]);
    assert_eq!(slots(&instance), [1, 1]);
    // What was refused is not remembered.
    instance.kill(1);
    instance.starling(&["up"]).ok();
    assert_eq!(slots(&instance), [1, 1]);
    // One that is started gets it, and the other one is named.
    instance.kill(1);
    let started = instance.starling(&["up", "--slots", "2"]).ok();
    says(&started, &["unchanged: n0 runs with --slots 1, and 2 was asked for"]);
    assert_eq!(slots(&instance), [1, 2]);
    instance.starling(&["up", "--slots", "2"]).ok();
    instance.down();
}

#[test]
fn a_history_without_a_unit_is_refused() {
    let instance = Instance::up(1, 1);
    for verb in [&["up", "--history", "5"][..], &["node", "set", "--history", "5"]] {
        says(&instance.starling(verb).expect_code(2), &["5GiB", "5d"]);
    }
    says(&instance.starling(&["node", "set", "--history", "5B"]).expect_code(2), &["1 MiB"]);
    instance.down();
}

#[test]
fn an_input_that_is_missing_is_named() {
    let instance = Instance::up(1, 1);
    for flag in ["--in", "--upload", "--stage-in", "--stdin"] {
        let ran = instance.starling(&["submit", flag, "nofile", "--", "cat"]).expect_code(4);
        says(&ran, &["input file 'nofile'", "/nofile: no such file"]);
        assert!(!ran.stderr.contains("workflow"), "{ran:?}");
    }
    instance.down();
}

/// Of two nodes the first one keeps the map: without it the other one cannot serve.
#[test]
fn the_node_that_is_away_is_blamed() {
    let mut instance = Instance::up(2, 1);
    // Either node is the home of some.
    let jobs: Vec<String> = (0..6).map(|_| submit(&instance, &["--", "true"])).collect();
    for job in &jobs {
        instance.starling(&["job", "wait", job]).ok();
    }
    instance.wait_for_copies();
    instance.kill(0);
    let listed = instance.starling(&["job", "list"]).expect_code(3);
    says(&listed, &["no answer of n0"]);
    assert!(!listed.stderr.contains("no answer of n1"), "{listed:?}");
    let waits: Vec<_> = jobs.iter().map(|job| instance.start(&["job", "wait", job])).collect();
    let refused = instance.starling(&["job", "cancel", "last"]).expect_code(3);
    says(&refused, &["no answer of n0"]);
    let mut refused_waits = 0;
    for wait in waits {
        let ended = wait.end();
        // The living node answers for its own homes until its lease ends.
        if ended.code != 0 {
            let ended = ended.expect_code(3);
            let text = "n0 does not answer, and without a majority of the voters no home serves";
            says(&ended, &[text]);
            assert!(!ended.stderr.contains("n1"), "{ended:?}");
            refused_waits += 1;
        }
    }
    assert!(refused_waits > 0, "n0 was the home of no job");
    instance.start_missing();
    instance.starling(&["job", "list"]).ok();
    instance.down();
}

#[test]
fn down_ends_nodes_with_broken_address_files() {
    let instance = Instance::up(1, 1);
    instance.starling(&["up", "--nodes", "2"]).ok();
    let pids = [0, 1].map(|node| instance.pid(node));
    for node in [0, 1] {
        let path = instance.directory().join(format!("nodes/{node}/address.json"));
        fs::write(path, "{\"form").expect("ours");
    }
    instance.starling(&["down"]).ok();
    for pid in pids {
        wait_until("the node has ended", || !is_alive(pid));
    }
    instance.starling(&["up"]).ok();
    instance.down();
}

#[test]
fn a_directory_may_have_any_name_and_other_settings_are_text() {
    let sandbox = Sandbox::new();
    let odd = sandbox.path("instance").into_os_string();
    let odd = OsStr::from_bytes(&[odd.as_bytes(), b"\xff"].concat()).to_owned();
    let run = |name: &str, value: &OsStr, arguments: &[&OsStr]| {
        let mut command = Command::new(binary());
        command.env(name, value).args(arguments);
        sandbox.start_command(command).end()
    };
    let verb = |words: &str| -> Vec<std::ffi::OsString> {
        words.split(' ').map(std::ffi::OsString::from).collect()
    };
    let at = |words: &str| {
        let words = verb(words);
        let words: Vec<&OsStr> = words.iter().map(AsRef::as_ref).collect();
        run("STARLING_DIR", &odd, &words)
    };
    at("up --nodes 1 --slots 1").ok();
    assert!(std::path::Path::new(&odd).join("cluster.json").exists());
    at("submit --wait -- true").ok();
    at("down").ok();
    let wrong = OsStr::from_bytes(b"\xff");
    let refused = run("STARLING_SLOTS", wrong, &[OsStr::new("config"), OsStr::new("show")]);
    says(&refused.expect_code(2), &["STARLING_SLOTS", "not valid UTF-8"]);
    let file = OsStr::from_bytes(b"data-\xff.txt");
    let submit = ["submit", "--in"].map(OsStr::new);
    let refused = run("LANG", OsStr::new("C"), &[submit[0], submit[1], file, OsStr::new("true")]);
    says(&refused.expect_code(2), &["data-", "is not valid UTF-8", "rename the file"]);
}

#[test]
fn a_temporary_directory_that_cannot_be_used_is_named() {
    let sandbox = Sandbox::new();
    let file = sandbox.write("file", "no folder").display().to_string();
    let run = |arguments: &[&str]| {
        let mut command = Command::new("env");
        command.arg(format!("TMPDIR={file}")).arg(binary()).args(arguments);
        sandbox.start_command(command).end()
    };
    says(&run(&["run", "bag:tasks=2"]).expect_code(4), &[&file, "set TMPDIR"]);
    let refused = run(&["--dir", &file, "up"]).expect_code(4);
    says(&refused, &["is not a directory", "--dir"]);
}

#[test]
fn numbers_and_empty_files_are_told_in_plain_words() {
    let instance = Instance::up(1, 1);
    let wrong = instance.starling(&["up", "--slots", "many"]).expect_code(2);
    says(&wrong, &["many", "it is not a whole number"]);
    instance.starling(&["down"]).ok();
    let empties = [
        ("cluster.json", "it is empty", "--dir"),
        ("nodes/0/state/format", "format is damaged: it is empty", "restore the file"),
        ("keys/client.pem", "client.pem is damaged", "keys"),
    ];
    for (name, cause, step) in empties {
        let path = instance.directory().join(name);
        let before = fs::read(&path).expect("the node has written it");
        fs::write(&path, "").expect("ours");
        says(&instance.starling(&["up"]).expect_code(4), &[cause, step]);
        fs::write(&path, before).expect("ours");
    }
    instance.starling(&["up"]).ok();
    instance.down();
}

#[test]
fn two_ups_of_one_directory_start_one_cluster() {
    let sandbox = Sandbox::new();
    let up = ["--dir", "c", "up", "--nodes", "2", "--slots", "1"];
    let running = [sandbox.start(&up), sandbox.start(&up)];
    for one in running {
        one.end().ok();
    }
    let list = sandbox.starling(&["--dir", "c", "node", "list", "--json"]).ok().json();
    assert_eq!(list["nodes"].as_array().map(Vec::len), Some(2), "{list}");
    sandbox.starling(&["--dir", "c", "down"]).ok();
}

/// A node that still ran has written there what it knew.
#[test]
fn what_was_left_of_a_removed_cluster_is_not_taken_for_its_successors() {
    let instance = Instance::up(1, 1);
    instance.starling(&["up", "--nodes", "3"]).ok();
    let members = instance.directory().join("members.json");
    wait_until("others are written down", || members.exists());
    instance.starling(&["down"]).ok();
    let text = fs::read(&members).expect("written");
    for entry in fs::read_dir(instance.directory()).expect("ours").flatten() {
        match entry.path() {
            path if path.is_dir() => fs::remove_dir_all(path).expect("ours"),
            path => fs::remove_file(path).expect("ours"),
        }
    }
    fs::write(&members, text).expect("ours");
    let up = instance.json(&["up", "--nodes", "1", "--slots", "1"]);
    assert_eq!((&up["started"], &up["away"]), (&[0].into(), &Value::Array(Vec::new())), "{up}");
    instance.starling(&["submit", "--wait", "--", "true"]).ok();
    // The records of its cluster are there, and its name is not.
    instance.starling(&["down"]).ok();
    fs::remove_file(instance.directory().join("cluster.json")).expect("ours");
    let refused = instance.starling(&["up"]).expect_code(4);
    says(&refused, &["cluster.json is damaged: it is missing", "restore the file"]);
}
