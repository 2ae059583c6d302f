//! Partitions that come to this home at run time, and those that leave it.

use std::collections::VecDeque;

use proto::wire::message::Body;
use proto::{Incarnation, JobId, LocalId, NodeId, PartitionId, TaskId, Time, wire};

use super::records::State;
use super::{Job, Ledger, Part};
use crate::Mutant;
use crate::limits::BUNDLE_TASKS_MAX;
use crate::output::{Out, task_attempt};

/// Chunks to be examined: some tasks may be ready, and the credits of others may have to be sent
/// again.
#[derive(Debug)]
pub(super) struct Activation {
    pub(super) job: JobId,
    pub(super) partition: PartitionId,
    /// By chunk number.
    pub(super) chunks: VecDeque<u32>,
    /// Tasks of the first chunk that have been examined.
    pub(super) looked_at: u32,
    /// In a recovered part: how many tasks that may have run have been placed.
    pub(super) placed_first: u32,
    /// Some task of the part has ended: most tasks that ran are in such parts.
    pub(super) is_begun: bool,
    /// The records come from an earlier home, or an earlier incarnation of this one: which children
    /// know of an end is not known.
    pub(super) recovered: bool,
}

impl Activation {
    pub(super) fn new(
        job: JobId,
        partition: PartitionId,
        chunks: VecDeque<u32>,
        recovered: bool,
    ) -> Self {
        Self { job, partition, chunks, looked_at: 0, placed_first: 0, is_begun: false, recovered }
    }
}

/// A range of tasks in a chunk.
struct Piece {
    job: JobId,
    partition: PartitionId,
    number: u32,
    /// Tasks before this one have been examined.
    from: u32,
    /// The limit for ready tasks.
    most: u32,
    recovered: bool,
    /// These tasks go before those that wait already.
    first: bool,
}

/// How far a chunk has been examined.
struct Looked {
    end: u32,
    at_end: bool,
    ready: u32,
}

impl Ledger {
    /// Examines tasks of parts that have become visible or have been recovered, chunk by chunk, up
    /// to about `budget` tasks. `died`: whether that incarnation of a node has ended.
    ///
    /// Queues keep the order of tasks. So the tasks that ran when the home of a recovered part died
    /// were the first of the part, and no more than `slots_max`. That many tasks of each part are
    /// placed before all others.
    pub(crate) fn activate(
        &mut self,
        now: Time,
        mut budget: usize,
        slots_max: u32,
        died: impl Fn(NodeId, Incarnation) -> bool,
        out: &mut Out,
    ) {
        while budget > 0 {
            let Some(activation) = self.activations.front() else { return };
            let (job, partition) = (activation.job, activation.partition);
            let (recovered, from) = (activation.recovered, activation.looked_at);
            let placed_first = activation.placed_first;
            let first = recovered && placed_first < slots_max;
            let most = if first { slots_max - placed_first } else { u32::MAX };
            let Some(&number) = activation.chunks.front() else {
                self.activations.pop_front();
                continue;
            };
            if recovered && from == 0 {
                let started = self.started(job, partition, number);
                started.into_iter().for_each(|task| self.find_started(now, task, &died, out));
            }
            let piece = Piece { job, partition, number, from, most, recovered, first };
            let Looked { end, at_end, ready } = self.activate_piece(&piece);
            budget = budget.saturating_sub((end - from) as usize + 1);
            let mut activation = self.activations.pop_front().expect("the one looked at");
            activation.placed_first += if first { ready } else { 0 };
            if at_end {
                activation.looked_at = 0;
                activation.chunks.pop_front();
                self.activations.push_front(activation);
            } else {
                activation.looked_at = end;
                activation.is_begun = false; // The rest takes its turn.
                self.activations.push_back(activation);
            }
        }
    }

    /// Tasks that this home or an earlier one had started, and that have not ended.
    fn started(&self, job_id: JobId, partition: PartitionId, number: u32) -> Vec<TaskId> {
        let Some(job) = self.jobs.get(&job_id).filter(|job| !job.ended && !job.cancelled) else {
            return Vec::new();
        };
        let segment = job.parts.get(partition).and_then(|part| part.chunk(number));
        let cells = segment.into_iter().flat_map(|segment| segment.cells());
        let started = cells
            .filter(|(_, cell)| (cell.started || cell.died_here) && cell.state == State::Waiting);
        let place = |index| TaskId { job: job_id, local: LocalId::new(partition, index) };
        started.map(|(index, _)| place(index)).collect()
    }

