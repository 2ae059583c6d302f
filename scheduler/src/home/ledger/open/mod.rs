//! Parts of open jobs: tasks that come while the job runs, edges that come later than their
//! parents, and outputs that stay for tasks that may still come.
//!
//! A part of an open job is visible once it holds weight of the job. It keeps its weight while the
//! job is open. Once it knows of the close, it accepts no task and reports that.

use std::collections::{BTreeMap, BTreeSet};

use proto::wire::Openness;
use proto::{Attempt, Event, JobId, LocalId, NodeId, ObjectId, PartitionId, TaskId, Time, wire};

use super::check::check_open_chunk;
use super::credit::Delivery;
use super::records::{EdgeOut, State, edges_of};
use super::{ChunkError, End, Ledger, Part};
use crate::Mutant;
use crate::limits::{INLINE_HELD_BYTES_MAX, LATE_EDGES_AGAIN, REPEAT_DOUBLINGS_MAX};
use crate::output::Out;

/// Spawned tasks of an open job have indices from here on, and their chunks numbers from
/// [`SPAWNED_CHUNKS`] on. Clients have the ones before.
pub(crate) const SPAWNED_INDICES: u64 = 1 << (proto::id::INDEX_BITS - 1);
pub(crate) const SPAWNED_CHUNKS: u32 = 1 << 31;

/// The edges of one chunk of this node to parents in one partition: the job, the chunk's partition
/// and number, and the partition of the parents.
pub(crate) type LateKey = (JobId, PartitionId, u32, PartitionId);

/// Work for open jobs that is due.
#[derive(Debug, Default)]
pub(crate) struct OpenWork {
    /// When the edges of chunks are sent to the homes of parents, and how often that was done.
    late_due: BTreeSet<(Time, LateKey, u32)>,
    /// Outputs that are not held any more.
    freed_holds: Vec<ObjectId>,
}

impl OpenWork {
    pub(super) fn give_up(&mut self, partition: PartitionId) {
        self.late_due.retain(|(_, key, _)| key.1 != partition);
        self.freed_holds.retain(|object| object.task.partition() != partition);
    }
}

/// The standing of a part towards its job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    /// It holds weight, and accepts tasks.
    Member,
    /// The job's home must be asked.
    Unknown,
    /// No more tasks are added.
    Closed,
    Ended,
    /// The job was submitted as a whole.
    NotOpen,
}

/// The data of a part that only open jobs have.
#[derive(Debug, Default)]
pub(crate) struct OpenPart {
    /// The edges by the index of the parent, whether it exists yet or not.
    late: BTreeMap<u64, Vec<EdgeOut>>,
    /// The chunks of other partitions with edges that are stored here.
    stored: BTreeSet<(PartitionId, u32)>,
    /// The chunks of this part with edges that are not stored yet at the homes of these
    /// partitions.
    unstored: BTreeMap<u32, BTreeSet<PartitionId>>,
    /// Tasks with outputs that are not held any more.
    released: BTreeSet<u64>,
    /// The held outputs by task and number, with their attempts and sizes.
    held: BTreeMap<(u64, u32), (Attempt, u64)>,
    held_bytes: u64,
    /// Tasks in the order of their ends.
    ends: Vec<u64>,
    /// Why tasks failed. Further reasons are only in the records of the tasks.
    errors: BTreeMap<u64, String>,
    errors_bytes: usize,
    /// Small values of calls, and exceptions. They are lost with this home; the objects are not.
    inline: BTreeMap<u64, Vec<u8>>,
    inline_bytes: usize,
}

