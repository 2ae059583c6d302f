//! Commands die with their group, on request, with their spawner and with their node.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::common::{Bench, is_alive, launch, object, read_pid, spec_of, wait_until};

const NODE_DIR: &str = "EXECUTOR_TEST_NODE_DIR";

/// Not a test of its own: a node that runs a command until it is killed.
#[test]
fn node_to_be_killed() {
    let Some(directory) = std::env::var_os(NODE_DIR) else { return };
    let state = Path::new(&directory).join("state");
    let bench = Bench::with(|config| {
        config.spawner_program = Some(std::env::current_exe().unwrap());
        config.state_dir = state;
    });
    start_family(&bench, 1, Path::new(&directory));
    loop {
        std::thread::park();
    }
}

/// A command with a child, a child in the background and one that ignores signals; they write their
/// ids.
fn start_family(bench: &Bench, local: u64, directory: &Path) {
    let script = format!(
        "cd {}; (trap '' TERM HUP INT; echo $(exec sh -c 'echo $PPID') > c.part; mv c.part c; \
         while :; do sleep 0.2; done) & sleep 1000 & echo $! > b.part; mv b.part b; \
         echo $$ > a.part; mv a.part a; sleep 1000",
        directory.display()
    );
    bench.executor.launch(launch(local, spec_of(bench.command(&["sh", "-c", &script]))));
}

fn family(directory: &Path) -> Vec<String> {
    ["a", "b", "c"].map(|name| read_pid(&directory.join(name))).to_vec()
}

fn wait_for_death(pids: &[String]) {
    for pid in pids {
        wait_until(&format!("{pid} is dead"), || !is_alive(pid));
    }
}

/// The parent of a process. For a command it is the spawner.
fn parent_of(pid: &str) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields = stat.rsplit_once(") ").unwrap().1;
    fields.split(' ').nth(1).unwrap().parse().unwrap()
}

fn kill(pid: i32) {
    send(pid, rustix::process::Signal::KILL);
}

fn send(pid: i32, signal: rustix::process::Signal) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

#[test]
fn a_killed_attempt_dies_with_its_children_and_is_not_reported() {
    let mut bench = Bench::new();
    let directory = tempfile::tempdir().unwrap();
    start_family(&bench, 1, directory.path());
    let pids = family(directory.path());
    assert!(pids.iter().all(|pid| is_alive(pid)));
    bench.executor.kill(object(1, 0).task, object(1, 0).attempt);
    assert_eq!(bench.executor.running(), 0);
    wait_for_death(&pids);
    assert!(bench.shell(2, "true").is_done(), "others go on");
    bench.no_more_outcomes();
}

#[test]
fn what_a_command_leaves_in_the_background_dies_with_it() {
    let mut bench = Bench::new();
    let pid = bench.submit_dir.join("pid");
    let script = format!("sleep 1000 & echo $! > {}; echo done", pid.display());
    assert!(bench.shell(1, &script).is_done());
    assert_eq!(bench.stdout(1), "done\n");
    wait_for_death(&[read_pid(&pid)]);
}

#[test]
fn a_dead_spawner_fails_its_commands_and_is_replaced() {
    let mut bench = Bench::new();
    let directory = tempfile::tempdir().unwrap();
    start_family(&bench, 1, directory.path());
    let pids = family(directory.path());
    kill(parent_of(&pids[0]));
    let outcome = bench.outcome(object(1, 0).task);
    let expected = "the spawner process of n2 ended (signal: 9 (SIGKILL)); the command was killed";
    assert_eq!(outcome.error, expected);
    assert!(outcome.lost, "it is not the command's fault");
    wait_for_death(&pids);
    assert_eq!(bench.shell(2, "true").error, "");
}

#[test]
fn stopping_kills_what_runs() {
    let bench = Bench::new();
    let directory = tempfile::tempdir().unwrap();
    start_family(&bench, 1, directory.path());
    let pids = family(directory.path());
    bench.executor.stop();
    assert!(!pids.iter().any(|pid| is_alive(pid)), "nothing is left when stop returns");
    bench.no_more_outcomes();
}

fn start_node(directory: &Path) -> std::process::Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "death::node_to_be_killed"])
        .env(NODE_DIR, directory)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn a_command_dies_with_its_node() {
    let directory = tempfile::tempdir().unwrap();
    let mut node = start_node(directory.path());
    let pids = family(directory.path());
    node.kill().unwrap();
    node.wait().unwrap();
    wait_for_death(&pids);
}

#[test]
fn a_new_node_kills_what_outlived_node_and_spawner() {
    let directory = tempfile::tempdir().unwrap();
    let mut node = start_node(directory.path());
    let pids = family(directory.path());
    // Neither has time to clean up.
    let spawner = parent_of(&pids[0]);
    kill_both(node.id().try_into().unwrap(), spawner);
    node.wait().unwrap();
    assert!(pids.iter().all(|pid| is_alive(pid)), "else this test shows nothing");
    let bench = Bench::with(|config| config.state_dir = directory.path().join("state"));
    wait_for_death(&pids);
    let tasks = directory.path().join("state/tasks");
    assert_eq!(fs::read_dir(tasks).unwrap().count(), 0);
    drop(bench);
}

/// Stops both first, with all their threads, so that neither sees the other die.
fn kill_both(node: i32, spawner: i32) {
    for pid in [spawner, node] {
        send(pid, rustix::process::Signal::STOP);
    }
    for pid in [spawner, node] {
        wait_until(&format!("{pid} stands still"), || stands_still(pid));
    }
    for pid in [spawner, node] {
        kill(pid);
    }
}

fn stands_still(pid: i32) -> bool {
    fs::read_dir(format!("/proc/{pid}/task")).unwrap().all(|thread| {
        let stat = fs::read_to_string(thread.unwrap().path().join("stat"));
        stat.is_ok_and(|text| text.rsplit_once(") ").unwrap().1.starts_with('T'))
    })
}

/// The orders exceed the socket's buffer: launches do not wait, and no order is truncated.
#[test]
fn a_hanging_spawner_stops_no_other_node() {
    const COMMANDS: u64 = 8;
    const LENGTH: usize = 100_000;
    let mut bench = Bench::new();
    assert!(bench.shell(1, "echo $PPID").is_done());
    let spawner: i32 = bench.stdout(1).trim().parse().unwrap();
    // Afterwards there are spare directories for as many commands at a time.
    let run = |bench: &Bench, first: u64, argv: &[&str]| {
        for local in first..first + COMMANDS {
            bench.executor.launch(launch(local, spec_of(bench.command(argv))));
        }
    };
    run(&bench, 100, &["sleep", "0.2"]);
    for local in 100..100 + COMMANDS {
        assert!(bench.outcome(object(local, 0).task).is_done());
    }
    send(spawner, rustix::process::Signal::STOP);
    run(&bench, 200, &["sh", "-c", "echo ${#1}", "sh", &"x".repeat(LENGTH)]);
    send(spawner, rustix::process::Signal::CONT);
    for local in 200..200 + COMMANDS {
        assert!(bench.outcome(object(local, 0).task).is_done());
        assert_eq!(bench.stdout(local), format!("{LENGTH}\n"));
    }
}