    /// Examines tasks of a chunk until `most` are ready.
    fn activate_piece(&mut self, piece: &Piece) -> Looked {
        let &Piece { job: job_id, partition, number, from, most, recovered, first } = piece;
        let nothing = Looked { end: from, at_end: true, ready: 0 };
        let Some(job) = self.jobs.get(&job_id).filter(|job| !job.ended) else {
            if recovered {
                self.release_chunk(job_id, partition, number);
            }
            return nothing;
        };
        let Some(part) = job.parts.get(partition) else { return nothing };
        let Some(segment) = part.chunk(number) else { return nothing };
        let place = |index| TaskId { job: job_id, local: LocalId::new(partition, index) };
        let visible = job.visible || self.mutant == Some(Mutant::RunBeforeCommit);
        let (mut ended, mut ready) = (Vec::new(), Vec::new());
        let owes = |index| part.has_edges(index) || part.holds_outputs();
        let mut end = from;
        while end < segment.len() && ready.len() < most as usize {
            let index = segment.first + u64::from(end);
            let Some(cell) = segment.cell(index) else { break };
            match cell.state {
                State::Waiting if cell.missing == 0 && visible => ready.push(place(index)),
                State::Ended(_) if recovered && owes(index) => ended.push(place(index)),
                _ => {}
            }
            end += 1;
        }
        let at_end = ready.len() < most as usize;
        let count = u32::try_from(ready.len()).expect("no more than the chunk has");
        // If the whole job is cancelled, all homes of children learn that too.
        if !job.cancelled {
            ready.iter().filter(|_| first).for_each(|&task| self.goes_first(task));
            self.ready.extend(ready);
            if self.mutant != Some(Mutant::NoOutbox) {
                ended.into_iter().for_each(|task| self.deliver(task, false));
            }
        }
        if recovered && at_end {
            self.release_chunk(job_id, partition, number);
        }
        Looked { end, at_end, ready: count }
    }

    /// The task was ready before, and its holder is gone: it has waited for its turn once.
    pub(super) fn goes_first(&mut self, task: TaskId) {
        if let Some(cell) = self.cell_mut(task) {
            cell.again = true;
        }
    }

    pub(crate) fn waits_for_its_turn(&mut self, task: TaskId) {
        if let Some(cell) = self.cell_mut(task) {
            cell.again = false;
        }
    }

    /// The chunk was kept until its ended tasks were examined.
    fn release_chunk(&mut self, job: JobId, partition: PartitionId, number: u32) {
        let part = self.jobs.get_mut(&job).and_then(|job| job.parts.get_mut(partition));
        let Some(part) = part else { return };
        let Some(segment) = part.chunk_mut(number) else { return };
        segment.undelivered = segment.undelivered.saturating_sub(1);
        let first = segment.first;
        if segment.len() > 0 {
            let idle = part.take_idle(first);
            self.retire(job, partition, &idle);
        }
    }

    /// Queues a recovered part: all that it may owe is examined, in portions.
    pub(super) fn resume_part(&mut self, job_id: JobId, partition: PartitionId) {
        let Some(job) = self.jobs.get_mut(&job_id) else { return };
        let Some(part) = job.parts.get_mut(partition) else { return };
        if job.ended {
            let retired = part.take_ended();
            return self.retire(job_id, partition, &retired);
        }
        if job.cancelled {
            return; // Nothing becomes ready, and no child needs a credit.
        }
        let chunks: VecDeque<u32> = part.chunk_numbers().collect();
        let is_begun = part.open < part.tasks;
        part.hold_chunks();
        let activation = Activation::new(job_id, partition, chunks, true);
        let begun = self.activations.iter().take_while(|other| other.is_begun).count();
        let at = if is_begun { begun } else { self.activations.len() };
        self.activations.insert(at, Activation { is_begun, ..activation });
        self.resume_open_part(job_id, partition);
    }

    /// Asks holders which of these tasks they have.
    pub(crate) fn ask_holders<'a>(
        &self,
        holders: impl Iterator<Item = (NodeId, Vec<&'a TaskId>)>,
        out: &mut Out,
    ) {
        for (holder, tasks) in holders {
            let ask = |task: &&TaskId| {
                let cell = self.cell(**task).expect("held tasks have records");
                task_attempt(**task, cell.attempt)
            };
            let tasks: Vec<_> = tasks.iter().map(ask).collect();
            for piece in tasks.chunks(BUNDLE_TASKS_MAX) {
                let body = Body::HeldTasksQuery(wire::HeldTasksQuery { tasks: piece.to_vec() });
                out.reliable.push((holder, body));
            }
        }
    }

