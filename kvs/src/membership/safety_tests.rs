//! Random histories of map commands, checked against a model that knows which nodes have all
//! acknowledged writes.
//!
//! The rules of the model: an active, registered primary acknowledges writes at every moment, so a
//! node outside the configuration misses some at once. A node that loses its disk has nothing, and
//! a node that an active primary drops deletes its replica. A learner has everything when its
//! primary reports so, unless the learner has restarted since.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};

use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use super::mutant::{Mutant, SET};
use super::*;
use crate::{check_map, make_replicated_map};

const NODES: u32 = 5;
const PARTITIONS: u32 = 8;

/// A step of a history. Its numbers are reduced modulo the number of existing items.
#[derive(Clone, Copy, Debug)]
enum Step {
    Restart {
        node: u32,
    },
    Reformat {
        node: u32,
    },
    Kill {
        node: u32,
    },
    Activate {
        node: u32,
    },
    CatchUp {
        partition: u32,
    },
    Plan,
    Join,
    Leave {
        node: u32,
    },
    Copies {
        copies: u32,
    },
    /// The node is declared slow, or fit again.
    Slow {
        node: u32,
    },
    /// Repeats an earlier command.
    Repeat {
        number: u32,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let node = 0..NODES + 2;
    prop_oneof![
        3 => node.clone().prop_map(|node| Step::Restart { node }),
        1 => node.clone().prop_map(|node| Step::Reformat { node }),
        3 => node.clone().prop_map(|node| Step::Kill { node }),
        6 => node.clone().prop_map(|node| Step::Activate { node }),
        6 => (0..PARTITIONS).prop_map(|partition| Step::CatchUp { partition }),
        5 => Just(Step::Plan),
        1 => Just(Step::Join),
        1 => node.clone().prop_map(|node| Step::Slow { node }),
        1 => node.prop_map(|node| Step::Leave { node }),
        1 => (1..4u32).prop_map(|copies| Step::Copies { copies }),
        4 => (0..1000u32).prop_map(|number| Step::Repeat { number }),
    ]
}

struct Ghost {
    map: wire::ClusterMap,
    /// By partition: the nodes that have all acknowledged writes.
    full: Vec<BTreeSet<u32>>,
    primaries: BTreeMap<(u32, u64), u32>,
    said: Vec<wire::MapCommand>,
    incarnations: BTreeMap<u32, u32>,
    stores: BTreeMap<u32, u64>,
}

impl Ghost {
    fn new(copies: u32) -> Self {
        let map = make_replicated_map(1, NODES, PARTITIONS, copies);
        let full = map.partitions.iter().map(|e| e.replicas.iter().copied().collect()).collect();
        let (incarnations, stores) = Default::default();
        Self { map, full, primaries: BTreeMap::new(), said: Vec::new(), incarnations, stores }
    }

    fn say(&mut self, body: Body) {
        let said = command(body);
        self.carry_out(&said);
        self.said.push(said);
    }

    fn carry_out(&mut self, said: &wire::MapCommand) {
        let before = self.map.clone();
        let changed = apply(&mut self.map, said);
        check_map(&self.map).unwrap();
        assert_eq!(changed, self.map != before, "{said:?}");
        assert_eq!(self.map.epoch, before.epoch + u64::from(changed));
        if let Some(Body::DropReplica(drop)) = said.body.as_ref().filter(|_| changed) {
            let at = drop.partition as usize;
            let entry = &self.map.partitions[at];
            if entry.active && !entry.former.contains(&drop.node) {
                self.full[at].remove(&drop.node);
            }
        }
        let once = self.map.clone();
        assert!(!apply(&mut self.map, said), "said twice at once it changes twice: {said:?}");
        assert_eq!(self.map, once);
        self.observe(&before);
    }

    /// Checks the invariants and applies the immediate effects of active primaries.
    fn observe(&mut self, before: &wire::ClusterMap) {
        for (at, entry) in (0u32..).zip(&self.map.partitions) {
            let full = &mut self.full[at as usize];
            let was = &before.partitions[at as usize];
            assert!(entry.epoch >= was.epoch);
            if entry.active && (!was.active || was.epoch != entry.epoch) {
                for replica in &entry.replicas {
                    assert!(full.contains(replica), "p{at}: n{replica} serves without the data");
                }
            }
            if entry.active {
                let known = *self.primaries.entry((at, entry.epoch)).or_insert(entry.replicas[0]);
                assert_eq!(known, entry.replicas[0], "p{at}: two primaries of e{}", entry.epoch);
            }
            if entry.active && entry.former.is_empty() {
                full.retain(|node| entry.replicas.contains(node));
            }
            if entry.lost {
                assert!(full.is_empty(), "p{at} is given up, but {full:?} have it");
            } else if !full.is_empty() {
                let hope = entry.replicas.iter().any(|replica| full.contains(replica));
                assert!(hope, "p{at}: {full:?} have it, but wait for {:?}", entry.replicas);
            }
        }
    }

