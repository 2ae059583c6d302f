//! What tasks here use of the objects: inputs that are pinned or fetched, and space on the disk.

use std::collections::{BTreeMap, BTreeSet};

use proto::work::Stay;
use proto::{Attempt, JobId, NodeId, ObjectId, PartitionId, Span, TaskId, Time};

use crate::holder::queues::ready_queue::Presence;
use crate::objects::Objects;
use crate::objects::drain::AttemptKey;
use crate::objects::fetch::Phase;
use crate::objects::output_transfer;
use crate::objects::shared_files::SharedFile;

/// A fetch for which one more task waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JoinedFetch {
    /// The maker could not deliver the object.
    pub(crate) has_failed: bool,
    /// No other task has wanted the object.
    pub(crate) is_first: bool,
}

impl Objects {
    /// Reserves space for the outputs of a task that is staged, and for the shared files it uses.
    pub(crate) fn reserve_space(&mut self, output_bytes: u64, files: &[SharedFile]) {
        self.reserved_bytes += output_bytes;
        self.shared_files.take(files);
    }

    /// The task has ended, or left staging without a start.
    pub(crate) fn return_space(&mut self, output_bytes: u64, files: &[SharedFile]) {
        self.reserved_bytes -= output_bytes;
        self.shared_files.give_back(files);
    }

    /// The bytes that these shared files would take in addition.
    pub(crate) fn room_for_files(&self, files: &[SharedFile]) -> u64 {
        self.shared_files.room(files)
    }

    /// The bytes that eviction can no longer free, or a fetch brings, once a task reads this input.
    pub(crate) fn room_for_input(&self, object: &ObjectId, size_bytes: u64, is_made: bool) -> u64 {
        match self.presence(object) {
            Presence::Here => self.table.idle_bytes_of(object),
            Presence::Absent if !is_made => size_bytes,
            Presence::Absent | Presence::Coming => 0,
        }
    }

    /// Prevents the eviction of an object that is here.
    pub(crate) fn pin(&mut self, object: ObjectId) -> bool {
        self.table.pin(object)
    }

    /// Whether a copy is here. It counts as used now.
    pub(crate) fn read_copy(&mut self, object: &ObjectId) -> bool {
        self.table.read_copy(object)
    }

    /// However many tasks want an object, it is fetched once.
    pub(crate) fn join_fetch(&mut self, object: &ObjectId, task: TaskId) -> Option<JoinedFetch> {
        let inflight = self.inflight_fetches.get_mut(object)?;
        inflight.tasks.push(task);
        let is_first = inflight.first.is_none() && inflight.tasks.len() == 1;
        Some(JoinedFetch { has_failed: inflight.has_failed, is_first })
    }

    /// Copies with one reader stay, although this reader does not need them now.
    pub(crate) fn outlast_reader(&mut self, pins: &[ObjectId]) {
        pins.iter().for_each(|&object| self.table.outlasts_reader(object));
    }

    /// A task is staged with these failed fetches.
    pub(crate) fn add_failed_fetches(&mut self, failed: &BTreeSet<ObjectId>) {
        self.failed_fetch_tasks += usize::from(!failed.is_empty());
    }

    /// A task with these failed fetches is no longer staged.
    pub(crate) fn remove_failed_fetches(&mut self, failed: &BTreeSet<ObjectId>) {
        self.failed_fetch_tasks -= usize::from(!failed.is_empty());
    }

    /// The number of staged tasks that wait for failed fetches.
    pub(crate) fn failed_fetch_tasks(&self) -> usize {
        self.failed_fetch_tasks
    }

    /// Bytes that tasks here need in the budget of copies, without those of failed fetches.
    pub(crate) fn needed_bytes(&self) -> u64 {
        let coming_bytes = self.coming_bytes - self.failed_fetch_bytes;
        self.table.pinned_bytes().saturating_add(coming_bytes)
    }

    /// Whether copies take more bytes than their budget.
    pub(crate) fn is_over_budget(&self, cache_bytes: u64) -> bool {
        self.table.copied_bytes > cache_bytes
    }

    /// The number of fetches that tasks wait for and that have a source.
    pub(crate) fn sourced_fetches(&self) -> usize {
        self.inflight_fetches.len() - self.ahead_in_flight - self.waiting
    }

