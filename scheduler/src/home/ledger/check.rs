//! Checks a chunk before it is accepted, so that the ledger can rely on its contents.

use std::collections::BTreeSet;

use proto::{LocalId, wire};

use super::open::{SPAWNED_CHUNKS, SPAWNED_INDICES};

/// The maximum number of slots of one task.
const TASK_SLOTS_MAX: u32 = 1 << 24;

/// The reason why a chunk is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChunkError {
    #[error("chunk {number} of job {job}, partition {partition}: {what}")]
    Malformed { job: u64, partition: u32, number: u32, what: &'static str },
    #[error(
        "job {job} is committed already: nothing can be added to it; \
         hint: submit --open makes a job to which tasks are added later"
    )]
    Committed { job: u64 },
}

/// Refuses a chunk that could break the ledger.
pub(super) fn check_chunk(chunk: &wire::Chunk) -> Result<(), ChunkError> {
    use proto::limits::{CHUNK_EDGES_MAX, CHUNK_TASKS_MAX};
    let wrong = |what| {
        let (job, partition, number) = (chunk.job, chunk.partition, chunk.number);
        Err(ChunkError::Malformed { job, partition, number, what })
    };
    if chunk.tasks.len() > CHUNK_TASKS_MAX {
        return wrong("it has too many tasks");
    }
    let end = chunk.first.saturating_add(chunk.tasks.len() as u64);
    if end >> proto::id::INDEX_BITS != 0 {
        return wrong("its first index is out of range");
    }
    if chunk.tasks.iter().any(|task| task.spec as usize >= chunk.specs.len()) {
        return wrong("a task names a spec that is not in it");
    }
    if chunk.tasks.iter().any(|task| task.slots > TASK_SLOTS_MAX) {
        return wrong("a task has too many dependency slots");
    }
    for piece in &chunk.children {
        if piece.child.len() > CHUNK_EDGES_MAX {
            return wrong("a list of children is too long for one chunk");
        }
        if piece.slot.len() != piece.child.len() || piece.output.len() != piece.child.len() {
            return wrong("the columns of a list of children differ in length");
        }
    }
    if chunk.parents.iter().any(|piece| piece.parent.len() > CHUNK_EDGES_MAX) {
        return wrong("a list of parents is too long for one chunk");
    }
    Ok(())
}

/// Refuses a chunk of an open job that could break the ledger, or with tasks that wait without end.
pub(super) fn check_open_chunk(chunk: &wire::Chunk) -> Result<(), ChunkError> {
    check_chunk(chunk)?;
    let wrong = |what| {
        let (job, partition, number) = (chunk.job, chunk.partition, chunk.number);
        Err(ChunkError::Malformed { job, partition, number, what })
    };
    let end = chunk.first + chunk.tasks.len() as u64;
    if end > SPAWNED_INDICES || chunk.number >= SPAWNED_CHUNKS {
        return wrong("its first index or its number is out of range");
    }
    if !chunk.children.is_empty() || !chunk.late.is_empty() || chunk.spawned {
        return wrong("edges of an open job are named by the children");
    }
    let mut slots: Vec<BTreeSet<u32>> = vec![BTreeSet::new(); chunk.tasks.len()];
    for piece in &chunk.parents {
        let child = LocalId::new(proto::PartitionId(chunk.partition), piece.index.min(end));
        let Some(at) = piece.index.checked_sub(chunk.first).filter(|_| piece.index < end) else {
            return wrong("it names the parents of a task that is not in it");
        };
        if piece.parent.len() != piece.output.len() {
            return wrong("the columns of a list of parents differ in length");
        }
        if u64::from(piece.first_slot) + piece.parent.len() as u64 > u64::from(TASK_SLOTS_MAX) {
            return wrong("a task has too many dependency slots");
        }
        let before = |&parent: &u64| {
            let parent = LocalId(parent);
            let is_here = parent.partition() == child.partition();
            !is_here || !(chunk.first..end).contains(&parent.index()) || parent < child
        };
        if !piece.parent.iter().all(before) {
            return wrong("a task comes before one of its parents");
        }
        slots[at as usize].extend((piece.first_slot..).take(piece.parent.len()));
    }
    let is_whole = |(task, slots): (&wire::Task, &BTreeSet<u32>)| {
        let last = slots.last().map_or(0, |last| last.saturating_add(1));
        slots.len() == task.slots as usize && last == task.slots
    };
    if !chunk.tasks.iter().zip(&slots).all(is_whole) {
        return wrong("a task has not one parent for each of its slots");
    }
    Ok(())
}

/// Refuses a chunk with an edge to a partition that does not exist.
pub(crate) fn check_places(chunk: &wire::Chunk, partitions: u32) -> Result<(), ChunkError> {
    let outside = |&child: &u64| LocalId(child).partition().0 >= partitions;
    let children = chunk.children.iter().flat_map(|piece| &piece.child);
    let parents = chunk.parents.iter().flat_map(|piece| &piece.parent);
    if children.chain(parents).any(outside) {
        return Err(ChunkError::Malformed {
            job: chunk.job,
            partition: chunk.partition,
            number: chunk.number,
            what: "an edge leads to a partition that the cluster does not have",
        });
    }
    Ok(())
}
