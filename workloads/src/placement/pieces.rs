//! Cuts a graph into connected pieces of about equal work, for placement.
//!
//! The heaviest edges without cycles form a spanning forest. Its trees are consumed from their
//! leaves: a connected part becomes a piece as soon as it is large enough. So a piece is a subtree,
//! or several adjacent subtrees. Consecutive pieces are neighbours.

use crate::graph::Graph;

/// A home's share is cut into about this number of parts. Its inverse bounds the excess of a home.
const PARTS_PER_SHARE: f64 = 48.0;
/// The minimum size of a part in tasks of mean weight, except that half a share is always enough.
const PART_TASKS_MIN: f64 = 12.0;
/// A component of at most this number of tasks stays whole if it fits into a share.
const WHOLE_TASKS_MAX: usize = 64;
/// A larger component also stays whole if it is at most this part of a share.
const WHOLE_SHARE_MAX: f64 = 0.125;
/// Above this number, edges are not sorted by bytes, to save memory.
const SORTED_EDGES_MAX: u64 = 1 << 26;
const NONE: u32 = u32::MAX;

/// The weight of each task: its work and a small constant; 1 if no work is known. Loads have weight
/// 0.
pub(crate) fn weights(graph: &Graph) -> Vec<f64> {
    let work = |task: u32| {
        let duration_ns = graph.task(task).duration_ns;
        duration_ns as f64 * f64::from(graph.cpus(task))
    };
    let mean = graph.indices().map(work).sum::<f64>() / graph.len() as f64;
    let is_load: Vec<bool> = graph.specs().iter().map(|s| s.kind == crate::KIND_LOAD).collect();
    let weight = |task: u32| {
        if is_load[graph.task_spec[task as usize] as usize] {
            0.0
        } else if mean > 0.0 {
            work(task) / mean + 1.0 / 16.0
        } else {
            1.0
        }
    };
    graph.indices().map(weight).collect()
}

/// Pieces, each a range of `tasks`.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    tasks: Vec<u32>,
    /// The end of each piece, its weight, and whether it is a large whole component.
    ends: Vec<(u32, f64, bool)>,
}

impl Pieces {
    fn iter(&self, whole: bool) -> impl Iterator<Item = (&[u32], f64)> {
        let starts = std::iter::once(0).chain(self.ends.iter().map(|(end, ..)| *end));
        let pieces = starts.zip(&self.ends);
        pieces
            .filter(move |(_, (.., is_whole))| *is_whole == whole)
            .map(|(start, (end, weight, _))| (&self.tasks[start as usize..*end as usize], *weight))
    }

    /// Components that stay whole although they are larger than a part.
    pub(crate) fn whole(&self) -> impl Iterator<Item = (&[u32], f64)> {
        self.iter(true)
    }

    /// The other pieces, neighbours in sequence.
    pub(crate) fn parts(&self) -> impl Iterator<Item = (&[u32], f64)> {
        self.iter(false)
    }
}

/// Cuts all tasks with a weight; `share` is the share of one home.
pub(crate) fn cut(graph: &Graph, weights: &[f64], share: f64) -> Pieces {
    let is_free = |task: u32| weights[task as usize] > 0.0;
    let free = graph.indices().filter(|&task| is_free(task)).count();
    let mean = weights.iter().sum::<f64>() / free.max(1) as f64;
    let target = (share / PARTS_PER_SHARE).max((PART_TASKS_MIN * mean).min(share / 2.0));
    let mut cutter = Cutter {
        weights,
        target,
        share,
        forest: Forest::new(graph, is_free),
        chains: vec![Chain::EMPTY; graph.len()],
        is_cut: vec![false; graph.len()],
        next: vec![NONE; graph.len()],
        pieces: Pieces::default(),
    };
    cutter.pieces.tasks.reserve_exact(free);
    let mut seen = vec![false; graph.len()];
    let mut order = Vec::new();
    for root in graph.indices().filter(|&task| is_free(task)) {
        if !seen[root as usize] {
            cutter.forest.component(root, &mut seen, &mut order);
            cutter.component(&order);
        }
    }
    cutter.pieces
}

/// A list of tasks linked through `Cutter::next`.
#[derive(Clone, Copy, Debug)]
struct Chain {
    first: u32,
    last: u32,
    weight: f64,
}

impl Chain {
    const EMPTY: Self = Self { first: NONE, last: NONE, weight: 0.0 };
}

struct Cutter<'a> {
    weights: &'a [f64],
    target: f64,
    share: f64,
    forest: Forest,
    /// The uncut rest of each task's subtree so far.
    chains: Vec<Chain>,
    /// True if a piece has been cut below the task.
    is_cut: Vec<bool>,
    next: Vec<u32>,
    pieces: Pieces,
}

