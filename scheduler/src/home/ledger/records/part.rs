//! The tasks of one job in one partition.

use std::collections::{BTreeMap, BTreeSet};

use proto::wire::Openness;
use proto::{LocalId, PartitionId, wire};

use super::segment::{EdgeOut, End, Segment, State};
use crate::home::ledger::mail::PartMail;
use crate::home::ledger::open::OpenPart;
use crate::home::ledger::turns::PartTurns;

#[derive(Debug, Default)]
pub(crate) struct Part {
    /// Sorted by first index. The segments tile the part once the job is committed.
    segments: Vec<Segment>,
    /// The first index of each chunk, by number. Empty while each number is the place.
    displaced: BTreeMap<u32, u64>,
    /// Tasks with edges in several chunks (very long lists).
    foreign: BTreeSet<u64>,
    /// Tasks with parents that another chunk names.
    foreign_children: BTreeSet<u64>,
    /// Chunks that tasks of the part have spawned.
    spawned_chunks: u32,
    /// Present once a task of the part has committed a turn, or is awaited.
    pub(in crate::home::ledger) turns: Option<Box<PartTurns>>,
    /// Present once a task of the part has sent or received an event.
    pub(in crate::home::ledger) mail: Option<Box<PartMail>>,
    pub(in crate::home::ledger) count: wire::PartitionCount,
    /// Its home has received the commit: its tasks may run.
    pub(in crate::home::ledger) visible: bool,
    pub(in crate::home::ledger) tasks: u64,
    pub(in crate::home::ledger) open: u64,
    /// The round that its home knows; no later than the job's.
    pub(in crate::home::ledger) round: u32,
    /// The round has ended, and the inputs of its tasks that are not done are kept.
    pub(in crate::home::ledger) keeps: bool,
    /// Whether clients add tasks while the job runs. Then `visible` means that the part holds
    /// weight of the job.
    pub(in crate::home::ledger) openness: Openness,
    /// Present in a part of an open job.
    pub(in crate::home::ledger) open_part: Option<Box<OpenPart>>,
}

