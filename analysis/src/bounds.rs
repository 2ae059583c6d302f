/*!
What no schedule can beat, and the paper's own estimate beside it.

[`Bounds`] are true: the longest path of a graph takes its time on any number of slots, and its work
takes its share of time on any order. [`PaperBound`] is the form of the paper's section 3 as
printed. It adds a mean queue wait to every task, so real schedules beat it: an estimate to compare
with, no bound.
*/

use proto::Span;
use workloads::Graph;

/// True lower bounds of the makespan on so many slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// The longest path by durations.
    pub critical_path: Span,
    /// Durations times the slots they take, over all slots.
    pub area: Span,
}

impl Bounds {
    /// Linear in tasks and edges.
    ///
    /// # Panics
    /// When there are no slots.
    #[must_use]
    pub fn of(graph: &Graph, slots: u32) -> Self {
        assert!(slots > 0, "a graph needs at least one slot to run");
        let area = graph.work_ns() / u128::from(slots);
        Self {
            critical_path: Span(graph.critical_path_ns()),
            area: Span(u64::try_from(area).unwrap_or(u64::MAX)),
        }
    }

    /// The stronger of the two.
    #[must_use]
    pub fn lower(&self) -> Span {
        self.critical_path.max(self.area)
    }
}

/// What the paper's form is told beside the graph.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PaperModel {
    pub slots: u32,
    pub bandwidth_bytes_per_s: f64,
    /// The size of a task's specification, which the paper does not give.
    pub spec_bytes: f64,
}

impl PaperModel {
    /// 1 Gbit/s and 200 bytes a specification: what we assume where the paper is silent.
    #[must_use]
    pub fn on(slots: u32) -> Self {
        Self { slots, bandwidth_bytes_per_s: 125e6, spec_bytes: 200.0 }
    }
}

/// The paper's section 3, as printed.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct PaperBound {
    pub timespan_s: f64,
    pub throughput_per_s: f64,
}

impl PaperBound {
    /// Linear in tasks and edges: of the inner maximum over a parent's fellow parents only the two
    /// largest values matter, so the printed form's square of the parents is not needed.
    #[must_use]
    pub fn of(graph: &Graph, model: &PaperModel) -> Self {
        assert!(model.slots > 0, "a graph needs at least one slot to run");
        let tasks = graph.len() as f64;
        let total_s: f64 = graph.tasks().map(|task| task.duration_ns as f64 / 1e9).sum();
        let mean_s = total_s / tasks;
        let tasks_per_slot = tasks / f64::from(model.slots);
        let wait_s = ((tasks_per_slot - 1.0) * mean_s / 2.0).max(0.0);
        let move_task_s = model.spec_bytes / model.bandwidth_bytes_per_s;
        let mut end_s = vec![0.0_f64; graph.len()];
        let mut parents = Vec::new();
        let mut timespan_s = 0.0_f64;
        for task in graph.topological() {
            parents.clear();
            parents.extend(graph.parents(task).map(|edge| Parent {
                task: edge.task,
                end_s: end_s[edge.task as usize],
                move_s: graph.edge_bytes(edge.task, edge.output) as f64
                    / model.bandwidth_bytes_per_s,
            }));
            let ready_s = ready(&parents, move_task_s);
            let ran_s = graph.task(task).duration_ns as f64 / 1e9;
            end_s[task as usize] = ready_s + wait_s + ran_s;
            timespan_s = timespan_s.max(end_s[task as usize]);
        }
        let throughput_per_s = if timespan_s > 0.0 { tasks / timespan_s } else { 0.0 };
        Self { timespan_s, throughput_per_s }
    }
}

#[derive(Clone, Copy)]
struct Parent {
    task: u32,
    end_s: f64,
    move_s: f64,
}

