//! Plans a submission: assigns every task to a home, and cuts the graph into chunks. Clients use
//! it.

use proto::{JobId, LocalId, PartitionId, limits, wire};

use crate::graph::layout::Layout;
use crate::graph::{Graph, TaskView};
use crate::placement::place::{self, Placement};

/// Upper bounds of encoded sizes in a chunk.
const CHUNK_FIXED_BYTES: usize = 256;
const TASK_FIXED_BYTES: usize = 64;
const VARINT_BYTES: usize = 10;
const LIST_FIXED_BYTES: usize = 32;
const CHILD_BYTES: usize = 8 + 5 + 5;
const PARENT_BYTES: usize = 8;
/// A list is begun or continued only in a chunk with space for this number of entries, or the rest.
const LIST_PIECE_MIN: usize = 64;

/// A graph with a home for every task. Pure: the same graph, job and homes yield the same chunks.
#[derive(Clone, Debug)]
pub struct Plan<'g> {
    graph: &'g Graph,
    job: JobId,
    layout: Layout,
    /// The number of chunks of each used partition.
    chunk_counts: Vec<u32>,
    /// By task; empty if no task is more urgent than its duration implies.
    urgencies: Vec<u64>,
}

impl<'g> Plan<'g> {
    /// `homes[k]` are the partitions of the k-th home; the caller passes one home for the worst
    /// case. Takes time linear in tasks and edges.
    ///
    /// # Panics
    /// When there is no home, or a home without a partition, or a partition of two homes.
    #[must_use]
    pub fn new(
        graph: &'g Graph,
        job: JobId,
        placement: Placement,
        homes: &[Vec<PartitionId>],
    ) -> Self {
        let layout = place::layout(graph, job, placement, homes);
        let mut plan =
            Self { graph, job, layout, chunk_counts: Vec::new(), urgencies: graph.urgencies() };
        let mut counts = vec![0; plan.layout.used().len()];
        let mut cutter = Cutter::new(&plan);
        while let Some(turn) = cutter.cut(None) {
            counts[turn as usize] += 1;
        }
        plan.chunk_counts = counts;
        plan
    }

    /// All chunks, created on demand and alternating between homes.
    #[doc(hidden)]
    #[must_use]
    pub fn chunks(&self) -> Chunks<'_> {
        Chunks { cutter: Cutter::new(self) }
    }

    /// The commit, which makes the job visible once every chunk is accepted.
    #[doc(hidden)]
    #[must_use]
    pub fn commit(
        &self,
        name: &str,
        submitted_ns: u64,
        settings: wire::JobSettings,
    ) -> wire::JobCommit {
        // Commands and calls read and write real bytes, even if synthetic data were requested.
        use wire::spec::Body::{Call, Command, Upload};
        let is_real =
            |spec: &wire::Spec| matches!(spec.body, Some(Call(_) | Command(_) | Upload(_)));
        let real_data = settings.real_data || self.graph.specs().iter().any(is_real);
        let work_ns = self.graph.assumed_work_ns();
        let keeps = |spec: &wire::Spec| spec.outputs.iter().any(|output| output.keep);
        let keeps_results = real_data && self.graph.specs().iter().any(keeps);
        let settings = wire::JobSettings { real_data, work_ns, keeps_results, ..settings };
        let mut partitions: Vec<wire::PartitionTotal> = self
            .layout
            .used()
            .iter()
            .zip(&self.chunk_counts)
            .map(|(used, chunks)| wire::PartitionTotal {
                partition: used.partition.0,
                chunks: *chunks,
                tasks: u64::from(used.tasks),
            })
            .collect();
        partitions.sort_unstable_by_key(|total| total.partition);
        wire::JobCommit {
            job: self.job.0,
            name: name.to_owned(),
            submitted_ns,
            settings: Some(settings),
            partitions,
            edges: self.graph.edge_pairs(),
            ..Default::default()
        }
    }

    #[must_use]
    pub fn graph(&self) -> &'g Graph {
        self.graph
    }

    #[must_use]
    pub fn job(&self) -> JobId {
        self.job
    }

    /// The assignment of ids; a clone can outlive the graph.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The id of a task within the job.
    #[must_use]
    pub fn local_id(&self, task: u32) -> LocalId {
        self.layout.local_id(task)
    }

    /// The task with this id.
    #[must_use]
    pub fn task_of(&self, local: LocalId) -> Option<u32> {
        self.layout.task_of(local)
    }
}

