//! The earliest start of each task, and the minimum time after its end, with transfer costs. The
//! bounds use them as windows.
//!
//! Besides the longest path, these times respect the limits of one node. A task runs on one node.
//! Its inputs are there because their producers used that node's slots, or because they came over
//! that node's link. Both take time, so a task with many parents needs some time to collect its
//! inputs.

use workloads::Graph;

use super::cluster::Cluster;
use super::paper::{Parent, parents_of};

/// Earliest starts of all tasks, and minimum times after their ends, in nanoseconds.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Windows {
    /// The earliest start of each task.
    pub head_ns: Vec<u64>,
    /// The minimum time between the end of each task and the end of the schedule.
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

/// The slot time of a task, in nanoseconds.
fn work_ns(graph: &Graph, task: u32) -> f64 {
    graph.task(task).duration_ns as f64 * f64::from(graph.cpus(task))
}

/// The input that one parent made for the present task.
#[derive(Clone, Copy, Debug)]
struct Input {
    start_ns: u64,
    end_ns: u64,
    /// The earliest time when it can be on another node.
    there_ns: u64,
    /// The slot time of its producer, and the time of its transfer on a link.
    work_ns: f64,
    link_ns: f64,
}

impl Input {
    /// Slot time per unit of link time. An input without link time saves no link time, regardless
    /// of its slot time.
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

/// The minimum time to transfer all objects of one parent to another node.
fn moved_ns(parent: &Parent, cluster: &Cluster) -> u64 {
    let network = &cluster.network;
    let over_link_ns = match network.link_ns(parent.shared_bytes) {
        0 => 0,
        busy_ns => network.latency_ns().saturating_add(busy_ns),
    };
    network.cost(parent.largest_bytes).max(over_link_ns)
}

/// The earliest time when all inputs can be on one node, but not before `ready_ns`.
///
/// A time is too early in the following case. Some inputs cannot have arrived by then, so their
/// producers ran on the node, and the other inputs fit neither into its slots nor through its link.
/// The test may split inputs, which only permits earlier times. So the result is a lower bound.
fn together_ns(inputs: &mut [Input], cluster: &Cluster, ready_ns: u64) -> u64 {
    // Slots before the first start, and the link before the first end, are unusable.
    let first_start_ns = inputs.iter().map(|input| input.start_ns).min().unwrap_or(0) as f64;
    let first_end_ns = inputs.iter().map(|input| input.end_ns).min().unwrap_or(0);
    // Runs the inputs here first that save the most link time per slot time.
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
        // Tolerates one nanosecond of rounding error in favour of feasibility.
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

/// The last time at which `fits` is false, plus one. `fits` becomes true once between the two, or
/// at the upper one.
fn first_true(mut not: u64, mut yes: u64, fits: impl Fn(u64) -> bool) -> u64 {
    while yes - not > 1 {
        let middle = not + (yes - not) / 2;
        if fits(middle) { yes = middle } else { not = middle }
    }
    // Below this time nothing fits.
    not
}

/// A child of the present task: its slot time, and the earliest end of everything after it. The end
/// depends on whether it runs on its parent's node or elsewhere.
#[derive(Clone, Copy, Debug)]
struct Reader {
    work_ns: f64,
    after_ns: u64,
    elsewhere_ns: u64,
}

/// The minimum time from a task's end to the end of everything that follows it. Children on other
/// nodes wait for a transfer, and the task's node has a limited number of slots for the others.
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
                // Children ascend: this is a further object for the same child.
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
