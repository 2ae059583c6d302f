//! A cluster of background processes that is taken down at the end of the test.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use proto::event::{Decoder, End, RetryReason};
use proto::{Event, TaskId};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use serde_json::Value;

use crate::{Ran, Running, Sandbox, wait_until};

/// The most nodes that join in one test, in addition to the first number of nodes.
const JOINED_MAX: u32 = 6;

/// An instance that `starling up` started. It is taken down when dropped.
#[derive(Debug)]
pub struct Instance {
    sandbox: Sandbox,
    directory: PathBuf,
    nodes: u32,
    slots: u32,
    /// `None`: the program's default.
    copies: Option<u32>,
    /// Every process that was ever in its address files.
    pids: BTreeMap<u32, Vec<u32>>,
}

impl Instance {
    /// Starts `nodes` processes with `slots` slots each.
    ///
    /// # Panics
    /// When they do not come up.
    #[must_use]
    pub fn up(nodes: u32, slots: u32) -> Self {
        Self::make(nodes, slots, None)
    }

    /// Like [`Self::up`], with this number of replicas of each partition.
    #[must_use]
    pub fn up_with_copies(nodes: u32, slots: u32, copies: u32) -> Self {
        Self::make(nodes, slots, Some(copies))
    }

    /// Starts `nodes` processes by `up` with these flags.
    ///
    /// # Panics
    /// When they do not come up.
    #[must_use]
    pub fn up_with_flags(nodes: u32, flags: &[&str]) -> Self {
        let sandbox = Sandbox::new();
        let directory = sandbox.path("instance");
        let (pids, slots, copies) = (BTreeMap::new(), 0, None);
        let mut instance = Self { sandbox, directory, nodes, slots, copies, pids };
        let nodes = nodes.to_string();
        instance.starling(&[&["up", "--nodes", &nodes], flags].concat()).ok();
        instance.note_pids();
        instance
    }

    fn make(nodes: u32, slots: u32, copies: Option<u32>) -> Self {
        let sandbox = Sandbox::new();
        let directory = sandbox.path("instance");
        let pids = BTreeMap::new();
        let mut instance = Self { sandbox, directory, nodes, slots, copies, pids };
        instance.start_missing();
        instance
    }

    /// Runs `starling up` again, which starts the missing nodes.
    ///
    /// # Panics
    /// When they do not come up.
    pub fn start_missing(&mut self) {
        let (nodes, slots) = (self.nodes.to_string(), self.slots.to_string());
        let mut arguments = vec!["up", "--nodes", &nodes, "--slots", &slots];
        let copies = self.copies.map(|copies| copies.to_string());
        if let Some(copies) = &copies {
            arguments.extend(["--replicas", copies]);
        }
        self.starling(&arguments).ok();
        self.note_pids();
    }

    /// Waits until every partition has all replicas and the cluster survives as many losses as its
    /// running nodes permit. So all nodes must have noticed one that has just returned.
    ///
    /// # Panics
    /// When that takes too long.
    pub fn wait_for_copies(&self) {
        let pids = (0..self.nodes).filter_map(|node| self.address(node)).map(|(pid, _)| pid);
        let running = pids.filter(|&pid| is_alive(pid) && !is_stopped(pid)).count() as u64;
        let spare_copies = u64::from(self.copies.unwrap_or(2)) - 1;
        let survived = spare_copies.min(running.saturating_sub(1) / 2);
        wait_until("every partition has its copies", || {
            let list = self.json(&["node", "list"]);
            list["fully_replicated"] == true && list["losses_survived"].as_u64() >= Some(survived)
        });
    }

    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }
    #[must_use]
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Runs a verb on this instance to its end.
    pub fn starling(&self, arguments: &[&str]) -> Ran {
        self.start(arguments).end()
    }
    /// Starts a verb on this instance.
    pub fn start(&self, arguments: &[&str]) -> Running {
        self.sandbox.start(&self.with_directory(arguments))
    }
    /// Runs a verb with `--json` and returns the value.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let mut arguments = arguments.to_vec();
        // The user's command follows `--`.
        let ends = arguments.iter().position(|argument| *argument == "--");
        arguments.insert(ends.unwrap_or(arguments.len()), "--json");
        self.starling(&arguments).ok().json()
    }

    /// `--dir` precedes the user's command, which follows `--`.
    fn with_directory(&self, arguments: &[&str]) -> Vec<String> {
        let mut all = vec!["--dir".to_owned(), self.directory.display().to_string()];
        all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        all
    }

    /// The process of a node, from its address file.
    ///
    /// # Panics
    /// When there is no such file.
    #[must_use]
    pub fn pid(&self, node: u32) -> u32 {
        self.address(node).expect("a node that is up has an address file").0
    }

    /// The process and the incarnation of a node.
    #[must_use]
    pub fn address(&self, node: u32) -> Option<(u32, u64)> {
        let path = self.directory.join("nodes").join(node.to_string()).join("address.json");
        let value: Value = serde_json::from_str(&fs::read_to_string(path).ok()?).ok()?;
        let pid = u32::try_from(value["pid"].as_u64()?).ok()?;
        Some((pid, value["incarnation"].as_u64()?))
    }

    /// Kills one node with SIGKILL and waits for its end.
    ///
    /// # Panics
    /// When it does not end.
    pub fn kill(&mut self, node: u32) {
        let pid = self.pid(node);
        kill_process(as_pid(pid), Signal::KILL).expect("the node runs");
        wait_until("the killed node is gone", || !is_alive(pid));
    }

    /// The number of commits of each task as done, in the event logs of all nodes. Commits before a
    /// rebuild are subtracted. Events that a killed node had not written yet are missing.
    #[must_use]
    pub fn commits(&self) -> BTreeMap<TaskId, i32> {
        let mut times = BTreeMap::new();
        for node in 0..self.nodes {
            for event in node_events(&self.directory, node) {
                match event {
                    Event::Committed { task, end: End::Done, .. } => {
                        *times.entry(task).or_default() += 1;
                    }
                    Event::Replaced {
                        task,
                        why: RetryReason::Rebuilt | RetryReason::Recalled,
                        ..
                    } => {
                        *times.entry(task).or_default() -= 1;
                    }
                    _ => {}
                }
            }
        }
        times
    }

    /// The events of a task on all nodes, for the message of a failing test.
    #[must_use]
    pub fn story_of(&self, task: TaskId) -> String {
        let named = format!("task: {task:?}");
        let mut story = String::new();
        for node in 0..self.nodes {
            for event in node_events(&self.directory, node) {
                let line = format!("{event:?}");
                if line.contains(&named) || matches!(event, Event::NodeStarted { .. }) {
                    story.push_str(&format!("n{node} {line}\n"));
                }
            }
        }
        story
    }

    /// Takes the instance down. Checks that none of its processes remains, and that no job of it
    /// stalled.
    ///
    /// # Panics
    /// When a process remains, or when a node has reported a stalled job.
    pub fn down(self) {
        let directory = self.directory.clone();
        let ended = self.end(); // Dropping it removes the logs.
        let stalls = stalls(&directory);
        assert!(stalls.is_empty(), "a job stalled: {stalls:#?}");
        drop(ended);
    }

    fn end(mut self) -> Self {
        self.note_pids();
        self.starling(&["down"]).ok();
        for pid in self.pids.values().flatten().copied() {
            wait_until("every node has ended", || !is_alive(pid));
        }
        self.pids.clear();
        self
    }

    fn note_pids(&mut self) {
        // Some nodes may have joined.
        for node in 0..2 * self.nodes + JOINED_MAX {
            if let Some((pid, _)) = self.address(node) {
                let seen = self.pids.entry(node).or_default();
                if !seen.contains(&pid) {
                    seen.push(pid);
                }
            }
        }
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.note_pids();
        for pid in self.pids.values().flatten().copied() {
            // Process ids are reused: only a process of this instance is killed.
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let directory = self.directory.display().to_string();
            if String::from_utf8_lossy(&words).contains(&directory) {
                let _ = kill_process(as_pid(pid), Signal::KILL);
            }
        }
        if std::thread::panicking() {
            show_logs(&self.directory);
        }
    }
}