impl OpenPart {
    pub(super) fn late_edges(&self, index: u64) -> Option<&[EdgeOut]> {
        self.late.get(&index).map(Vec::as_slice)
    }
    pub(super) fn add_edge(&mut self, parent: u64, edge: EdgeOut) {
        self.late.entry(parent).or_default().push(edge);
    }
    pub(super) fn add_end(&mut self, index: u64, error: &str, inline: Vec<u8>) {
        self.ends.push(index);
        self.forget_inline(index);
        if !inline.is_empty() && self.inline_bytes + inline.len() <= INLINE_HELD_BYTES_MAX {
            self.inline_bytes += inline.len();
            self.inline.insert(index, inline);
        }
        self.errors_bytes -= self.errors.remove(&index).map_or(0, |error| error.len());
        if !error.is_empty() && self.errors_bytes + error.len() <= INLINE_HELD_BYTES_MAX {
            self.errors_bytes += error.len();
            self.errors.insert(index, error.to_owned());
        }
    }
    fn forget_inline(&mut self, index: u64) {
        self.inline_bytes -= self.inline.remove(&index).map_or(0, |inline| inline.len());
    }
    fn hold(&mut self, output: (u64, u32), attempt: Attempt, size_bytes: u64) {
        let before = self.held.insert(output, (attempt, size_bytes));
        self.held_bytes -= before.map_or(0, |(_, size_bytes)| size_bytes);
        self.held_bytes += size_bytes;
    }
    /// The job has ended: only the ends are asked for.
    pub(super) fn forget_work(&mut self) {
        (self.late, self.stored) = Default::default();
        (self.unstored, self.released) = Default::default();
        (self.held, self.held_bytes) = Default::default();
    }
    /// Ends the holds of one task, or of all.
    fn free(&mut self, index: Option<u64>) -> Vec<(u64, u32, Attempt)> {
        let (first, last) = index.map_or((0, u64::MAX), |index| (index, index));
        let held = self.held.range((first, 0)..=(last, u32::MAX));
        let freed: Vec<_> =
            held.map(|(&(index, output), &(attempt, _))| (index, output, attempt)).collect();
        for &(index, output, _) in &freed {
            let gone = self.held.remove(&(index, output));
            self.held_bytes -= gone.map_or(0, |(_, size_bytes)| size_bytes);
        }
        freed
    }
}

impl Part {
    pub(crate) fn is_of_open_job(&self) -> bool {
        self.openness != Openness::ClosedGraph
    }
    pub(super) fn set_openness(&mut self, openness: Openness) {
        self.openness = self.openness.max(openness);
        if self.is_of_open_job() {
            self.open_part.get_or_insert_default();
        }
    }
    /// Whether outputs stay for tasks that may still come.
    pub(super) fn holds_outputs(&self) -> bool {
        self.openness == Openness::Open
    }
    /// The report of the part, with the counts of an open job.
    pub(super) fn report(&self, mutant: Option<Mutant>) -> wire::PartitionCount {
        let mut count = self.count.clone();
        if let Some(open) = self.open_part.as_ref().filter(|_| self.is_of_open_job()) {
            count.submitted = self.tasks - count.spawned;
            count.held_bytes = open.held_bytes;
            count.closed = self.openness == Openness::Closing
                || mutant == Some(Mutant::ReturnsBeforeClose) && self.open == 0;
        }
        count
    }
}

impl Ledger {
    pub(crate) fn standing(&self, job: JobId, partition: PartitionId) -> Standing {
        let Some(job) = self.jobs.get(&job) else { return Standing::Unknown };
        if job.ended {
            return Standing::Ended;
        }
        let part = job.parts.get(partition).filter(|part| part.visible);
        match part.map(|part| part.openness) {
            Some(Openness::Open) if job.cancelled => Standing::Closed,
            Some(Openness::Open) => Standing::Member,
            Some(Openness::Closing) => Standing::Closed,
            Some(Openness::ClosedGraph) => Standing::NotOpen,
            None => Standing::Unknown,
        }
    }

    pub(crate) fn has_chunk(&self, job: JobId, partition: PartitionId, number: u32) -> bool {
        let part = self.jobs.get(&job).and_then(|job| job.parts.get(partition));
        part.is_some_and(|part| part.has_chunk(number))
    }

    /// Whether the homes of all parents have stored the edges of this chunk.
    pub(crate) fn edges_are_stored(&self, job: JobId, partition: PartitionId, number: u32) -> bool {
        let open = self.open_part(job, partition);
        open.is_none_or(|open| !open.unstored.contains_key(&number))
    }

