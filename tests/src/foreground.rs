//! A cluster of nodes that are children of the test. The test starts each one where and how it
//! needs, ends it in any way, and restarts it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use proto::TaskId;
use proto::event::{End, Event};
use serde_json::Value;

use crate::instance::node_events;
use crate::{Ran, Running, Sandbox, binary, wait_until};

/// The start of the nodes of a [`Foreground`].
#[derive(Clone, Debug)]
pub struct Shape {
    pub nodes: u32,
    pub slots: u32,
    pub copies: u32,
    /// Words before the program by node, which decide where it runs.
    pub place: BTreeMap<u32, Vec<String>>,
    /// Further flags by node.
    pub flags: BTreeMap<u32, Vec<String>>,
}

impl Shape {
    #[must_use]
    pub fn new(nodes: u32, slots: u32, copies: u32) -> Self {
        Self { nodes, slots, copies, place: BTreeMap::new(), flags: BTreeMap::new() }
    }
}

/// The nodes. They are killed when this is dropped.
#[derive(Debug)]
pub struct Foreground {
    nodes: Vec<Option<Running>>,
    shape: Shape,
    directory: PathBuf,
    // Dropped last: the nodes end before their directory is removed.
    sandbox: Sandbox,
}

impl Foreground {
    /// Starts all nodes and waits until each has its replicas.
    ///
    /// # Panics
    /// When they do not come up.
    #[must_use]
    pub fn up(sandbox: Sandbox, shape: Shape) -> Self {
        let directory = sandbox.path("instance");
        let count = shape.nodes;
        let nodes = (0..count).map(|_| None).collect();
        let mut cluster = Self { nodes, shape, directory, sandbox };
        for node in 0..count {
            cluster.start_node(node);
        }
        cluster.wait_for_copies();
        cluster
    }

    /// # Panics
    /// When the node runs already.
    pub fn start_node(&mut self, node: u32) {
        assert!(!self.is_running(node), "n{node} runs");
        let mut words = self.shape.place.get(&node).cloned().unwrap_or_default();
        words.push(binary().display().to_string());
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]).arg("--dir").arg(&self.directory).arg("node");
        command.args(["--rank", &node.to_string(), "--expect", &self.shape.nodes.to_string()]);
        command.args(["--slots", &self.shape.slots.to_string()]);
        command.args(["--replicas", &self.shape.copies.to_string()]);
        command.args(self.shape.flags.get(&node).into_iter().flatten());
        self.nodes[node as usize] = Some(self.sandbox.start_command(command));
    }

    /// Starts the nodes that have ended, and returns them.
    pub fn start_ended(&mut self) -> Vec<u32> {
        let ended: Vec<u32> =
            (0..self.shape.nodes).filter(|&node| !self.is_running(node)).collect();
        for &node in &ended {
            self.start_node(node);
        }
        ended
    }

    pub fn is_running(&mut self, node: u32) -> bool {
        self.nodes[node as usize].as_mut().is_some_and(|running| !running.has_ended())
    }

    /// The process of a node.
    ///
    /// # Panics
    /// When it was never started.
    #[must_use]
    pub fn node(&self, node: u32) -> &Running {
        self.nodes[node as usize].as_ref().expect("the node was started")
    }

    /// The standard error of a node so far.
    #[must_use]
    pub fn said(&self, node: u32) -> String {
        self.node(node).errors_so_far()
    }

    /// Waits until a node has ended by itself, and returns its results.
    ///
    /// # Panics
    /// When it was never started, or does not end.
    pub fn wait_for_end(&mut self, node: u32) -> Ran {
        wait_until("the node has ended", || !self.is_running(node));
        self.nodes[node as usize].take().expect("the node was started").end()
    }

    /// Kills one node with SIGKILL.
    pub fn kill(&mut self, node: u32) {
        self.node(node).signal(rustix::process::Signal::KILL);
        if let Some(running) = self.nodes[node as usize].take() {
            running.end();
        }
    }

    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }
    #[must_use]
    pub fn sandbox(&self) -> &Sandbox {
        &self.sandbox
    }

    /// Runs a verb on this cluster to its end.
    pub fn starling(&self, arguments: &[&str]) -> Ran {
        self.start(arguments).end()
    }
    /// Starts a verb on this cluster.
    pub fn start(&self, arguments: &[&str]) -> Running {
        let directory = self.directory.display().to_string();
        let all: Vec<&str> = ["--dir", &directory].into_iter().chain(arguments.to_vec()).collect();
        self.sandbox.start(&all)
    }
    /// Runs a verb with `--json` and returns the value.
    pub fn json(&self, arguments: &[&str]) -> Value {
        let mut arguments = arguments.to_vec();
        // The user's command follows `--`.
        let ends = arguments.iter().position(|argument| *argument == "--");
        arguments.insert(ends.unwrap_or(arguments.len()), "--json");
        self.starling(&arguments).ok().json()
    }

    /// Waits until every partition is active and has all its replicas.
    ///
    /// # Panics
    /// When that takes too long.
    pub fn wait_for_copies(&self) {
        wait_until("every partition has its copies", || {
            let ran = self.starling(&["node", "list", "--json"]);
            ran.code == 0 && ran.json()["fully_replicated"] == true
        });
    }

    /// The number of commits of each task as done by one incarnation of a home, in the event logs.
    /// With replicas a home may die with an unreported commit, and its successor commits again.
    #[must_use]
    pub fn commits(&self) -> BTreeMap<(TaskId, u32, u32), u32> {
        let mut times = BTreeMap::new();
        for node in 0..self.shape.nodes {
            let mut life = 0;
            for event in node_events(&self.directory, node) {
                match event {
                    Event::NodeStarted { incarnation, .. } => life = incarnation,
                    Event::Committed { task, end: End::Done, .. } => {
                        *times.entry((task, node, life)).or_default() += 1;
                    }
                    _ => {}
                }
            }
        }
        times
    }

    /// The state of a node in the map of the nodes that can be reached.
    #[must_use]
    pub fn seen(&self, node: u32) -> Option<Seen> {
        let ran = self.starling(&["node", "list", "--json"]);
        let list = (ran.code == 0).then(|| ran.json())?;
        let row = list["nodes"].as_array()?.iter().find(|row| row["id"] == node)?.clone();
        Some(Seen {
            is_up: row["state"] == "up",
            is_given_up: row["given_up"] == true,
            votes: row["votes"] == true,
            incarnation: row["incarnation"].as_u64()?,
        })
    }
}

impl Drop for Foreground {
    /// Prints the logs of the nodes for a failed test.
    #[expect(clippy::print_stderr, reason = "the output of a failing test")]
    fn drop(&mut self) {
        for node in (0..self.shape.nodes).filter(|_| std::thread::panicking()) {
            let said = self.nodes[node as usize].as_ref().map(Running::errors_so_far);
            let log = self.directory.join(format!("nodes/{node}/state/log"));
            let log = std::fs::read_to_string(log).unwrap_or_default();
            eprintln!("--- n{node}\n{}\n{log}", said.unwrap_or_default());
        }
    }
}

/// A node from the view of the other nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    pub is_up: bool,
    pub is_given_up: bool,
    pub votes: bool,
    pub incarnation: u64,
}
