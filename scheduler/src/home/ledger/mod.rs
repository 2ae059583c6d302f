/*!
The ledger: the records of the tasks homed on this node, and the only writer of them.

A record goes from Waiting to Ready to Ended. Changes that must be durable are noted as facts in
[`Out`]; recovery applies the same facts again ([`recover`]). Credits of local parents need no fact
of their own: they follow from the parent's end and its edges, and are repeated from there.
*/

mod attempts;
mod census;
mod check;
mod chunks;
mod credit;
mod forget;
#[cfg(test)]
mod hooks_for_tests;
mod jobs;
mod losses;
pub(crate) mod mail;
mod missing_credits;
pub(crate) mod open;
mod query;
mod records;
mod recover;
mod release;
mod removal;
mod rounds;
mod takeover;
mod throttle;
pub(crate) mod turns;
mod work;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use proto::work::{Captured, Used};
use proto::{
    Attempt, Event, Incarnation, JobId, LocalId, NodeId, ObjectId, PartitionId, Span, TaskId, Time,
    wire,
};

pub use check::ChunkError;
use check::check_chunk;
pub(crate) use check::check_places;
use credit::Delivery;
pub(crate) use losses::crashes::Death;
use losses::crashes::{Crash, Crashes, suspicion};
use losses::recall::Recalls;
pub(crate) use records::{Cell, End, Job, State};
use records::{Part, Segment, Times};
pub use recover::{LedgerRecord, RecordError};
use takeover::Activation;
use turns::Born;

use crate::Mutant;
use crate::limits::{COUNTS_INTERVAL, RETIRED_WEIGHT_MAX};
use crate::objects::fetch::Ahead;
use crate::objects::reader_counts::ReaderCounts;
use crate::output::Out;
use crate::routing::partition_owners::Homes;

/// The number of tasks and edge ends of ended chunks kept in memory for jobs with tasks that may
/// run again.
const KEPT_WEIGHT_MAX: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Ledger {
    me: NodeId,
    incarnation: Incarnation,
    attempts: u32,
    /// The longest time between an end and its report to the job's home.
    report_interval: Span,
    jobs: BTreeMap<JobId, Box<Job>>,
    /// Jobs that have not ended. Timers visit only these, however many ended ones are in memory.
    live: BTreeSet<JobId>,
    /// Tasks homed here that other nodes hold, by holder.
    held_remotely: BTreeMap<NodeId, BTreeSet<TaskId>>,
    /// Ended tasks with children that are not credited yet.
    deliveries: VecDeque<Delivery>,
    /// Partitions of committed jobs with tasks that are still to be examined.
    activations: VecDeque<Activation>,
    /// Cancelled jobs with tasks that have not ended yet.
    removals: VecDeque<removal::Removal>,
    /// Chunks in which all tasks have ended, oldest first, with the weight of each; and the sum.
    retired: VecDeque<(JobId, PartitionId, u32, usize)>,
    retired_weight: usize,
    /// Tasks without missing inputs, to be placed.
    ready: VecDeque<TaskId>,
    /// Tasks that wait only for their release time; and whether any task ever had one.
    unreleased: BTreeSet<(Time, TaskId)>,
    has_releases: bool,
    waiting: u64,
    wakeups: u64,
    /// The reader counts for the outputs of ended tasks.
    readers: ReaderCounts,
    /// Tasks that wait for lost inputs, or for the inputs of a further run.
    awaiting_lost_inputs: BTreeSet<TaskId>,
    /// Ends that are held back until all readers of the earlier, different bytes are recalled, and
    /// the ends that tasks had before they ran again.
    recalls: Box<Recalls>,
    /// Requests of children in a later round than their parents here, with the children's homes.
    early: Vec<(NodeId, wire::CreditRequest)>,
    /// Homes may move. Then lost outputs are made again, so the records of tasks stay while their
    /// outputs are read.
    homes_move: bool,
    /// Inputs of wide fan-ins that were just made and may be fetched early.
    ahead: Vec<Ahead>,
    /// Boxed, because most ledgers never have any.
    crashes: Box<Crashes>,
    /// Chunks that turns of this step have spawned.
    born: Option<Box<Born>>,
    /// When other homes are asked for tasks that tasks homed here await.
    asks_of_waits: BTreeSet<(Time, TaskId)>,
    /// Ended tasks that tasks of other partitions await, each with the turn that waits.
    ended_awaited: Vec<(TaskId, u64, wire::Awaited)>,
    /// What is due for open jobs. Boxed, because most ledgers never have any.
    open_work: Option<Box<open::OpenWork>>,
    /// What is due for events between tasks. Boxed as well.
    mail_work: Option<Box<mail::MailWork>>,
    /// Tasks of jobs that run a limited number at once. Boxed as well.
    throttles: Option<Box<throttle::Throttles>>,
    mutant: Option<Mutant>,
}

