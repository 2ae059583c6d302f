//! The records of one chunk of tasks, in columns and arenas, so that a waiting task takes little
//! memory.

use std::collections::BTreeMap;

use prost::bytes::Bytes;
use proto::work::{Captured, Used};
use proto::{Attempt, Incarnation, LocalId, NodeId, PartitionId, Span, wire};

use super::Times;
use super::packed::{Brief, Packed};
use crate::home::ledger::Crash;

/// The state of a task at its home. Only its holder knows whether a ready task runs already.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum State {
    Waiting,
    Ready,
    Ended(End),
}

pub(crate) use proto::event::End;

/// One task. Kept small: there may be millions.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(in crate::home::ledger) entry: u64,
    pub(in crate::home::ledger) duration_ns: u64,
    pub(in crate::home::ledger) urgency: u64,
    /// One bit per input slot below 64; further ones are in [`Side::filled`].
    filled: u64,
    pub(in crate::home::ledger) attempt: Attempt,
    pub(in crate::home::ledger) spec: u32,
    pub(in crate::home::ledger) slots: u32,
    pub(in crate::home::ledger) missing: u32,
    /// The node where it is queued or runs, or where it ran.
    pub(in crate::home::ledger) holder: NodeId,
    pub(in crate::home::ledger) holder_incarnation: Incarnation,
    pub(in crate::home::ledger) tries: u16,
    /// The node that ran the task has died, and this death is not judged yet.
    pub(in crate::home::ledger) death_unresolved: bool,
    /// The task has rested since its last death.
    pub(in crate::home::ledger) has_rested: bool,
    /// Its home has recorded the start of the current attempt.
    pub(in crate::home::ledger) started: bool,
    /// An earlier incarnation of this node held the task, according to the records.
    pub(in crate::home::ledger) died_here: bool,
    /// The task was ready before and its holder was lost: it precedes tasks that have not had their
    /// turn.
    pub(in crate::home::ledger) again: bool,
    /// How often the task ran again because its outputs were lost.
    pub(in crate::home::ledger) rebuilds: u8,
    /// How often an input of the task was lost.
    pub(in crate::home::ledger) input_losses: u8,
    pub(in crate::home::ledger) state: State,
}

/// Fields that only some tasks have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Side {
    /// Bits of the slots from 64 on. Memory follows the credits received, not the declared slots.
    filled: BTreeMap<u32, u64>,
    /// By input slot.
    pub(in crate::home::ledger) inputs: BTreeMap<u32, wire::InputAt>,
    /// Of the committed attempt.
    pub(in crate::home::ledger) output_sizes: Vec<u64>,
    pub(in crate::home::ledger) exit_code: i32,
    pub(in crate::home::ledger) crashes: Vec<Crash>,
    /// This attempt and those before it are of earlier rounds.
    earlier: Attempt,
}

/// An edge as its parent stores it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EdgeOut {
    pub(in crate::home::ledger) child: u64,
    pub(in crate::home::ledger) slot: u32,
    /// 0: order only; k+1: output k travels along the edge.
    pub(in crate::home::ledger) output: u32,
}

/// A piece of one task's edges (or parents) in the arena.
#[derive(Clone, Copy, Debug)]
struct Run {
    index: u64,
    start: u32,
    length: u32,
    /// For parents: the input slot of the first.
    first_slot: u32,
}