impl Part {
    pub(crate) fn has_chunk(&self, number: u32) -> bool {
        self.place_of(number).is_some()
    }
    /// The number of submitted chunks.
    pub(crate) fn chunks(&self) -> u32 {
        self.segments.len() as u32 - self.spawned_chunks
    }
    /// The place of a chunk among the segments. Mostly its number, since clients and spawning tasks
    /// number their chunks in the order of tasks.
    fn place_of(&self, number: u32) -> Option<usize> {
        let is_it = |segment: &&Segment| segment.number == number;
        if self.segments.get(number as usize).as_ref().is_some_and(is_it) {
            return Some(number as usize);
        }
        let first = *self.displaced.get(&number)?;
        let from = self.segments.partition_point(|segment| segment.first < first);
        // Empty chunks may have the same first index.
        let same = self.segments[from..].iter().take_while(|segment| segment.first == first);
        same.map(|segment| segment.number).position(|other| other == number).map(|at| from + at)
    }
    /// The index of the next spawned task, and the number of the next chunk of spawned tasks.
    pub(crate) fn next_spawned(&self) -> (u64, u32) {
        let end = self.segments.last().map_or(0, |last| last.first + u64::from(last.len()));
        let last = self.displaced.last_key_value().map(|(last, _)| last.saturating_add(1));
        (end, last.unwrap_or(self.segments.len() as u32))
    }
    /// Whether the last segment still has its records.
    pub(crate) fn may_extend(&self) -> bool {
        self.segments.last().is_some_and(|last| !last.is_freed())
    }
    /// Adds tasks to the last segment, which the same step has made.
    pub(crate) fn extend_last(&mut self, more: Segment) {
        self.tasks += u64::from(more.len());
        self.open += u64::from(more.len());
        if let Some(last) = self.segments.last_mut() {
            last.absorb(more);
        }
    }
    /// The commit names this number of chunks. If some are missing, the part reports that.
    pub(crate) fn demand(&mut self, partition: PartitionId, chunks: u32) {
        if !self.is_of_open_job() && self.chunks() != chunks {
            let (here, PartitionId(partition)) = (self.chunks(), partition);
            self.count.lost = format!(
                "{here} of {chunks} chunks of partition {partition} are here: the submission had expired"
            );
        }
    }
    /// As [`Self::demand`], for a commit, which also counts tasks. A repeated commit may find tasks
    /// that the submitted ones have spawned since; it does not count those.
    pub(crate) fn demand_total(&mut self, total: &wire::PartitionTotal) {
        self.demand(PartitionId(total.partition), total.chunks);
        let is_whole = !self.is_of_open_job();
        let tasks = self.submitted_tasks();
        if is_whole && self.count.lost.is_empty() && tasks != total.tasks {
            self.count.lost = format!(
                "partition {} has {tasks} tasks and the commit counts {}",
                total.partition, total.tasks
            );
        }
    }
    fn submitted_tasks(&self) -> u64 {
        let submitted = self.segments.iter().filter(|segment| !segment.is_spawned());
        submitted.map(|segment| u64::from(segment.len())).sum()
    }
    pub(crate) fn chunk_numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.segments.iter().map(|segment| segment.number)
    }
    /// Whether another chunk already has some task of the range.
    pub(crate) fn overlaps(&self, first: u64, tasks: u64) -> bool {
        let end = |segment: &Segment| segment.first + u64::from(segment.len());
        // Segments do not overlap, so the last one that begins before the end reaches farthest.
        let before = self.segments.partition_point(|other| other.first < first + tasks);
        before > 0 && first < end(&self.segments[before - 1])
    }
    pub(crate) fn add(&mut self, segment: Segment) {
        self.tasks += u64::from(segment.len());
        self.open += u64::from(segment.len());
        self.spawned_chunks += u32::from(segment.is_spawned());
        self.foreign.extend(segment.foreign_parents());
        self.foreign_children.extend(segment.foreign_children());
        let at = self.segments.partition_point(|other| other.first <= segment.first);
        if self.segments.is_empty() {
            self.segments.reserve_exact(1); // Most parts are one chunk.
        }
        let in_order = at == self.segments.len() && at == segment.number as usize;
        if !self.displaced.is_empty() || !in_order {
            if self.displaced.is_empty() {
                let all = self.segments.iter().map(|other| (other.number, other.first));
                self.displaced = all.collect();
            }
            self.displaced.insert(segment.number, segment.first);
        }
        self.segments.insert(at, segment);
    }
    pub(crate) fn segment(&self, index: u64) -> Option<&Segment> {
        let after = self.segments.partition_point(|segment| segment.first <= index);
        // Empty chunks may have the same first index as the chunk with the task.
        let mut before = self.segments[..after].iter().rev();
        before.find(|segment| segment.len() > 0).filter(|segment| segment.contains(index))
    }
    pub(crate) fn segment_mut(&mut self, index: u64) -> Option<&mut Segment> {
        let after = self.segments.partition_point(|segment| segment.first <= index);
        let mut before = self.segments[..after].iter_mut().rev();
        before.find(|segment| segment.len() > 0).filter(|segment| segment.contains(index))
    }
    /// All edges of a task in runs, from all chunks.
    pub(crate) fn edge_runs(&self, index: u64) -> impl Iterator<Item = &[EdgeOut]> {
        let spans = self.foreign.contains(&index);
        let all = if spans { self.segments.as_slice() } else { &[] };
        let own = if spans { None } else { self.segment(index) };
        let late = self.open_part.as_ref().and_then(|open| open.late_edges(index));
        let later = self.turns.as_ref().and_then(|turns| turns.late_edges(index));
        let edges = all.iter().chain(own).flat_map(move |segment| segment.edges(index));
        edges.chain(late).chain(later)
    }
    pub(crate) fn has_edges(&self, index: u64) -> bool {
        self.edge_runs(index).any(|run| !run.is_empty())
    }
    /// Its parents by slot. A list that spans chunks may start in any of them.
    pub(crate) fn parents(&self, index: u64) -> impl Iterator<Item = (u32, u64)> + '_ {
        let spans = self.foreign_children.contains(&index);
        let all = if spans { self.segments.as_slice() } else { &[] };
        let own = if spans { None } else { self.segment(index) };
        all.iter().chain(own).flat_map(move |segment| segment.parents(index))
    }
    /// The segment of a spawned task's parent names the parent's own parent, and so on.
    pub(crate) fn spawner(&self, index: u64) -> Option<u64> {
        self.segment(index)?.spawner(index)
    }
    pub(crate) fn indices(&self) -> impl Iterator<Item = u64> + '_ {
        self.segments.iter().flat_map(|s| s.first..s.first + u64::from(s.len()))
    }
    /// The first task from `from` on that has not ended.
    pub(crate) fn next_open(&self, from: u64) -> Option<u64> {
        let end = |segment: &Segment| segment.first + u64::from(segment.len());
        let start = self.segments.partition_point(|segment| end(segment) <= from);
        let mut open = self.segments[start..].iter().filter(|segment| segment.open > 0);
        open.find_map(|segment| {
            let mut indices = segment.first.max(from)..end(segment);
            indices.find(|&index| !matches!(segment.state(index), State::Ended(_)))
        })
    }
    /// A task with this end waits again.
    pub(crate) fn uncount(&mut self, end: End) {
        match end {
            End::Done => self.count.done -= 1,
            End::Failed => self.count.failed -= 1,
            End::Cancelled => self.count.cancelled -= 1,
            End::Skipped => self.count.skipped -= 1,
        }
    }
    /// Keeps only the failures of tasks that are still failed.
    pub(crate) fn forget_old_failures(&mut self) {
        let mut failures = std::mem::take(&mut self.count.failures);
        let failed = |failure: &wire::Failure| {
            self.state(LocalId(failure.local).index()) == Some(State::Ended(End::Failed))
        };
        failures.retain(failed);
        self.count.failures = failures;
        if self.count.cancelled == 0 {
            self.count.cancelled_by.clear();
        }
    }
    pub(crate) fn state(&self, index: u64) -> Option<State> {
        self.segment(index).map(|segment| segment.state(index))
    }
    /// Chunks that are not needed any more after the end of this task; each is returned once. If
    /// chunks have edges of tasks in other chunks, all stay until the whole part has ended.
    pub(crate) fn take_idle(&mut self, index: u64) -> Vec<u32> {
        let idle = |segment: &Segment| segment.open == 0 && segment.undelivered == 0;
        if self.is_of_open_job() {
            return Vec::new(); // Later tasks may name any task of it as a parent.
        }
        if !self.foreign.is_empty() {
            if self.open > 0 {
                return Vec::new();
            }
            return match self.segments.iter().all(idle) {
                true => self.take_ended(),
                false => Vec::new(),
            };
        }
        let Some(segment) = self.segment_mut(index) else { return Vec::new() };
        match idle(segment) && segment.retire() {
            true => vec![segment.number],
            false => Vec::new(),
        }
    }
    /// Every chunk in which all tasks have ended; each is returned once. The job has ended if it
    /// was open.
    pub(crate) fn take_ended(&mut self) -> Vec<u32> {
        if let Some(open) = &mut self.open_part {
            open.forget_work();
        }
        let ended = self.segments.iter_mut().filter(|segment| segment.open == 0);
        ended.filter_map(|segment| segment.retire().then_some(segment.number)).collect()
    }
    pub(crate) fn chunk(&self, number: u32) -> Option<&Segment> {
        self.segments.get(self.place_of(number)?)
    }
    /// No chunk leaves memory until it has been examined.
    pub(crate) fn hold_chunks(&mut self) {
        self.segments.iter_mut().for_each(|segment| segment.undelivered += 1);
    }
    /// The specs of the part's tasks have other numbers in the job on this node.
    pub(crate) fn renumber_specs(&mut self, numbers: &[u32]) {
        self.segments.iter_mut().for_each(|segment| segment.renumber_specs(numbers));
    }
    pub(crate) fn chunk_mut(&mut self, number: u32) -> Option<&mut Segment> {
        let place = self.place_of(number)?;
        self.segments.get_mut(place)
    }
}