/// The end of a task, before it is recorded.
#[derive(Debug, Default)]
pub(crate) struct Ending {
    output_sizes: Vec<u64>,
    output_sums: Vec<u64>,
    /// The task had ended before, and some of its outputs have other bytes now.
    changed: bool,
    exit_code: i32,
    error: String,
    stderr_tail: Vec<u8>,
    captured: Captured,
    used: Used,
    /// As in the completion; only in memory.
    inline: Vec<u8>,
    /// When the attempt started and ended; 0: it did not run.
    started: Time,
    finished: Time,
}

impl Ending {
    /// Takes what the ledger keeps out of the report of the attempt. `changed`: see the field.
    pub(crate) fn of_completion(completion: &mut wire::Completion, changed: bool) -> Self {
        Self {
            output_sizes: std::mem::take(&mut completion.output_sizes),
            output_sums: std::mem::take(&mut completion.output_sums),
            changed,
            exit_code: completion.exit_code,
            error: std::mem::take(&mut completion.error),
            stderr_tail: std::mem::take(&mut completion.stderr_tail),
            captured: Captured {
                stdout_bytes: completion.stdout_bytes,
                stderr_bytes: completion.stderr_bytes,
            },
            used: Used { cpu_us: completion.cpu_us, max_rss_kib: completion.max_rss_kib },
            inline: std::mem::take(&mut completion.inline),
            started: Time(completion.started_ns),
            finished: Time(completion.finished_ns),
        }
    }
    /// The end of a task that fails although none of its attempts has.
    pub(crate) fn of_error(error: String) -> Self {
        Self { error, exit_code: 1, ..Self::default() }
    }
}

impl Ledger {
    /// `homes_move`: homes may move here.
    pub(crate) fn new(
        me: NodeId,
        incarnation: Incarnation,
        homes_move: bool,
        mutant: Option<Mutant>,
    ) -> Self {
        Self {
            me,
            incarnation,
            attempts: 0,
            report_interval: COUNTS_INTERVAL,
            jobs: BTreeMap::new(),
            live: BTreeSet::new(),
            held_remotely: BTreeMap::new(),
            deliveries: VecDeque::new(),
            retired: VecDeque::new(),
            retired_weight: 0,
            activations: VecDeque::new(),
            removals: VecDeque::new(),
            ready: VecDeque::new(),
            unreleased: BTreeSet::new(),
            has_releases: false,
            waiting: 0,
            wakeups: 0,
            readers: ReaderCounts::new(mutant == Some(Mutant::DeleteOnFirstRead)),
            awaiting_lost_inputs: BTreeSet::new(),
            recalls: Box::default(),
            early: Vec::new(),
            homes_move,
            ahead: Vec::new(),
            crashes: Box::default(),
            born: None,
            asks_of_waits: BTreeSet::new(),
            ended_awaited: Vec::new(),
            open_work: None,
            mail_work: None,
            throttles: None,
            mutant,
        }
    }

