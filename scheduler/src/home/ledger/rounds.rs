//! Rounds: tasks of an ended job that are not done wait again.
//!
//! The job's home sends the commit again, with the number of the round. Each partition opens it in
//! one step: from then on nothing of an earlier round changes its tasks. The home of a task
//! requests its missing inputs from the parents' homes. A parent's home that has not opened the
//! round keeps the request until it has.

use std::collections::{BTreeMap, BTreeSet};

use proto::event::RetryReason;
use proto::marks::{Mark, mark};
use proto::{Attempt, Event, JobId, LocalId, NodeId, ObjectId, PartitionId, TaskId, Time, wire};

use super::losses::lineage::{CreditAsks, send};
use super::records::State;
use super::{End, Ledger};
use crate::objects::data::wire_object;
use crate::output::Out;
use crate::routing::partition_owners::Homes;

impl Ledger {
    /// The round of a task's partition.
    pub(crate) fn round(&self, task: TaskId) -> u32 {
        self.part(task).map_or(0, |part| part.round)
    }

    /// Whether all tasks of the job have ended, and no later round is known here.
    pub(super) fn has_ended(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|job| job.ended)
    }

    /// The job continues here, if the round is later than any known before.
    pub(super) fn go_on_in(&mut self, job_id: JobId, settings: wire::JobSettings) {
        let Some(job) = self.jobs.get_mut(&job_id) else { return };
        if !job.enter(settings) {
            return;
        }
        self.live.insert(job_id);
        self.removals.retain(|removal| removal.job() != job_id);
    }

    /// Opens the job's round in these partitions. `named`: the tasks that run again; if empty, all
    /// that are not done.
    pub(super) fn open_round(
        &mut self,
        now: Time,
        job: JobId,
        partitions: &[PartitionId],
        named: &BTreeSet<u64>,
        homes: &Homes,
        out: &mut Out,
    ) {
        let mut asks = CreditAsks::new();
        for &partition in partitions {
            let rebuilds = self.rebuilds_of(job, partition);
            let again = self.find_again(job, partition, named);
            let keeps = self.enter_round(job, partition, out);
            let place = |index| TaskId { job, local: LocalId::new(partition, index) };
            for &index in &again {
                let task = place(index);
                let attempt = self.cell(task).map_or(Attempt(0), |cell| cell.attempt);
                self.wait_again(task, keeps);
                out.events.push(Event::Replaced { task, attempt, why: RetryReason::Round });
                self.ask_or_place(task, homes, &mut asks);
            }
            if !again.is_empty() {
                out.facts.ends.entry((partition, job)).or_default().reopened.extend(again);
            }
            for task in rebuilds {
                self.replace_ready(task, RetryReason::NotHeld, out);
                self.ask_or_place(task, homes, &mut asks);
            }
            self.restamp(job, partition);
            self.forget_old_failures(job, partition);
            if keeps {
                self.expect_readers_again(job, partition);
            }
        }
        send(asks, out);
        self.answer_early_asks(now, job, homes, out);
    }

    /// Tasks that were running again when the last round ended; their holders have dropped them.
    fn rebuilds_of(&self, job: JobId, partition: PartitionId) -> Vec<TaskId> {
        let part = self.jobs.get(&job).and_then(|job| job.parts.get(partition));
        let Some(part) = part.filter(|part| part.open > 0) else { return Vec::new() };
        let open = |index: &u64| !matches!(part.state(*index), None | Some(State::Ended(_)));
        let place = |index| TaskId { job, local: LocalId::new(partition, index) };
        part.indices().filter(open).map(place).collect()
    }

    /// Tasks of a partition that the round runs again.
    fn find_again(
        &mut self,
        job: JobId,
        partition: PartitionId,
        named: &BTreeSet<u64>,
    ) -> Vec<u64> {
        let mut forgotten = None;
        let part = self.jobs.get(&job).and_then(|job| job.parts.get(partition));
        let Some(part) = part else { return Vec::new() };
        let local = |index| LocalId::new(partition, index);
        let wanted = |index: &u64| {
            let fails = matches!(part.state(*index), Some(State::Ended(end)) if end != End::Done);
            fails && (named.is_empty() || named.contains(&local(*index).0))
        };
        let mut again = Vec::new();
        for index in part.indices().filter(wanted) {
            let segment = part.segment(index).expect("it has a state");
            match segment.cell(index).map(|cell| cell.slots as usize) {
                Some(slots) if part.parents(index).count() == slots => again.push(index),
                _ => forgotten = forgotten.or(Some(index)),
            }
        }
        if let Some(index) = forgotten {
            let error = "its record has left memory: it cannot be run again".to_owned();
            let detail = wire::EndDetail { error, exit_code: 1, ..Default::default() };
            let task = TaskId { job, local: local(index) };
            self.keep_failure(task, Attempt(0), self.me, &detail);
        }
        again
    }

    /// Opens the round of a part. Returns whether the inputs of its tasks were kept after the last
    /// round.
    fn enter_round(&mut self, job_id: JobId, partition: PartitionId, out: &mut Out) -> bool {
        let Some(job) = self.jobs.get_mut(&job_id) else { return false };
        let round = job.round();
        let Some(part) = job.parts.get_mut(partition) else { return false };
        part.round = round;
        part.count.spawn_chain.clear();
        let keeps = std::mem::take(&mut part.keeps);
        job.parts.mark_changed(partition);
        let record = job.visible_record(&job.parts[partition]);
        out.facts.visible.insert((partition, job_id), record);
        mark(Mark::RoundOpened);
        keeps
    }

    /// A task that had ended, and is not done, begins again. The inputs that it has stay if they
    /// were kept.
    pub(super) fn wait_again(&mut self, task: TaskId, keeps: bool) {
        let index = task.local.index();
        let job = self.jobs.get_mut(&task.job).expect("the task's job");
        let part = job.parts.get_mut(task.partition()).expect("the task's part");
        let Some(State::Ended(end)) = part.state(index) else { return };
        job.open += 1;
        part.open += 1;
        part.uncount(end);
        let segment = part.segment_mut(index).expect("the task's segment");
        segment.open += 1;
        if !keeps {
            segment.clear_input_slots(index);
        }
        segment.begin_again(index);
        self.waiting += 1;
    }

    /// Requests the missing inputs of a task that runs again, or places it.
    fn ask_or_place(&mut self, task: TaskId, homes: &Homes, asks: &mut CreditAsks) {
        if self.cell(task).is_some_and(|cell| cell.missing == 0) {
            self.ready.push_back(task);
            return;
        }
        self.awaiting_lost_inputs.insert(task);
        self.ask_for_missing(task, homes, asks);
        // A lost input may have been made again after the task had ended, without a credit for it.
        self.ask_for_lost(task, homes, asks);
    }

    /// Ends with credits still to be sent, if they hold in this round too, are sent as of this
    /// round.
    fn restamp(&mut self, job: JobId, partition: PartitionId) {
        let Some(part) = self.jobs.get(&job).and_then(|job| job.parts.get(partition)) else {
            return;
        };
        for delivery in &mut self.deliveries {
            let is_here = |task: TaskId| task.job == job && task.partition() == partition;
            delivery.restamp(part.round, |task| {
                if is_here(task) { part.state(task.local.index()) } else { None }
            });
        }
    }

    /// Only failures of this round count as its failures.
    fn forget_old_failures(&mut self, job: JobId, partition: PartitionId) {
        let part = self.jobs.get_mut(&job).and_then(|job| job.parts.get_mut(partition));
        let Some(part) = part else { return };
        part.forget_old_failures();
    }

    /// Outputs of done tasks that other tasks of this round read are still here. Which tasks have
    /// read them before is not known. They are freed at the end of the job at the latest.
    fn expect_readers_again(&mut self, job: JobId, partition: PartitionId) {
        let part = self.jobs.get(&job).and_then(|job| job.parts.get(partition));
        let done = |index: &u64| {
            part.is_some_and(|part| part.state(*index) == Some(State::Ended(End::Done)))
        };
        let indices = part.into_iter().flat_map(|part| part.indices()).filter(done);
        let tasks: Vec<TaskId> =
            indices.map(|index| TaskId { job, local: LocalId::new(partition, index) }).collect();
        for task in tasks {
            self.expect_readers_of(task);
        }
    }

    /// Nothing of an ended job is kept for a further round any more.
    pub(crate) fn keep_no_more(&mut self, job_id: JobId, out: &mut Out) {
        let Some(job) = self.jobs.get_mut(&job_id) else { return };
        let mut kept = Vec::new();
        for (partition, part) in job.parts.iter_mut().filter(|(_, part)| part.keeps) {
            part.keeps = false;
            kept.push(partition);
        }
        for (partition, record) in job.visible_records().filter(|(at, _)| kept.contains(at)) {
            out.facts.visible.insert((partition, job_id), record);
        }
    }

    /// Outputs of done tasks that are not to be kept and that no task reads, by the node that has
    /// them.
    pub(crate) fn unread_outputs(&self, job: JobId) -> BTreeMap<NodeId, Vec<wire::Object>> {
        let mut unread: BTreeMap<NodeId, Vec<wire::Object>> = BTreeMap::new();
        let parts = self.jobs.get(&job).into_iter().flat_map(|job| job.parts.iter());
        let tasks = parts.flat_map(|(partition, part)| {
            let done = |index: &u64| part.state(*index) == Some(State::Ended(End::Done));
            let place = move |index| TaskId { job, local: LocalId::new(partition, index) };
            part.indices().filter(done).map(place)
        });
        for task in tasks {
            let Some(cell) = self.cell(task) else { continue };
            let objects = self.unread_outputs_of(task, cell.attempt);
            if !objects.is_empty() {
                unread.entry(cell.holder).or_default().extend(objects);
            }
        }
        unread
    }

    fn unread_outputs_of(&self, task: TaskId, attempt: Attempt) -> Vec<wire::Object> {
        let index = task.local.index();
        let side = self.part(task).and_then(|part| part.segment(index)?.side(index));
        let Some(side) = side.filter(|side| !side.output_sizes.is_empty()) else {
            return Vec::new();
        };
        let consumers = self.consumers(task, &side.output_sizes);
        let declared = |output: usize| self.spec(task)?.outputs.get(output);
        let unread = consumers.iter().enumerate().filter(|&(output, &readers)| {
            readers == 0 && !declared(output).is_some_and(|declared| declared.keep)
        });
        let object = |output| wire_object(ObjectId { task, attempt, output: output as u32 }, 0);
        unread.map(|(output, _)| object(output)).collect()
    }

    /// Keeps requests of children in a later round than their parent here, until the parent enters
    /// it.
    pub(super) fn defer_early<'a>(
        &mut self,
        from: NodeId,
        asks: impl Iterator<Item = &'a wire::CreditRequest>,
    ) -> Vec<&'a wire::CreditRequest> {
        let mut due = Vec::new();
        for ask in asks {
            if ask.round > self.round(TaskId::new(ask.job, ask.parent)) {
                // A job that is retried was committed: its homes know it.
                if self.jobs.contains_key(&JobId(ask.job)) {
                    mark(Mark::AskDeferred);
                    self.early.push((from, *ask));
                }
            } else {
                due.push(ask);
            }
        }
        due
    }

    fn answer_early_asks(&mut self, now: Time, job: JobId, homes: &Homes, out: &mut Out) {
        let early = std::mem::take(&mut self.early);
        let (of_job, others): (Vec<_>, Vec<_>) =
            early.into_iter().partition(|(_, ask)| ask.job == job.0);
        self.early = others;
        let mut by_asker: BTreeMap<NodeId, Vec<wire::CreditRequest>> = BTreeMap::new();
        for (from, ask) in of_job {
            by_asker.entry(from).or_default().push(ask);
        }
        for (from, asks) in by_asker {
            self.on_asks(now, from, &asks, homes, out);
        }
    }

    /// Requests the missing inputs of tasks that run again, and recalled inputs, once more: their
    /// home has restarted, and earlier requests may be lost. `concerned`: the partitions.
    pub(crate) fn ask_for_rounds(
        &mut self,
        concerned: impl Fn(PartitionId) -> bool,
        homes: &Homes,
        out: &mut Out,
    ) {
        let awaiting = self.awaiting_lost_inputs.iter().copied();
        let mut waiting: BTreeSet<TaskId> = awaiting
            .filter(|&task| concerned(task.partition()) && self.state(task) == Some(State::Waiting))
            .collect();
        for (job_id, job) in self.live_jobs() {
            let parts = job.parts.iter();
            let parts = parts.filter(|(partition, part)| part.round > 0 && concerned(*partition));
            for (partition, part) in parts {
                let waits = |index: &u64| part.state(*index) == Some(State::Waiting);
                let place = |index| TaskId { job: job_id, local: LocalId::new(partition, index) };
                waiting.extend(part.indices().filter(waits).map(place));
            }
        }
        let mut asks = CreditAsks::new();
        for task in waiting {
            if self.cell(task).is_some_and(|cell| cell.missing > 0) {
                self.awaiting_lost_inputs.insert(task);
                self.ask_for_missing(task, homes, &mut asks);
            }
        }
        send(asks, out);
    }
}
