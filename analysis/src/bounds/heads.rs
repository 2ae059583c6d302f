//! When a task can start at the earliest, and how much must come after it, with data that cost.
//!
//! Beside the longest path each of these counts what one node can do. A task runs on one node. What
//! its parents wrote is there because they ran there, on that node's slots, or because it came
//! over that node's link. Either takes time, and a task with many parents cannot have all of them
//! for nothing.

use workloads::Graph;

use super::cluster::Cluster;
use super::paper::{Parent, parents_of};

/// Earliest starts and latest ends of all tasks, in nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Windows {
    /// No task starts before this.
    pub head_ns: Vec<u64>,
    /// Nothing ends sooner than this after a task's end.
    pub tail_ns: Vec<u64>,
}

impl Windows {
    #[must_use]
    pub fn of(graph: &Graph, cluster: &Cluster) -> Self {
        Self { head_ns: heads(graph, cluster), tail_ns: tails(graph, cluster) }
    }

    /// The longest path through any task.
    #[must_use]
    pub fn path_ns(&self, graph: &Graph) -> u64 {
        let through = |task: u32| {
            let at = task as usize;
            self.head_ns[at] + graph.task(task).duration_ns + self.tail_ns[at]
        };
        graph.indices().map(through).max().unwrap_or(0)
    }
}

/// Slot time of a task, in nanoseconds.
fn work_ns(graph: &Graph, task: u32) -> f64 {
    graph.task(task).duration_ns as f64 * f64::from(graph.cpus(task))
}

/// What a parent wrote for the task in hand.
#[derive(Clone, Copy, Debug)]
struct Input {
    start_ns: u64,
    end_ns: u64,
    /// When it can be on another node.
    there_ns: u64,
    /// What it takes of the slots where it is made, or of the link where it comes in.
    work_ns: f64,
    link_ns: f64,
}

impl Input {
    /// Time on the slots for a unit of the link. What takes nothing of the link saves nothing of
    /// it, whatever it takes of the slots.
    fn price(&self) -> f64 {
        if self.link_ns > 0.0 { self.work_ns / self.link_ns } else { f64::INFINITY }
    }
}

fn heads(graph: &Graph, cluster: &Cluster) -> Vec<u64> {
    let moves_cost = cluster.moves_cost();
    let mut head_ns = vec![0_u64; graph.len()];
    let mut parents = Vec::new();
    let mut inputs: Vec<Input> = Vec::new();
    for task in graph.topological() {
        let end = |parent: u32| head_ns[parent as usize] + graph.task(parent).duration_ns;
        let made_ns = graph.parents(task).map(|edge| end(edge.task)).max().unwrap_or(0);
        let ready_ns = made_ns.max(graph.release_ns(task));
        if !moves_cost || graph.slots(task) < 2 {
            head_ns[task as usize] = ready_ns;
            continue;
        }
        parents_of(graph, task, &mut parents);
        inputs.clear();
        inputs.extend(parents.iter().map(|parent| Input {
            start_ns: head_ns[parent.task as usize],
            end_ns: end(parent.task),
            there_ns: end(parent.task).saturating_add(moved_ns(parent, cluster)),
            work_ns: work_ns(graph, parent.task),
            link_ns: cluster.network.link_ns(parent.shared_bytes) as f64,
        }));
        head_ns[task as usize] = together_ns(&mut inputs, cluster, ready_ns);
    }
    head_ns
}

/// What all objects of one parent take at least to another node.
fn moved_ns(parent: &Parent, cluster: &Cluster) -> u64 {
    let network = &cluster.network;
    let over_link_ns = match network.link_ns(parent.shared_bytes) {
        0 => 0,
        busy_ns => network.latency_ns().saturating_add(busy_ns),
    };
    network.cost(parent.largest_bytes).max(over_link_ns)
}