    /// The job is committed: its tasks here become visible. Returns false if that was known.
    pub(crate) fn make_visible(
        &mut self,
        now: Time,
        visible: &wire::Visible,
        homes: &Homes,
        out: &mut Out,
    ) -> bool {
        let Some(commit) = &visible.commit else { return false };
        let settings = commit.settings.unwrap_or_default();
        let (job_id, round) = (JobId(commit.job), settings.round);
        let openness = commit.openness();
        let concerns = |total: &&wire::PartitionTotal| homes.is_mine(PartitionId(total.partition));
        let totals: Vec<_> = commit.partitions.iter().filter(concerns).collect();
        let job = self.open_job(now, job_id);
        let heard = |total: &&wire::PartitionTotal| {
            let part = job.parts.get(PartitionId(total.partition));
            part.is_some_and(|part| {
                part.visible && part.round >= round && part.openness >= openness
            })
        };
        if job.visible && totals.iter().all(heard) {
            // A repeated commit: the job's home may have lost its counts.
            job.report_everything(now);
            return false;
        }
        if !job.visible {
            // A submitter's clock that is ahead of this one must not delay release times.
            job.submitted = Time(commit.submitted_ns).min(now);
        }
        job.visible = true;
        if openness == wire::Openness::ClosedGraph {
            job.forget_spec_numbers(); // No more chunks arrive.
        }
        self.go_on_in(job_id, settings);
        let job = self.jobs.get_mut(&job_id).expect("opened above");
        let (mut activations, mut unheard, mut opened) = (Vec::new(), false, Vec::new());
        let mut grew = Vec::new();
        for total in totals {
            let partition = PartitionId(total.partition);
            let part = job.parts.get_or_default(partition);
            grew.extend((part.openness < openness).then_some(partition));
            part.set_openness(openness);
            if std::mem::replace(&mut part.visible, true) {
                // The commit of this part is repeated.
                opened.extend((part.round < round).then_some(partition));
                job.parts.mark_changed(partition);
                continue;
            }
            part.round = round;
            part.demand_total(total);
            unheard |= !part.count.lost.is_empty() || part.open < part.tasks;
            let record = wire::VisibleRecord {
                settings: commit.settings,
                chunks: total.chunks,
                cancelled: job.cancelled,
                submitted_ns: job.submitted.0,
                openness: openness as i32,
                ..Default::default()
            };
            out.facts.visible.insert((partition, job_id), record);
            let chunks = part.chunk_numbers().collect();
            activations.push(Activation::new(job_id, partition, chunks, false));
            job.parts.mark_changed(partition);
        }
        if unheard || !opened.is_empty() {
            job.report_everything(now); // There may be no task left to cause a report.
        }
        self.activations.extend(activations);
        self.openness_grew(now, job_id, &grew, out);
        let named = visible.retried.iter().copied().collect();
        self.open_round(now, job_id, &opened, &named, homes, out);
        out.events.push(Event::Visible { job: job_id });
        self.remove_if_told(job_id, out);
        true
    }