#[derive(Debug)]
pub(crate) struct Segment {
    pub(in crate::home::ledger) number: u32,
    pub(in crate::home::ledger) first: u64,
    length: u32,
    /// Empty once freed.
    cells: Vec<Cell>,
    /// How each task ended, two bits each, once freed.
    freed: Vec<u8>,
    /// The other data of each task, once freed.
    briefs: Packed,
    child_runs: Vec<Run>,
    edges: Vec<EdgeOut>,
    parent_runs: Vec<Run>,
    parents: Vec<u64>,
    /// In a chunk of an open job: the output that travels along the edge, as in [`EdgeOut`].
    parent_outputs: Vec<u32>,
    /// Declared output sizes, flat; `size_ends[i]` ends those of cell i. Empty when none are
    /// declared.
    sizes: Vec<u64>,
    size_ends: Vec<u32>,
    /// When each task may start, counted from the submission. Empty if all may start at once.
    releases_ns: Vec<u64>,
    /// Of spawned tasks: the number of ancestors of each, and the index of its parent. Empty in
    /// submitted chunks.
    depths: Vec<u32>,
    spawners: Vec<u64>,
    names: BTreeMap<u32, Box<str>>,
    /// The arguments of calls.
    payloads: BTreeMap<u32, Bytes>,
    sides: BTreeMap<u32, Side>,
    /// Checksums of the outputs of the attempt that counts, for tasks with output bytes.
    output_sums: BTreeMap<u32, Box<[u64]>>,
    /// The printed bytes of the attempts that counted. They stay once freed, so that lost output is
    /// noticed however late.
    captured: BTreeMap<u32, Captured>,
    /// What the commands of the attempts that counted have used.
    used: BTreeMap<u32, Used>,
    /// The times of the attempts that counted, for all tasks once one of them ran.
    times: Vec<Times>,
    /// Tasks that have not ended.
    pub(in crate::home::ledger) open: u32,
    /// Ended tasks with credits that have not all left.
    pub(in crate::home::ledger) undelivered: u32,
    /// Tasks of the job have made the chunk.
    spawned: bool,
    /// Tasks of the job have made the chunk, and some of its tasks have outputs.
    has_spawned_outputs: bool,
    /// No task needs the chunk. It is kept for queries until newer chunks need its memory.
    retired: bool,
}

impl Segment {
    fn empty(number: u32, first: u64, length: u32) -> Self {
        Self {
            number,
            first,
            length,
            cells: Vec::new(),
            freed: Vec::new(),
            briefs: Packed::default(),
            child_runs: Vec::new(),
            edges: Vec::new(),
            parent_runs: Vec::new(),
            parents: Vec::new(),
            parent_outputs: Vec::new(),
            sizes: Vec::new(),
            size_ends: Vec::new(),
            releases_ns: Vec::new(),
            depths: Vec::new(),
            spawners: Vec::new(),
            names: BTreeMap::new(),
            payloads: BTreeMap::new(),
            sides: BTreeMap::new(),
            output_sums: BTreeMap::new(),
            captured: BTreeMap::new(),
            used: BTreeMap::new(),
            times: Vec::new(),
            open: 0,
            undelivered: 0,
            spawned: false,
            has_spawned_outputs: false,
            retired: false,
        }
    }

    /// `specs` maps the chunk's spec numbers to the job's.
    pub(crate) fn new(chunk: &wire::Chunk, specs: &[u32]) -> Self {
        let cells: Vec<Cell> = chunk
            .tasks
            .iter()
            .map(|task| Cell {
                entry: task.entry,
                duration_ns: task.duration_ns,
                urgency: task.urgency,
                filled: 0,
                attempt: Attempt::default(),
                spec: specs[task.spec as usize],
                slots: task.slots,
                missing: task.slots,
                holder: NodeId(0),
                holder_incarnation: Incarnation(0),
                tries: 0,
                death_unresolved: false,
                has_rested: false,
                started: false,
                died_here: false,
                again: false,
                rebuilds: 0,
                input_losses: 0,
                state: State::Waiting,
            })
            .collect();
        let length = u32::try_from(cells.len()).expect("chunks are bounded");
        let mut segment = Self::empty(chunk.number, chunk.first, length);
        segment.cells = cells;
        segment.open = length;
        segment.load_declarations(chunk);
        segment.load_edges(chunk);
        segment
    }

