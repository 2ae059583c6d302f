//! The objects of a node: those stored here, those being fetched, and the reports about them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use proto::wire::message::Body;
use proto::work::Stored;
use proto::{Attempt, JobId, NodeId, ObjectId, Span, TaskId, Time, wire};

use crate::holder::queues::ready_queue::Presence;
use crate::home::ledger::{Cell, Job};
use crate::limits::{COPY_REPORTED_BYTES_MIN, OBJECTS_PER_MESSAGE_MAX, STEP_EVICTIONS_MAX};
use crate::objects::directory::{Directory, LocationRequest, Where};
use crate::objects::drain::{AttemptKey, Drain};
use crate::objects::fetch::{Ahead, InflightFetch};
use crate::objects::object_table::ObjectTable;
use crate::objects::output_copies::OutputCopies;
use crate::objects::output_transfer::{self, IncomingTransfer};
use crate::objects::shared_files::SharedFiles;
use crate::output::Out;
use crate::{Mutant, Scheduler};

/// The maximum number of copies named to the node that a task is sent to.
const COPIES_NAMED_MAX: usize = 8;

/// Counts of the inputs that attempts read, by source.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Reads {
    /// All inputs. Of these: made here, and copied here by the fetch of an earlier task.
    pub(crate) inputs: u32,
    pub(crate) made_here: u32,
    pub(crate) copied: u32,
    /// Bytes of fetches that began for this very task.
    pub(crate) moved_bytes: u64,
    /// All other bytes: here before, or being fetched for an earlier task.
    pub(crate) local_bytes: u64,
}

/// Sums since the start of this incarnation.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Totals {
    pub(crate) inputs: u64,
    pub(crate) made_here: u64,
    pub(crate) copied: u64,
    pub(crate) local_bytes: u64,
    /// Bytes received over the network, each counted once.
    pub(crate) brought_bytes: u64,
}

/// A pending deletion of an ended job.
#[derive(Clone, Copy, Debug)]
enum PendingDeletion {
    Object(ObjectId),
    /// All objects of the job are deleted; its other files may be deleted too.
    Rest(JobId),
}

/// What this node stores and fetches, and what it knows of the objects of its tasks elsewhere.
#[derive(Debug)]
pub(crate) struct Objects {
    pub(super) table: ObjectTable,
    pub(super) directory: Directory,
    pub(super) inflight_fetches: BTreeMap<ObjectId, InflightFetch>,
    /// The times at which fetches in progress are checked.
    pub(super) timers: BTreeSet<(Time, ObjectId)>,
    /// Inputs of wide fan-ins that wait for space to be fetched early.
    pub(super) ahead: VecDeque<Ahead>,
    pub(super) ahead_in_flight: usize,
    /// The number of fetches begun; each fetch has its own number.
    pub(super) fetches: u64,
    /// Objects that wait for a free source.
    pub(super) waiting: usize,
    /// Bytes being fetched, plus bytes that admitted tasks will write.
    pub(super) reserved_bytes: u64,
    /// Files copied from a shared file system for tasks that are staged or run.
    pub(super) shared_files: SharedFiles,
    /// The part of `reserved_bytes` that is being fetched.
    pub(super) coming_bytes: u64,
    /// The part of `coming_bytes` with failed fetches, and the staged tasks that wait for it.
    pub(super) failed_fetch_bytes: u64,
    pub(super) failed_fetch_tasks: usize,
    /// A step has reached its limit of inputs that are fetched early; some are left.
    pub(super) left_over: bool,
    /// Deletions for ended jobs, done in portions.
    pending_deletions: VecDeque<PendingDeletion>,
    /// Outputs that this node takes over or replicates, while they are being fetched.
    pub(super) incoming_transfers: BTreeMap<AttemptKey, IncomingTransfer>,
    /// Outputs with replicas on other nodes. Boxed, because most nodes have none.
    pub(super) output_copies: Box<OutputCopies>,
    /// Present while this node leaves the cluster.
    pub(super) drain: Option<Box<Drain>>,
    /// Jobs that may have ended while this node was down.
    unresolved_jobs: BTreeSet<JobId>,
    /// The recent mean duration of fetches.
    pub(super) fetch_time: Span,
    /// The recent mean duration of tasks.
    pub(super) task_length: Span,
    pub(super) totals: Totals,
}

