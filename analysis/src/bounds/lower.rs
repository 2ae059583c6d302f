//! All true lower bounds of one graph on one cluster.

use std::collections::BTreeMap;

use proto::{Span, limits};
use workloads::Graph;

use super::area;
use super::cluster::{Cluster, Network};
use super::density::{self, Window};
use super::heads::Windows;

/// True lower bounds of the makespan; each holds independently.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LowerBounds {
    /// The longest path by durations.
    pub critical_path: Span,
    /// Durations times the slots they take, over all slots.
    pub area: Span,
    /// The same, but wide tasks leave slots of their nodes unused. On a node with s slots at most
    /// ⌊s/c⌋ tasks of c or more slots run at once.
    pub packing: Span,
    /// Fernandez and Bussell: work that must be done inside some interval.
    pub density: Span,
    /// The longest path with transfer times for inputs from other nodes, and with limited slots and
    /// one link per node.
    pub data_path: Span,
    /// Fernandez and Bussell inside the windows that follow from it.
    pub data_density: Span,
    /// Objects with too many readers for one node, and the links that their copies use.
    pub data_copies: Span,
}

impl LowerBounds {
    /// Takes linear time in tasks and edges, except for logarithms, and quadratic time for small
    /// graphs.
    #[must_use]
    pub fn of(graph: &Graph, cluster: &Cluster) -> Self {
        let slots = cluster.total_slots();
        let work_ns = graph.work_ns();
        let data_cost = cluster.moves_cost() && graph.bytes_produced() > 0;
        if work_ns == 0 && !data_cost {
            return Self::nothing();
        }
        let free = Cluster { network: Network::Free, ..*cluster };
        let windows = Windows::of(graph, &free);
        let critical_path = windows.path_ns(graph);
        let density = within(graph, &windows, critical_path, slots);
        let mut bounds = Self {
            critical_path: Span(critical_path),
            area: area(work_ns, slots),
            packing: packing(graph, cluster),
            density,
            data_path: Span(critical_path),
            data_density: density,
            data_copies: Span::ZERO,
        };
        if data_cost {
            let windows = Windows::of(graph, cluster);
            let path = windows.path_ns(graph);
            bounds.data_path = Span(path);
            bounds.data_density = within(graph, &windows, path, slots);
            bounds.data_copies = copies(graph, cluster, &windows);
        }
        bounds
    }

    fn nothing() -> Self {
        let none = Span::ZERO;
        Self {
            critical_path: none,
            area: none,
            packing: none,
            density: none,
            data_path: none,
            data_density: none,
            data_copies: none,
        }
    }

    /// All bounds with their names.
    #[must_use]
    pub fn named(&self) -> [(&'static str, Span); 7] {
        [
            ("critical path", self.critical_path),
            ("area", self.area),
            ("packing", self.packing),
            ("density", self.density),
            ("data path", self.data_path),
            ("data density", self.data_density),
            ("data copies", self.data_copies),
        ]
    }

    /// The largest bound.
    #[must_use]
    pub fn lower(&self) -> Span {
        self.named().into_iter().map(|(_, span)| span).max().unwrap_or(Span::ZERO)
    }

    /// The name of the largest bound; of equal ones the simplest.
    #[must_use]
    pub fn binding(&self) -> &'static str {
        let lower = self.lower();
        let found = self.named().into_iter().find(|(_, span)| *span == lower);
        found.map_or("critical path", |(name, _)| name)
    }
}

fn within(graph: &Graph, windows: &Windows, path_ns: u64, slots: u32) -> Span {
    let window = |task: u32| Window {
        start_ns: windows.head_ns[task as usize],
        end_ns: path_ns - windows.tail_ns[task as usize],
        duration_ns: graph.task(task).duration_ns,
        slots: graph.cpus(task),
    };
    // Tasks without work have no effect, and would make the other ones slower to process.
    let windows: Vec<Window> =
        graph.indices().map(window).filter(|window| window.duration_ns > 0).collect();
    Span(path_ns.saturating_add(density::late_ns(&windows, path_ns, slots)))
}