    pub(crate) fn open_part(&self, job: JobId, partition: PartitionId) -> Option<&OpenPart> {
        self.jobs.get(&job)?.parts.get(partition)?.open_part.as_deref()
    }
    fn open_part_mut(&mut self, job: JobId, partition: PartitionId) -> Option<&mut OpenPart> {
        self.jobs.get_mut(&job)?.parts.get_mut(partition)?.open_part.as_deref_mut()
    }

    /// Stores a chunk in a part that holds weight. Its tasks start once it is synced.
    pub(crate) fn accept_open_chunk(
        &mut self,
        now: Time,
        chunk: wire::Chunk,
        out: &mut Out,
    ) -> Result<(), ChunkError> {
        check_open_chunk(&chunk)?;
        let (job_id, partition) = (JobId(chunk.job), PartitionId(chunk.partition));
        let (first, tasks, number) = (chunk.first, chunk.tasks.len() as u64, chunk.number);
        let part = self.jobs.get(&job_id).and_then(|job| job.parts.get(partition));
        if part.is_some_and(|part| part.overlaps(first, tasks)) {
            return Err(ChunkError::Malformed {
                job: chunk.job,
                partition: chunk.partition,
                number,
                what: "some of its tasks are in another chunk already",
            });
        }
        out.events.push(Event::Staged { job: job_id, partition, first, tasks });
        self.load_chunk(now, &chunk);
        out.facts.chunks.push(chunk);
        self.born.get_or_insert_default().entry((job_id, partition)).or_default().insert(number);
        let interval = self.report_interval;
        if let Some(job) = self.jobs.get_mut(&job_id) {
            job.parts.mark_changed(partition);
            job.report_soon(now, interval);
        }
        self.announce_edges(now, job_id, partition, number, true);
        Ok(())
    }

    /// Handles the edges of a chunk: those within the part at once, others by message. `fresh`: the
    /// chunk has just come.
    fn announce_edges(
        &mut self,
        now: Time,
        job: JobId,
        partition: PartitionId,
        number: u32,
        fresh: bool,
    ) {
        let part = self.jobs.get(&job).and_then(|job| job.parts.get(partition));
        let Some(chunk) = part.and_then(|part| part.chunk(number)) else { return };
        let mut here: BTreeMap<u64, Vec<EdgeOut>> = BTreeMap::new();
        let mut elsewhere = BTreeSet::new();
        for (parent, edge) in chunk.edges_in(partition) {
            if parent.partition() == partition {
                here.entry(parent.index()).or_default().push(edge);
            } else {
                elsewhere.insert(parent.partition());
            }
        }
        for &parents in &elsewhere {
            let work = self.open_work.get_or_insert_default();
            work.late_due.insert((now, (job, partition, number, parents), 0));
        }
        if let Some(open) = self.open_part_mut(job, partition).filter(|_| !elsewhere.is_empty()) {
            open.unstored.insert(number, elsewhere);
        }
        if fresh {
            self.credit_late(job, partition, &here);
        }
    }

    /// A recovered part: the homes of parents may lack the edges of its chunks, and children the
    /// answer about parents that never came.
    pub(super) fn resume_open_part(&mut self, job: JobId, partition: PartitionId) {
        let Some(part) = self.jobs.get(&job).and_then(|job| job.parts.get(partition)) else {
            return;
        };
        if !part.is_of_open_job() {
            return;
        }
        let is_open = |&number: &u32| part.chunk(number).is_some_and(|chunk| chunk.open > 0);
        let chunks: Vec<u32> = part.chunk_numbers().filter(is_open).collect();
        if self.mutant != Some(Mutant::LateEdgeForgotten) {
            for number in chunks {
                self.announce_edges(Time::ZERO, job, partition, number, false);
            }
        }
        self.skip_children_of_absent_parents(job, partition);
    }

