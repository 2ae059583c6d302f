//! What tests change and read in a ledger.

use super::{Ledger, Part};
use crate::Mutant;
use crate::output::Out;
use crate::routing::partition_owners::Homes;
use proto::event::RetryReason;
use proto::{JobId, NodeId, ObjectId, PartitionId, TaskId, wire};

impl Ledger {
    pub(crate) fn mutate(&mut self, mutant: Option<Mutant>) {
        self.mutant = mutant;
    }
    pub(crate) fn pretend_waiting(&mut self, waiting: u64) {
        self.waiting = waiting;
    }
    pub(crate) fn pretend_readers(&mut self, object: ObjectId, readers: u32, maker: NodeId) {
        self.readers.expect(object, readers, maker);
    }
    /// The chunk of the task leaves memory.
    pub(crate) fn free_chunk(&mut self, task: TaskId, number: u32) {
        let chunk = self.part_mut(task).and_then(|part| part.chunk_mut(number));
        chunk.expect("it is homed here").free();
    }
    /// The task was done before, with these outputs.
    pub(crate) fn pretend_done_before(&mut self, task: TaskId, output_sums: Vec<u64>) {
        let index = task.local.index();
        let segment = self.part_mut(task).and_then(|part| part.segment_mut(index));
        segment.expect("it is homed here").keep_output_sums(index, output_sums);
    }
    /// The commit of the part has not arrived.
    pub(crate) fn forget_commit(&mut self, job: JobId, partition: PartitionId) {
        let job = self.jobs.get_mut(&job).expect("it runs");
        job.parts.get_or_default(partition).visible = false;
    }
    /// What the part reports, and its chunks.
    pub(crate) fn counts(&self, task: TaskId) -> (wire::PartitionCount, u32) {
        let part = self.part(task).expect("it is homed here");
        (part.count.clone(), Part::chunks(part))
    }
    /// The outputs of a done task are lost: it runs again.
    pub(crate) fn make_again(&mut self, task: TaskId, homes: &Homes, out: &mut Out) {
        self.keep_earlier_end(task);
        self.run_again(task, RetryReason::Rebuilt, homes, out);
    }
    pub(crate) fn runs_again(&self, task: TaskId) -> bool {
        self.cell(task).expect("it is homed here").again
    }
}