/// The events of a node in order.
pub(crate) fn node_events(directory: &Path, node: u32) -> Vec<Event> {
    let folder = directory.join(format!("nodes/{node}/state/events"));
    let segments = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = segments.map(|segment| segment.path()).collect();
    paths.sort();
    let read = |path| events(&fs::read(path).expect("a segment is readable"));
    paths.iter().flat_map(read).collect()
}

/// The events of one segment: frames of magic, length, checksum, node, block. The last frame may be
/// torn if its writer was killed.
fn events(mut bytes: &[u8]) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some((header, rest)) = bytes.split_at_checked(16) {
        assert_eq!(&header[..4], b"SEV1", "a frame begins with its magic");
        let length = u32::from_le_bytes(header[4..8].try_into().expect("four bytes")) as usize;
        let Some((block, rest)) = rest.split_at_checked(length) else { break };
        events.extend(Decoder::new(block).map_while(Result::ok).map(|(_, event)| event));
        bytes = rest;
    }
    events
}

/// The stalled jobs in the logs of the nodes.
fn stalls(directory: &Path) -> Vec<String> {
    let nodes = fs::read_dir(directory.join("nodes")).into_iter().flatten().flatten();
    let logs = nodes.map(|node| node.path().join("state/log"));
    let texts = logs.map(|log| fs::read_to_string(log).unwrap_or_default());
    let is_stall = |line: &&str| line.contains(" got no further for ");
    let lines =
        texts.flat_map(|text| text.lines().filter(is_stall).map(str::to_owned).collect::<Vec<_>>());
    lines.collect()
}

/// Prints the logs of the nodes for a failed test.
#[expect(clippy::print_stderr, reason = "the output of a failing test")]
fn show_logs(directory: &Path) {
    for node in fs::read_dir(directory.join("nodes")).into_iter().flatten().flatten() {
        for file in [node.path().join("node.log"), node.path().join("state/log")] {
            let text = fs::read_to_string(&file).unwrap_or_default();
            eprintln!("--- {}\n{text}", file.display());
        }
    }
}

fn as_pid(pid: u32) -> Pid {
    let raw = i32::try_from(pid).expect("pids are small");
    Pid::from_raw(raw).expect("a node's pid is not zero")
}

/// True if the process runs. A process that is dead but not reaped does not run.
#[must_use]
pub fn is_alive(pid: u32) -> bool {
    test_kill_process(as_pid(pid)).is_ok() && !matches!(state_of(pid), None | Some('Z'))
}

/// True if SIGSTOP has stopped the process.
fn is_stopped(pid: u32) -> bool {
    state_of(pid) == Some('T')
}

/// The kernel's letter for the state of a process.
fn state_of(pid: u32) -> Option<char> {
    let state = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    state.rsplit(')').next()?.trim_start().chars().next()
}