/// For each k: the work of tasks of which at most k fit a node at a time, over k times the nodes.
fn packing(graph: &Graph, cluster: &Cluster) -> Span {
    let mut work_ns: BTreeMap<u32, u128> = BTreeMap::new();
    for task in graph.tasks() {
        let fit = cluster.slots / graph.cpus(task.index);
        *work_ns.entry(fit).or_default() += u128::from(task.duration_ns);
    }
    let mut sum_ns = 0;
    let mut longest = 0;
    // A task that fits no node never runs; this is not the concern of a bound.
    for (fit, of_fit_ns) in work_ns.range(1..) {
        sum_ns += of_fit_ns;
        longest = longest.max(sum_ns / (u128::from(*fit) * u128::from(cluster.nodes)));
    }
    Span(u64::try_from(longest).unwrap_or(u64::MAX))
}

/// An output with readers: the earliest time when it is available, the cost of a copy, and the slot
/// time of its readers.
#[derive(Clone, Copy, Debug)]
struct Object {
    made_ns: u64,
    cost_ns: u64,
    link_ns: u64,
    readers_ns: f64,
    /// The last reader counted. Children ascend, so this detects tasks that name the output twice.
    last_reader: u32,
}

/// Readers of an object run on nodes that have it. By time T one node does at most s (T - made) of
/// their work, so there must be further copies. Each copy occupies a link, and the number of links
/// is limited. Only the producer's node starts readers before a copy arrives.
fn copies(graph: &Graph, cluster: &Cluster, windows: &Windows) -> Span {
    let objects = objects(graph, cluster, windows);
    let Some(first_ns) = objects.iter().map(|object| object.made_ns).min() else {
        return Span::ZERO;
    };
    let slots = f64::from(cluster.slots);
    let others = f64::from(cluster.nodes - 1);
    let fits = |at_ns: u64| {
        let mut links_ns = f64::from(cluster.nodes) * at_ns.saturating_sub(first_ns) as f64;
        for object in &objects {
            let here_ns = slots * at_ns.saturating_sub(object.made_ns) as f64;
            let elsewhere_ns = slots * at_ns.saturating_sub(object.made_ns + object.cost_ns) as f64;
            if object.readers_ns > here_ns + others * elsewhere_ns {
                return false;
            }
            let further = (object.readers_ns / here_ns.max(1.0)).ceil() - 1.0;
            links_ns -= further.max(0.0) * object.link_ns as f64;
        }
        links_ns >= 0.0
    };
    let mut enough: u64 = 1;
    while !fits(enough) {
        enough = enough.saturating_mul(2);
    }
    let (mut not, mut yes) = (enough / 2, enough);
    while yes - not > 1 {
        let middle = not + (yes - not) / 2;
        if fits(middle) { yes = middle } else { not = middle }
    }
    Span(not)
}

fn objects(graph: &Graph, cluster: &Cluster, windows: &Windows) -> Vec<Object> {
    let mut objects = Vec::new();
    let mut of_task: Vec<Object> = Vec::new();
    for task in graph.tasks() {
        let made_ns = windows.head_ns[task.index as usize] + task.duration_ns;
        of_task.clear();
        of_task.extend((0..task.spec.outputs.len()).map(|output| {
            let bytes = graph.output_bytes(task.index, output);
            let small = bytes < limits::SMALL_OBJECT_BYTES;
            Object {
                made_ns,
                cost_ns: cluster.network.cost(bytes),
                link_ns: if small { 0 } else { cluster.network.link_ns(bytes) },
                readers_ns: 0.0,
                last_reader: task.index,
            }
        }));
        for edge in graph.children(task.index).filter(|edge| edge.output > 0) {
            let object = &mut of_task[edge.output as usize - 1];
            if object.last_reader != edge.task {
                let reader = graph.task(edge.task);
                object.readers_ns += reader.duration_ns as f64 * f64::from(graph.cpus(edge.task));
                object.last_reader = edge.task;
            }
        }
        // If the readers' work is less than one node does during a transfer, no copy is needed.
        let slots = f64::from(cluster.slots);
        let matters = |object: &&Object| {
            object.readers_ns > slots * object.cost_ns as f64 && object.cost_ns > 0
        };
        objects.extend(of_task.iter().filter(matters));
    }
    objects
}
