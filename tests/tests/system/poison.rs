//! Commands that take down what runs them: they fail after three attempts, with an error that names
//! them, and nobody else's work is lost. Their nodes are started again by whoever looks after them.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use proto::limits::CRASHES_MAX;
use serde_json::Value;
use starling_tests::{DEADLINE, Foreground, Sandbox, Shape};

/// Beside each poison; each notes what it has done.
const INNOCENTS: u64 = 40;

/// What a task does after it has noted that it began.
struct Poison {
    name: &'static str,
    script: &'static str,
    retries: u32,
}

fn workflow(sandbox: &Sandbox, poisons: &[Poison]) {
    let began = sandbox.path("began").display().to_string();
    let done = sandbox.path("done").display().to_string();
    let mut text = format!(
        "[[task]]\nname='good-{{i}}'\narray='1-{INNOCENTS}'\n\
         command=['sh','-c','sleep 0.1; echo {{i}} >> {done}']\n"
    );
    for Poison { name, script, retries } in poisons {
        text += &format!(
            "[[task]]\nname='{name}'\nretries={retries}\n\
             command=['sh','-c','echo {name} n$STARLING_NODE >> {began}; {script}']\n"
        );
    }
    sandbox.write("w.toml", text);
}

fn lines(sandbox: &Sandbox, file: &str) -> Vec<String> {
    let text = fs::read_to_string(sandbox.path(file)).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

struct Ended {
    state: Value,
    /// Deaths of nodes, whatever died.
    deaths: u32,
    /// How often each poison began.
    began: BTreeMap<String, u32>,
}

impl Ended {
    fn error_of(&self, task: &str) -> &str {
        let failures = self.state["failures"].as_array().expect("a list of failures");
        let of_task = failures.iter().find(|failure| failure["name"] == task);
        of_task.and_then(|it| it["error"].as_str()).unwrap_or_else(|| panic!("{}", self.state))
    }
}

/// Runs these beside innocents; what dies of them is started again.
fn run(shape: Shape, poisons: &[Poison]) -> Ended {
    let sandbox = Sandbox::new();
    workflow(&sandbox, poisons);
    let mut cluster = Foreground::up(sandbox, shape);
    let submitted = cluster.json(&["submit", "--file", "w.toml"]);
    let id = submitted["job"].as_str().expect("jobs have ids").to_owned();
    let mut waits = cluster.start(&["job", "wait", &id]);
    let (since, mut deaths) = (Instant::now(), 0);
    while !waits.has_ended() {
        deaths += cluster.start_ended().len() as u32;
        assert!(since.elapsed() < DEADLINE, "{}", waits.errors_so_far());
        std::thread::sleep(Duration::from_millis(50));
    }
    waits.end().expect_code(1);
    deaths += cluster.start_ended().len() as u32;
    let state = cluster.json(&["job", "info", &id]);
    let tasks = &state["tasks"];
    assert_eq!(tasks["done"], INNOCENTS, "{state}");
    assert_eq!(tasks["failed"], poisons.len(), "{state}");
    let mut did: Vec<u64> =
        lines(cluster.sandbox(), "done").iter().filter_map(|line| line.parse().ok()).collect();
    did.sort_unstable();
    did.dedup();
    assert_eq!(did, (1..=INNOCENTS).collect::<Vec<_>>(), "every innocent ran");
    let mut began = BTreeMap::new();
    for line in lines(cluster.sandbox(), "began") {
        let name = line.split(' ').next().unwrap_or_default().to_owned();
        *began.entry(name).or_default() += 1;
    }
    Ended { state, deaths, began }
}

/// The node is the parent of the process by which it starts commands.
const KILL_NODE: &str = "kill -9 $(grep PPid: /proc/$PPID/status | cut -f2); sleep 60";

fn taken_down_three_times(ended: &Ended, task: &str) {
    let error = ended.error_of(task);
    assert!(error.contains(&format!("died {CRASHES_MAX} times")), "{error}");
    assert!(error.contains("incarnation") && error.contains("node"), "{error}");
    // Deaths that came before its first words count too.
    let began = ended.began.get(task).copied().unwrap_or_default();
    assert!((1..=u32::from(CRASHES_MAX)).contains(&began), "{task} began {began} times");
}

#[test]
fn a_task_that_kills_its_node_fails_after_three_crashes() {
    let kills = Poison { name: "kills-node", script: KILL_NODE, retries: 0 };
    let ended = run(Shape::new(3, 2, 2), &[kills]);
    taken_down_three_times(&ended, "kills-node");
    assert!((1..=u32::from(CRASHES_MAX)).contains(&ended.deaths), "{} deaths", ended.deaths);
}

#[test]
fn a_task_that_kills_the_only_node_fails_as_well() {
    let kills = Poison { name: "kills-node", script: KILL_NODE, retries: 5 };
    let ended = run(Shape::new(1, 2, 1), &[kills]);
    taken_down_three_times(&ended, "kills-node");
    assert_eq!(ended.deaths, u32::from(CRASHES_MAX));
}

#[test]
fn a_task_that_kills_the_spawner_is_counted_alike() {
    let kills = Poison { name: "kills-spawner", script: "kill -9 $PPID; sleep 60", retries: 0 };
    let ended = run(Shape::new(3, 2, 2), &[kills]);
    taken_down_three_times(&ended, "kills-spawner");
    assert!(ended.deaths <= u32::from(CRASHES_MAX), "{} deaths", ended.deaths);
}

/// What harms only itself is tried as often as it may be, and no node dies of it.
#[test]
fn a_task_that_harms_only_itself_is_tried_three_times() {
    let segfaults = Poison { name: "segfaults", script: "kill -SEGV $$", retries: 2 };
    // More than it may have is refused to it, not to the node.
    let eats = "ulimit -v 400000; exec tail /dev/zero";
    let eats = Poison { name: "eats-memory", script: eats, retries: 2 };
    let ended = run(Shape::new(3, 2, 2), &[segfaults, eats]);
    assert_eq!(ended.deaths, 0);
    for task in ["segfaults", "eats-memory"] {
        assert_eq!(ended.began.get(task), Some(&3), "{task}");
    }
    let error = ended.error_of("segfaults");
    assert!(error.contains("signal") && error.contains("11"), "{error}");
    assert!(!ended.error_of("eats-memory").is_empty());
}