    /// Whether the fetch of an object moves bytes, or waits for a free source.
    pub(crate) fn is_fetch_progressing(&self, object: &ObjectId) -> bool {
        let inflight = self.inflight_fetches.get(object);
        inflight.is_some_and(|inflight| matches!(inflight.phase, Phase::Moving | Phase::Waiting))
    }

    /// The recent mean duration of fetches.
    pub(crate) fn mean_fetch_time(&self) -> Span {
        self.fetch_time
    }

    /// The recent mean duration of tasks.
    pub(crate) fn mean_task_length(&self) -> Span {
        self.task_length
    }

    /// Adds an output of an attempt that ran here.
    pub(crate) fn add_output(&mut self, object: ObjectId, size_bytes: u64, real: bool, stay: Stay) {
        self.table.made(object, size_bytes, real, stay);
        self.note_made(&object);
    }

    /// Whether outputs of an attempt are here or being fetched. It may have ended on another node
    /// while it runs on this one, and its readers may run here.
    pub(crate) fn has_outputs_of(&self, task: TaskId, attempt: Attempt) -> bool {
        let all =
            ObjectId { task, attempt, output: 0 }..=ObjectId { task, attempt, output: u32::MAX };
        self.inflight_fetches.range(all.clone()).next().is_some() || self.table.has_any(all)
    }

    /// Whether the end of an attempt waits until other nodes have its outputs.
    pub(crate) fn holds_end_back(&self, made: &AttemptKey) -> bool {
        self.output_copies.holds_back(made)
    }

    /// When an attempt ended, if its end is not reported yet.
    pub(crate) fn unreported_end(&self, made: &AttemptKey) -> Option<Time> {
        self.output_copies.ended_at(made)
    }

    /// Forgets an attempt without a reported end. Its outputs stay.
    pub(crate) fn forget_unreported(&mut self, made: &AttemptKey) {
        self.output_copies.forget(made);
    }

    /// Whether as many attempts as allowed wait until other nodes have their outputs.
    pub(crate) fn sends_at_its_limit(&self) -> bool {
        self.output_copies.is_full()
    }

    /// The bytes of objects here, by job.
    pub(crate) fn bytes_by_job(&self) -> BTreeMap<JobId, u64> {
        self.table.bytes_by_job()
    }

    /// Whether this node leaves the cluster.
    pub(crate) fn is_draining(&self) -> bool {
        self.drain.is_some()
    }

    /// When the hand-over of outputs must go on.
    pub(crate) fn drain_deadline(&self) -> Option<Time> {
        self.drain.as_ref().and_then(|drain| drain.deadline())
    }

    /// Another node is the home of this partition now.
    pub(crate) fn forget_partition(&mut self, partition: PartitionId) {
        self.directory.forget_partition(partition);
    }

    /// A failed node has no copies.
    pub(crate) fn forget_copies_on(&mut self, node: NodeId) {
        self.directory.forget_node(node);
    }

    /// A failed node neither gives outputs to this one nor takes any.
    pub(crate) fn forget_transfers_with(&mut self, now: Time, node: NodeId) {
        output_transfer::forget(&mut self.incoming_transfers, |_, from| from == node);
        self.output_copies.forget_node(now, node);
    }
}

#[cfg(test)]
impl Objects {
    /// Bytes reserved, and the part that is being fetched.
    pub(crate) fn reserved(&self) -> (u64, u64) {
        (self.reserved_bytes, self.coming_bytes)
    }
    /// Bytes of failed fetches, and the tasks that wait for them.
    pub(crate) fn failed_fetches(&self) -> (u64, usize) {
        (self.failed_fetch_bytes, self.failed_fetch_tasks)
    }
    pub(crate) fn fetches_in_flight(&self) -> usize {
        self.inflight_fetches.len()
    }
    pub(crate) fn fetches_without_source(&self) -> usize {
        self.waiting
    }
    /// A node reports a copy.
    pub(crate) fn add_copy(&mut self, now: Time, object: ObjectId, node: NodeId) {
        self.directory.add((now, Span::from_secs(1)), object, node);
    }
    pub(crate) fn stored_bytes(&self) -> u64 {
        self.table.stored_bytes
    }
    pub(crate) fn firm_bytes(&self) -> u64 {
        self.table.firm_bytes()
    }
}