/// When a task's inputs are together: on a new node (case 1) or on the best parent's (case 2).
fn ready(parents: &[Parent], move_task_s: f64) -> f64 {
    // The largest arrival, its parent, and the largest arrival of another parent.
    let (mut first, mut of, mut second) = (f64::NEG_INFINITY, u32::MAX, f64::NEG_INFINITY);
    for parent in parents {
        let arrival = parent.end_s + parent.move_s;
        if arrival > first {
            if parent.task != of {
                second = first;
            }
            (first, of) = (arrival, parent.task);
        } else if parent.task != of && arrival > second {
            second = arrival;
        }
    }
    if of == u32::MAX {
        return 0.0;
    }
    let at_parent = |parent: &Parent| {
        let others = if parent.task == of { second } else { first };
        parent.end_s.max(others) + move_task_s
    };
    parents.iter().map(at_parent).fold(first, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use proto::wire;
    use workloads::{GraphBuilder, TaskInit};

    const S: u64 = 1_000_000_000;

    /// Tasks as (seconds, cpus, output bytes); edges as (parent, child), data along each.
    fn graph(tasks: &[(u64, u32, u64)], edges: &[(u32, u32)]) -> Graph {
        let mut builder = GraphBuilder::new("test");
        for &(seconds, cpus, size_bytes) in tasks {
            let output = wire::Output { size_bytes, ..wire::Output::default() };
            let spec = wire::Spec { cpus, outputs: vec![output], ..wire::Spec::default() };
            let spec = builder.spec(spec);
            builder.task(TaskInit { duration_ns: seconds * S, ..TaskInit::of(spec) });
        }
        edges.iter().for_each(|&(parent, child)| builder.edge(parent, child, 1));
        builder.finish().unwrap()
    }

    #[test]
    fn a_chain_is_bound_by_its_length_and_a_bag_by_its_work() {
        let chain = graph(&[(1, 1, 0), (2, 1, 0), (3, 1, 0)], &[(0, 1), (1, 2)]);
        let bounds = Bounds::of(&chain, 4);
        assert_eq!((bounds.critical_path, bounds.area), (Span(6 * S), Span(3 * S / 2)));
        assert_eq!(bounds.lower(), Span(6 * S));
        let bag = graph(&[(1, 1, 0), (2, 3, 0), (3, 1, 0)], &[]);
        assert_eq!(Bounds::of(&bag, 2).lower(), Span(5 * S));
    }

    #[test]
    fn the_papers_form_adds_a_mean_wait_to_every_level() {
        // k = 2 tasks a slot of l = 10 s each: every task waits (k - 1) l / 2 = 5 s.
        let bag = graph(&[(10, 1, 0); 4], &[]);
        let bound = PaperBound::of(&bag, &PaperModel::on(2));
        assert_eq!(bound, PaperBound { timespan_s: 15.0, throughput_per_s: 4.0 / 15.0 });
    }

    #[test]
    fn the_papers_form_takes_the_cheaper_of_moving_data_and_moving_the_task() {
        let model = PaperModel { slots: 9, bandwidth_bytes_per_s: 1.0, spec_bytes: 1.0 };
        // Alone with its parent: the task moves (1 s), not the 100 bytes.
        let pair = graph(&[(2, 1, 100), (3, 1, 0)], &[(0, 1)]);
        assert_eq!(PaperBound::of(&pair, &model).timespan_s, 6.0);
        // Two parents: at the first's node the second's 4 bytes must come; and the other way 7.
        let fork = graph(&[(2, 1, 7), (1, 1, 4), (3, 1, 0)], &[(0, 2), (1, 2)]);
        assert_eq!(PaperBound::of(&fork, &model).timespan_s, 5.0 + 1.0 + 3.0);
    }

    /// The printed form, with its square of the parents.
    fn ready_as_printed(parents: &[Parent], move_task_s: f64) -> f64 {
        let new_node = parents.iter().map(|u| u.end_s + u.move_s).fold(0.0, f64::max);
        let at = |u: &Parent| {
            let arrival = |w: &Parent| w.end_s + if w.task == u.task { 0.0 } else { w.move_s };
            parents.iter().map(arrival).fold(0.0, f64::max) + move_task_s
        };
        parents.iter().map(at).fold(f64::INFINITY, f64::min).min(new_node)
    }

    proptest! {
        #[test]
        fn the_linear_form_equals_the_printed_one(
            parents in prop::collection::vec((0u32..6, 0u32..50, 0u32..50), 1..12)
        ) {
            // A task has one end, however many of its outputs flow.
            let parents: Vec<Parent> = parents
                .iter()
                .map(|&(task, _, move_s)| Parent {
                    task,
                    end_s: f64::from(parents[task as usize % parents.len()].1),
                    move_s: f64::from(move_s),
                })
                .collect();
            let linear = ready(&parents, 3.0);
            prop_assert_eq!(linear, ready_as_printed(&parents, 3.0));
        }
    }
}
