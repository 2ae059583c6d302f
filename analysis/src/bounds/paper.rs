//! The dynamic programme of the paper's section 3 over a graph.

use proto::limits;
use workloads::{Edge, Graph};

use super::waits::Form;

/// The parameters of the paper's form besides the graph.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PaperModel {
    pub slots: u32,
    pub bandwidth_bytes_per_s: f64,
    /// The size of a task's specification, which the paper does not state.
    pub spec_bytes: f64,
    pub form: Form,
}

impl PaperModel {
    /// As printed, with 1 Gbit/s and 200 bytes per specification. These are our assumptions for
    /// values that the paper does not state.
    #[must_use]
    pub fn on(slots: u32) -> Self {
        let (bandwidth_bytes_per_s, spec_bytes) = (125e6, 200.0);
        Self { slots, bandwidth_bytes_per_s, spec_bytes, form: Form::Printed }
    }

    #[must_use]
    pub fn with_form(self, form: Form) -> Self {
        Self { form, ..self }
    }
}

/// The time span of a graph by the paper's section 3, and the throughput that follows from it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PaperBound {
    pub timespan_s: f64,
    pub throughput_per_s: f64,
}

/// The placement of a task in the programme.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// It has no parents.
    Root,
    /// Case 1: a new node, to which all inputs move.
    New,
    /// Case 2: this parent's node, to which the task and the other inputs move.
    Parent(u32),
}

/// The results of the programme for each task.
#[derive(Clone, PartialEq, Debug)]
pub struct Ends {
    /// The time when the task's inputs are together, in seconds, without its wait in the queue.
    pub ready_s: Vec<f64>,
    pub end_s: Vec<f64>,
    pub place: Vec<Place>,
}

impl PaperBound {
    /// Takes linear time in tasks and edges if all pairs of nodes have the same bandwidth.
    ///
    /// # Panics
    /// When there are no slots.
    #[must_use]
    pub fn of(graph: &Graph, model: &PaperModel) -> Self {
        let tasks = graph.len() as f64;
        let ends = Ends::of(graph, model);
        Self::new(tasks, ends.end_s.iter().copied().fold(0.0, f64::max))
    }

    pub(super) fn new(tasks: f64, timespan_s: f64) -> Self {
        let throughput_per_s = if timespan_s > 0.0 { tasks / timespan_s } else { 0.0 };
        Self { timespan_s, throughput_per_s }
    }
}

impl Ends {
    /// # Panics
    /// When there are no slots.
    #[must_use]
    pub fn of(graph: &Graph, model: &PaperModel) -> Self {
        let move_task_s = model.spec_bytes / model.bandwidth_bytes_per_s;
        walk(graph, model, |parents, _, end_s| {
            let mut gather = Gather::default();
            for parent in parents {
                let end_s = end_s[parent.task as usize];
                gather.add(parent.task, end_s, parent.bytes as f64 / model.bandwidth_bytes_per_s);
            }
            gather.ready(move_task_s)
        })
    }
}

/// The programme with a bandwidth for each pair of tasks' nodes, in bytes per second from the first
/// to the second. As printed it takes Θ(n p²) for tasks with p parents each.
///
/// # Panics
/// When there are no slots.
#[must_use]
pub fn general(graph: &Graph, model: &PaperModel, bandwidth: impl Fn(u32, u32) -> f64) -> Ends {
    let spec_bytes = model.spec_bytes;
    walk(graph, model, |parents, task, end_s| {
        // The time when the output of `from` is on the node of `to`.
        let arrival = |from: &Parent, to: u32| {
            let end_s = end_s[from.task as usize];
            if from.task == to {
                end_s
            } else {
                end_s + from.bytes as f64 / bandwidth(from.task, to)
            }
        };
        let all_at = |to: u32| parents.iter().map(|from| arrival(from, to)).fold(0.0, f64::max);
        let mut best = (all_at(task), Place::New);
        for parent in parents {
            let ready_s = all_at(parent.task) + spec_bytes / bandwidth(task, parent.task);
            if ready_s < best.0 {
                best = (ready_s, Place::Parent(parent.task));
            }
        }
        best
    })
}

/// A parent, with all bytes that flow from it to the present task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parent {
    pub task: u32,
    pub bytes: u64,
    /// Of the largest object alone.
    pub largest_bytes: u64,
    /// Of the objects that share links with others.
    pub shared_bytes: u64,
}

