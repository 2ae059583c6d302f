//! The load of each node, and the moves of replicas and primaries that even it out. The planner
//! uses it.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use proto::wire;
use proto::wire::map_command::Body;

use super::{command, is_fit, is_keeper};

/// The maximum number of hand-overs of primaries in one plan, if they only improve the balance.
const PLAN_HANDOVERS_MAX: usize = 16;

/// The load of the fit nodes, including replicas that are being created.
#[derive(Debug)]
pub(super) struct Loads {
    /// In ascending order.
    pub(super) up: Vec<u32>,
    /// The nodes of `up` that may be primary. Keepers count only if no other node is fit.
    workers: Vec<u32>,
    /// The wanted number of replicas of each partition, limited by the number of fit nodes.
    pub(super) copies: usize,
    held: BTreeMap<u32, usize>,
    by_load: BTreeSet<(usize, u32)>,
    homes: BTreeMap<u32, usize>,
}

impl Loads {
    pub(super) fn new(map: &wire::ClusterMap) -> Self {
        let all = map.members.iter().map(|member| member.node);
        let up: Vec<u32> = all.filter(|&node| is_fit(map, node)).collect();
        let mut held: BTreeMap<u32, usize> = up.iter().map(|&node| (node, 0)).collect();
        let mut homes = held.clone();
        for entry in &map.partitions {
            for node in entry.replicas.iter().chain(&entry.learners) {
                held.entry(*node).and_modify(|count| *count += 1);
            }
            homes.entry(entry.replicas[0]).and_modify(|count| *count += 1);
        }
        let by_load = held.iter().map(|(&node, &load)| (load, node)).collect();
        let copies = up.len().min(map.copies as usize).max(1);
        let workers = workers(map, &up);
        Self { up, workers, copies, held, by_load, homes }
    }

    fn set(&mut self, node: u32, change: impl Fn(usize) -> usize) {
        let load = self.held.get_mut(&node).expect("only fit nodes change");
        self.by_load.remove(&(*load, node));
        *load = change(*load);
        self.by_load.insert((*load, node));
    }

    pub(super) fn gain(&mut self, node: u32) {
        self.set(node, |load| load + 1);
    }

    pub(super) fn lose(&mut self, node: u32) {
        self.set(node, |load| load - 1);
    }

    /// True if the node may be primary.
    pub(super) fn works(&self, node: u32) -> bool {
        self.workers.binary_search(&node).is_ok()
    }

    /// True if any of these nodes may be primary.
    pub(super) fn any_works(&self, of: &[u32]) -> bool {
        of.iter().any(|&node| self.works(node))
    }

    /// The node with the lowest load that satisfies `may`.
    pub(super) fn emptiest(&self, may: impl Fn(u32) -> bool) -> Option<u32> {
        self.by_load.iter().map(|&(_, node)| node).find(|&node| may(node))
    }

    /// The node with the highest load of `of`, all of which must be fit.
    pub(super) fn fullest(&self, of: impl Iterator<Item = u32>) -> Option<u32> {
        of.max_by_key(|node| (self.held[node], *node))
    }

    pub(super) fn fewest_homes(&self, of: impl Iterator<Item = u32>) -> Option<u32> {
        of.min_by_key(|node| (!self.works(*node), self.homes[node], *node))
    }

    pub(super) fn move_home(&mut self, from: u32, to: u32) {
        self.homes.entry(from).and_modify(|count| *count -= 1);
        self.homes.entry(to).and_modify(|count| *count += 1);
    }

    /// Moves replicas from full nodes to empty ones, with at most `room` commands. Only the
    /// partitions in `settled` may move.
    pub(super) fn moves(
        &mut self,
        map: &wire::ClusterMap,
        settled: &[u32],
        room: usize,
    ) -> Vec<wire::MapCommand> {
        let mut commands = Vec::new();
        if !self.is_uneven() {
            return commands;
        }
        let mut movable: BTreeMap<u32, VecDeque<u32>> = BTreeMap::new();
        for &partition in settled {
            // Backups first: their move does not change the primary.
            for &node in map.partitions[partition as usize].replicas.iter().rev() {
                movable.entry(node).or_default().push_back(partition);
            }
        }
        let mut moved = BTreeSet::new();
        while commands.len() < room {
            let Some((partition, from, to)) = self.next_move(map, &mut movable, &moved) else {
                break;
            };
            moved.insert(partition);
            self.lose(from);
            self.gain(to);
            let epoch = map.partitions[partition as usize].epoch;
            let add = wire::AddLearner { partition, epoch, node: to, replaces: Some(from) };
            commands.push(command(Body::AddLearner(add)));
        }
        commands
    }