/// The earliest time at which all inputs can be on one node, none of them before `ready_ns`.
///
/// A time is too early if some inputs cannot have come by then, so that their makers ran there, and
/// the rest cannot be shared out between the node's slots and its link. That is tested with whole
/// inputs cut at will, which only makes more times possible; so what is found is a bound.
fn together_ns(inputs: &mut [Input], cluster: &Cluster, ready_ns: u64) -> u64 {
    // Slots before the first start, and the link before the first end, are of no use.
    let first_start_ns = inputs.iter().map(|input| input.start_ns).min().unwrap_or(0) as f64;
    let first_end_ns = inputs.iter().map(|input| input.end_ns).min().unwrap_or(0);
    // Those that gain most of the link for their time on the slots run here first.
    inputs.sort_by(|a, b| a.price().total_cmp(&b.price()));
    let latency_ns = cluster.network.latency_ns();
    let fits = |at_ns: u64| {
        let mut slots_ns = f64::from(cluster.slots) * (at_ns as f64 - first_start_ns);
        let must_run = inputs.iter().filter(|input| input.there_ns > at_ns);
        slots_ns -= must_run.map(|input| input.work_ns).sum::<f64>();
        if slots_ns < 0.0 {
            return false;
        }
        let mut link_ns = (at_ns.saturating_sub(first_end_ns + latency_ns)) as f64;
        for input in inputs.iter().filter(|input| input.there_ns <= at_ns) {
            if input.work_ns <= slots_ns {
                slots_ns -= input.work_ns;
                continue;
            }
            let here = if input.work_ns > 0.0 { slots_ns / input.work_ns } else { 1.0 };
            slots_ns = 0.0;
            link_ns -= input.link_ns * (1.0 - here);
        }
        // A nanosecond in favour of what is possible, for what rounding took.
        link_ns >= -1.0
    };
    if fits(ready_ns) {
        return ready_ns;
    }
    let all_there = inputs.iter().map(|input| input.there_ns).max().unwrap_or(0);
    let all_moved = inputs.iter().map(|input| input.link_ns).sum::<f64>() as u64 + 1;
    let enough = all_there.max((first_end_ns + latency_ns).saturating_add(all_moved));
    first_true(ready_ns, enough.max(ready_ns), fits)
}

/// The last time at which nothing fits plus one: `fits` turns true once between the two, or at
/// the upper one at the latest.
fn first_true(mut not: u64, mut yes: u64, fits: impl Fn(u64) -> bool) -> u64 {
    while yes - not > 1 {
        let middle = not + (yes - not) / 2;
        if fits(middle) { yes = middle } else { not = middle }
    }
    // Below this one nothing fits; above it perhaps.
    not
}

/// A child of the task in hand: its slot time, and when at the earliest everything after it is
/// over if it runs where its parent ran, or elsewhere.
#[derive(Clone, Copy, Debug)]
struct Reader {
    work_ns: f64,
    after_ns: u64,
    elsewhere_ns: u64,
}

/// From a task's end until the end of everything that must follow it. Children that do not run on
/// its node wait for a transfer, and its node has only so many slots for the others.
fn tails(graph: &Graph, cluster: &Cluster) -> Vec<u64> {
    let moves_cost = cluster.moves_cost();
    let mut tail_ns = vec![0_u64; graph.len()];
    let order: Vec<u32> = graph.topological().collect();
    let mut readers: Vec<Reader> = Vec::new();
    for &task in order.iter().rev() {
        let after = |child: u32| graph.task(child).duration_ns + tail_ns[child as usize];
        let longest_ns = graph.children(task).map(|edge| after(edge.task)).max().unwrap_or(0);
        if !moves_cost || graph.fan_out(task) < 2 {
            tail_ns[task as usize] = longest_ns;
            continue;
        }
        readers.clear();
        let mut before = None;
        for edge in graph.children(task) {
            let cost_ns = cluster.network.cost(graph.edge_bytes(task, edge.output));
            let after_ns = after(edge.task);
            let elsewhere_ns = after_ns.saturating_add(cost_ns);
            if before == Some(edge.task) {
                // Children ascend: a further object for the same one.
                let last: &mut Reader = readers.last_mut().expect("the child is there");
                last.elsewhere_ns = last.elsewhere_ns.max(elsewhere_ns);
                continue;
            }
            before = Some(edge.task);
            readers.push(Reader { work_ns: work_ns(graph, edge.task), after_ns, elsewhere_ns });
        }
        tail_ns[task as usize] = over_ns(&readers, cluster, longest_ns);
    }
    tail_ns
}

fn over_ns(readers: &[Reader], cluster: &Cluster, longest_ns: u64) -> u64 {
    let fits = |at_ns: u64| {
        let here = readers.iter().filter(|reader| reader.elsewhere_ns > at_ns);
        let work_ns: f64 = here.map(|reader| reader.work_ns).sum();
        work_ns <= f64::from(cluster.slots) * at_ns as f64
    };
    if fits(longest_ns) {
        return longest_ns;
    }
    let all = readers.iter().map(|reader| reader.elsewhere_ns).max().unwrap_or(longest_ns);
    debug_assert!(readers.iter().all(|reader| reader.after_ns <= longest_ns), "it is the longest");
    first_true(longest_ns, all.max(longest_ns), fits)
}