impl Parent {
    fn of(graph: &Graph, edge: Edge) -> Self {
        let bytes = graph.edge_bytes(edge.task, edge.output);
        let shared_bytes = if bytes < limits::SMALL_OBJECT_BYTES { 0 } else { bytes };
        Self { task: edge.task, bytes, largest_bytes: bytes, shared_bytes }
    }

    fn and(&mut self, other: Self) {
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.largest_bytes = self.largest_bytes.max(other.largest_bytes);
        self.shared_bytes = self.shared_bytes.saturating_add(other.shared_bytes);
    }
}

/// Visits parents before children. `ready` receives a task's distinct parents, its number and all
/// ends so far. It returns the time when the inputs are together, and the place.
fn walk(
    graph: &Graph,
    model: &PaperModel,
    ready: impl Fn(&[Parent], u32, &[f64]) -> (f64, Place),
) -> Ends {
    assert!(model.slots > 0, "a graph needs at least one slot to run");
    let total_s: f64 = graph.tasks().map(|task| task.duration_ns as f64 / 1e9).sum();
    let levels = graph.levels();
    let mut level_tasks =
        vec![0_u64; levels.iter().max().map_or(0, |deepest| *deepest as usize + 1)];
    levels.iter().for_each(|level| level_tasks[*level as usize] += 1);
    let wait_s = model.form.waits_s(&level_tasks, model.slots, total_s / graph.len() as f64);
    let mut ends = Ends {
        ready_s: vec![0.0; graph.len()],
        end_s: vec![0.0; graph.len()],
        place: vec![Place::Root; graph.len()],
    };
    let mut parents = Vec::new();
    for task in graph.topological() {
        let at = task as usize;
        parents_of(graph, task, &mut parents);
        if !parents.is_empty() {
            (ends.ready_s[at], ends.place[at]) = ready(&parents, task, &ends.end_s);
        }
        let ran_s = graph.task(task).duration_ns as f64 / 1e9;
        ends.end_s[at] = ends.ready_s[at] + wait_s[levels[at] as usize] + ran_s;
    }
    ends
}

/// Each parent once, with the sum of the bytes that flow from it.
pub(super) fn parents_of(graph: &Graph, task: u32, parents: &mut Vec<Parent>) {
    parents.clear();
    let ascend = |pair: (Edge, Edge)| pair.0.task < pair.1.task;
    if graph.parents(task).zip(graph.parents(task).skip(1)).all(ascend) {
        parents.extend(graph.parents(task).map(|edge| Parent::of(graph, edge)));
        return;
    }
    let mut edges: Vec<Edge> = graph.parents(task).collect();
    edges.sort_unstable_by_key(|edge| (edge.task, edge.output));
    // An object flows once, even if the task names it repeatedly.
    edges.dedup_by_key(|edge| (edge.task, edge.output));
    for edge in edges {
        let parent = Parent::of(graph, edge);
        match parents.last_mut() {
            Some(last) if last.task == parent.task => last.and(parent),
            _ => parents.push(parent),
        }
    }
}

/// The earlier of case 1 and case 2, in one pass over the parents and without a list of them.
///
/// With one bandwidth everywhere, the input of parent u arrives at a(u) = end(u) + d(u)/B at any
/// node but u's own. Case 1 is max a. Case 2 at a parent other than the one with the largest
/// arrival takes at least that arrival, so it is no better. There remains case 2 at the parent with
/// the largest arrival: the later of its end and the second largest arrival, plus the move of the
/// task.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gather {
    /// The largest arrival: its time, its parent, and that parent's end.
    first_s: f64,
    first: u32,
    first_end_s: f64,
    second_s: f64,
}

impl Default for Gather {
    fn default() -> Self {
        let never = f64::NEG_INFINITY;
        Self { first_s: never, first: 0, first_end_s: never, second_s: never }
    }
}

impl Gather {
    #[inline]
    pub(super) fn add(&mut self, parent: u32, end_s: f64, move_s: f64) {
        let arrival_s = end_s + move_s;
        if arrival_s > self.first_s {
            self.second_s = self.first_s;
            (self.first_s, self.first, self.first_end_s) = (arrival_s, parent, end_s);
        } else if arrival_s > self.second_s {
            self.second_s = arrival_s;
        }
    }

    /// The time when the inputs are together, and the place; for tasks with parents.
    #[inline]
    pub(super) fn ready(&self, move_task_s: f64) -> (f64, Place) {
        let at_parent_s = self.first_end_s.max(self.second_s) + move_task_s;
        if at_parent_s < self.first_s {
            (at_parent_s, Place::Parent(self.first))
        } else {
            (self.first_s, Place::New)
        }
    }
}