impl Objects {
    pub(crate) fn new(mutant: Option<Mutant>) -> Self {
        let mut table = ObjectTable::default();
        table.ignores_pins = mutant == Some(Mutant::EvictPinned);
        Self {
            table,
            directory: Directory::default(),
            inflight_fetches: BTreeMap::new(),
            timers: BTreeSet::new(),
            ahead: VecDeque::new(),
            ahead_in_flight: 0,
            fetches: 0,
            waiting: 0,
            reserved_bytes: 0,
            shared_files: SharedFiles::default(),
            coming_bytes: 0,
            failed_fetch_bytes: 0,
            failed_fetch_tasks: 0,
            left_over: false,
            pending_deletions: VecDeque::new(),
            incoming_transfers: BTreeMap::new(),
            output_copies: Box::default(),
            drain: None,
            unresolved_jobs: BTreeSet::new(),
            fetch_time: Span::ZERO,
            task_length: Span::ZERO,
            totals: Totals::default(),
        }
    }
    /// Bytes on the disk that eviction cannot free, reservations included.
    pub(crate) fn taken_bytes(&self) -> u64 {
        let firm_bytes = self.table.firm_bytes().saturating_add(self.shared_files.bytes());
        firm_bytes.saturating_add(self.reserved_bytes)
    }
    /// Updates the mean duration of fetches.
    pub(crate) fn fetched(&mut self, took: Span) {
        learn(&mut self.fetch_time, took);
    }
    pub(crate) fn deadline(&self, now: Time) -> Option<Time> {
        if !self.pending_deletions.is_empty() || self.left_over {
            return Some(now);
        }
        let inflight_fetches = self.timers.first().map(|&(at, _)| at);
        let sources = self.directory.deadline().into_iter().chain(self.output_copies.deadline());
        inflight_fetches.into_iter().chain(sources).min()
    }
}

/// Moves a mean towards a new value by an eighth; the first value counts fully.
fn learn(mean: &mut Span, seen: Span) {
    let before = mean.0;
    *mean = if before == 0 { seen } else { Span(before - before / 8 + seen.0 / 8) };
}

/// Whether outputs of this task are files that occupy the disk.
#[must_use]
pub(crate) fn is_real(spec: &wire::Spec, settings: &wire::JobSettings) -> bool {
    use wire::spec::Body::{Call, Command, Upload};
    settings.real_data || matches!(spec.body, Some(Call(_) | Command(_) | Upload(_)))
}

#[must_use]
pub(crate) fn object_id(object: &wire::Object) -> ObjectId {
    let (task, attempt) = (TaskId::new(object.job, object.task), Attempt(object.attempt));
    ObjectId { task, attempt, output: object.output }
}
#[must_use]
pub(crate) fn wire_object(object: ObjectId, size_bytes: u64) -> wire::Object {
    wire::Object {
        job: object.task.job.0,
        task: object.task.local.0,
        attempt: object.attempt.0,
        output: object.output,
        size_bytes,
    }
}

impl Objects {
    pub(crate) fn presence(&self, object: &ObjectId) -> Presence {
        if self.table.contains(object) {
            Presence::Here
        } else if self.inflight_fetches.contains_key(object) {
            Presence::Coming
        } else {
            Presence::Absent
        }
    }

    /// Answers askers that waited for a source which is free now.
    pub(crate) fn assign_free_sources(&mut self, now: Time, out: &mut Out) {
        for answer in self.directory.serve_freed(now) {
            let other = wire_object(answer.object, 0);
            locate(out, answer.asker, other, Where::Node(answer.source));
        }
    }