    fn load_declarations(&mut self, chunk: &wire::Chunk) {
        self.spawned = chunk.spawned;
        if chunk.spawned {
            self.has_spawned_outputs = chunk.specs.iter().any(|spec| !spec.outputs.is_empty());
            self.depths = chunk.tasks.iter().map(|task| task.depth).collect();
            self.spawners = chunk.tasks.iter().map(|task| task.spawner).collect();
        }
        if chunk.tasks.iter().any(|task| task.release_ns > 0) {
            self.releases_ns = chunk.tasks.iter().map(|task| task.release_ns).collect();
        }
        let sized = chunk.tasks.iter().any(|task| !task.output_sizes.is_empty());
        for (at, task) in (0u32..).zip(&chunk.tasks) {
            if !task.name.is_empty() {
                self.names.insert(at, task.name.as_str().into());
            }
            if !task.payload.is_empty() {
                // A copy of its own: a part of the message would keep the whole message in memory.
                self.payloads.insert(at, Bytes::copy_from_slice(&task.payload));
            }
            if sized {
                self.sizes.extend_from_slice(&task.output_sizes);
                self.size_ends.push(self.sizes.len() as u32);
            }
        }
    }

    fn load_edges(&mut self, chunk: &wire::Chunk) {
        for piece in &chunk.children {
            let start = self.edges.len() as u32;
            self.edges.extend(edges_of(piece));
            let length = piece.child.len() as u32;
            self.child_runs.push(Run { index: piece.index, start, length, first_slot: 0 });
        }
        for piece in &chunk.parents {
            let start = self.parents.len() as u32;
            self.parents.extend_from_slice(&piece.parent);
            if chunk.open {
                self.parent_outputs.extend_from_slice(&piece.output);
            }
            let length = piece.parent.len() as u32;
            let (index, first_slot) = (piece.index, piece.first_slot);
            self.parent_runs.push(Run { index, start, length, first_slot });
        }
        self.edges.shrink_to_fit();
        self.parents.shrink_to_fit();
        self.child_runs.sort_by_key(|run| run.index);
        self.parent_runs.sort_by_key(|run| run.index);
    }