    fn up(&mut self, node: u32, store: u64) {
        if self.map.members.get(node as usize).is_none() {
            return;
        }
        let incarnation = self.incarnations.entry(node).or_default();
        *incarnation += 1;
        let (incarnation, slots) = (*incarnation, 2);
        let up = wire::MemberUp { node, incarnation, store, slots, ..Default::default() };
        self.say(Body::Up(up));
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Restart { node } => {
                let store = *self.stores.entry(node).or_insert_with(|| first_store(node));
                self.up(node, store);
            }
            Step::Reformat { node } => {
                // A disk that the map does not know holds nothing that could be lost.
                if self.map.members.get(node as usize).is_none_or(|member| member.store == 0) {
                    return;
                }
                let store =
                    self.stores.get(&node).copied().unwrap_or_else(|| first_store(node)) + 100;
                if self.map.voters == [node] {
                    return; // Returns, because the map would be lost with this voter.
                }
                let voters = self.map.voters.iter().copied().filter(|&voter| voter != node);
                let voters = voters.collect();
                self.say(Body::SetVoters(wire::SetVoters { voters }));
                self.stores.insert(node, store);
                self.full.iter_mut().for_each(|full| {
                    full.remove(&node);
                });
                self.up(node, store);
            }
            Step::Kill { node } => {
                let incarnation = self.incarnations.get(&node).copied().unwrap_or(0);
                self.say(Body::Down(wire::MemberDown { node, incarnation }));
            }
            Step::Activate { node } => self.activate(node),
            Step::CatchUp { partition } => self.catch_up(partition),
            Step::Plan => {
                let leavers = self.map.members.iter();
                let gone = leavers.filter_map(|it| departure(&self.map, NodeId(it.node)));
                for said in gone.chain(plan(&self.map)).collect::<Vec<_>>() {
                    self.carry_out(&said);
                    self.said.push(said);
                }
            }
            Step::Join => {
                let store = 1000 + u64::from(self.map.epoch as u32);
                if self.map.members.len() < NODES as usize + 2 {
                    self.stores.insert(self.map.members.len() as u32, store);
                    self.say(Body::Join(wire::MemberJoin { store, ..Default::default() }));
                }
            }
            Step::Slow { node } => {
                let Some(member) = member(&self.map, NodeId(node)) else { return };
                let (incarnation, slow) = (member.incarnation, !member.slow);
                self.say(Body::SetSlow(wire::SetSlow { node, incarnation, slow }));
                let up = self.map.members.iter().filter(|member| member.phase() == Up);
                let slow = up.clone().filter(|member| member.slow).count();
                assert!(slow == 0 || slow * 2 < up.count(), "most of them are called slow");
            }
            Step::Leave { node } => self.say(Body::Leave(wire::MemberLeave { node, by_ns: 0 })),
            Step::Copies { copies } => self.say(Body::SetCopies(wire::SetCopies { copies })),
            Step::Repeat { number } => {
                if let Some(said) = self.said.get(number as usize % self.said.len().max(1)) {
                    let said = said.clone();
                    self.carry_out(&said);
                }
            }
        }
    }

    /// A correct primary: it brings the members to its own state before it activates.
    fn activate(&mut self, node: u32) {
        let mut partitions = Vec::new();
        for (at, entry) in (0u32..).zip(&self.map.partitions) {
            let is_open = !entry.active || !entry.former.is_empty();
            if entry.replicas[0] == node && is_open && !entry.lost {
                partitions.push(wire::PartitionEpoch { partition: at, epoch: entry.epoch });
                if self.full[at as usize].contains(&node) {
                    self.full[at as usize].extend(&entry.replicas);
                }
            }
        }
        let incarnation = self.incarnations.get(&node).copied().unwrap_or(0);
        self.say(Body::Activated(wire::Activated { node, incarnation, partitions }));
    }

    fn catch_up(&mut self, partition: u32) {
        let entry = &self.map.partitions[partition as usize];
        let Some(&learner) = entry.learners.first() else { return };
        let epoch = entry.epoch;
        let incarnation = self.incarnations.get(&learner).copied().unwrap_or(0);
        if !entry.active {
            return;
        }
        self.full[partition as usize].insert(learner);
        self.say(Body::CaughtUp(wire::CaughtUp { partition, epoch, learner, incarnation }));
    }
}

fn first_store(node: u32) -> u64 {
    u64::from(node) + 1
}

fn run(copies: u32, steps: &[Step]) -> wire::ClusterMap {
    let mut ghost = Ghost::new(copies);
    steps.iter().for_each(|&step| ghost.step(step));
    ghost.map
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, ..ProptestConfig::default() })]
    /// No history activates a partition without an acknowledged write, declares one lost of which a
    /// node has everything, or gives one epoch two primaries.
    #[test]
    fn nothing_acknowledged_is_ever_out_of_reach(
        copies in 1..4u32,
        steps in proptest::collection::vec(step(), 1..120),
    ) {
        let map = run(copies, &steps);
        prop_assert_eq!(run(copies, &steps), map, "the same commands make the same map");
    }
}

/// The number of random histories tried until one reveals the mutant.
const HISTORIES_MAX: u32 = 20_000;

#[test]
fn every_bug_on_purpose_is_found() {
    let mut table = Vec::new();
    for mutant in Mutant::ALL {
        SET.set(Some(mutant));
        let mut runner = TestRunner::deterministic();
        let histories = (1..4u32, proptest::collection::vec(step(), 1..120));
        let mut found = (1..=HISTORIES_MAX).filter(|_| {
            let (copies, steps) = histories.new_tree(&mut runner).expect("any will do").current();
            catch_unwind(AssertUnwindSafe(|| run(copies, &steps))).is_err()
        });
        table.push((mutant, found.next()));
        SET.set(None);
    }
    println!("{table:?}");
    assert!(table.iter().all(|(_, found)| found.is_some()), "not all are found: {table:?}");
}