/// The chunks of a plan, one at a time.
#[derive(Debug)]
pub struct Chunks<'p> {
    cutter: Cutter<'p>,
}

impl Iterator for Chunks<'_> {
    type Item = wire::Chunk;

    fn next(&mut self) -> Option<wire::Chunk> {
        let mut chunk = wire::Chunk::default();
        self.cutter.cut(Some(&mut chunk)).map(|_| chunk)
    }
}

/// A task with edge lists that are not written completely.
#[derive(Clone, Copy, Debug)]
struct OpenTask {
    task: u32,
    index: u32,
    children_done: u32,
    parents_done: u32,
}

/// Cuts one partition after the other. Without a chunk to fill it only counts, and then does not
/// read edges.
#[derive(Debug)]
struct Cutter<'p> {
    plan: &'p Plan<'p>,
    turn: u32,
    /// The next task and the next chunk number within the partition.
    index: u32,
    number: u32,
    open: Option<OpenTask>,
    /// For each spec the serial number of the last chunk that contains it, and its index there.
    spec_seen: Vec<(u64, u32)>,
    serial: u64,
    /// Of the chunk being cut.
    room_bytes: usize,
    tasks: usize,
    specs: u32,
}

impl<'p> Cutter<'p> {
    fn new(plan: &'p Plan<'p>) -> Self {
        Self {
            plan,
            turn: 0,
            index: 0,
            number: 0,
            open: None,
            spec_seen: vec![(0, 0); plan.graph.specs().len()],
            serial: 0,
            room_bytes: 0,
            tasks: 0,
            specs: 0,
        }
    }

    /// Cuts the next chunk and returns its used partition.
    fn cut(&mut self, mut chunk: Option<&mut wire::Chunk>) -> Option<u32> {
        let turn = self.turn;
        let used = *self.plan.layout.used().get(turn as usize)?;
        self.serial += 1;
        self.room_bytes = limits::CHUNK_BYTES_MAX - CHUNK_FIXED_BYTES;
        self.tasks = 0;
        self.specs = 0;
        if let Some(chunk) = &mut chunk {
            chunk.job = self.plan.job.0;
            chunk.partition = used.partition.0;
            chunk.number = self.number;
            chunk.first = u64::from(self.index);
        }
        self.number += 1;
        loop {
            if !self.continue_lists(chunk.as_deref_mut()) {
                return Some(turn);
            }
            if self.index == used.tasks {
                self.turn += 1;
                self.index = 0;
                self.number = 0;
                return Some(turn);
            }
            if !self.begin_task(chunk.as_deref_mut()) {
                return Some(turn);
            }
        }
    }

    /// Adds the next task without its lists; false if the chunk is full.
    fn begin_task(&mut self, chunk: Option<&mut wire::Chunk>) -> bool {
        use prost::Message as _;
        let task = self.plan.layout.task_at(self.turn, self.index);
        let view = self.plan.graph.task(task);
        let seen = &mut self.spec_seen[view.spec_index as usize];
        let is_new_spec = seen.0 != self.serial;
        let mut cost_bytes = TASK_FIXED_BYTES + view.name.len();
        cost_bytes += view.output_sizes.len() * VARINT_BYTES;
        if is_new_spec {
            cost_bytes += view.spec.encoded_len() + VARINT_BYTES;
        }
        let is_full = self.tasks == limits::CHUNK_TASKS_MAX || cost_bytes > self.room_bytes;
        // A task that fits into no chunk gets its own; the frame still has space for it.
        if is_full && self.tasks > 0 {
            return false;
        }
        self.room_bytes = self.room_bytes.saturating_sub(cost_bytes);
        self.tasks += 1;
        if is_new_spec {
            *seen = (self.serial, self.specs);
            self.specs += 1;
        }
        let spec = seen.1;
        if let Some(chunk) = chunk {
            if is_new_spec {
                chunk.specs.push(view.spec.clone());
            }
            let urgency = self.plan.urgencies.get(task as usize).copied().unwrap_or(0);
            let slots = self.plan.graph.slots(task);
            let release_ns = self.plan.graph.release_ns(task);
            chunk.tasks.push(wire::Task { release_ns, ..wire_task(&view, spec, slots, urgency) });
        }
        self.open = Some(OpenTask { task, index: self.index, children_done: 0, parents_done: 0 });
        self.index += 1;
        true
    }