    fn is_uneven(&self) -> bool {
        let (first, last) = (self.by_load.first(), self.by_load.last());
        first.zip(last).is_some_and(|(&(least, _), &(most, _))| most > least + 1)
    }

    /// The next move: from the fullest node to the emptiest, or else between the nodes next to
    /// them.
    fn next_move(
        &self,
        map: &wire::ClusterMap,
        movable: &mut BTreeMap<u32, VecDeque<u32>>,
        moved: &BTreeSet<u32>,
    ) -> Option<(u32, u32, u32)> {
        for &(most, from) in self.by_load.iter().rev() {
            let Some(partitions) = movable.get_mut(&from) else { continue };
            partitions.retain(|partition| !moved.contains(partition));
            for &(least, to) in &self.by_load {
                if least + 1 >= most {
                    break;
                }
                // Prefers backups to primaries, and skips partitions that the target already holds.
                // One holder must remain a working node.
                let stays = |replicas: &[u32]| {
                    self.works(to) || replicas.iter().any(|&it| it != from && self.works(it))
                };
                let fits = |&&partition: &&u32| {
                    let replicas = &map.partitions[partition as usize].replicas;
                    !replicas.contains(&to) && stays(replicas)
                };
                let is_home =
                    |partition: u32| map.partitions[partition as usize].replicas[0] == from;
                let backup = partitions.iter().filter(fits).find(|&&partition| !is_home(partition));
                if let Some(&partition) = backup.or_else(|| partitions.iter().find(fits)) {
                    return Some((partition, from, to));
                }
            }
        }
        None
    }

    /// Hands primaries over until each node has the floor or the ceiling of the mean, as far as the
    /// replicas allow. A chain leads from a node with too many, over members that each pass on one
    /// of theirs, to a node with too few.
    pub(super) fn handovers(
        &mut self,
        map: &wire::ClusterMap,
        settled: &[u32],
    ) -> Vec<wire::MapCommand> {
        let mut commands = Vec::new();
        if self.copies < 2 {
            return commands;
        }
        let mut primaries: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for &partition in settled {
            primaries
                .entry(map.partitions[partition as usize].replicas[0])
                .or_default()
                .push(partition);
        }
        let mut handed = BTreeSet::new();
        while commands.len() < PLAN_HANDOVERS_MAX {
            let Some(chain) = self.chain(map, &primaries, &handed) else { break };
            for (partition, to) in chain {
                let entry = &map.partitions[partition as usize];
                handed.insert(partition);
                self.move_home(entry.replicas[0], to);
                let handover = wire::Handover { partition, epoch: entry.epoch, to };
                commands.push(command(Body::Handover(handover)));
            }
        }
        commands
    }

    /// The shortest chain of hand-overs from a node with the most primaries to one with at least
    /// two fewer.
    fn chain(
        &self,
        map: &wire::ClusterMap,
        primaries: &BTreeMap<u32, Vec<u32>>,
        handed: &BTreeSet<u32>,
    ) -> Option<Vec<(u32, u32)>> {
        let mut by_homes: Vec<u32> = self.workers.clone();
        by_homes.sort_by_key(|node| (Reverse(self.homes[node]), *node));
        let least = self.homes[by_homes.last()?];
        for &start in &by_homes {
            let most = self.homes[&start];
            if most <= least + 1 {
                return None;
            }
            // For each reached node: the partition and the node from which it was reached.
            let mut reached: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
            let mut queue = VecDeque::from([start]);
            while let Some(node) = queue.pop_front() {
                if self.homes[&node] + 2 <= most {
                    return Some(walk_back(&reached, start, node));
                }
                for &partition in primaries.get(&node).into_iter().flatten() {
                    if handed.contains(&partition) {
                        continue;
                    }
                    for &next in &map.partitions[partition as usize].replicas[1..] {
                        let is_new = next != start && !reached.contains_key(&next);
                        if is_new && self.works(next) {
                            reached.insert(next, (partition, node));
                            queue.push_back(next);
                        }
                    }
                }
            }
        }
        None
    }
}

/// The fit nodes that may be primary.
fn workers(map: &wire::ClusterMap, fit: &[u32]) -> Vec<u32> {
    let works = |node: &u32| !is_keeper(map, *node);
    let workers: Vec<u32> = fit.iter().copied().filter(works).collect();
    if workers.is_empty() { fit.to_vec() } else { workers }
}

fn walk_back(reached: &BTreeMap<u32, (u32, u32)>, start: u32, end: u32) -> Vec<(u32, u32)> {
    let mut chain = Vec::new();
    let mut at = end;
    while at != start {
        let (partition, from) = reached[&at];
        chain.push((partition, at));
        at = from;
    }
    chain
}