impl Cutter<'_> {
    /// Cuts a component given as pairs of task and tree parent, parents first.
    fn component(&mut self, order: &[(u32, u32)]) {
        let weight: f64 = order.iter().map(|(task, _)| self.weights[*task as usize]).sum();
        let is_small = order.len() <= WHOLE_TASKS_MAX || weight <= self.share * WHOLE_SHARE_MAX;
        if weight <= self.target || (is_small && weight <= self.share) {
            self.pieces.tasks.extend(order.iter().map(|(task, _)| *task));
            self.end(weight, weight > self.target);
            return;
        }
        for &(task, parent) in order.iter().rev() {
            let own = Chain { first: task, last: task, weight: self.weights[task as usize] };
            let chain = self.join(self.chains[task as usize], own);
            // The rest of a subtree that was cut stays beside its other parts.
            if parent == NONE || self.is_cut[task as usize] || chain.weight >= self.target {
                self.set_aside(chain);
                if parent != NONE {
                    self.is_cut[parent as usize] = true;
                }
                continue;
            }
            let beside = self.join(self.chains[parent as usize], chain);
            self.chains[parent as usize] = beside;
            if beside.weight >= self.target {
                self.set_aside(beside);
                self.chains[parent as usize] = Chain::EMPTY;
                self.is_cut[parent as usize] = true;
            }
        }
    }

    fn join(&mut self, front: Chain, back: Chain) -> Chain {
        if front.first == NONE {
            return back;
        }
        self.next[front.last as usize] = back.first;
        Chain { first: front.first, last: back.last, weight: front.weight + back.weight }
    }

    fn set_aside(&mut self, chain: Chain) {
        let mut at = chain.first;
        loop {
            self.pieces.tasks.push(at);
            if at == chain.last {
                break;
            }
            at = self.next[at as usize];
        }
        self.end(chain.weight, false);
    }

    fn end(&mut self, weight: f64, is_whole: bool) {
        self.pieces.ends.push((self.pieces.tasks.len() as u32, weight, is_whole));
    }
}

/// The heaviest edges without cycles, in both directions.
struct Forest {
    starts: Vec<u32>,
    neighbours: Vec<u32>,
    /// Reused between components.
    stack: Vec<(u32, u32)>,
}

impl Forest {
    fn new(graph: &Graph, is_free: impl Fn(u32) -> bool) -> Self {
        let kept = spanning_edges(graph, is_free);
        let mut next = vec![0_u32; graph.len() + 1];
        for (parent, child) in &kept {
            next[*parent as usize + 1] += 1;
            next[*child as usize + 1] += 1;
        }
        for task in 0..graph.len() {
            next[task + 1] += next[task];
        }
        let starts = next.clone();
        let mut neighbours = vec![0; kept.len() * 2];
        for &(parent, child) in &kept {
            for (from, to) in [(parent, child), (child, parent)] {
                neighbours[next[from as usize] as usize] = to;
                next[from as usize] += 1;
            }
        }
        Self { starts, neighbours, stack: Vec::new() }
    }

    /// The tasks of a component with their tree parents. Each follows its parent, and subtrees are
    /// contiguous.
    fn component(&mut self, root: u32, seen: &mut [bool], order: &mut Vec<(u32, u32)>) {
        order.clear();
        self.stack.push((root, NONE));
        while let Some((task, parent)) = self.stack.pop() {
            seen[task as usize] = true;
            order.push((task, parent));
            let range = self.starts[task as usize]..self.starts[task as usize + 1];
            for at in range {
                let other = self.neighbours[at as usize];
                if other != parent {
                    self.stack.push((other, task));
                }
            }
        }
    }
}

/// The edges of a heaviest spanning forest of the free tasks. In descending order of bytes, it
/// takes each edge that joins two trees.
fn spanning_edges(graph: &Graph, is_free: impl Fn(u32) -> bool) -> Vec<(u32, u32)> {
    let mut edges: Vec<(u64, u32, u32)> = Vec::new();
    for child in graph.indices().filter(|&task| is_free(task)) {
        for edge in graph.parents(child).filter(|edge| is_free(edge.task)) {
            edges.push((graph.edge_bytes(edge.task, edge.output), edge.task, child));
        }
    }
    let even = edges.windows(2).all(|pair| pair[0].0 == pair[1].0);
    if !even && graph.edges() <= SORTED_EDGES_MAX {
        // The sort is stable: equal edges stay in task order.
        edges.sort_by_key(|(bytes, ..)| std::cmp::Reverse(*bytes));
    }
    let mut tree: Vec<u32> = graph.indices().collect();
    let mut kept = Vec::new();
    for (_, parent, child) in edges {
        let (a, b) = (top(&mut tree, parent), top(&mut tree, child));
        if a != b {
            // Chains that grow at one end stay flat, whichever tree is attached to the other.
            tree[a.max(b) as usize] = a.min(b);
            kept.push((parent, child));
        }
    }
    kept
}

/// The root of a task's tree; halves the path for the next call.
fn top(tree: &mut [u32], mut task: u32) -> u32 {
    while tree[task as usize] != task {
        let above = tree[tree[task as usize] as usize];
        tree[task as usize] = above;
        task = above;
    }
    task
}
