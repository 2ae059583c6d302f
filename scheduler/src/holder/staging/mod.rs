//! Staging, between queue and slot: the inputs of a task are fetched, as far ahead as it pays.

pub(crate) mod admission;
pub(crate) mod gathering;
pub(crate) mod inputs;
pub(crate) mod no_space;
pub(crate) mod staged;

use std::collections::{BTreeMap, BTreeSet};

use proto::work::Outcome;
use proto::{NodeId, ObjectId, Span, TaskId, Time, wire};

use crate::holder::Holder;
use crate::holder::execution::RemoteTask;
use crate::holder::limits::{
    AT_HAND_PER_SLOT_MAX, AT_HAND_PER_SLOT_MIN, INDEXED_INPUT_BYTES_MIN, INDEXED_INPUTS_MAX,
    STALLED_TASKS_MAX, STEP_LAUNCHES_MAX, STORE_BYPASS_SCAN_MAX,
};
use crate::holder::queues::classes::class_of;
use crate::holder::queues::matching::InLine;
use crate::holder::queues::ready_queue::{Presence, Ready};
use crate::holder::staging::admission::{Admission, Passed, admit};
use crate::holder::staging::gathering::Gathering;
pub(crate) use crate::holder::staging::staged::Staged;
use crate::holder::start_permission::StartPermission;
use crate::holder::task::{Work, object_of};
use crate::limits::{
    GATHER_MAX, LONG_FETCH, STAGING_MIN, STAGING_PER_SLOT, STAGING_PER_SLOT_MAX, STEP_POPS_MAX,
    WAITING_PER_SLOT_MAX,
};
use crate::objects::data::{Reads, is_real};
use crate::objects::fetch::FetchRequest;
use crate::objects::shared_files;
use crate::output::Out;
use crate::{Mutant, Scheduler};

/// The result of staging a task.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StageOutcome {
    Done,
    /// The task does not fit before others have ended. It stays in its queue; none may pass it.
    Stop,
}

/// A task that was taken out of its queue and does not fit.
#[derive(Debug)]
pub(crate) struct Aside {
    /// The task is put at the end of the shared queue: other nodes may have space for it.
    offered: bool,
    local_queue: bool,
    ready: Ready,
    work: Work,
    home_knows: bool,
}

impl Holder {
    /// The task does not fit now. Returns whether other tasks may go before it.
    fn set_aside(&mut self, now: Time, aside: Aside) -> StageOutcome {
        self.full = true;
        self.end_reservation_of(class_of(&aside.work.spec));
        if self.aside.is_empty() {
            Passed::note(&mut self.passed, now, aside.ready.task);
        }
        self.aside.push(aside);
        let may_pass = self.passed.is_some_and(|passed| passed.may(now));
        match may_pass && self.aside.len() < STORE_BYPASS_SCAN_MAX {
            true => StageOutcome::Done,
            false => StageOutcome::Stop,
        }
    }

    /// Whether other nodes may steal a task that does not fit here. A task that another node has
    /// sent back is not offered again: it would migrate without end.
    fn offers(&mut self, task: TaskId, work: &Work) -> bool {
        !work.is_bound() && self.no_space.offer_once(task)
    }
}