    /// Adds an attempt's reads to the totals.
    pub(crate) fn count_reads(&mut self, reads: Reads, length: Span) {
        learn(&mut self.task_length, length);
        let totals = &mut self.totals;
        totals.inputs += u64::from(reads.inputs);
        totals.made_here += u64::from(reads.made_here);
        totals.copied += u64::from(reads.copied);
        totals.local_bytes = totals.local_bytes.saturating_add(reads.local_bytes);
    }
}

impl Scheduler {
    /// Reports the new presence of an object to the ready queues.
    pub(crate) fn object_changed(&mut self, object: &ObjectId) {
        let presence = self.objects.presence(object);
        self.holder.object_changed(object, presence);
    }

    /// The home of the producing task; `None` if its partition does not exist.
    pub(crate) fn home_of_object(&self, object: &ObjectId) -> Option<NodeId> {
        self.routing.homes().owner(object.task.partition())
    }

    /// Names known copies of large inputs to the node that receives the task.
    pub(crate) fn name_copies(&self, task: TaskId, inputs: &mut [wire::InputAt]) {
        let me = self.options.me;
        for input in inputs.iter_mut().filter(|input| input.size_bytes >= COPY_REPORTED_BYTES_MIN) {
            let object = crate::holder::task::object_of(task, input);
            let maker = NodeId(input.node);
            let mine = self.routing.homes().is_home_of(object.task);
            let told = if mine { Some(self.objects.directory.nodes(&object)) } else { None };
            let here = (maker != me && self.objects.table.contains(&object)).then_some(me);
            let told = told.into_iter().flatten().filter(|&node| node != maker && node != me);
            input.copies =
                here.into_iter().chain(told).take(COPIES_NAMED_MAX).map(|node| node.0).collect();
        }
    }

    /// The limit for files copied from shared file systems, including those that no task uses now.
    #[must_use]
    pub fn shared_files_bytes_max(&self) -> u64 {
        let soft_bytes = self.options.tuning.store_soft_bytes;
        let others = self.objects.table.real_bytes().saturating_add(self.objects.reserved_bytes);
        if soft_bytes == u64::MAX { u64::MAX } else { soft_bytes.saturating_sub(others) }
    }

    /// Evicts idle copies until the budgets hold, as far as possible.
    pub(crate) fn evict(&mut self, real_max: u64, out: &mut Out) {
        // Space for fetches in progress is reserved.
        let real_max = real_max.saturating_sub(self.objects.reserved_bytes);
        let real_max = real_max.saturating_sub(self.objects.shared_files.bytes());
        let gone = self.objects.table.evict(self.options.tuning.cache_bytes, real_max);
        for (object, size_bytes) in gone {
            self.object_changed(&object);
            out.evicted.push(object);
            let silent = self.options.mutant == Some(Mutant::NoFetchFallback);
            let told = size_bytes >= COPY_REPORTED_BYTES_MIN && !silent;
            if let Some(home) = self.home_of_object(&object).filter(|_| told) {
                let copies = out.copies.entry(home).or_default();
                copies.removed.push(wire_object(object, size_bytes));
            }
        }
    }

    /// A task no longer needs its inputs.
    pub(crate) fn unpin(&mut self, pins: &[ObjectId], out: &mut Out) {
        for &object in pins {
            if self.objects.table.unpin(object) {
                self.object_changed(&object);
                out.evicted.push(object);
            }
        }
        if !pins.is_empty() {
            self.evict(self.options.tuning.store_hard_bytes, out);
        }
    }

