//! Chunks of tasks: those that a client stages, and those that tasks of the job have spawned.

#[cfg(test)]
mod retire_tests;

use std::collections::VecDeque;

use proto::{Event, JobId, PartitionId, Time, wire};

use super::takeover::Activation;
use super::{ChunkError, Ledger, Part, Segment, check_chunk};
use crate::Mutant;
use crate::output::Out;

impl Ledger {
    /// Adds a chunk to the staging area. `Ok(false)`: it was there already.
    pub(crate) fn accept_chunk(
        &mut self,
        now: Time,
        chunk: wire::Chunk,
        out: &mut Out,
    ) -> Result<bool, ChunkError> {
        check_chunk(&chunk)?;
        if chunk.spawned || chunk.open || !chunk.late.is_empty() {
            return Err(ChunkError::Malformed {
                job: chunk.job,
                partition: chunk.partition,
                number: chunk.number,
                what: "only tasks of the job spawn tasks",
            });
        }
        let (job_id, partition) = (JobId(chunk.job), PartitionId(chunk.partition));
        if let Some(job) = self.jobs.get_mut(&job_id) {
            job.touch(now);
            if job.parts.get(partition).is_some_and(|part| part.has_chunk(chunk.number)) {
                return Ok(false);
            }
            if job.visible {
                return Err(ChunkError::Committed { job: chunk.job });
            }
            let overlaps = |part: &Part| part.overlaps(chunk.first, chunk.tasks.len() as u64);
            if job.parts.get(partition).is_some_and(overlaps) {
                return Err(ChunkError::Malformed {
                    job: chunk.job,
                    partition: chunk.partition,
                    number: chunk.number,
                    what: "some of its tasks are in another chunk already",
                });
            }
        }
        let (tasks, number) = (chunk.tasks.len() as u64, chunk.number);
        out.events.push(Event::Staged { job: job_id, partition, first: chunk.first, tasks });
        self.load_chunk(now, &chunk);
        out.facts.chunks.push(chunk);
        if self.mutant == Some(Mutant::RunBeforeCommit) {
            let chunks = VecDeque::from([number]);
            self.activations.push_back(Activation::new(job_id, partition, chunks, false));
        }
        Ok(true)
    }

    /// Spawned tasks may start from now on.
    pub(crate) fn activate_born(&mut self, job: JobId, partition: PartitionId, chunks: &[u32]) {
        if self.jobs.get(&job).is_some_and(|it| it.parts.contains(partition)) {
            self.credit_born(job, partition, chunks);
            let chunks = chunks.iter().copied().collect();
            self.activations.push_back(Activation::new(job, partition, chunks, false));
        }
    }

    pub(super) fn load_chunk(&mut self, now: Time, chunk: &wire::Chunk) {
        self.waiting += chunk.tasks.len() as u64;
        let job = self.open_job(now, JobId(chunk.job));
        let specs: Vec<u32> = chunk.specs.iter().map(|spec| job.intern(spec)).collect();
        let segment = Segment::new(chunk, &specs);
        let has_releases = segment.has_releases();
        job.open += u64::from(segment.len());
        let part = job.parts.get_or_default(PartitionId(chunk.partition));
        part.count.spawned += if chunk.spawned { u64::from(segment.len()) } else { 0 };
        part.count.keeps |= keeps_spawned(chunk);
        if chunk.spawned && !chunk.late.is_empty() {
            part.turns.get_or_insert_default().add_late(&chunk.late);
        }
        if chunk.open {
            let partition = PartitionId(chunk.partition);
            let open = part.open_part.get_or_insert_default();
            for (parent, edge) in segment.edges_in(partition) {
                if parent.partition() == partition {
                    open.add_edge(parent.index(), edge);
                }
            }
        }
        part.add(segment);
        self.has_releases |= has_releases;
    }
}

/// Whether tasks of a spawned chunk have kept outputs.
pub(super) fn keeps_spawned(chunk: &wire::Chunk) -> bool {
    let keeps = |spec: &wire::Spec| spec.outputs.iter().any(|output| output.keep);
    chunk.spawned && chunk.specs.iter().any(keeps)
}
