//! Which tasks go together: even pieces by number, or connected pieces along the edges.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proto::{JobId, PartitionId};

use crate::graph::Graph;
use crate::layout::{Layout, Used};
use crate::random::mix;

/// Who decides which home a task gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Placement {
    /// Even pieces of consecutive tasks.
    #[default]
    Hash,
    /// Connected, even pieces: a chain or a subtree completes without leaving its home.
    Graph,
}

/// Pieces each home gets at least, when there are tasks enough: evenness.
const PIECES_PER_HOME: u64 = 8;
/// Longest piece of consecutive tasks that placement by number keeps together.
const PIECE_TASKS_MAX: u64 = 256;
/// A home's tasks are spread over so many partitions that each gets about this many: few enough
/// records of the partition itself, large enough chunks.
const PARTITION_TASKS: u64 = 1024;
/// Neighbours of a task that are sorted by the bytes between them; of a hub they are not.
const SORTED_NEIGHBOURS_MAX: usize = 64;

/// Each home's partitions that this job uses, rotated by the job so that small jobs spread.
fn rotated(job: JobId, homes: &[Vec<PartitionId>], tasks: u64) -> Vec<(u32, Vec<PartitionId>)> {
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

/// Pieces of consecutive tasks, to each home in turn and to each home's partitions in turn.
pub(crate) fn by_number(graph: &Graph, job: JobId, homes: &[Vec<PartitionId>]) -> Layout {
    let tasks = graph.len() as u64;
    let chosen = rotated(job, homes, tasks);
    let piece = (tasks / (homes.len() as u64 * PIECES_PER_HOME)).clamp(1, PIECE_TASKS_MAX);
    let pieces = tasks.div_ceil(piece);
    // Equal turns for all homes need equally many partitions of each.
    let rounds = chosen.iter().map(|(_, partitions)| partitions.len()).min().unwrap_or(1);
    let mut order: Vec<(u32, PartitionId)> = (0..rounds)
        .flat_map(|round| chosen.iter().map(move |(home, list)| (*home, list[round])))
        .collect();
    order.truncate(usize::try_from(pieces).unwrap_or(usize::MAX).max(1));
    Layout::dealt(tasks as u32, piece as u32, &order)
}

/// Connected pieces, each to the home that has fewest tasks so far.
pub(crate) fn by_graph(graph: &Graph, job: JobId, homes: &[Vec<PartitionId>]) -> Layout {
    let tasks = graph.len() as u64;
    let chosen = rotated(job, homes, tasks);
    let walk = walk(graph);
    let mut lists: Vec<Vec<Vec<u32>>> =
        chosen.iter().map(|(_, list)| vec![Vec::new(); list.len()]).collect();
    let mut load: BinaryHeap<Reverse<(u64, usize)>> =
        (0..chosen.len()).map(|home| Reverse((0, home))).collect();
    let mut rounds = vec![0_usize; chosen.len()];
    for piece in pieces(graph, &walk, homes.len() as u64) {
        let Reverse((before, home)) = load.pop().expect("there is a home");
        load.push(Reverse((before + piece.len() as u64, home)));
        let width = lists[home].len();
        lists[home][rounds[home] % width].extend_from_slice(piece);
        rounds[home] += 1;
    }
    let mut placed = Vec::new();
    for ((home, partitions), lists) in chosen.iter().zip(lists) {
        for (round, (&partition, list)) in partitions.iter().zip(lists).enumerate() {
            if !list.is_empty() {
                let used = Used { partition, home: *home, tasks: list.len() as u32 };
                placed.push((round, used, list));
            }
        }
    }
    // Chunks go out in this order: homes take turns.
    placed.sort_by_key(|(round, ..)| *round);
    let placed = placed.into_iter().map(|(_, used, list)| (used, list)).collect();
    Layout::listed(placed)
}

/// All tasks in an order in which neighbours stand together. Depth first, without recursion, from
/// each task not yet met: what a task needs beside the task we came from, then what follows it;
/// where most bytes flow, first.
fn walk(graph: &Graph) -> Vec<u32> {
    let mut met = vec![false; graph.len()];
    let mut walk = Vec::with_capacity(graph.len());
    let mut stack: Vec<u32> = Vec::new();
    let mut near: Vec<(u64, u32)> = Vec::new();
    for root in graph.indices() {
        stack.push(root);
        while let Some(task) = stack.pop() {
            if std::mem::replace(&mut met[task as usize], true) {
                continue;
            }
            walk.push(task);
            let later = graph.children(task).map(|e| (graph.edge_bytes(task, e.output), e.task));
            push_near(&mut stack, &mut near, &met, later);
            let sooner = graph.parents(task).map(|e| (graph.edge_bytes(e.task, e.output), e.task));
            push_near(&mut stack, &mut near, &met, sooner);
        }
    }
    assert_eq!(walk.len(), graph.len(), "every task is met once");
    walk
}

/// Pushes neighbours so that the one with most bytes, then the first, is popped first.
fn push_near(
    stack: &mut Vec<u32>,
    near: &mut Vec<(u64, u32)>,
    met: &[bool],
    neighbours: impl Iterator<Item = (u64, u32)>,
) {
    near.clear();
    near.extend(neighbours.filter(|(_, task)| !met[*task as usize]));
    if near.len() <= SORTED_NEIGHBOURS_MAX {
        near.sort_by_key(|(bytes, _)| Reverse(*bytes));
    }
    stack.extend(near.iter().rev().map(|(_, task)| *task));
}

/// Cuts the walk into about equal pieces; a chain stays whole up to a home's fair share.
fn pieces<'w>(graph: &Graph, walk: &'w [u32], homes: u64) -> Vec<&'w [u32]> {
    let tasks = walk.len() as u64;
    let target = tasks.div_ceil(homes * PIECES_PER_HOME).max(1) as usize;
    let cap = tasks.div_ceil(homes).max(1) as usize;
    let is_chain = |parent: u32, child: u32| {
        graph.slots(child) == 1
            && graph.fan_out(parent) == 1
            && graph.parents(child).next().is_some_and(|edge| edge.task == parent)
    };
    let mut pieces = Vec::new();
    let mut start = 0;
    for at in 1..walk.len() {
        let length = at - start;
        if length >= cap || (length >= target && !is_chain(walk[at - 1], walk[at])) {
            pieces.push(&walk[start..at]);
            start = at;
        }
    }
    pieces.push(&walk[start..]);
    pieces
}