    /// A node reports which copies of this home's objects it has gained and lost.
    pub(crate) fn on_copies(
        &mut self,
        now: Time,
        from: NodeId,
        copies: &wire::Copies,
        out: &mut Out,
    ) {
        for object in copies.removed.iter().map(object_id) {
            self.objects.directory.remove(object, from);
            self.on_copy_removed(object, from, out);
        }
        for told in &copies.added {
            let object = object_id(told);
            let known = self.routing.homes().is_home_of(object.task)
                && self.home.ledger.job(object.task.job).is_some_and(|job| !job.has_ended());
            if !known {
                continue;
            }
            let kept = self.locate_timeout(told.size_bytes);
            for answer in self.objects.directory.add((now, kept), object, from) {
                // The asker knows the size.
                let other = wire_object(answer.object, 0);
                locate(out, answer.asker, other, Where::Node(answer.source));
            }
            self.on_copy_added(object, out);
        }
    }

    /// A node asks for sources of objects.
    pub(crate) fn on_locate(
        &mut self,
        now: Time,
        from: NodeId,
        locate: &wire::Locate,
        out: &mut Out,
    ) {
        self.report_held(from, &locate.held, out);
        let all = locate.objects.iter().map(|asked| (asked, true));
        for (asked, made) in all.chain(locate.copies_only.iter().map(|asked| (asked, false))) {
            let object = object_id(asked);
            if !self.routing.homes().is_home_of(object.task) {
                continue;
            }
            if self.home.ledger.job(object.task.job).is_none_or(Job::has_ended) {
                self::locate(out, from, *asked, Where::Unknown);
                continue;
            }
            let cell = self.home.ledger.cell(object.task);
            let maker = cell.filter(|cell| cell.attempt() == object.attempt).map(Cell::holder);
            // The maker of an earlier attempt is a source like any other, but not after it has
            // failed.
            let sources = self.objects.directory.nodes(&object);
            let dead: Vec<NodeId> = sources.filter(|&node| self.is_dead(node)).collect();
            dead.into_iter().for_each(|node| self.objects.directory.remove(object, node));
            let asker = LocationRequest { node: from, maker, copies_only: !made };
            let kept = self.locate_timeout(asked.size_bytes);
            let mut found = self.objects.directory.ask((now, kept), object, &asker);
            // An asker that considers the maker failed may not know yet that the maker is back.
            if let (Where::Unknown, Some(maker)) = (&found, maker)
                && maker != from
                && !self.is_dead(maker)
            {
                found = Where::Node(maker);
            }
            if found == Where::Unknown && maker.is_some() {
                found = self.ask_for_holders(from, *asked, out);
            }
            // The maker has failed or lost its output, or this asker cannot reach it.
            if !made && self.home.ledger.readers().maker_of(&object) == maker {
                self.pin_last_copies(vec![object], out);
            }
            self::locate(out, from, *asked, found);
        }
    }

    /// Reports to homes which of their objects ended tasks have read.
    pub(crate) fn send_readers_finished(&mut self, out: &mut Out) {
        if out.readers_finished.is_empty() {
            return;
        }
        let mut told: BTreeMap<NodeId, Vec<wire::OutputReaders>> = BTreeMap::new();
        for (object, readers) in std::mem::take(&mut out.readers_finished) {
            let Some(home) = self.home_of_object(&object) else { continue };
            told.entry(home).or_default().push(wire::OutputReaders {
                job: object.task.job.0,
                task: object.task.local.0,
                attempt: object.attempt.0,
                output: object.output,
                readers,
            });
        }
        for (home, outputs) in told {
            for piece in outputs.chunks(OBJECTS_PER_MESSAGE_MAX) {
                let body = Body::ReadersFinished(wire::ReadersFinished { outputs: piece.to_vec() });
                out.reliable.push((home, body));
            }
        }
    }

