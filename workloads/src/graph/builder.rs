//! Builds a [`Graph`]: tasks and edges in any order, followed by one linear check. Readers and
//! generators use it.

use proto::{limits, wire};

use crate::graph::error::GraphError;
use crate::graph::job_options::JobOptions;
use crate::graph::{Graph, NO_ESTIMATE};
use crate::limits::{GRAPH_EDGES_MAX, GRAPH_TASKS_MAX, SPEC_BYTES_MAX};

/// Collects a graph. The indices it returns are those of the finished graph.
#[derive(Clone, Debug)]
pub struct GraphBuilder {
    graph: Graph,
    edges: Vec<RawEdge>,
    too_many: Option<GraphError>,
}

/// A task to add; `..TaskInit::of(spec)` fills in the rest.
#[derive(Clone, Copy, Debug)]
pub struct TaskInit<'a> {
    pub spec: u32,
    pub entry: u64,
    pub duration_ns: u64,
    pub output_sizes: &'a [u64],
    pub name: &'a str,
    /// The arguments of a call, if they are not those of its spec.
    pub payload: &'a [u8],
    /// The earliest start, from the beginning of the workflow.
    pub release_ns: u64,
    /// A user's estimate of the duration, if the source records it besides the true duration.
    pub estimate_ns: Option<u64>,
    /// The same for its outputs: empty, or as many as `output_sizes`.
    pub size_estimates: &'a [u64],
}