    /// The edges of a chunk to parents in one partition, as a message. `None`: their home has
    /// stored them, or the job has ended.
    pub(crate) fn late_edges_of(&self, key: LateKey) -> Option<wire::LateEdges> {
        let (job, partition, number, parents) = key;
        let part = self.jobs.get(&job).filter(|job| !job.ended)?.parts.get(partition)?;
        let unstored = part.open_part.as_ref()?.unstored.get(&number)?;
        let chunk = part.chunk(number).filter(|_| unstored.contains(&parents))?;
        let mut edges: BTreeMap<u64, wire::Children> = BTreeMap::new();
        for (parent, edge) in chunk.edges_in(partition) {
            if parent.partition() == parents {
                let index = parent.index();
                let piece = edges.entry(index).or_default();
                piece.index = index;
                piece.child.push(edge.child);
                piece.slot.push(edge.slot);
                piece.output.push(edge.output);
            }
        }
        Some(wire::LateEdges {
            job: job.0,
            partition: parents.0,
            child_partition: partition.0,
            chunk: number,
            edges: edges.into_values().collect(),
        })
    }

    /// Whether the parent's home has confirmed that it stores the edge to the task.
    pub(crate) fn parent_knows_edge(&self, task: TaskId, parent: LocalId) -> bool {
        let Some(part) = self.part(task) else { return true };
        let Some(open) = part.open_part.as_ref() else { return true };
        let Some(segment) = part.segment(task.local.index()) else { return true };
        let unstored = open.unstored.get(&segment.number);
        unstored.is_none_or(|partitions| !partitions.contains(&parent.partition()))
    }

    /// The outputs that are not held any more, since the last call.
    pub(crate) fn take_freed_holds(&mut self) -> Vec<ObjectId> {
        self.open_work.as_mut().map_or_else(Vec::new, |work| std::mem::take(&mut work.freed_holds))
    }

    /// The next edges that are to be sent to the home of parents by now.
    pub(crate) fn next_late_edges(&mut self, now: Time) -> Option<(LateKey, u32)> {
        let work = self.open_work.as_mut()?;
        let &(_, key, tries) = work.late_due.first().filter(|(at, ..)| *at <= now)?;
        work.late_due.pop_first();
        Some((key, tries))
    }
    pub(crate) fn next_late_send(&self) -> Option<Time> {
        self.open_work.as_ref()?.late_due.first().map(|&(at, ..)| at)
    }

    /// Plans to send the edges again.
    pub(crate) fn plan_late_edges(&mut self, now: Time, key: LateKey, tries: u32) {
        let pause = LATE_EDGES_AGAIN.doubled_times(tries.min(REPEAT_DOUBLINGS_MAX));
        let work = self.open_work.get_or_insert_default();
        work.late_due.insert((now + pause, key, tries + 1));
    }

    /// The home of the parents has stored the edges. Returns whether these were the last of the
    /// chunk.
    pub(crate) fn late_edges_stored(&mut self, key: LateKey) -> bool {
        let (job, partition, number, parents) = key;
        let Some(open) = self.open_part_mut(job, partition) else { return false };
        let Some(unstored) = open.unstored.get_mut(&number) else { return false };
        unstored.remove(&parents);
        let is_last = unstored.is_empty();
        if is_last {
            open.unstored.remove(&number);
        }
        is_last
    }

    /// Stores the edges of a chunk of another partition, once. Ended parents credit the children.
    pub(crate) fn store_late_edges(&mut self, late: wire::LateEdges, out: &mut Out) {
        let (job, partition) = (JobId(late.job), PartitionId(late.partition));
        let forgets = self.mutant == Some(Mutant::LateEdgeForgotten);
        let Some(open) = self.open_part_mut(job, partition) else { return };
        if !open.stored.insert((PartitionId(late.child_partition), late.chunk)) {
            return;
        }
        let mut fresh: BTreeMap<u64, Vec<EdgeOut>> = BTreeMap::new();
        for piece in &late.edges {
            for edge in edges_of(piece) {
                open.add_edge(piece.index, edge);
                fresh.entry(piece.index).or_default().push(edge);
            }
        }
        if !forgets {
            out.facts.credits.entry((partition, job)).or_default().late.push(late);
        }
        self.credit_late(job, partition, &fresh);
    }

