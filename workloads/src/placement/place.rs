//! Chooses the home of each task: consecutive runs by number, or connected pieces along the edges.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proto::{JobId, PartitionId};

use crate::generate::random::{Shuffle, mix};
use crate::graph::Graph;
use crate::graph::layout::{Layout, PartitionUse};
use crate::placement::pieces::{self, Pieces};

/// The method of placement.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Placement {
    /// Equal pieces of consecutive tasks.
    #[default]
    Hash,
    /// Connected, equal pieces: a chain or a subtree completes without leaving its home. Readers of
    /// loaded data are homed with most of their data. Tasks without edges and with different known
    /// durations are distributed, and each home gets its longest first.
    Graph,
}

/// The minimum number of pieces per home, if there are enough tasks, for even loads.
const PIECES_PER_HOME: u64 = 8;
/// The maximum size of a piece of consecutive tasks in placement by number.
const PIECE_TASKS_MAX: u64 = 256;
/// The target number of tasks per partition, for few partition records and large chunks.
const PARTITION_TASKS: u64 = 1024;
/// The maximum excess of a home over its share due to tasks that follow loaded data.
const FOLLOWERS_EXCESS: f64 = 0.02;
const STREAM_LOADS: u64 = 0x6c6f_6164;

/// A home and the partitions of it that a job uses.
type Chosen = (u32, Vec<PartitionId>);

/// The partitions of each home that this job uses. They are rotated by job, so small jobs spread
/// over all homes.
fn rotated(job: JobId, homes: &[Vec<PartitionId>], tasks: u64) -> Vec<Chosen> {
    assert!(!homes.is_empty(), "a job needs a home");
    assert!(homes.iter().all(|home| !home.is_empty()), "a home holds at least one partition");
    let turn = mix(job.0) as usize;
    let per_home = tasks.div_ceil(homes.len() as u64);
    let wanted = per_home.div_ceil(PARTITION_TASKS).max(1) as usize;
    let of_home = |at: usize| {
        let number = (turn + at) % homes.len();
        let home = &homes[number];
        let first = (turn / homes.len()) % home.len();
        let chosen = (0..wanted.min(home.len())).map(|at| home[(first + at) % home.len()]);
        (number as u32, chosen.collect())
    };
    (0..homes.len()).map(of_home).collect()
}

/// Assigns every task to a home.
pub(crate) fn layout(
    graph: &Graph,
    job: JobId,
    placement: Placement,
    homes: &[Vec<PartitionId>],
) -> Layout {
    match placement {
        Placement::Graph if graph.edges() > 0 => by_graph(graph, job, homes),
        // Without edges no tasks belong together, and equal tasks need no table.
        Placement::Graph if is_uneven(graph) => by_length(graph, job, homes),
        Placement::Hash | Placement::Graph => by_number(graph, job, homes),
    }
}

/// True if the durations are known and unequal, and the tasks may start in any order.
fn is_uneven(graph: &Graph) -> bool {
    let mut durations = graph.indices().map(|task| graph.task(task).duration_ns);
    let first = durations.next();
    !graph.has_loads() && durations.any(|duration_ns| Some(duration_ns) != first)
}

/// Distributes the longest tasks first. A home starts its tasks in the order of their numbers, and
/// a long task that starts last leaves all other slots idle.
fn by_length(graph: &Graph, job: JobId, homes: &[Vec<PartitionId>]) -> Layout {
    let chosen = rotated(job, homes, graph.len() as u64);
    let mut order: Vec<u32> = graph.indices().collect();
    order.sort_by_key(|task| Reverse(graph.task(*task).duration_ns));
    // Alternates between homes, and between the partitions of a home.
    let rounds = chosen.iter().map(|(_, partitions)| partitions.len()).min().unwrap_or(1);
    let places = chosen.len() * rounds;
    let dealt = (0..places.min(order.len())).map(|turn| {
        let (home, partitions) = &chosen[turn % chosen.len()];
        let tasks: Vec<u32> = order[turn..].iter().step_by(places).copied().collect();
        let partition = partitions[turn / chosen.len()];
        (PartitionUse { partition, home: *home, tasks: tasks.len() as u32 }, tasks)
    });
    Layout::listed(dealt.collect())
}