impl TaskInit<'_> {
    #[must_use]
    pub fn of(spec: u32) -> Self {
        Self {
            spec,
            entry: 0,
            duration_ns: 0,
            output_sizes: &[],
            name: "",
            payload: &[],
            release_ns: 0,
            estimate_ns: None,
            size_estimates: &[],
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct RawEdge {
    parent: u32,
    child: u32,
    output: u32,
}

impl GraphBuilder {
    #[must_use]
    pub fn new(name: &str) -> Self {
        let graph = Graph {
            name: name.to_owned(),
            specs: Vec::new(),
            task_spec: Vec::new(),
            task_entry: Vec::new(),
            task_duration_ns: Vec::new(),
            size_starts: Vec::new(),
            sizes: Vec::new(),
            name_starts: Vec::new(),
            name_text: String::new(),
            payloads: std::collections::BTreeMap::new(),
            release_ns: Vec::new(),
            estimate_ns: Vec::new(),
            size_estimates: Vec::new(),
            slot_starts: Vec::new(),
            edge_parent: Vec::new(),
            edge_output: Vec::new(),
            child_starts: Vec::new(),
            child_task: Vec::new(),
            child_slot: Vec::new(),
            order: None,
            edge_pairs: 0,
            clocks_loads: false,
            commands_are_measured: false,
            seed: 0,
            job: JobOptions::default(),
            notes: Vec::new(),
            warnings: Vec::new(),
        };
        Self { graph, edges: Vec::new(), too_many: None }
    }

    /// Reserves memory, so that a large graph does not grow by doubling.
    pub fn reserve(&mut self, tasks: usize, edges: usize) {
        self.graph.task_spec.reserve_exact(tasks);
        self.graph.task_entry.reserve_exact(tasks);
        self.graph.task_duration_ns.reserve_exact(tasks);
        self.edges.reserve_exact(edges);
    }

    /// Adds a spec that any number of tasks share.
    pub fn spec(&mut self, spec: wire::Spec) -> u32 {
        self.graph.specs.push(spec);
        (self.graph.specs.len() - 1) as u32
    }

    /// Adds a task. Beyond the limit nothing is stored, and [`GraphBuilder::finish`] returns an
    /// error.
    ///
    /// # Panics
    /// When the spec was not added before.
    pub fn task(&mut self, task: TaskInit<'_>) -> u32 {
        let graph = &mut self.graph;
        assert!((task.spec as usize) < graph.specs.len(), "spec {} is not there", task.spec);
        let at = graph.task_spec.len();
        if at >= GRAPH_TASKS_MAX {
            self.too_many = Some(GraphError::TooManyTasks);
            return 0;
        }
        graph.task_spec.push(task.spec);
        graph.task_entry.push(task.entry);
        graph.task_duration_ns.push(task.duration_ns);
        if task.release_ns > 0 || !graph.release_ns.is_empty() {
            graph.release_ns.resize(at, 0);
            graph.release_ns.push(task.release_ns);
        }
        if task.estimate_ns.is_some() || !graph.estimate_ns.is_empty() {
            graph.estimate_ns.resize(at, NO_ESTIMATE);
            graph.estimate_ns.push(task.estimate_ns.unwrap_or(NO_ESTIMATE));
        }
        if !task.payload.is_empty() {
            graph.payloads.insert(at as u32, task.payload.into());
        }
        self.size_estimates(&task);
        let graph = &mut self.graph;
        if !task.output_sizes.is_empty() || !graph.size_starts.is_empty() {
            let before = graph.sizes.len() as u32;
            if graph.size_starts.is_empty() {
                graph.size_starts.resize(at + 1, before);
            }
            graph.sizes.extend_from_slice(task.output_sizes);
            graph.size_starts.push(graph.sizes.len() as u32);
        }
        if !task.name.is_empty() || !graph.name_starts.is_empty() {
            if graph.name_starts.is_empty() {
                graph.name_starts.resize(at + 1, 0);
            }
            graph.name_text.push_str(task.name);
            graph.name_starts.push(graph.name_text.len() as u32);
        }
        at as u32
    }

    /// Sizes without an estimate count as known exactly.
    fn size_estimates(&mut self, task: &TaskInit<'_>) {
        let Graph { sizes, size_estimates, .. } = &mut self.graph;
        if !task.size_estimates.is_empty() {
            assert_eq!(task.size_estimates.len(), task.output_sizes.len(), "an estimate for each");
            if size_estimates.is_empty() {
                size_estimates.clone_from(sizes);
            }
            size_estimates.extend_from_slice(task.size_estimates);
        } else if !size_estimates.is_empty() {
            size_estimates.extend_from_slice(task.output_sizes);
        }
    }

    /// Sets the origin of the release times.
    pub(crate) fn begin_releases_at(&mut self, first_ns: u64) {
        for release_ns in &mut self.graph.release_ns {
            *release_ns = release_ns.saturating_sub(first_ns);
        }
    }

    /// The first edge with a parent or an output that was never added: the child, and the error.
    /// For readers, which add edges in the order of the text.
    pub(crate) fn first_bad_edge(&self) -> Option<(u32, String)> {
        let tasks = self.graph.task_spec.len();
        self.edges.iter().find_map(|edge| {
            let Some(spec) = self.graph.task_spec.get(edge.parent as usize) else {
                let last = tasks.saturating_sub(1);
                let reason = format!("it reads from task {}, the last is {last}", edge.parent);
                return Some((edge.child, reason));
            };
            let outputs = self.graph.specs[*spec as usize].outputs.len();
            (edge.output as usize > outputs).then(|| {
                let (output, parent) = (edge.output - 1, edge.parent);
                let reason = format!("it reads output {output} of task {parent}, of {outputs}");
                (edge.child, reason)
            })
        })
    }

    /// Adds an edge: `output` 0 only orders, k+1 carries the parent's output k. Data edges of a
    /// child fill its slots in the order of their addition. An order edge beside another edge of
    /// the same two tasks is dropped.
    pub fn edge(&mut self, parent: u32, child: u32, output: u32) {
        if self.edges.len() >= GRAPH_EDGES_MAX {
            self.too_many = Some(GraphError::TooManyEdges);
            return;
        }
        self.edges.push(RawEdge { parent, child, output });
    }

    /// Determines the placement of loads.
    pub fn seed(&mut self, seed: u64) {
        self.graph.seed = seed;
    }

    /// Makes the time of loads count in the makespan.
    pub fn clock_loads(&mut self) {
        self.graph.clocks_loads = true;
    }

    /// Adds a sentence for users of the graph.
    pub fn note(&mut self, text: &str) {
        self.graph.notes.push(text.to_owned());
    }

    /// The number of tasks added so far.
    #[must_use]
    pub fn tasks(&self) -> usize {
        self.graph.task_spec.len()
    }

    /// The number of edges added so far.
    #[must_use]
    pub fn edges(&self) -> usize {
        self.edges.len()
    }

    /// Checks everything and sorts the edges, in time linear in tasks and edges.
    ///
    /// # Errors
    /// An empty graph, a cycle, or a broken limit.
    ///
    /// # Panics
    /// When an edge names a task that was not added, or an output its parent does not declare.
    pub fn finish(mut self) -> Result<Graph, GraphError> {
        if let Some(error) = self.too_many.take() {
            return Err(error);
        }
        if self.graph.task_spec.is_empty() {
            return Err(GraphError::Empty);
        }
        self.check_sizes()?;
        self.check_edges()?;
        let Self { mut graph, edges, .. } = self;
        sort_by_child(&mut graph, edges);
        index_children(&mut graph);
        order(&mut graph)?;
        Ok(graph)
    }

    fn check_sizes(&self) -> Result<(), GraphError> {
        use prost::Message as _;
        let graph = &self.graph;
        assert!(graph.sizes.len() <= u32::MAX as usize, "output sizes exceed 2^32");
        assert!(graph.name_text.len() <= u32::MAX as usize, "names exceed 4 GiB");
        for (index, spec) in graph.specs.iter().enumerate() {
            let size_bytes = spec.encoded_len();
            if size_bytes > SPEC_BYTES_MAX {
                let user = graph.task_spec.iter().position(|spec| *spec as usize == index);
                let task = user.map_or_else(String::new, |task| graph.task_name(task as u32));
                return Err(GraphError::SpecTooLarge { task, size_bytes });
            }
            check_name(&spec.name)?;
        }
        graph.tasks().try_for_each(|task| check_name(task.name))
    }

    fn check_edges(&self) -> Result<(), GraphError> {
        let tasks = self.graph.len();
        for edge in &self.edges {
            assert!((edge.parent as usize) < tasks, "edge from a task that is not there");
            assert!((edge.child as usize) < tasks, "edge to a task that is not there");
            let spec = self.graph.task_spec[edge.parent as usize];
            let outputs = self.graph.specs[spec as usize].outputs.len();
            assert!(edge.output as usize <= outputs, "edge carries an undeclared output");
            if edge.parent == edge.child {
                return Err(GraphError::SelfLoop { task: self.graph.task_name(edge.parent) });
            }
        }
        Ok(())
    }
}

fn check_name(name: &str) -> Result<(), GraphError> {
    if name.len() > limits::NAME_BYTES_MAX {
        return Err(GraphError::NameTooLong { start: name.chars().take(40).collect() });
    }
    Ok(())
}

/// Counting sort by child, with data edges before order edges. Superfluous order edges are dropped.
fn sort_by_child(graph: &mut Graph, edges: Vec<RawEdge>) {
    let tasks = graph.len();
    let mut next = vec![0_u32; tasks + 1];
    for edge in &edges {
        next[edge.child as usize + 1] += 1;
    }
    for task in 0..tasks {
        next[task + 1] += next[task];
    }
    let starts = next.clone();
    let mut parent = vec![0_u32; edges.len()];
    let mut output = vec![0_u32; edges.len()];
    for data in [true, false] {
        for edge in edges.iter().filter(|edge| (edge.output > 0) == data) {
            let at = &mut next[edge.child as usize];
            parent[*at as usize] = edge.parent;
            output[*at as usize] = edge.output;
            *at += 1;
        }
    }
    drop(edges);

    // A parent with stamp `child + 1` already has an edge to that child.
    let mut stamp = vec![0_u32; tasks];
    let mut kept = 0_usize;
    graph.slot_starts = Vec::with_capacity(tasks + 1);
    graph.slot_starts.push(0);
    for child in 0..tasks {
        for at in starts[child] as usize..starts[child + 1] as usize {
            let seen = &mut stamp[parent[at] as usize];
            let known = *seen == child as u32 + 1;
            if known && output[at] == 0 {
                continue;
            }
            graph.edge_pairs += u64::from(!known);
            *seen = child as u32 + 1;
            parent[kept] = parent[at];
            output[kept] = output[at];
            kept += 1;
        }
        graph.slot_starts.push(kept as u32);
    }
    parent.truncate(kept);
    output.truncate(kept);
    graph.edge_parent = parent;
    graph.edge_output = output;
}

/// The same edges by parent.
fn index_children(graph: &mut Graph) {
    let tasks = graph.len();
    let mut next = vec![0_u32; tasks + 1];
    for parent in &graph.edge_parent {
        next[*parent as usize + 1] += 1;
    }
    for task in 0..tasks {
        next[task + 1] += next[task];
    }
    graph.child_starts.clone_from(&next);
    graph.child_task = vec![0; graph.edge_parent.len()];
    graph.child_slot = vec![0; graph.edge_parent.len()];
    for child in 0..tasks {
        let first = graph.slot_starts[child];
        for edge in first..graph.slot_starts[child + 1] {
            let at = &mut next[graph.edge_parent[edge as usize] as usize];
            graph.child_task[*at as usize] = child as u32;
            graph.child_slot[*at as usize] = edge - first;
            *at += 1;
        }
    }
}

/// Finds an order of parents before children, or a cycle. Iterative, since chains of 10^6 are
/// common.
fn order(graph: &mut Graph) -> Result<(), GraphError> {
    let is_ordered = graph.indices().all(|task| graph.parents(task).all(|edge| edge.task < task));
    if is_ordered {
        return Ok(());
    }
    let mut missing: Vec<u32> = graph.indices().map(|task| graph.slots(task)).collect();
    let mut order: Vec<u32> = graph.roots().collect();
    let mut done = 0;
    while let Some(&task) = order.get(done) {
        done += 1;
        for edge in graph.children(task) {
            missing[edge.task as usize] -= 1;
            if missing[edge.task as usize] == 0 {
                order.push(edge.task);
            }
        }
    }
    if order.len() < graph.len() {
        return Err(GraphError::Cycle { path: cycle(graph, &missing) });
    }
    graph.order = Some(order);
    Ok(())
}

/// The number of tasks of a cycle that are printed.
const CYCLE_SHOWN_MAX: usize = 12;

/// One cycle among the tasks that still wait for parents, as `a -> b -> a`.
fn cycle(graph: &Graph, missing: &[u32]) -> String {
    let stuck = |task: u32| missing[task as usize] > 0;
    let mut at = graph.indices().find(|task| stuck(*task)).expect("a task is left over");
    let mut visited_at = vec![u32::MAX; graph.len()];
    let mut walk: Vec<u32> = Vec::new();
    // Every remaining task has a remaining parent, so the upward walk must return to a visited
    // task.
    while visited_at[at as usize] == u32::MAX {
        visited_at[at as usize] = walk.len() as u32;
        walk.push(at);
        at = graph
            .parents(at)
            .map(|edge| edge.task)
            .find(|parent| stuck(*parent))
            .expect("a stuck task has a stuck parent");
    }
    let mut ring: Vec<u32> = walk.split_off(visited_at[at as usize] as usize);
    ring.reverse();
    // Begins with the smallest, so that the text does not depend on the start of the walk.
    let smallest = ring.iter().enumerate().min_by_key(|(_, task)| **task).map_or(0, |(at, _)| at);
    ring.rotate_left(smallest);
    let mut names: Vec<String> =
        ring.iter().take(CYCLE_SHOWN_MAX).map(|task| graph.task_name(*task)).collect();
    if ring.len() > CYCLE_SHOWN_MAX {
        names.push(format!("... {} more", ring.len() - CYCLE_SHOWN_MAX));
    }
    names.push(graph.task_name(ring[0]));
    names.join(" -> ")
}