    pub(super) fn load_late_edges(&mut self, late: &wire::LateEdges) {
        let (job, partition) = (JobId(late.job), PartitionId(late.partition));
        let Some(open) = self.open_part_mut(job, partition) else { return };
        if open.stored.insert((PartitionId(late.child_partition), late.chunk)) {
            for piece in &late.edges {
                edges_of(piece).for_each(|edge| open.add_edge(piece.index, edge));
            }
        }
    }

    pub(super) fn load_released(&mut self, job: JobId, partition: PartitionId, index: u64) {
        if let Some(open) = self.open_part_mut(job, partition) {
            open.released.insert(index);
        }
    }

    /// Credits the last edges of parents that have ended: these edges have just come.
    fn credit_late(
        &mut self,
        job: JobId,
        partition: PartitionId,
        fresh: &BTreeMap<u64, Vec<EdgeOut>>,
    ) {
        for (&index, edges) in fresh {
            let parent = TaskId { job, local: LocalId::new(partition, index) };
            match self.state(parent) {
                None => self.skip_if_absent(parent),
                Some(State::Ended(_)) => {
                    self.expect_late_readers(parent, edges);
                    self.deliver_last(parent, edges.len());
                }
                Some(State::Waiting | State::Ready) => {}
            }
        }
    }

    fn expect_late_readers(&mut self, parent: TaskId, edges: &[EdgeOut]) {
        if self.mutant == Some(Mutant::ReleaseBeforeReaderCounted) {
            return;
        }
        let Some(attempt) = self.cell(parent).map(|cell| cell.attempt) else { return };
        for output in edges.iter().filter_map(|edge| edge.output.checked_sub(1)) {
            self.readers.again(&ObjectId { task: parent, attempt, output });
        }
    }

    /// The job is closing, and some children name a parent that no client has added.
    fn skip_children_of_absent_parents(&mut self, job: JobId, partition: PartitionId) {
        let Some(open) = self.open_part(job, partition) else { return };
        let named: Vec<u64> = open.late.keys().copied().collect();
        for index in named {
            let parent = TaskId { job, local: LocalId::new(partition, index) };
            if self.state(parent).is_none() {
                self.skip_if_absent(parent);
            }
        }
    }
    fn skip_if_absent(&mut self, parent: TaskId) {
        let (me, Some(part)) = (self.me, self.part(parent)) else { return };
        if part.openness == Openness::Closing {
            let round = part.round;
            let never = Delivery::of_end(parent, Attempt::default(), End::Failed, me, round);
            self.push_delivery(never);
        }
    }

    /// Keeps an output of a task that has ended, in a part that holds outputs. Returns the number
    /// of additional readers. That of a released output ends at once, which frees an output without
    /// readers.
    pub(super) fn hold_output(&mut self, object: ObjectId, size_bytes: u64) -> u32 {
        let index = object.task.local.index();
        let Some(part) = self.part_mut(object.task) else { return 0 };
        let Some(open) = part.open_part.as_mut() else { return 0 };
        if open.released.contains(&index) {
            self.open_work.get_or_insert_default().freed_holds.push(object);
            return 1;
        }
        open.hold((index, object.output), object.attempt, size_bytes);
        if let Some(job) = self.jobs.get_mut(&object.task.job) {
            job.parts.mark_changed(object.task.partition());
        }
        1
    }

    /// The outputs of these tasks are not held any longer.
    pub(crate) fn release_outputs(
        &mut self,
        now: Time,
        job: JobId,
        partition: PartitionId,
        indices: impl Iterator<Item = u64>,
        out: &mut Out,
    ) {
        let Some(open) = self.open_part_mut(job, partition) else { return };
        let mut freed = Vec::new();
        for index in indices.filter(|index| open.released.insert(*index)).collect::<Vec<_>>() {
            open.forget_inline(index);
            freed.extend(open.free(Some(index)));
            out.facts.credits.entry((partition, job)).or_default().released.push(index);
        }
        self.holds_ended(now, job, partition, &freed);
    }