    pub(crate) fn renumber_specs(&mut self, numbers: &[u32]) {
        for cell in &mut self.cells {
            cell.spec = numbers[cell.spec as usize];
        }
    }
    pub(crate) fn len(&self) -> u32 {
        self.length
    }
    pub(crate) fn contains(&self, index: u64) -> bool {
        index >= self.first && index - self.first < u64::from(self.length)
    }
    fn at(&self, index: u64) -> u32 {
        debug_assert!(self.contains(index));
        (index - self.first) as u32
    }
    /// `None` once freed.
    pub(crate) fn cell(&self, index: u64) -> Option<&Cell> {
        self.cells.get(self.at(index) as usize)
    }
    /// All records in memory, each with its index.
    pub(crate) fn cells(&self) -> impl Iterator<Item = (u64, &Cell)> {
        (self.first..).zip(&self.cells)
    }
    pub(crate) fn cell_mut(&mut self, index: u64) -> Option<&mut Cell> {
        let at = self.at(index);
        self.cells.get_mut(at as usize)
    }
    pub(crate) fn side(&self, index: u64) -> Option<&Side> {
        self.sides.get(&self.at(index))
    }
    pub(crate) fn side_mut(&mut self, index: u64) -> &mut Side {
        let at = self.at(index);
        self.sides.entry(at).or_default()
    }
    pub(crate) fn output_sums(&self, index: u64) -> &[u64] {
        self.output_sums.get(&self.at(index)).map(AsRef::as_ref).unwrap_or_default()
    }
    pub(crate) fn keep_output_sums(&mut self, index: u64, sums: Vec<u64>) {
        if !sums.is_empty() {
            self.output_sums.insert(self.at(index), sums.into());
        }
    }
    pub(crate) fn captured(&self, index: u64) -> Captured {
        self.captured.get(&self.at(index)).copied().unwrap_or_default()
    }
    pub(crate) fn set_captured(&mut self, index: u64, captured: Captured) {
        let at = self.at(index);
        if captured.is_none() {
            self.captured.remove(&at);
        } else {
            self.captured.insert(at, captured);
        }
    }
    pub(crate) fn used(&self, index: u64) -> Used {
        self.used.get(&self.at(index)).copied().unwrap_or_default()
    }
    pub(crate) fn set_used(&mut self, index: u64, used: Used) {
        let at = self.at(index);
        if used.is_none() {
            self.used.remove(&at);
        } else {
            self.used.insert(at, used);
        }
    }
    pub(crate) fn times(&self, index: u64) -> Times {
        self.times.get(self.at(index) as usize).copied().unwrap_or_default()
    }
    pub(crate) fn set_times(&mut self, index: u64, times: Times) {
        if self.times.is_empty() && times.is_known() {
            self.times.resize(self.cells.len(), Times::default());
        }
        let at = self.at(index) as usize;
        if let Some(known) = self.times.get_mut(at) {
            *known = times;
        }
    }
    pub(crate) fn name(&self, index: u64) -> Option<&str> {
        self.names.get(&self.at(index)).map(AsRef::as_ref)
    }
    /// The arguments of a call; `None`: those of its spec.
    pub(crate) fn payload(&self, index: u64) -> Option<Bytes> {
        self.payloads.get(&self.at(index)).cloned()
    }
    /// When the task may start, counted from the submission of its job.
    pub(crate) fn release(&self, index: u64) -> Span {
        Span(self.releases_ns.get(self.at(index) as usize).copied().unwrap_or(0))
    }
    /// The number of ancestors of a spawned task; 0 for a submitted one.
    pub(crate) fn depth(&self, index: u64) -> u32 {
        self.depths.get(self.at(index) as usize).copied().unwrap_or(0)
    }
    /// The index of the task that spawned this one.
    pub(crate) fn spawner(&self, index: u64) -> Option<u64> {
        self.spawners.get(self.at(index) as usize).and_then(|spawner| spawner.checked_sub(1))
    }
    /// The tasks that have spawned those of the chunk, if some of the latter have outputs.
    pub(crate) fn spawners_of_outputs(&self) -> impl Iterator<Item = u64> + '_ {
        let spawners = if self.has_spawned_outputs { self.spawners.as_slice() } else { &[] };
        // Children of one task are neighbours.
        let runs = spawners.chunk_by(|one, other| one == other).map(|run| run[0]);
        runs.filter_map(|spawner| spawner.checked_sub(1))
    }
    pub(crate) fn is_spawned(&self) -> bool {
        self.spawned
    }
    /// Appends the tasks of a segment that begins where this one ends. None of them has begun.
    pub(crate) fn absorb(&mut self, more: Self) {
        debug_assert_eq!(self.first + u64::from(self.length), more.first);
        let (before, edges, parents) =
            (self.cells.len(), self.edges.len() as u32, self.parents.len() as u32);
        let at = self.length;
        let later = |run: Run, by: u32| Run { start: run.start + by, ..run };
        self.child_runs.extend(more.child_runs.into_iter().map(|run| later(run, edges)));
        self.parent_runs.extend(more.parent_runs.into_iter().map(|run| later(run, parents)));
        self.edges.extend(more.edges);
        self.parents.extend(more.parents);
        if !more.size_ends.is_empty() || !self.size_ends.is_empty() {
            let sizes = self.sizes.len() as u32;
            self.size_ends.resize(before, sizes);
            self.sizes.extend(more.sizes);
            self.size_ends.extend(more.size_ends.into_iter().map(|end| end + sizes));
            let sizes = self.sizes.len() as u32;
            self.size_ends.resize(before + more.cells.len(), sizes);
        }
        if !more.releases_ns.is_empty() || !self.releases_ns.is_empty() {
            self.releases_ns.resize(before, 0);
            self.releases_ns.extend(more.releases_ns);
            self.releases_ns.resize(before + more.cells.len(), 0);
        }
        self.depths.extend(more.depths);
        self.spawners.extend(more.spawners);
        self.names.extend(more.names.into_iter().map(|(task, name)| (at + task, name)));
        let payloads = more.payloads.into_iter();
        self.payloads.extend(payloads.map(|(task, payload)| (at + task, payload)));
        if !self.times.is_empty() {
            self.times.resize(before + more.cells.len(), Times::default());
        }
        self.cells.extend(more.cells);
        self.length += more.length;
        self.open += more.open;
        self.has_spawned_outputs |= more.has_spawned_outputs;
        self.retired = false;
    }
    pub(crate) fn has_releases(&self) -> bool {
        !self.releases_ns.is_empty()
    }
    pub(crate) fn declared_sizes(&self, index: u64) -> &[u64] {
        let at = self.at(index) as usize;
        let Some(&end) = self.size_ends.get(at) else { return &[] };
        let start = if at == 0 { 0 } else { self.size_ends[at - 1] };
        &self.sizes[start as usize..end as usize]
    }
    pub(crate) fn state(&self, index: u64) -> State {
        match self.cell(index) {
            Some(cell) => cell.state,
            None => State::Ended(freed_end(&self.freed, self.at(index))),
        }
    }

    /// Sets the slot's bit; returns false if it was set.
    pub(crate) fn fill(&mut self, index: u64, slot: u32) -> bool {
        if slot < 64 {
            let Some(cell) = self.cell_mut(index) else { return false };
            return set(&mut cell.filled, slot);
        }
        let side = self.side_mut(index);
        set(side.filled.entry(slot / 64).or_default(), slot % 64)
    }
    /// The input of this slot is lost; its identity stays known.
    pub(crate) fn clear_input_slot(&mut self, index: u64, slot: u32) {
        if !self.is_input_slot_filled(index, slot) {
            return;
        }
        if slot >= 64 {
            let words = &mut self.side_mut(index).filled;
            words.entry(slot / 64).and_modify(|word| *word &= !(1 << (slot % 64)));
        }
        let Some(cell) = self.cell_mut(index) else { return };
        if slot < 64 {
            cell.filled &= !(1 << slot);
        }
        cell.missing += 1;
    }
    pub(crate) fn clear_input_slots(&mut self, index: u64) {
        let side = self.side_mut(index);
        side.filled.clear();
        side.inputs.clear();
        let Some(cell) = self.cell_mut(index) else { return };
        cell.filled = 0;
        cell.missing = cell.slots;
    }
    /// The task had ended, and begins again in a later round.
    pub(crate) fn begin_again(&mut self, index: u64) {
        let Some(cell) = self.cell_mut(index) else { return };
        let attempt = cell.attempt;
        cell.state = State::Waiting;
        (cell.tries, cell.rebuilds, cell.input_losses) = (0, 0, 0);
        (cell.death_unresolved, cell.has_rested) = (false, false);
        (cell.started, cell.died_here, cell.again) = (false, false, false);
        let side = self.side_mut(index);
        side.output_sizes.clear();
        side.crashes.clear();
        (side.exit_code, side.earlier) = (0, attempt);
        // The checksums of a task that was done once stay: there may be readers that are done.
    }
    /// Whether the attempt is of an earlier round.
    pub(crate) fn is_earlier(&self, index: u64, attempt: Attempt) -> bool {
        self.side(index).is_some_and(|side| attempt <= side.earlier)
    }
    pub(crate) fn is_input_slot_filled(&self, index: u64, slot: u32) -> bool {
        let word = if slot < 64 {
            self.cell(index).map_or(0, |cell| cell.filled)
        } else {
            let word = self.side(index).and_then(|side| side.filled.get(&(slot / 64)));
            word.copied().unwrap_or(0)
        };
        word >> (slot % 64) & 1 == 1
    }

    /// The edges from this task to its children that arrived with this chunk.
    pub(crate) fn edges(&self, index: u64) -> impl Iterator<Item = &[EdgeOut]> {
        let from = self.child_runs.partition_point(|run| run.index < index);
        let runs = self.child_runs[from..].iter().take_while(move |run| run.index == index);
        runs.map(|run| &self.edges[run.start as usize..(run.start + run.length) as usize])
    }
    /// Tasks of other chunks that have edges in this one.
    pub(crate) fn foreign_parents(&self) -> impl Iterator<Item = u64> + '_ {
        let indices = self.child_runs.iter().map(|run| run.index);
        indices.filter(|&index| !self.contains(index))
    }
    /// Tasks of other chunks with parents that this one names.
    pub(crate) fn foreign_children(&self) -> impl Iterator<Item = u64> + '_ {
        let indices = self.parent_runs.iter().map(|run| run.index);
        indices.filter(|&index| !self.contains(index))
    }
    /// The task's parents that this chunk names, each with its slot.
    pub(crate) fn parents(&self, index: u64) -> impl Iterator<Item = (u32, u64)> + '_ {
        let from = self.parent_runs.partition_point(|run| run.index < index);
        let runs = self.parent_runs[from..].iter().take_while(move |run| run.index == index);
        runs.flat_map(|run| {
            let parents = &self.parents[run.start as usize..(run.start + run.length) as usize];
            (run.first_slot..).zip(parents.iter().copied())
        })
    }

    /// All edges to tasks of this chunk of an open job, each with the id of its parent.
    pub(crate) fn edges_in(
        &self,
        partition: PartitionId,
    ) -> impl Iterator<Item = (LocalId, EdgeOut)> + '_ {
        self.parent_runs.iter().flat_map(move |run| {
            let places = run.start as usize..(run.start + run.length) as usize;
            let child = LocalId::new(partition, run.index).0;
            let outputs = self.parent_outputs.get(places.clone()).unwrap_or_default();
            let parents = self.parents[places].iter().zip(outputs).zip(run.first_slot..);
            parents.map(move |((&parent, &output), slot)| {
                (LocalId(parent), EdgeOut { child, slot, output })
            })
        })
    }

    /// Marks the chunk as not needed; returns false if it was marked before.
    pub(crate) fn retire(&mut self) -> bool {
        !std::mem::replace(&mut self.retired, true)
    }
    /// The memory cost of the chunk: tasks and ends of edges.
    pub(crate) fn weight(&self) -> usize {
        self.cells.len() + self.edges.len() + self.parents.len()
    }

    /// The chunk is needed again.
    pub(crate) fn restore(&mut self) {
        self.retired = false;
    }
    /// The data that stays of a task, once freed.
    pub(crate) fn brief(&self, index: u64) -> Option<Brief> {
        self.briefs.get(self.at(index))
    }
    /// Frees the records. The end of each task, its brief, and the bytes that it printed stay.
    pub(crate) fn free(&mut self) {
        assert_eq!(self.open, 0, "only a finished segment is freed");
        if self.is_freed() {
            return;
        }
        let mut freed = vec![0u8; self.cells.len().div_ceil(4)];
        for (at, cell) in self.cells.iter().enumerate() {
            let State::Ended(end) = cell.state else { unreachable!("all have ended") };
            freed[at / 4] |= (end as u8) << (at % 4 * 2);
        }
        let bare = Self::empty(self.number, self.first, self.length);
        let briefs = (0..).zip(&self.cells).map(|(at, cell)| Brief {
            node: cell.holder,
            attempt: cell.attempt,
            spec: cell.spec,
            entry: cell.entry,
            exit_code: self.sides.get(&at).map_or(0, |side| side.exit_code),
            name: self.names.get(&at).cloned(),
            times: self.times.get(at as usize).copied().unwrap_or_default(),
            used: self.used.get(&at).copied().unwrap_or_default(),
        });
        let briefs = Packed::new(briefs);
        let captured = std::mem::take(&mut self.captured);
        let (spawned, spawners) = (self.spawned, std::mem::take(&mut self.spawners));
        *self = Self { freed, briefs, captured, spawned, spawners, retired: true, ..bare };
    }
    pub(crate) fn is_freed(&self) -> bool {
        self.cells.is_empty()
    }
}

fn set(word: &mut u64, bit: u32) -> bool {
    let fresh = *word >> bit & 1 == 0;
    *word |= 1 << bit;
    fresh
}

fn freed_end(freed: &[u8], at: u32) -> End {
    match freed[at as usize / 4] >> (at % 4 * 2) & 3 {
        0 => End::Done,
        1 => End::Failed,
        2 => End::Cancelled,
        _ => End::Skipped,
    }
}

pub(crate) fn edges_of(piece: &wire::Children) -> impl Iterator<Item = EdgeOut> + '_ {
    let columns = piece.child.iter().zip(&piece.slot).zip(&piece.output);
    columns.map(|((&child, &slot), &output)| EdgeOut { child, slot, output })
}

const _: () = assert!(size_of::<Cell>() <= 72);