/// Distributes pieces of consecutive tasks to the homes in turn, and to each home's partitions in
/// turn.
fn by_number(graph: &Graph, job: JobId, homes: &[Vec<PartitionId>]) -> Layout {
    let tasks = graph.len() as u64;
    let chosen = rotated(job, homes, tasks);
    if graph.has_loads() {
        return runs_beside_loads(graph, &chosen);
    }
    let piece = (tasks / (homes.len() as u64 * PIECES_PER_HOME)).clamp(1, PIECE_TASKS_MAX);
    let pieces = tasks.div_ceil(piece);
    // Equal turns for all homes require the same number of partitions of each.
    let rounds = chosen.iter().map(|(_, partitions)| partitions.len()).min().unwrap_or(1);
    let mut order: Vec<(u32, PartitionId)> = (0..rounds)
        .flat_map(|round| chosen.iter().map(move |(home, list)| (*home, list[round])))
        .collect();
    order.truncate(usize::try_from(pieces).unwrap_or(usize::MAX).max(1));
    Layout::dealt(tasks as u32, piece as u32, &order)
}

/// Distributes the loads evenly, and gives each home one run of the other tasks, because
/// neighbouring tasks read the same data.
fn runs_beside_loads(graph: &Graph, chosen: &[Chosen]) -> Layout {
    let mut lists = deal_loads(graph, chosen.len());
    let others: Vec<u32> = graph.indices().filter(|&task| !graph.is_load(task)).collect();
    let (count, homes) = (others.len(), chosen.len());
    for (home, list) in lists.iter_mut().enumerate() {
        list.extend(&others[home * count / homes..(home + 1) * count / homes]);
    }
    listed(chosen, lists)
}

/// The loads of each home. The loads of each spec are shuffled and distributed in turn. So all
/// homes have the same number of each, within one.
fn deal_loads(graph: &Graph, homes: usize) -> Vec<Vec<u32>> {
    let mut of_spec: Vec<Vec<u32>> = vec![Vec::new(); graph.specs().len()];
    for task in graph.indices().filter(|&task| graph.is_load(task)) {
        of_spec[graph.task(task).spec_index as usize].push(task);
    }
    let mut lists = vec![Vec::new(); homes];
    let mut turn = 0;
    for loads in of_spec.iter().filter(|loads| !loads.is_empty()) {
        let shuffle = Shuffle::new(graph.seed, STREAM_LOADS + turn as u64, loads.len() as u64);
        for at in 0..loads.len() {
            lists[turn % homes].push(loads[shuffle.at(at as u64) as usize]);
            turn += 1;
        }
    }
    lists
}

/// Splits each home's list among its partitions.
fn listed(chosen: &[Chosen], lists: Vec<Vec<u32>>) -> Layout {
    let mut placed = Vec::new();
    for ((home, partitions), list) in chosen.iter().zip(lists) {
        let (count, width) = (list.len(), partitions.len());
        for (round, &partition) in partitions.iter().enumerate() {
            let part = &list[round * count / width..(round + 1) * count / width];
            if !part.is_empty() {
                let used = PartitionUse { partition, home: *home, tasks: part.len() as u32 };
                placed.push((round, used, part.to_vec()));
            }
        }
    }
    // Chunks are sent in this order, alternating between homes.
    placed.sort_by_key(|(round, ..)| *round);
    Layout::listed(placed.into_iter().map(|(_, used, list)| (used, list)).collect())
}

/// Places connected pieces. Loads are distributed first. Tasks that read mostly one home's loads go
/// to that home, and the rest is cut along its edges.
fn by_graph(graph: &Graph, job: JobId, homes: &[Vec<PartitionId>]) -> Layout {
    let chosen = rotated(job, homes, graph.len() as u64);
    let mut shares = Shares::new(graph, chosen.len());
    if graph.has_loads() {
        shares.follow_loads(graph);
    }
    let pieces = pieces::cut(graph, &shares.weights, shares.share);
    shares.give_whole(&pieces);
    shares.give_runs(&pieces);
    listed(&chosen, shares.lists)
}