    /// Readers of this home's objects have ended. An object without further readers is freed.
    pub(crate) fn on_readers_finished(&mut self, finished: &wire::ReadersFinished, out: &mut Out) {
        let mut unwanted: BTreeMap<NodeId, Vec<wire::Object>> = BTreeMap::new();
        for read in &finished.outputs {
            let task = TaskId::new(read.job, read.task);
            let object = ObjectId { task, attempt: Attempt(read.attempt), output: read.output };
            let Some(maker) = self.home.ledger.readers_ended(&object, read.readers) else {
                continue;
            };
            let mut nodes: BTreeSet<NodeId> =
                self.objects.directory.forget(&object).into_iter().collect();
            nodes.insert(maker);
            for node in nodes {
                unwanted.entry(node).or_default().push(wire_object(object, 0));
            }
        }
        for (node, objects) in unwanted {
            for piece in objects.chunks(OBJECTS_PER_MESSAGE_MAX) {
                let body = Body::FreeObjects(wire::FreeObjects { objects: piece.to_vec() });
                out.reliable.push((node, body));
            }
        }
    }

    /// Frees objects that no task will read any more.
    pub(crate) fn on_free_objects(&mut self, unwanted: &wire::FreeObjects, out: &mut Out) {
        for object in unwanted.objects.iter().map(object_id) {
            if self.objects.table.mark_deleted(object) {
                self.object_changed(&object);
                out.evicted.push(object);
            }
        }
    }

    /// The job is over on all nodes. Its tasks here are stale and are dropped; its objects are
    /// deleted, except for kept outputs. `kept`: unfinished tasks may be retried, so only copies
    /// are deleted.
    pub(crate) fn forget_data(&mut self, job: JobId, kept: bool, out: &mut Out) {
        let first = TaskId { job, local: proto::LocalId(0) };
        let last = TaskId { job, local: proto::LocalId(u64::MAX) };
        let mut held: Vec<_> = self.holder.remote_tasks().of_job(job).collect();
        held.extend(
            self.holder
                .staging()
                .range(first..=last)
                .map(|(&task, staged)| (task, staged.attempt())),
        );
        held.extend(
            self.holder.running().range(first..=last).map(|(&task, run)| (task, run.attempt())),
        );
        held.sort_unstable();
        for (task, attempt) in held {
            self.drop_task(task, attempt, out);
        }
        // A thief may be declared failed long after it reported the end of a task. Such a task is
        // not taken back.
        self.stealing.forget_job(job);
        let inflight_fetches: Vec<ObjectId> = self
            .objects
            .inflight_fetches
            .keys()
            .filter(|object| object.task.job == job)
            .copied()
            .collect();
        for object in inflight_fetches {
            self.end_inflight_fetch(&object);
            self.object_changed(&object);
        }
        self.objects.ahead.retain(|ahead| ahead.object.task.job != job);
        output_transfer::forget(&mut self.objects.incoming_transfers, |made, _| made.0.job == job);
        if !kept {
            self.objects.output_copies.forget_job(job);
        }
        let gone = self.objects.table.forget_job(job, kept);
        for object in &gone {
            self.object_changed(object);
        }
        self.holder.forget_job(job, out);
        self.objects.pending_deletions.extend(gone.into_iter().map(PendingDeletion::Object));
        // A home of the job may have received uploads. Other nodes have files only if they
        // received tasks.
        if !kept && (self.holder.forget_local_job(job) || self.home.ledger.knows_job(job)) {
            self.objects.pending_deletions.push_back(PendingDeletion::Rest(job));
        }
        self.objects.directory.forget_job(job);
        self.home.ledger.forget_data(job, kept);
    }

    /// Deletes the kept outputs of a forgotten job too.
    pub(crate) fn forget_results(&mut self, job: JobId) {
        let gone = self.objects.table.forget_results(job);
        for object in &gone {
            self.object_changed(object);
        }
        self.objects.pending_deletions.extend(gone.into_iter().map(PendingDeletion::Object));
    }

