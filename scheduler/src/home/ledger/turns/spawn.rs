//! Children: the tasks that a turn spawns get their places in the partition of their parent.
//!
//! All turns that one step commits in a part share one chunk. Its tasks start once it is synced on
//! its replicas: a power cut must not lose tasks that have started.

use std::collections::BTreeMap;

use proto::limits::CHUNK_TASKS_MAX;
use proto::wire::message::Body;
use proto::{JobId, LocalId, PartitionId, TaskId, Time, wire};

use super::{Born, inputs};
use crate::home::ledger::chunks::keeps_spawned;
use crate::home::ledger::open::{SPAWNED_CHUNKS, SPAWNED_INDICES};
use crate::home::ledger::{Ledger, Segment};
use crate::output::Out;

/// Turns of one step share a chunk while it has at most this number of task descriptions.
const SHARED_CHUNK_SPECS_MAX: usize = 64;
/// An error about too many tasks names at most this number of ancestors.
const SPAWN_CHAIN_NAMED_MAX: usize = 8;

impl Ledger {
    /// Refuses tasks beyond the job's limit. The job's home learns it and ends the job.
    pub(super) fn check_room(
        &mut self,
        now: Time,
        parent: TaskId,
        tasks: usize,
    ) -> Result<(), String> {
        let Some(job) = self.jobs.get(&parent.job) else { return Ok(()) };
        let limit = job.settings.tasks_max();
        let here: u64 = job.parts.values().map(|part| part.tasks).sum();
        if tasks == 0 || here.saturating_add(tasks as u64) <= limit {
            return Ok(());
        }
        let chain = self.spawn_chain(parent);
        let interval = self.report_interval;
        let job = self.jobs.get_mut(&parent.job).expect("looked at above");
        if let Some(part) = job.parts.get_mut(parent.partition()) {
            part.count.spawn_chain.clone_from(&chain);
            job.parts.mark_changed(parent.partition());
        }
        job.report_soon(now, interval);
        Err(format!(
            "the job would have more than {limit} tasks; spawned by: {chain}; hint: raise \
             --max-tasks if that is intended"
        ))
    }

    /// A task and its ancestors by name, the nearest first.
    fn spawn_chain(&self, task: TaskId) -> String {
        let (mut names, mut at) = (Vec::new(), Some(task));
        while let Some(task) = at {
            if names.len() == SPAWN_CHAIN_NAMED_MAX {
                names.push("...".to_owned());
                break;
            }
            names.push(format!("{} ({})", self.name(task), task.local));
            let spawner = self.part(task).and_then(|part| part.spawner(task.local.index()));
            at = spawner.map(|index| TaskId {
                job: task.job,
                local: LocalId::new(task.partition(), index),
            });
        }
        names.join(", ")
    }

    /// Adds the children of a turn. Returns the index of the first.
    pub(super) fn bear(
        &mut self,
        now: Time,
        parent: TaskId,
        spawned: wire::Spawned,
        out: &mut Out,
    ) -> u64 {
        let (job_id, partition) = (parent.job, parent.partition());
        let Some(part) = self.part(parent) else { return 0 };
        // In an open job the ids before these are the clients'.
        let least = match part.is_of_open_job() {
            true => (SPAWNED_INDICES, SPAWNED_CHUNKS),
            false => (0, 0),
        };
        let depth = part.segment(parent.local.index()).map_or(0, |s| s.depth(parent.local.index()));
        let ((first, next_number), may_extend) = (part.next_spawned(), part.may_extend());
        let (first, next_number) = (first.max(least.0), next_number.max(least.1));
        let tasks = spawned.tasks.len() as u64;
        let place = |chunk: &wire::Chunk| {
            chunk.spawned && (chunk.job, chunk.partition) == (job_id.0, partition.0)
        };
        let open = out.facts.chunks.iter_mut().rfind(|chunk| place(chunk)).filter(|chunk| {
            let end = chunk.first + chunk.tasks.len() as u64;
            may_extend
                && end == first
                && chunk.tasks.len() + spawned.tasks.len() <= CHUNK_TASKS_MAX
                && chunk.specs.len() + spawned.specs.len() <= SHARED_CHUNK_SPECS_MAX
        });
        let number = open.as_ref().map_or(next_number, |chunk| chunk.number);
        let local = |at: u32| LocalId::new(partition, first + u64::from(at)).0;
        let late = inputs::late_edges(self.turns_of(parent), &spawned.inputs, local);
        let piece = chunk_of(parent, depth, (first, number), (spawned, late));
        let job = self.jobs.get_mut(&job_id).expect("the parent's job");
        let specs: Vec<u32> = piece.specs.iter().map(|spec| job.intern(spec)).collect();
        let segment = Segment::new(&piece, &specs);
        let has_releases = segment.has_releases();
        job.open += tasks;
        let part = job.parts.get_mut(partition).expect("the parent's part");
        part.count.keeps |= keeps_spawned(&piece);
        if !piece.late.is_empty() {
            let unborn = &mut part.turns.get_or_insert_default().unborn;
            unborn.entry(number).or_default().extend(piece.late.iter().cloned());
        }
        match open {
            Some(chunk) => {
                part.extend_last(segment);
                append(chunk, piece);
            }
            None => {
                part.add(segment);
                out.facts.chunks.push(piece);
            }
        }
        part.count.spawned += tasks;
        job.parts.mark_changed(partition);
        job.report_soon(now, self.report_interval);
        self.waiting += tasks;
        self.has_releases |= has_releases;
        let born: &mut Born = self.born.get_or_insert_default();
        born.entry((job_id, partition)).or_default().insert(number);
        first
    }