    /// The next task to be placed.
    pub(crate) fn next_ready(&mut self) -> Option<TaskId> {
        self.ready.pop_front()
    }
    /// Frees the room of the list of tasks to be placed, if it is empty.
    pub(crate) fn give_room_back(&mut self) {
        if self.ready.is_empty() {
            self.ready = VecDeque::new();
        }
    }
    /// These tasks are to be placed: a node that can run them may have come.
    pub(crate) fn place_again(&mut self, tasks: impl Iterator<Item = TaskId>) {
        self.ready.extend(tasks);
    }
    /// The number of tasks that miss inputs, or wait for their release time or for other tasks.
    #[inline]
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting
    }
    /// The number of credits that only the reconciler has found.
    pub(crate) fn wakeups(&self) -> u64 {
        self.wakeups
    }
    /// The inputs of wide fan-ins that were made since the last call and may be fetched early.
    pub(crate) fn take_ahead(&mut self) -> Vec<Ahead> {
        std::mem::take(&mut self.ahead)
    }

    pub(crate) fn readers(&self) -> &ReaderCounts {
        &self.readers
    }
    /// Readers of the output have ended. Returns the node that keeps it, if no reader is left.
    pub(crate) fn readers_ended(&mut self, object: &ObjectId, readers: u32) -> Option<NodeId> {
        self.readers.consume(object, readers)
    }
    /// The node keeps the output from now on, in place of its maker.
    pub(crate) fn output_moved(&mut self, object: &ObjectId, node: NodeId) {
        self.readers.moved(object, node);
    }
    /// The job is over: its held ends and, unless its data is kept, its reader counts are dropped.
    pub(crate) fn forget_data(&mut self, job: JobId, kept: bool) {
        self.recalls.forget_job(job);
        if !kept {
            self.readers.forget_job(job);
        }
    }

    pub(crate) fn has_work(&self) -> bool {
        self.places_more()
            || !self.deliveries.is_empty()
            || !self.removals.is_empty()
            || self.releases_throttled()
    }

    /// Whether tasks that may be ready have not been examined yet.
    pub(crate) fn places_more(&self) -> bool {
        !self.ready.is_empty() || !self.activations.is_empty()
    }

    /// Whether recovered tasks have not been examined yet.
    pub(crate) fn places_recovered(&self) -> bool {
        self.activations.iter().any(|activation| activation.recovered)
    }

    fn part(&self, task: TaskId) -> Option<&Part> {
        self.jobs.get(&task.job)?.parts.get(task.partition())
    }
    fn part_mut(&mut self, task: TaskId) -> Option<&mut Part> {
        self.jobs.get_mut(&task.job)?.parts.get_mut(task.partition())
    }
    pub(crate) fn cell(&self, task: TaskId) -> Option<&Cell> {
        let index = task.local.index();
        self.part(task)?.segment(index)?.cell(index)
    }
    fn cell_mut(&mut self, task: TaskId) -> Option<&mut Cell> {
        let index = task.local.index();
        self.part_mut(task)?.segment_mut(index)?.cell_mut(index)
    }
    pub(crate) fn state(&self, task: TaskId) -> Option<State> {
        self.part(task)?.state(task.local.index())
    }
    pub(crate) fn spec(&self, task: TaskId) -> Option<&Arc<wire::Spec>> {
        let cell = self.cell(task)?;
        self.jobs.get(&task.job)?.specs.get(cell.spec as usize)
    }

    /// Ends a task, once: records the end and queues the credits of its children. If it was done
    /// before and does not end well now, its earlier end counts again instead.
    pub(crate) fn end(
        &mut self,
        now: Time,
        task: TaskId,
        end: End,
        node: NodeId,
        ending: Ending,
        out: &mut Out,
    ) {
        if end == End::Done {
            self.recalls.earlier.forget(task);
        } else if self.count_earlier_end(now, task, end, &ending.error, out) {
            return;
        }
        let (index, changed) = (task.local.index(), ending.changed);
        let job = self.jobs.get(&task.job).expect("the task's job");
        let times = Times::new(job.submitted, ending.started, ending.finished);
        let part = job.parts.get(task.partition());
        let cell = part.and_then(|part| part.segment(index)?.cell(index));
        let cell = cell.expect("only live tasks end");
        assert!(!matches!(cell.state, State::Ended(_)), "{task} ended twice");
        let attempt = cell.attempt;
        let output_bytes = ending.output_sizes.iter().fold(0, |sum: u64, &n| sum.saturating_add(n));
        record_end(task, attempt, end, node, (&ending, times), out);
        out.events.push(Event::Committed { task, attempt, end, node, output_bytes });
        self.apply_end(task, attempt, end, node, (ending, times));
        // While the job runs, a task that is not done may run again: it is still a reader.
        if end == End::Done || self.is_removed(task.job) {
            self.consume(task, out);
        }
        self.clear_of_deaths(task, end, out);
        if self.part(task).is_some_and(|part| part.turns.is_some()) {
            self.turns_ended(task, end, out);
        }
        if end == End::Done && self.part(task).is_some_and(|part| part.mail.is_some()) {
            self.drop_mailbox(task, out);
        }
        let job = self.jobs.get_mut(&task.job).expect("the task's job");
        let part = job.parts.get_mut(task.partition()).expect("the task's part");
        // If the whole job is cancelled, all homes of children learn that too.
        let delivers = (part.has_edges(index) || part.holds_outputs()) && !job.cancelled;
        let idle = if delivers { Vec::new() } else { part.take_idle(index) };
        job.parts.mark_changed(task.partition());
        job.report_soon(now, self.report_interval);
        match delivers {
            true => self.deliver(task, changed),
            false => self.retire(task.job, task.partition(), &idle),
        }
    }

    /// Keeps ended chunks in memory for queries while there is room. Of older chunks only the ends
    /// of their tasks stay.
    pub(crate) fn retire(&mut self, job: JobId, partition: PartitionId, chunks: &[u32]) {
        for &number in chunks {
            let weight = self.chunk_mut(job, partition, number).map_or(0, |chunk| chunk.weight());
            self.retired.push_back((job, partition, number, weight));
            self.retired_weight += weight;
        }
        for _ in 0..self.retired.len() {
            if self.retired_weight <= RETIRED_WEIGHT_MAX {
                return;
            }
            let retired = self.retired.pop_front().expect("counted");
            let (job, partition, number, weight) = retired;
            let has_room = self.retired_weight <= KEPT_WEIGHT_MAX;
            if self.homes_move && self.is_read(job, partition, number)
                || has_room && self.keeps(job, partition)
                || has_room && self.may_be_read(job, partition, number)
                || self.is_named(job, partition, number)
            {
                self.retired.push_back(retired);
                continue;
            }
            self.retired_weight -= weight;
            match self.chunk_mut(job, partition, number) {
                Some(chunk) if chunk.open == 0 && chunk.undelivered == 0 => chunk.free(),
                // Some task of it runs again, or some of its children are not credited.
                Some(chunk) => chunk.restore(),
                None => {}
            }
        }
    }

    /// Whether the inputs of tasks that may be retried are still kept after the end of the job.
    pub(crate) fn keeps_data(&self, job: JobId) -> bool {
        self.jobs.get(&job).is_some_and(|job| job.parts.values().any(|part| part.keeps))
    }

    /// Whether some tasks of the part are not done and may be retried.
    fn keeps(&self, job: JobId, partition: PartitionId) -> bool {
        let part = self.jobs.get(&job).and_then(|job| job.parts.get(partition));
        part.is_some_and(|part| part.keeps)
    }

    /// Whether some task still reads outputs of this chunk, which may have to be made again.
    fn is_read(&self, job: JobId, partition: PartitionId, number: u32) -> bool {
        let part = self.jobs.get(&job).and_then(|job| job.parts.get(partition));
        let Some(chunk) = part.and_then(|part| part.chunk(number)) else { return false };
        let task = |index| TaskId { job, local: LocalId::new(partition, index) };
        let end = chunk.first + u64::from(chunk.len());
        chunk.len() > 0 && self.readers.any_of(task(chunk.first), task(end - 1))
    }

    fn chunk_mut(
        &mut self,
        job: JobId,
        partition: PartitionId,
        number: u32,
    ) -> Option<&mut Segment> {
        self.jobs.get_mut(&job)?.parts.get_mut(partition)?.chunk_mut(number)
    }

    /// Applies an end to the record; recovery does the same.
    fn apply_end(
        &mut self,
        task: TaskId,
        attempt: Attempt,
        end: End,
        node: NodeId,
        (ending, times): (Ending, Times),
    ) {
        let index = task.local.index();
        let job = self.jobs.get_mut(&task.job).expect("the task's job");
        job.open -= 1;
        let part = job.parts.get_mut(task.partition()).expect("the task's part");
        part.open -= 1;
        match end {
            End::Done => part.count.done += 1,
            End::Failed => part.count.failed += 1,
            End::Cancelled => part.count.cancelled += 1,
            End::Skipped => part.count.skipped += 1,
        }
        let Captured { stdout_bytes, stderr_bytes } = ending.captured;
        let count = &mut part.count;
        count.captured_bytes = count.captured_bytes.saturating_add(stdout_bytes);
        count.captured_bytes = count.captured_bytes.saturating_add(stderr_bytes);
        if let Some(open) = &mut part.open_part {
            open.add_end(index, &ending.error, ending.inline);
        }
        let segment = part.segment_mut(index).expect("the task's segment");
        segment.open -= 1;
        let cell = segment.cell_mut(index).expect("only live tasks end");
        let was_waiting = cell.state == State::Waiting;
        let before = std::mem::replace(&mut cell.holder, node);
        cell.state = State::Ended(end);
        cell.attempt = attempt;
        segment.set_times(index, times);
        if !ending.output_sizes.is_empty() || ending.exit_code != 0 {
            let side = segment.side_mut(index);
            side.output_sizes = ending.output_sizes;
            side.exit_code = ending.exit_code;
        }
        segment.keep_output_sums(index, ending.output_sums);
        segment.set_captured(index, ending.captured);
        segment.set_used(index, ending.used);
        self.waiting -= u64::from(was_waiting);
        if was_waiting {
            self.forget_release(task);
        }
        self.forget_held_remotely(before, task);
        self.give_place_back(task);
    }
}