    /// Adds the rest of the open task's lists as far as it fits; false if the chunk is full before
    /// their end.
    fn continue_lists(&mut self, mut chunk: Option<&mut wire::Chunk>) -> bool {
        let Some(mut open) = self.open else { return true };
        let graph = self.plan.graph;
        loop {
            let left = graph.fan_out(open.task) - open.children_done;
            let count = self.take(left, CHILD_BYTES);
            if let Some(chunk) = chunk.as_deref_mut()
                && count > 0
            {
                chunk.children.push(self.children(open, count));
            }
            open.children_done += count;
            if count == left {
                break;
            }
            if count == 0 {
                self.open = Some(open);
                return false;
            }
        }
        loop {
            let left = graph.slots(open.task) - open.parents_done;
            let count = self.take(left, PARENT_BYTES);
            if let Some(chunk) = chunk.as_deref_mut()
                && count > 0
            {
                chunk.parents.push(self.parents(open, count));
            }
            open.parents_done += count;
            if count == left {
                break;
            }
            if count == 0 {
                self.open = Some(open);
                return false;
            }
        }
        self.open = None;
        true
    }

    /// The number of the `left` entries that fit into one piece of this chunk. Reserves their
    /// space.
    fn take(&mut self, left: u32, entry_bytes: usize) -> u32 {
        let room = self.room_bytes.saturating_sub(LIST_FIXED_BYTES) / entry_bytes;
        let count = room.min(left as usize).min(limits::CHUNK_EDGES_MAX);
        if count == 0 || count < LIST_PIECE_MIN.min(left as usize) {
            return 0;
        }
        self.room_bytes -= LIST_FIXED_BYTES + count * entry_bytes;
        count as u32
    }

    fn children(&self, open: OpenTask, count: u32) -> wire::Children {
        let mut list = wire::Children {
            index: u64::from(open.index),
            child: Vec::with_capacity(count as usize),
            slot: Vec::with_capacity(count as usize),
            output: Vec::with_capacity(count as usize),
        };
        let edges = self.plan.graph.children_from(open.task, open.children_done);
        for edge in edges.take(count as usize) {
            list.child.push(self.plan.layout.local_id(edge.task).0);
            list.slot.push(edge.slot);
            list.output.push(edge.output);
        }
        list
    }

    fn parents(&self, open: OpenTask, count: u32) -> wire::Parents {
        let edges = self.plan.graph.parents_from(open.task, open.parents_done);
        wire::Parents {
            index: u64::from(open.index),
            first_slot: open.parents_done,
            parent: edges
                .take(count as usize)
                .map(|edge| self.plan.layout.local_id(edge.task).0)
                .collect(),
            output: Vec::new(),
        }
    }
}

fn wire_task(view: &TaskView<'_>, spec: u32, slots: u32, urgency: u64) -> wire::Task {
    wire::Task {
        spec,
        entry: view.entry,
        duration_ns: view.duration_ns,
        slots,
        output_sizes: view.output_sizes.to_vec(),
        name: view.name.to_owned(),
        payload: view.payload.to_vec(),
        urgency,
        release_ns: 0,
        ..wire::Task::default()
    }
}