/// The tasks that each home has so far.
#[derive(Debug)]
struct Shares {
    /// By task; 0 for tasks that are placed before cutting.
    weights: Vec<f64>,
    /// The target weight of each home.
    share: f64,
    /// Tasks and weight, by home.
    lists: Vec<Vec<u32>>,
    loads: Vec<f64>,
}

impl Shares {
    fn new(graph: &Graph, homes: usize) -> Self {
        let weights = pieces::weights(graph);
        let share = weights.iter().sum::<f64>() / homes as f64;
        Self { weights, share, lists: vec![Vec::new(); homes], loads: vec![0.0; homes] }
    }

    fn give(&mut self, home: usize, tasks: &[u32], weight: f64) {
        self.lists[home].extend_from_slice(tasks);
        self.loads[home] += weight;
    }

    /// Distributes the loads, and gives each home the tasks that read most of their input bytes
    /// from it.
    fn follow_loads(&mut self, graph: &Graph) {
        self.lists = deal_loads(graph, self.loads.len());
        let mut load_home = vec![u32::MAX; graph.len()];
        for (home, list) in self.lists.iter().enumerate() {
            for &load in list {
                load_home[load as usize] = home as u32;
            }
        }
        let room = self.share * (1.0 + FOLLOWERS_EXCESS);
        let mut parts: Vec<(u32, u64)> = Vec::new();
        for task in graph.indices().filter(|&task| load_home[task as usize] == u32::MAX) {
            let weight = self.weights[task as usize];
            let home = most_input(graph, task, &load_home, &mut parts);
            if let Some(home) = home.filter(|home| self.loads[*home as usize] + weight <= room) {
                self.weights[task as usize] = 0.0;
                self.give(home as usize, &[task], weight);
            }
        }
    }

    /// Gives each whole component to the home with the least weight.
    fn give_whole(&mut self, pieces: &Pieces) {
        let mut least: BinaryHeap<Reverse<(u64, usize)>> =
            (0..self.loads.len()).map(|home| Reverse((self.loads[home].to_bits(), home))).collect();
        for (tasks, weight) in pieces.whole() {
            let Reverse((_, home)) = least.pop().expect("there is a home");
            self.give(home, tasks, weight);
            // The bits of non-negative floats order like their values.
            least.push(Reverse((self.loads[home].to_bits(), home)));
        }
    }

    /// Distributes all other pieces in order: each home takes a run that fills its remaining
    /// capacity.
    fn give_runs(&mut self, pieces: &Pieces) {
        let room: Vec<f64> = self.loads.iter().map(|load| (self.share - load).max(0.0)).collect();
        let all_room: f64 = room.iter().sum();
        let all_weight: f64 = pieces.parts().map(|(_, weight)| weight).sum();
        let scale = if all_room > 0.0 { all_weight / all_room } else { 0.0 };
        let (mut home, mut given) = (0, 0.0);
        let mut until = room[0] * scale;
        for (tasks, weight) in pieces.parts() {
            while given + weight / 2.0 > until && home + 1 < self.loads.len() {
                home += 1;
                until += room[home] * scale;
            }
            given += weight;
            self.give(home, tasks, weight);
        }
    }
}

/// The home with loads that make up more than half of a task's input bytes.
fn most_input(
    graph: &Graph,
    task: u32,
    load_home: &[u32],
    parts: &mut Vec<(u32, u64)>,
) -> Option<u32> {
    parts.clear();
    let mut all_bytes = 0_u64;
    for edge in graph.parents(task) {
        let bytes = graph.edge_bytes(edge.task, edge.output);
        all_bytes = all_bytes.saturating_add(bytes);
        if load_home[edge.task as usize] != u32::MAX {
            parts.push((load_home[edge.task as usize], bytes));
        }
    }
    parts.sort_unstable_by_key(|(home, _)| *home);
    let sums = parts.chunk_by(|a, b| a.0 == b.0).map(|of_home| {
        let bytes = of_home.iter().fold(0_u64, |sum, (_, bytes)| sum.saturating_add(*bytes));
        (of_home[0].0, bytes)
    });
    let (home, bytes) = sums.max_by_key(|(_, bytes)| *bytes)?;
    (bytes > all_bytes - bytes.min(all_bytes)).then_some(home)
}