fn record_end(
    task: TaskId,
    attempt: Attempt,
    end: End,
    node: NodeId,
    (ending, times): (&Ending, Times),
    out: &mut Out,
) {
    let record = out.facts.ends.entry((task.partition(), task.job)).or_default();
    record.index.push(task.local.index());
    record.attempt.push(attempt.0);
    record.verdict.push(end as u32);
    if times.is_known() || !record.times.is_empty() {
        record.times.resize(2 * record.node.len(), 0); // Those before it did not run.
        record.times.extend([times.start, times.took]);
    }
    record.node.push(node.0);
    let is_bare = ending.output_sizes.is_empty() && ending.captured.is_none();
    let is_bare = is_bare && ending.used.is_none();
    if !is_bare || ending.exit_code != 0 || !ending.error.is_empty() {
        record.details.push(wire::EndDetail {
            index: task.local.index(),
            output_sizes: ending.output_sizes.clone(),
            exit_code: ending.exit_code,
            error: ending.error.clone(),
            stderr_tail: ending.stderr_tail.clone(),
            output_sums: ending.output_sums.clone(),
            stdout_bytes: ending.captured.stdout_bytes,
            stderr_bytes: ending.captured.stderr_bytes,
            cpu_us: ending.used.cpu_us,
            max_rss_kib: ending.used.max_rss_kib,
        });
    }
}