impl Scheduler {
    /// The larger inputs that are not here, each once: the queues index the task by them.
    pub(crate) fn missing_inputs<'a>(
        &self,
        task: TaskId,
        inputs: impl IntoIterator<Item = &'a wire::InputAt>,
    ) -> Vec<(ObjectId, Presence)> {
        let me = self.options.me.0;
        let mut missing: Vec<(ObjectId, Presence)> = Vec::new();
        for input in inputs {
            if input.node == me || input.size_bytes < INDEXED_INPUT_BYTES_MIN {
                continue;
            }
            if missing.len() == INDEXED_INPUTS_MAX {
                break;
            }
            let object = object_of(task, input);
            if !missing.iter().any(|&(other, _)| other == object) {
                missing.push((object, self.objects.presence(&object)));
            }
        }
        missing
    }

    /// Puts a ready task that is held here into one of this node's queues.
    pub(crate) fn enqueue(&mut self, local_queue: bool, ready: Ready) {
        let missing = self.missing_here(ready.task);
        self.holder.enqueue(local_queue, ready, &missing);
    }
    fn missing_here(&self, task: TaskId) -> Vec<(ObjectId, Presence)> {
        match self.holder.remote_tasks.get(&task) {
            Some(remote) => self.missing_inputs(task, &remote.work.inputs),
            None => self.missing_inputs(task, self.home.ledger.inputs(task)),
        }
    }

    /// Fills free slots: first with staged tasks, then from the local queue, then from the shared
    /// queue, in both with tasks that have their inputs here. Then stages the next tasks.
    pub(crate) fn dispatch(&mut self, now: Time, out: &mut Out) {
        self.holder.full = false;
        self.holder.gathering.tick(now);
        if self.holder.local.is_empty() && self.holder.shared.is_empty() {
            self.holder.space_timeout.renew();
            self.holder.passed = None;
        }
        self.drop_expired(out);
        self.holder.check_reservation();
        self.seat_returning(out);
        self.tend_gangs(now, out); // It may free seats for them.
        self.seat_returning(out);
        self.fill_slots(now, out);
        self.return_aside();
        self.requeue_staged(now, out);
    }

    fn fill_slots(&mut self, now: Time, out: &mut Out) {
        let launches_max = out.launches.len() + STEP_LAUNCHES_MAX;
        let mut pops = 0;
        // Attempts that go on come before all that would start.
        if self.holder.stopping || self.holder.slots.is_paused() || self.holder.wants_seats() {
            return;
        }
        while self.holder.slots.free() > 0
            && out.launches.len() < launches_max
            && !self.holder.start_requests.any_exclusive()
        {
            match self.holder.next_in_line() {
                InLine::Starts(task) if self.needs_start_permission(task) => {
                    self.request_start(now, task, out);
                    continue;
                }
                InLine::Starts(task) => {
                    self.start_staged(now, task, out);
                    continue;
                }
                InLine::Drains => return, // It is next as soon as nothing else runs.
                InLine::NoneFits => {}
            }
            // More would only wait here, where no thief finds them. A reserved task would start.
            let is_enough = self.holder.waits_in_line()
                || self.underway() >= STAGING_PER_SLOT_MAX * self.lanes();
            if is_enough && !self.holder.reserved_may_start() {
                break;
            }
            pops += 1;
            if pops > STEP_POPS_MAX {
                self.holder.left_over = true;
                return;
            }
            let Some((local_queue, ready)) = self.holder.pop_here(is_enough) else { break };
            if self.take_and_stage(now, (local_queue, true), ready, out) == StageOutcome::Stop {
                return;
            }
        }
        self.stage_ahead(now, out);
    }

    pub(crate) fn start_staged(&mut self, now: Time, task: TaskId, out: &mut Out) {
        let staged = self.holder.staging.remove(&task).expect("a task in line is staged");
        self.objects.remove_failed_fetches(&staged.failed_fetches);
        self.start(now, task, *staged, out);
    }

    /// Fetches the inputs of the next tasks while few others could run next.
    fn stage_ahead(&mut self, now: Time, out: &mut Out) {
        if self.gathers(now) {
            return;
        }
        for _ in 0..STEP_POPS_MAX {
            if !self.wants_more_staged() {
                return;
            }
            let Some((local_queue, ready)) = self.holder.pop_absent() else { return };
            if self.take_and_stage(now, (local_queue, false), ready, out) == StageOutcome::Stop {
                return;
            }
        }
        self.holder.left_over = true;
    }

    /// An idle node with tasks that would fetch for long lets more of them become ready first. The
    /// first ready tasks on all nodes tend to read the same few objects.
    fn gathers(&mut self, now: Time) -> bool {
        let idle = self.holder.slots.free() == self.holder.slots.total() && self.underway() == 0;
        let queued = self.holder.local.len() + self.holder.shared.len() > 0;
        let more = self.home.ledger.waiting() > (STAGING_PER_SLOT * self.lanes()) as u64;
        let moving = self.moving_time();
        if !(idle && queued && more && moving > LONG_FETCH) {
            self.holder.gathering = Gathering::No;
            return false;
        }
        if self.holder.gathering == Gathering::No {
            self.holder.gathering = Gathering::Until(now + moving.min(GATHER_MAX));
        }
        self.holder.gathering != Gathering::Over
    }

    /// The number of staged tasks, except for those with failing fetches or late answers: no other
    /// task waits for these.
    pub(crate) fn underway(&self) -> usize {
        let stalled = self.objects.failed_fetch_tasks() + self.holder.start_requests.late();
        (self.holder.staging.len() - stalled.min(STALLED_TASKS_MAX))
            .saturating_sub(self.holder.parked() + self.holder.gangs_staged())
    }

    fn wants_more_staged(&self) -> bool {
        let (lanes, idle) = (self.lanes(), self.free_lanes());
        let underway = self.underway();
        if self.objects.needed_bytes() >= self.options.tuning.cache_bytes {
            // Beyond the budget only inputs for idle slots are fetched.
            return underway < idle;
        }
        let at_hand =
            self.holder.awaiting_slot.len() + self.holder.local.here() + self.holder.shared.here();
        if underway >= idle && at_hand >= lanes * self.at_hand_per_slot() {
            return false;
        }
        if self.fetch_time() <= LONG_FETCH {
            return underway < (lanes * STAGING_PER_SLOT_MAX).max(STAGING_MIN);
        }
        // Objects that wait for a source do not prevent requests for others.
        self.objects.sourced_fetches() < (lanes * STAGING_PER_SLOT).max(STAGING_MIN)
            && underway < lanes * (STAGING_PER_SLOT + WAITING_PER_SLOT_MAX)
    }

    /// The number of prepared tasks per slot, so that no slot waits for the network while there is
    /// work. It is larger where fetches take long compared with the tasks.
    fn at_hand_per_slot(&self) -> usize {
        let length = match self.objects.mean_task_length() {
            Span::ZERO => self.mean_length().0.max(1),
            seen => seen.0,
        };
        let fetches = (4 * self.fetch_time().0).div_ceil(length);
        let wanted = usize::try_from(fetches).unwrap_or(AT_HAND_PER_SLOT_MAX);
        wanted.clamp(AT_HAND_PER_SLOT_MIN, AT_HAND_PER_SLOT_MAX)
    }

    /// The expected duration of the next fetches; before the first has ended, by the assumed rates.
    fn fetch_time(&self) -> Span {
        self.objects.mean_fetch_time().max(self.moving_time())
    }

    /// `fills_slots`: the line for slots has no task that fits, so a no-op may start at once.
    pub(crate) fn take_and_stage(
        &mut self,
        now: Time,
        (local_queue, fills_slots): (bool, bool),
        ready: Ready,
        out: &mut Out,
    ) -> StageOutcome {
        let home_knows =
            self.holder.remote_tasks.get(&ready.task).is_none_or(|remote| remote.home_knows);
        let Some(work) = self.take_work(ready) else {
            self.holder.no_space.forget(ready.task);
            return StageOutcome::Done;
        };
        let is_next = self.holder.aside.is_empty();
        match self.admission(ready.task, &work) {
            Admission::Now => {
                self.holder.space_timeout.renew();
                self.holder.no_space.forget(ready.task);
                if self.holder.passed.is_some_and(|passed| passed.is_of(ready.task)) {
                    self.holder.passed = None;
                } else if let Some(passed) = self.holder.passed.as_mut().filter(|_| !is_next) {
                    passed.once_more();
                }
                self.stage(now, (local_queue, home_knows, fills_slots), ready, work, out);
            }
            Admission::Later => {
                let offered = false;
                let aside = Aside { offered, local_queue, ready, work, home_knows };
                return self.holder.set_aside(now, aside);
            }
            // Only the next task uses up the timeout.
            Admission::Never { needed_bytes, budget_bytes, .. }
                if !is_next
                    || self.waits_for_room(now, ready.task, needed_bytes <= budget_bytes) =>
            {
                // A task of the shared queue is offered too, and is sent back only once.
                let offered = is_next && self.holder.offers(ready.task, &work);
                let aside = Aside { offered, local_queue, ready, work, home_knows };
                return self.holder.set_aside(now, aside);
            }
            Admission::Never { needed_bytes, budget_bytes, taken_bytes } => {
                let error = format!(
                    "{} needs {needed_bytes} bytes on node {}; its store has {taken_bytes} of \
                     at most {budget_bytes} taken by what cannot go{}: raise its hard mark or run \
                     it where there is room",
                    ready.task,
                    self.options.me,
                    self.held_by_open_job()
                );
                let outcome = Outcome { error, exit_code: 1, ..Default::default() };
                let Ready { task, attempt, .. } = ready;
                self.holder.space_timeout.renew();
                self.holder.no_space.forget(task);
                self.finish(now, task, attempt, now, Reads::default(), outcome, out);
            }
        }
        StageOutcome::Done
    }

    /// Puts the tasks that did not fit in this step back to their places.
    fn return_aside(&mut self) {
        let mut aside = std::mem::take(&mut self.holder.aside);
        self.holder.no_space.set_current(aside.iter().map(|aside| aside.ready.task));
        for Aside { offered, local_queue, ready, work, home_knows } in aside.drain(..).rev() {
            match offered {
                true => self.put_back(false, ready, work, home_knows),
                false => self.put_first(local_queue, ready, work, home_knows),
            }
        }
        self.holder.aside = aside;
    }

    /// Whether the task waits. Staged tasks free space when they end; readers may end elsewhere, or
    /// other nodes may have space.
    fn waits_for_room(&mut self, now: Time, task: TaskId, fits_alone: bool) -> bool {
        let ends = fits_alone && !self.holder.staging.is_empty();
        let may = fits_alone || self.routing.homes().nodes() > 1;
        ends || (may && self.holder.space_timeout.waits(now, task))
    }
    /// Whether the disk has no space for the next task, or for any. Between the limits there is
    /// space while nothing runs.
    pub(crate) fn is_full(&self) -> bool {
        let taken = self.objects.taken_bytes();
        let tuning = &self.options.tuning;
        let mark = if self.is_busy() { tuning.store_soft_bytes } else { tuning.store_hard_bytes };
        self.holder.full || (mark < u64::MAX && taken >= mark)
    }
    /// Whether a task that runs or is staged here may free space when it ends.
    fn is_busy(&self) -> bool {
        let waiting = self.holder.start_requests.late() + self.holder.gangs_staged();
        !self.holder.running.is_empty()
            || self.holder.staging.len() > self.objects.failed_fetch_tasks() + waiting
    }

    /// Puts a task that was taken out back into its queue, behind its equals.
    pub(crate) fn put_back(
        &mut self,
        local_queue: bool,
        ready: Ready,
        work: Work,
        home_knows: bool,
    ) {
        self.hold_again(ready, work, home_knows);
        self.enqueue(local_queue, ready);
    }
    /// As [`Self::put_back`], but before its equals.
    pub(crate) fn put_first(
        &mut self,
        local_queue: bool,
        ready: Ready,
        work: Work,
        home_knows: bool,
    ) {
        self.hold_again(ready, work, home_knows);
        let missing = self.missing_here(ready.task);
        let queue = if local_queue { &mut self.holder.local } else { &mut self.holder.shared };
        queue.put_back(ready, &missing);
    }
    fn hold_again(&mut self, ready: Ready, work: Work, home_knows: bool) {
        if !self.routing.homes().is_home_of(ready.task) {
            let remote = RemoteTask { attempt: ready.attempt, work, home_knows };
            self.holder.remote_tasks.insert(ready.task, remote);
        }
    }

    /// Whether the store has room for the task now.
    pub(crate) fn has_room_for(&self, task: TaskId) -> bool {
        let work = self.work_here(task);
        work.is_none_or(|work| matches!(self.admission(task, &work), Admission::Now))
    }
    fn admission(&self, task: TaskId, work: &Work) -> Admission {
        let tuning = &self.options.tuning;
        let marks = (tuning.store_soft_bytes, tuning.store_hard_bytes);
        if marks.0 == u64::MAX || !is_real(&work.spec, &work.settings) {
            return Admission::Now;
        }
        let shared_files = self.objects.room_for_files(&shared_files::files_of(task, work));
        let moved = self.inputs_room(task, work).saturating_add(shared_files);
        let needed = moved.saturating_add(work.declared_output_bytes());
        if needed == 0 {
            return Admission::Now;
        }
        admit(needed, self.objects.taken_bytes(), marks, self.is_busy())
    }

    /// Bytes of inputs to be fetched, and of idle copies that can no longer be evicted once the
    /// task is staged.
    fn inputs_room(&self, task: TaskId, work: &Work) -> u64 {
        let mut seen = BTreeSet::new();
        let room = |input: &wire::InputAt| {
            let object = object_of(task, input);
            if !seen.insert(object) {
                return 0;
            }
            let is_made = input.node == self.options.me.0;
            self.objects.room_for_input(&object, input.size_bytes, is_made)
        };
        work.inputs.iter().map(room).fold(0, u64::saturating_add)
    }

    /// Stages the task: pins or fetches its inputs. A no-op that is next starts instead.
    fn stage(
        &mut self,
        now: Time,
        (local_queue, home_knows, fills_slots): (bool, bool, bool),
        ready: Ready,
        work: Work,
        out: &mut Out,
    ) {
        let Ready { task, attempt, .. } = ready;
        self.note_class(&work);
        if work.has_request() && !self.holder.fits_here(&work) {
            // The offer of this node in the map of the sender was another one.
            self.report_dropped(task, attempt, out);
            return;
        }
        let (cpus, slots) = (work.cpus(), self.holder.slots.total());
        if cpus > slots && !work.is_instant() && !work.has_request() {
            let error = format!("it needs {cpus} cpus and node {} has {slots}", self.options.me);
            let outcome = Outcome { error, exit_code: 1, ..Default::default() };
            self.finish(now, task, attempt, now, Reads::default(), outcome, out);
            return;
        }
        let real = is_real(&work.spec, &work.settings);
        let mut staged = Staged {
            attempt,
            class: class_of(&work.spec),
            local_queue,
            home_knows,
            since: now,
            missing: BTreeMap::new(),
            lost: Vec::new(),
            failed_fetches: BTreeSet::new(),
            complete: false,
            start_permission: StartPermission::NotNeeded,
            late: 0,
            seat: None,
            pins: Vec::new(),
            reads: Reads::default(),
            output_bytes: if real { work.declared_output_bytes() } else { 0 },
            shared_files: shared_files::files_of(task, &work),
            work,
        };
        self.objects.reserve_space(staged.output_bytes, &staged.shared_files);
        let inputs = std::mem::take(&mut staged.work.inputs);
        for input in &inputs {
            self.stage_input(now, task, &mut staged, input, out);
        }
        staged.work.inputs = inputs;
        staged.complete =
            staged.missing.is_empty() || self.options.mutant == Some(Mutant::LaunchWithoutInputs);
        self.objects.add_failed_fetches(&staged.failed_fetches);
        self.holder.local_jobs.record(task.job, staged.work.settings.round);
        // Its inputs are pinned by now.
        self.evict(self.options.tuning.store_soft_bytes, out);
        if fills_slots && self.holder.awaiting_slot.is_empty() && staged.starts_at_once() {
            self.start(now, task, staged, out);
            return;
        }
        let is_complete = staged.complete;
        self.holder.staging.insert(task, Box::new(staged));
        if is_complete {
            self.holder.join_line(task);
        }
    }

    fn stage_input(
        &mut self,
        now: Time,
        task: TaskId,
        staged: &mut Staged,
        input: &wire::InputAt,
        out: &mut Out,
    ) {
        let object = object_of(task, input);
        let made_here = input.node == self.options.me.0;
        let real = staged.work.settings.real_data;
        let reads = &mut staged.reads;
        reads.inputs += 1;
        if staged.missing.contains_key(&object) {
            reads.copied += 1; // The task reads it twice.
            reads.local_bytes = reads.local_bytes.saturating_add(input.size_bytes);
            return;
        }
        // An object without bytes is not recorded by its maker, and is never deleted.
        let untracked = made_here && input.size_bytes == 0 && !real;
        let first = if untracked || self.objects.pin(object) {
            if !untracked {
                staged.pins.push(object);
            }
            !made_here && !self.objects.read_copy(&object)
        } else if let Some(joined) = self.objects.join_fetch(&object, task) {
            if joined.has_failed {
                staged.failed_fetches.insert(object);
            }
            staged.missing.insert(object, input.size_bytes);
            joined.is_first
        } else {
            staged.missing.insert(object, input.size_bytes);
            let request = FetchRequest {
                object,
                maker: NodeId(input.node),
                size_bytes: input.size_bytes,
                readers: input.consumers,
                settings: &staged.work.settings,
                taken: None,
            };
            self.start_inflight_fetch(now, &request, Some(task), out);
            !made_here
        };
        let reads = &mut staged.reads;
        reads.made_here += u32::from(made_here);
        reads.copied += u32::from(!made_here && !first);
        let bytes = if first { &mut reads.moved_bytes } else { &mut reads.local_bytes };
        *bytes = bytes.saturating_add(input.size_bytes);
    }

    /// Removes a task from staging.
    pub(crate) fn unstage(&mut self, task: TaskId, out: &mut Out) -> Option<Staged> {
        let mut staged = *self.holder.staging.remove(&task)?;
        self.holder.awaiting_slot.retain(|&other| other != task);
        self.objects.remove_failed_fetches(&staged.failed_fetches);
        self.holder.start_requests.forget(task, staged.start_permission);
        self.holder.slots.give_back(staged.seat.take());
        self.holder.start_requests.ended(task);
        self.objects.return_space(staged.output_bytes, &staged.shared_files);
        self.unpin(&staged.pins, out);
        Some(staged)
    }
}
