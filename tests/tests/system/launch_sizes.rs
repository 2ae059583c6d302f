//! Launches of several sizes in one directory, after nodes have lost their state or left.

use std::fs;
use std::path::Path;

use serde_json::Value;
use starling_tests::{Instance, Ran, Running, Sandbox, wait_until};

use crate::launchers::rank;

/// A rendezvous directory for launches.
struct Meeting {
    sandbox: Sandbox,
    directory: String,
}

impl Meeting {
    fn new() -> Self {
        let sandbox = Sandbox::new();
        let directory = sandbox.path("meet").display().to_string();
        Self { sandbox, directory }
    }

    fn starling(&self, arguments: &[&str]) -> Ran {
        let mut all = vec!["--dir", self.directory.as_str()];
        all.extend(arguments);
        self.sandbox.starling(&all)
    }

    fn nodes(&self) -> Vec<Value> {
        let ran = self.starling(&["node", "list", "--json"]);
        let list = if ran.code == 0 { ran.json() } else { Value::Null };
        list["nodes"].as_array().cloned().unwrap_or_default()
    }

    /// The numbers of the nodes that are up.
    fn up(&self) -> Vec<u64> {
        let nodes = self.nodes();
        let up = nodes.iter().filter(|node| node["state"] == "up");
        up.map(|node| node["id"].as_u64().expect("a number")).collect()
    }

    fn start(&self, size: u32, more: &[&str]) -> Vec<Running> {
        (0..size).map(|at| rank(&self.sandbox, &self.directory, at, size, more)).collect()
    }

    /// Starts `size` ranks, which must become `nodes`.
    fn launch(&self, size: u32, nodes: &[u64]) -> Vec<Running> {
        let ranks = self.start(size, &[]);
        wait_until("the ranks are up", || self.up() == nodes);
        ranks
    }

    fn wait_for_copies(&self) {
        wait_until("all is copied", || {
            let ran = self.starling(&["node", "list", "--json"]);
            ran.code == 0 && ran.json()["fully_replicated"] == true
        });
    }

    fn end(&self, ranks: Vec<Running>) {
        self.starling(&["down"]).ok();
        for rank in ranks {
            let ran = rank.end();
            assert_eq!(ran.code, 0, "every rank ends well: {ran:?}");
        }
    }

    fn lose_state(&self, node: u32) {
        let state = Path::new(&self.directory).join(format!("nodes/{node}/state"));
        fs::remove_dir_all(state).expect("its state was there");
    }

    /// A launch in which no node comes up, because no rank has its state.
    fn is_refused(&self, size: u32) {
        for rank in self.start(size, &["--deadline", "2s"]) {
            let ran = rank.end();
            assert_eq!(ran.code, 3, "{ran:?}");
            assert!(ran.stderr.contains("no node came that has its state"), "{ran:?}");
        }
    }
}

#[test]
fn a_first_node_without_state_founds_no_second_cluster_when_it_is_launched_alone() {
    let there = Meeting::new();
    let ranks = there.launch(1, &[0]);
    there.end(ranks);
    let ranks = there.launch(3, &[0, 1, 2]);
    there.starling(&["kv", "insert", "city", "Chicago"]).ok();
    there.wait_for_copies();
    there.end(ranks);
    there.lose_state(0);
    there.is_refused(1);
    // The other nodes know its former data.
    let ranks = there.launch(3, &[0, 1, 2]);
    assert_eq!(there.starling(&["kv", "lookup", "city"]).ok().stdout, "Chicago");
    there.end(ranks);
}

#[test]
fn first_nodes_without_state_found_no_second_cluster_together() {
    let there = Meeting::new();
    let ranks = there.launch(4, &[0, 1, 2, 3]);
    there.starling(&["kv", "insert", "city", "Chicago"]).ok();
    there.end(ranks);
    (0..2).for_each(|node| there.lose_state(node));
    there.is_refused(2);
}

#[test]
fn ranks_are_the_nodes_that_have_the_data_when_others_have_left() {
    let there = Meeting::new();
    let ranks = there.launch(2, &[0, 1]);
    there.starling(&["kv", "insert", "city", "Chicago"]).ok();
    there.end(ranks);
    let ranks = there.launch(4, &[0, 1, 2, 3]);
    there.wait_for_copies();
    there.starling(&["node", "drain", "n0", "n1"]).ok();
    wait_until("they have left", || there.up() == [2, 3]);
    there.starling(&["down"]).ok();
    ranks.into_iter().for_each(|rank| _ = rank.end());
    let ranks = there.launch(2, &[2, 3]);
    assert_eq!(there.starling(&["kv", "lookup", "city"]).ok().stdout, "Chicago");
    there.end(ranks);
    // An additional rank is a new node, and the same node the next time.
    for _ in 0..2 {
        let ranks = there.launch(3, &[2, 3, 4]);
        there.end(ranks);
    }
}

#[test]
fn workers_that_were_stopped_stay_workers_when_keepers_join() {
    let instance = Instance::up(2, 2);
    instance.starling(&["down"]).ok();
    let slots = |node: usize| {
        let list = instance.json(&["node", "list"]);
        list["nodes"][node]["slots"].clone()
    };
    let up = instance.json(&["up", "--nodes", "3", "--slots", "0"]);
    assert_eq!(up["started"], serde_json::json!([0, 1, 2]), "{up}");
    assert_eq!([slots(0), slots(1), slots(2)], [2, 2, 0]);
    instance.starling(&["down"]).ok();
    let told = instance.starling(&["up", "--slots", "0"]).ok().stderr;
    let unchanged = "unchanged: n0, n1 run with --slots 2, and 0 was asked for";
    assert!(told.contains(unchanged), "{told}");
    assert_eq!([slots(0), slots(1), slots(2)], [2, 2, 0]);
    instance.starling(&["down"]).ok();
    instance.starling(&["up", "--slots", "1"]).ok();
    wait_until("the keeper has a slot", || [slots(0), slots(1), slots(2)] == [1, 1, 1]);
    instance.down();
}

#[test]
fn the_only_copy_is_not_given_up_when_the_other_nodes_have_left() {
    let mut instance = Instance::up(3, 1);
    instance.wait_for_copies();
    for number in 0..20 {
        let key = format!("key-{number}");
        instance.starling(&["kv", "insert", &key, &"x".repeat(1000)]).ok();
    }
    for node in ["n2", "n1"] {
        instance.starling(&["node", "drain", node]).ok();
    }
    wait_until("the others are no members any more", || {
        let file = fs::read_to_string(instance.directory().join("members.json"));
        file.is_ok_and(|text| text.contains("\"voters\":[0]"))
    });
    instance.kill(0);
    crate::replicas::damage_records(&instance, 0);
    let up = instance.starling(&["up"]);
    assert!(up.code != 0 && up.stderr.contains("damaged"), "{up:?}");
    assert!(!instance.directory().join("nodes/0/state/db.damaged").exists(), "{up:?}");
}

#[test]
fn missing_votes_are_reported() {
    let instance = Instance::up(4, 1);
    instance.wait_for_copies();
    instance.starling(&["down"]).ok();
    let one = instance.json(&["up", "--nodes", "1"]);
    assert_eq!(one["votes_missing"], serde_json::json!([1, 2]), "{one}");
    let all = instance.json(&["up", "--nodes", "4"]);
    assert_eq!(all["votes_missing"], serde_json::json!([]), "{all}");
    instance.down();
}