    /// Adds the loaded records of one partition. Returns its jobs.
    pub(crate) fn take_over(
        &mut self,
        now: Time,
        partition: PartitionId,
        loaded: Self,
        out: &mut Out,
    ) -> Vec<JobId> {
        self.waiting += loaded.waiting;
        self.has_releases |= loaded.has_releases;
        self.take_crashes(*loaded.crashes);
        self.awaiting_lost_inputs.extend(loaded.awaiting_lost_inputs);
        self.asks_of_waits.extend(loaded.asks_of_waits);
        if let Some(work) = loaded.mail_work {
            self.mail_work.get_or_insert_default().take(*work);
        }
        for (holder, tasks) in loaded.held_remotely {
            self.held_remotely.entry(holder).or_default().extend(tasks);
        }
        let mut jobs = Vec::new();
        for (job_id, mut theirs) in loaded.jobs {
            let Some(part) = theirs.parts.remove(partition) else { continue };
            jobs.push(job_id);
            self.take_part(now, job_id, &theirs, partition, part, out);
            self.resume_part(job_id, partition);
        }
        jobs
    }

    fn take_part(
        &mut self,
        now: Time,
        job_id: JobId,
        theirs: &Job,
        partition: PartitionId,
        mut part: Box<Part>,
        out: &mut Out,
    ) {
        let job = self.open_job(now, job_id);
        let numbers: Vec<u32> = theirs.specs.iter().map(|spec| job.intern(spec)).collect();
        part.renumber_specs(&numbers);
        job.touch(now);
        job.open += part.open;
        if theirs.visible {
            job.visible = true;
            job.submitted = theirs.submitted;
            job.enter(*theirs.settings);
        }
        let mut differs = false;
        if job.round() == theirs.round() {
            differs = job.cancelled != theirs.cancelled || job.ended != theirs.ended;
            job.cancelled |= theirs.cancelled;
            job.ended |= theirs.ended;
        }
        if job.visible {
            job.report_everything(now);
        }
        job.parts.insert(partition, part);
        job.parts.mark_changed(partition);
        if job.ended {
            job.share_keeps();
        }
        if differs {
            // The end or cancellation of the job that one home has learned of holds for all of it.
            for (partition, record) in job.visible_records() {
                if job.parts[partition].visible {
                    out.facts.visible.insert((partition, job_id), record);
                }
            }
        }
        let (ended, cancelled) = (job.ended, job.cancelled && job.open > 0);
        if ended {
            let parts = job.parts.iter_mut();
            let retired: Vec<_> = parts.map(|(p, part)| (p, part.take_ended())).collect();
            self.live.remove(&job_id);
            for (partition, chunks) in retired {
                self.retire(job_id, partition, &chunks);
            }
            return;
        }
        self.live.insert(job_id); // The parts here may be of an earlier round.
        if cancelled {
            self.go_on_removing(job_id);
        }
    }

    /// Ready tasks of a partition with their holders according to the records, this node included.
    pub(crate) fn held(&self, partition: PartitionId) -> Vec<(TaskId, NodeId)> {
        let mut held = Vec::new();
        for (job_id, job) in self.live_jobs() {
            let Some(part) = job.parts.get(partition) else { continue };
            for index in part.indices() {
                let cell = part.segment(index).and_then(|segment| segment.cell(index));
                if let Some(cell) = cell.filter(|cell| cell.state == State::Ready) {
                    let task = TaskId { job: job_id, local: LocalId::new(partition, index) };
                    held.push((task, cell.holder));
                }
            }
        }
        held
    }

    /// Another node is home of this partition from now on.
    pub(crate) fn give_up_partition(&mut self, partition: PartitionId) {
        let mut empty = Vec::new();
        for (&job_id, job) in &mut self.jobs {
            let Some(part) = job.parts.remove(partition) else { continue };
            job.open -= part.open;
            let waiting = |index: &u64| part.state(*index) == Some(State::Waiting);
            self.waiting -= part.indices().filter(waiting).count() as u64;
            if job.parts.is_empty() {
                empty.push(job_id);
            }
        }
        for job_id in empty {
            self.jobs.remove(&job_id);
            self.live.remove(&job_id);
        }
        for tasks in self.held_remotely.values_mut() {
            tasks.retain(|task| task.partition() != partition);
        }
        self.held_remotely.retain(|_, tasks| !tasks.is_empty());
        self.deliveries.retain(|delivery| delivery.partition() != partition);
        self.activations.retain(|activation| activation.partition != partition);
        self.ready.retain(|task| task.partition() != partition);
        self.give_up_throttled(partition);
        self.unreleased.retain(|(_, task)| task.partition() != partition);
        self.awaiting_lost_inputs.retain(|task| task.partition() != partition);
        self.recalls.forget_partition(partition);
        self.recalls.earlier.forget_partition(partition);
        self.early.retain(|(_, ask)| LocalId(ask.parent).partition() != partition);
        self.readers.forget_partition(partition);
        self.ahead.retain(|ahead| ahead.child.partition() != partition);
        if let Some(work) = &mut self.open_work {
            work.give_up(partition);
        }
    }
}