    fn holds_ended(
        &mut self,
        now: Time,
        job: JobId,
        partition: PartitionId,
        freed: &[(u64, u32, Attempt)],
    ) {
        let object = |&(index, output, attempt): &(u64, u32, Attempt)| ObjectId {
            task: TaskId { job, local: LocalId::new(partition, index) },
            attempt,
            output,
        };
        if !freed.is_empty() {
            let work = self.open_work.get_or_insert_default();
            work.freed_holds.extend(freed.iter().map(object));
        }
        let interval = self.report_interval;
        if let Some(job) = self.jobs.get_mut(&job) {
            job.parts.mark_changed(partition);
            job.report_soon(now, interval);
        }
    }

    /// These parts have weight, or know that no more tasks come.
    pub(super) fn openness_grew(
        &mut self,
        now: Time,
        job_id: JobId,
        parts: &[PartitionId],
        out: &mut Out,
    ) {
        for &partition in parts {
            let Some(job) = self.jobs.get(&job_id) else { return };
            let Some(part) = job.parts.get(partition) else { continue };
            out.facts.visible.insert((partition, job_id), job.visible_record(part));
            if part.openness == Openness::Closing {
                self.part_closes(now, job_id, partition);
            }
        }
    }

    fn part_closes(&mut self, now: Time, job: JobId, partition: PartitionId) {
        let Some(open) = self.open_part_mut(job, partition) else { return };
        let freed = open.free(None);
        self.holds_ended(now, job, partition, &freed);
        self.skip_children_of_absent_parents(job, partition);
    }

    /// For a mutant: the part behaves as if it held weight.
    pub(crate) fn pretend_member(
        &mut self,
        now: Time,
        job_id: JobId,
        partition: PartitionId,
        out: &mut Out,
    ) {
        let job = self.open_job(now, job_id);
        job.visible = true;
        let part = job.parts.get_or_default(partition);
        part.visible = true;
        part.set_openness(Openness::Open);
        let record = job.visible_record(&job.parts[partition]);
        out.facts.visible.insert((partition, job_id), record);
    }

    /// The ends of tasks from a position on, and the position after them: at most `most`, and none
    /// after that with which their texts and values have `most_bytes`.
    pub(crate) fn ends_from(
        &self,
        job: JobId,
        partition: PartitionId,
        after: u64,
        (most, most_bytes): (usize, usize),
    ) -> (u64, Vec<wire::TaskEnd>) {
        let Some(open) = self.open_part(job, partition) else { return (after, Vec::new()) };
        let from = usize::try_from(after).unwrap_or(usize::MAX).min(open.ends.len());
        let (mut to, mut bytes, mut ends) = (from, 0, Vec::new());
        for &index in open.ends[from..].iter().take(most) {
            if bytes >= most_bytes {
                break;
            }
            to += 1;
            let task = TaskId { job, local: LocalId::new(partition, index) };
            if let Some(end) = self.task_end(task) {
                bytes += end.error.len() + end.inline.len();
                ends.push(end);
            }
        }
        (to as u64, ends)
    }

    fn task_end(&self, task: TaskId) -> Option<wire::TaskEnd> {
        let index = task.local.index();
        let part = self.part(task)?;
        let segment = part.segment(index)?;
        let State::Ended(end) = segment.state(index) else { return None };
        let brief = self.brief(task)?;
        let NodeId(node) = brief.node;
        let error = part.open_part.as_ref().and_then(|open| open.errors.get(&index));
        let inline = part.open_part.as_ref().and_then(|open| open.inline.get(&index));
        let side = segment.side(index);
        Some(wire::TaskEnd {
            local: task.local.0,
            attempt: brief.attempt.0,
            verdict: end as i32,
            exit_code: brief.exit_code,
            error: error.cloned().unwrap_or_default(),
            output_sizes: side.map(|side| side.output_sizes.clone()).unwrap_or_default(),
            node,
            inline: inline.cloned().unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests;
