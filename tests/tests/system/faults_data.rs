//! All pairs of a set of files, with real bytes on real processes. Nodes are killed, stopped and
//! restarted, and with replicas a disk is lost. The answers are those of an undisturbed run.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use starling_tests::{Instance, wait_until};

use crate::cluster::{job, submit};

const NODES: u32 = 4;
const FILES: u32 = 12;
const FILE_BYTES: u32 = 200_000;
/// Files, pairs, and the task that concatenates all answers.
const TASKS: u64 = (FILES + FILES * FILES + 1) as u64;
/// A pause during which peers only wait.
const STOPPED_FOR: Duration = Duration::from_millis(1_200);
/// Longer than the timeout of fetching nodes.
const STOPPED_LONG: Duration = Duration::from_secs(7);

/// Every file with every file: the answer of a pair is a checksum of both.
pub(crate) fn workflow() -> String {
    let mut text = format!(
        "[[task]]\nname='file-{{i}}'\narray='1-{FILES}'\noutputs={{f='f{{i}}'}}\n\
         command=['sh','-c','yes \"file {{i}} of the set\" | head -c {FILE_BYTES} > f{{i}}']\n"
    );
    let mut answers = Vec::new();
    for a in 1..=FILES {
        for b in 1..=FILES {
            let inputs =
                if a == b { format!("{{a='f{a}'}}") } else { format!("{{a='f{a}', b='f{b}'}}") };
            let _ = writeln!(
                text,
                "[[task]]\nname='pair-{a}-{b}'\ninputs={inputs}\noutputs={{r='r-{a}-{b}'}}\n\
                 command=['sh','-c','cat f{a} f{b} | cksum > r-{a}-{b}; sleep 0.1']"
            );
            answers.push(format!("'r-{a}-{b}'"));
        }
    }
    let _ = writeln!(
        text,
        "[[task]]\nname='all'\ninputs={{r=[{}]}}\n\
         outputs={{all={{file='all', keep=true}}}}\n\
         command=['sh','-c','cat $STARLING_INPUTS > all']",
        answers.join(",")
    );
    text
}

/// The kept output of the last task.
pub(crate) fn answers(instance: &Instance, id: &str) -> String {
    let folder = instance.sandbox().path("fetched");
    let name = folder.display().to_string();
    instance.starling(&["job", "fetch", id, "-o", &name]).ok();
    std::fs::read_to_string(folder.join("all")).expect("the kept file was fetched")
}

pub(crate) fn done(instance: &Instance, id: &str) -> u64 {
    job(instance, id)["tasks"]["done"].as_u64().unwrap_or(0)
}

fn signal(instance: &Instance, node: u32, signal: Signal) {
    let raw = i32::try_from(instance.pid(node)).expect("pids are small");
    let pid = Pid::from_raw(raw).expect("a node's pid is not zero");
    kill_process(pid, signal).expect("the node runs");
}

/// Stops a node for some time. It has not failed, even if other nodes declare it failed.
fn stop_for_a_while(instance: &Instance, node: u32, how_long: Duration) {
    signal(instance, node, Signal::STOP);
    std::thread::sleep(how_long);
    signal(instance, node, Signal::CONT);
}

pub(crate) fn undisturbed() -> String {
    let instance = Instance::up_with_copies(2, 8, 1);
    instance.sandbox().write("pairs.toml", workflow());
    let id = submit(&instance, &["--file", "pairs.toml", "--wait"]);
    let answers = answers(&instance, &id);
    instance.down();
    answers
}

/// A node loses its disk: its outputs must be rebuilt.
fn lose(instance: &mut Instance, node: u32) {
    instance.kill(node);
    let state = instance.directory().join(format!("nodes/{node}/state"));
    std::fs::remove_dir_all(state).expect("it is ours");
    instance.start_missing();
}

/// Disturbs half of the nodes that make files, the nodes that read them, and both at once.
fn disturb(instance: &mut Instance, id: &str) {
    for (round, node) in [1, 2, 3, 0, 2, 1].into_iter().enumerate() {
        let after = 8 + 22 * round as u64;
        wait_until("the job gets on", || done(instance, id) >= after);
        match round % 3 {
            0 => {
                instance.kill(node);
                instance.start_missing();
            }
            1 => {
                let how_long = if round == 1 { STOPPED_FOR } else { STOPPED_LONG };
                stop_for_a_while(instance, node, how_long);
            }
            _ => {
                let other = (node + 2) % NODES;
                signal(instance, other, Signal::STOP);
                instance.kill(node);
                std::thread::sleep(STOPPED_FOR);
                signal(instance, other, Signal::CONT);
                instance.start_missing();
            }
        }
    }
}

/// With replicas: one node is killed, another loses its disk, a third is stopped.
fn disturb_and_lose_a_disk(instance: &mut Instance, id: &str) {
    wait_until("the job gets on", || done(instance, id) >= 8);
    instance.kill(1);
    instance.start_missing();
    instance.wait_for_copies();
    lose(instance, 2);
    // After the end of the job only kept outputs would be needed, and they may be on a single disk.
    assert_eq!(job(instance, id)["state"], "running", "the disk is lost in the middle");
    instance.wait_for_copies();
    stop_for_a_while(instance, 3, STOPPED_FOR);
}

fn all_pairs_survive(copies: u32) {
    let expected = undisturbed();
    let lines: BTreeSet<&str> = expected.lines().collect();
    assert_eq!(lines.len(), (FILES * FILES) as usize, "every pair has an answer of its own");

    let mut instance = Instance::up_with_copies(NODES, 1, copies);
    let id = if copies == 1 {
        instance.sandbox().write("pairs.toml", workflow());
        let id = submit(&instance, &["--file", "pairs.toml"]);
        disturb(&mut instance, &id);
        id
    } else {
        // Replicas take some time to be complete again.
        instance.sandbox().write("pairs.toml", workflow().replace("sleep 0.1", "sleep 0.6"));
        instance.wait_for_copies();
        let id = submit(&instance, &["--file", "pairs.toml"]);
        disturb_and_lose_a_disk(&mut instance, &id);
        id
    };
    instance.starling(&["job", "wait", &id]).ok();
    let info = job(&instance, &id);
    assert_eq!(info["state"], "finished", "{info}");
    assert_eq!(info["tasks"]["total"], TASKS, "{info}");
    assert_eq!(info["tasks"]["done"], TASKS, "{info}");
    let data = &info["data"];
    assert!(data["bytes_moved"].as_u64() >= Some(FILE_BYTES.into()), "bytes moved: {data}");
    assert!(answers(&instance, &id) == expected, "the answers differ");
    if copies == 1 {
        // Lost disks lose event logs as well, and tasks run again.
        let commits = instance.commits();
        assert!(commits.len() as u64 > TASKS / 2, "{} of {TASKS} in the logs", commits.len());
        for (task, times) in commits {
            assert_eq!(times, 1, "{task} was committed {times} times");
        }
    }
    instance.down();
}

#[test]
fn all_pairs_under_kills_stops_and_restarts_gives_the_same_answers() {
    all_pairs_survive(1);
}

#[test]
fn all_pairs_with_three_copies_and_a_lost_disk_gives_the_same_answers() {
    all_pairs_survive(3);
}