    /// Objects that an earlier incarnation left here count against the budgets; its copies are
    /// usable.
    pub fn on_stored(&mut self, now: Time, objects: &[Stored]) {
        let (mut shared, copies) = (BTreeSet::new(), self.routing.homes().copies());
        for &Stored { object, size_bytes, stay, copy } in objects {
            if copy {
                self.objects.table.copied(object, size_bytes, true, (false, false));
            } else {
                self.objects.table.made(object, size_bytes, true, stay);
                self.objects.note_made(&object);
                shared.extend((stay.copies(copies) > 1).then_some((object.task, object.attempt)));
            }
            self.holder.note_job(object.task.job, 0);
            self.objects.unresolved_jobs.insert(object.task.job);
            self.object_changed(&object);
        }
        self.share_found(now, &shared);
    }

    /// Asks whether jobs have ended of which an earlier incarnation left objects here.
    pub(crate) fn ask_about_unresolved_jobs(&mut self, out: &mut Out) {
        for job in std::mem::take(&mut self.objects.unresolved_jobs) {
            self.ask_for_job_end(job, out);
        }
    }

    /// Deletes objects of ended jobs, `STEP_EVICTIONS_MAX` per step; an object that was fetched
    /// again stays. Evicts copies that exceed a reduced cache budget.
    pub(crate) fn delete_some(&mut self, out: &mut Out) {
        self.objects.left_over = false;
        let tuning = &self.options.tuning;
        let idle_bytes = self.objects.table.copied_bytes - self.objects.table.pinned_bytes();
        if idle_bytes > 0 && self.objects.table.copied_bytes > tuning.cache_bytes {
            self.evict(tuning.store_hard_bytes, out);
        }
        let count = self.objects.pending_deletions.len().min(STEP_EVICTIONS_MAX);
        let gone: Vec<PendingDeletion> = self.objects.pending_deletions.drain(..count).collect();
        for deletion in gone {
            match deletion {
                PendingDeletion::Object(object)
                    if self.objects.presence(&object) == Presence::Absent =>
                {
                    out.evicted.push(object);
                }
                PendingDeletion::Object(_) => {}
                // Its files are deleted after the new activity.
                PendingDeletion::Rest(job) if self.has_reappeared(job) => {}
                PendingDeletion::Rest(job) => out.forgotten.push(job),
            }
        }
        if self.objects.pending_deletions.is_empty() {
            self.objects.pending_deletions = VecDeque::new();
        }
    }

    /// Whether something of the job arrived after its home did not know it.
    fn has_reappeared(&self, job: JobId) -> bool {
        match self.home.ledger.job(job) {
            Some(job) => !job.has_ended(), // Nothing that arrives for an ended job is used.
            None => self.holder.local_jobs().has(job),
        }
    }

    /// Adds figures on storage and transfers to this node's state.
    pub(crate) fn data_state(&self, state: &mut wire::NodeState) {
        let (objects, totals) = (&self.objects.table, &self.objects.totals);
        state.stored_bytes = objects.stored_bytes;
        state.copied_bytes = objects.copied_bytes;
        state.copies = objects.copies;
        state.evicted_bytes = objects.evicted_bytes;
        state.bytes_moved = totals.brought_bytes;
        state.bytes_read_local = totals.local_bytes;
        state.inputs = totals.inputs;
        state.inputs_local = totals.made_here;
        state.inputs_copied = totals.copied;
        self.objects.drain_state(state);
        state.lacking_copies = self.lacking_copies();
    }
}

fn locate(out: &mut Out, asker: NodeId, object: wire::Object, found: Where) {
    let source = match found {
        Where::Node(source) => Some(source),
        Where::Unknown | Where::Later => None,
    };
    let nodes = source.into_iter().map(|node| node.0).collect();
    let at = wire::ObjectAt { object: Some(object), nodes, later: found == Where::Later };
    out.located.entry(asker).or_default().push(at);
}

/// The job settings that a fetch needs.
pub(crate) type Settings = Arc<wire::JobSettings>;
