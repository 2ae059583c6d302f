//! A cluster whose nodes are children of the test: started one by one, each where and how the test
//! wants it, ended in any way, and started again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use proto::TaskId;
use proto::event::{End, Event};
use serde_json::Value;

use crate::instance::node_events;
use crate::{Ran, Running, Sandbox, binary, wait_until};

/// How the nodes of a [`Foreground`] are started.
#[derive(Clone, Debug)]
pub struct Shape {
    pub nodes: u32,
    pub slots: u32,
    pub copies: u32,
    /// Words before the program, by node: where it runs.
    pub place: BTreeMap<u32, Vec<String>>,
    /// Further flags, by node.
    pub flags: BTreeMap<u32, Vec<String>>,
}

impl Shape {
    #[must_use]
    pub fn new(nodes: u32, slots: u32, copies: u32) -> Self {
        Self { nodes, slots, copies, place: BTreeMap::new(), flags: BTreeMap::new() }
    }
}

/// The nodes; they are killed when this is dropped.
#[derive(Debug)]
pub struct Foreground {
    nodes: Vec<Option<Running>>,
    shape: Shape,
    directory: PathBuf,
    // Last: the nodes end before their directory goes.
    sandbox: Sandbox,
}

impl Foreground {
    /// Starts all nodes and waits until each has its copies.
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

    /// Starts those that have ended, and tells which.
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

    /// What a node that has ended had to say, or one that runs has said so far.
    #[must_use]
    pub fn said(&self, node: u32) -> String {
        self.node(node).errors_so_far()
    }

    /// Waits until a node has ended by itself, and tells what it left behind.
    ///
    /// # Panics
    /// When it was never started, or goes on.
    pub fn wait_for_end(&mut self, node: u32) -> Ran {
        wait_until("the node has ended", || !self.is_running(node));
        self.nodes[node as usize].take().expect("the node was started").end()
    }

    /// `kill -9` of one node.
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
        // What `--` begins is the user's command.
        let ends = arguments.iter().position(|argument| *argument == "--");
        arguments.insert(ends.unwrap_or(arguments.len()), "--json");
        self.starling(&arguments).ok().json()
    }

    /// Waits until every partition is served and has all its copies.
    ///
    /// # Panics
    /// When that takes too long.
    pub fn wait_for_copies(&self) {
        wait_until("every partition has its copies", || {
            let ran = self.starling(&["node", "list", "--json"]);
            ran.code == 0 && ran.json()["fully_replicated"] == true
        });
    }

    /// How often each task was committed as done by one life of a home, by the event logs: where
    /// there are copies a home may die with a commit that nobody was told of, and its successor
    /// commits anew.
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

    /// What the nodes that can be reached have agreed on about one of them.
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
    /// A failed test shows what its nodes had to say.
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

/// A node as the others see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    pub is_up: bool,
    pub is_given_up: bool,
    pub votes: bool,
    pub incarnation: u64,
}