    /// Asks for a notice when the chunks of this step are synced.
    pub(crate) fn await_births(&mut self, out: &mut Out) {
        let Some(born) = self.born.take() else { return };
        for ((JobId(job), PartitionId(partition)), chunks) in *born {
            if self.mutant == Some(crate::Mutant::BornBeforeSync) {
                let chunks: Vec<u32> = chunks.into_iter().collect();
                self.activate_born(JobId(job), PartitionId(partition), &chunks);
                continue;
            }
            let chunks = chunks.into_iter().collect();
            let body = Body::ChunksBorn(wire::ChunksBorn { job, partition, chunks });
            out.reliable.push((self.me, body));
        }
    }
}

/// The children as a chunk of their parent's part.
fn chunk_of(
    parent: TaskId,
    depth: u32,
    (first, number): (u64, u32),
    (spawned, late): (wire::Spawned, Vec<wire::Children>),
) -> wire::Chunk {
    let partition = parent.partition();
    let local = |at: u32| LocalId::new(partition, first + u64::from(at)).0;
    let spawner = parent.local.index() + 1;
    let tasks = spawned.tasks.into_iter();
    let tasks = tasks.map(|task| wire::Task { depth: depth + 1, spawner, ..task }).collect();
    let mut children: BTreeMap<u64, wire::Children> = BTreeMap::new();
    let mut parents: BTreeMap<u64, BTreeMap<u32, u64>> = BTreeMap::new();
    for edge in &spawned.edges {
        let index = first + u64::from(edge.parent);
        let list = children.entry(index).or_default();
        list.index = index;
        list.child.push(local(edge.child));
        list.slot.push(edge.slot);
        list.output.push(edge.output);
        let of_child = parents.entry(first + u64::from(edge.child)).or_default();
        of_child.insert(edge.slot, local(edge.parent));
    }
    for piece in &late {
        let earlier = LocalId::new(partition, piece.index).0;
        for (&child, &slot) in piece.child.iter().zip(&piece.slot) {
            parents.entry(LocalId(child).index()).or_default().insert(slot, earlier);
        }
    }
    let parents = parents.into_iter().map(|(index, by_slot)| {
        let parent = by_slot.into_values().collect();
        wire::Parents { index, first_slot: 0, parent, output: Vec::new() }
    });
    wire::Chunk {
        job: parent.job.0,
        partition: partition.0,
        number,
        first,
        specs: spawned.specs,
        tasks,
        children: children.into_values().collect(),
        parents: parents.collect(),
        spawned: true,
        open: false,
        late,
    }
}

/// Appends the tasks of one turn to the chunk of an earlier turn of the same step.
fn append(chunk: &mut wire::Chunk, piece: wire::Chunk) {
    let numbers: Vec<u32> = piece
        .specs
        .into_iter()
        .map(|spec| {
            let known = chunk.specs.iter().rposition(|other| *other == spec);
            known.unwrap_or_else(|| {
                chunk.specs.push(spec);
                chunk.specs.len() - 1
            }) as u32
        })
        .collect();
    let tasks = piece.tasks.into_iter();
    chunk.tasks.extend(tasks.map(|task| wire::Task { spec: numbers[task.spec as usize], ..task }));
    chunk.children.extend(piece.children);
    chunk.parents.extend(piece.parents);
    chunk.late.extend(piece.late);
}
