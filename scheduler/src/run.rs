//! Holding ready tasks and running them: inputs, slots, launches, completions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proto::event::{End as EventEnd, Reason};
use proto::limits::{
    FETCH_RETRY_MAX, FETCH_RETRY_START, FETCH_TRIES_MAX, STAGING_PER_SLOT, STEP_LAUNCHES_MAX,
};
use proto::work::{Fetch, Outcome};
use proto::{Attempt, Event, NodeId, ObjectId, Span, TaskId, Time, wire};

use crate::out::{Out, task_attempt};
use crate::queue::Ready;
use crate::work::{Work, object_of, unpack};
use crate::{Mutant, Scheduler};

/// A ready task of another home, held here.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) attempt: Attempt,
    pub(crate) work: Work,
    /// Its home knows that it is here. Until then it is not passed on: word of the next move could
    /// reach the home first, and word of this one would then name the wrong holder.
    pub(crate) home_knows: bool,
}

/// A task that left its queue and has no slot yet.
#[derive(Debug)]
pub(crate) struct Staged {
    pub(crate) attempt: Attempt,
    work: Work,
    /// When it left its queue, and its fetches began.
    since: Time,
    /// Objects on their way, each with the node it comes from and its size.
    missing: BTreeMap<ObjectId, (NodeId, u64)>,
    moved_bytes: u64,
    local_bytes: u64,
}

impl Staged {
    pub(crate) fn missing(&self) -> usize {
        self.missing.len()
    }
}

#[derive(Debug)]
pub(crate) struct Running {
    pub(crate) attempt: Attempt,
    spec: Arc<wire::Spec>,
    /// The first of its slots; a no-op has none.
    slot: Option<u32>,
    started: Time,
    moved_bytes: u64,
    local_bytes: u64,
}

/// A fetch that failed.
#[derive(Debug)]
pub(crate) struct Retry {
    tries: u32,
    /// When to try again; `None` while the next try is under way.
    pub(crate) at: Option<Time>,
    fetch: Fetch,
}

/// The executing threads of the node.
#[derive(Debug)]
pub(crate) struct Slots {
    free: BTreeSet<u32>,
    /// The further slots of tasks that take several, by the first.
    wide: BTreeMap<u32, Vec<u32>>,
    total: u32,
}

impl Slots {
    pub(crate) fn new(total: u32) -> Self {
        Self { free: (0..total).collect(), wide: BTreeMap::new(), total }
    }
    pub(crate) fn free(&self) -> u32 {
        self.free.len() as u32
    }
    pub(crate) fn total(&self) -> u32 {
        self.total
    }
    /// Takes the lowest free ones; the first of them names the set.
    fn take(&mut self, cpus: u32) -> u32 {
        assert!(cpus > 0, "a task takes at least one slot");
        assert!(cpus <= self.free(), "slots are counted before they are taken");
        let first = self.free.pop_first().expect("counted above");
        let more: Vec<u32> = (1..cpus).filter_map(|_| self.free.pop_first()).collect();
        if !more.is_empty() {
            self.wide.insert(first, more);
        }
        first
    }
    fn give_back(&mut self, first: Option<u32>) {
        let Some(first) = first else { return };
        let fresh = self.free.insert(first);
        assert!(fresh, "slot {first} was free already");
        self.free.extend(self.wide.remove(&first).unwrap_or_default());
    }
}

impl Scheduler {
    /// Tasks that their home sent here.
    pub(crate) fn on_push(&mut self, push: wire::Push, out: &mut Out) {
        let partitions = self.homes.partitions();
        let Some(tasks) = push.bundle.and_then(|bundle| unpack(bundle, partitions)) else { return };
        for (task, attempt, work) in tasks {
            let input_bytes = work.input_bytes();
            let ready = self.ready(task, attempt, &work);
            if self.take_guest(task, attempt, work, out) {
                let event = Event::Queued {
                    task,
                    attempt,
                    local_queue: true,
                    reason: Reason::Pushed,
                    input_bytes,
                };
                self.local.push(ready);
                out.events.push(event);
            }
        }
    }

    /// False when a later attempt is here already.
    pub(crate) fn take_guest(
        &mut self,
        task: TaskId,
        attempt: Attempt,
        work: Work,
        out: &mut Out,
    ) -> bool {
        if let Some(known) = self.held_attempt(task) {
            if known >= attempt {
                return false;
            }
            self.drop_task(task, known, out);
        }
        self.guests.insert(task, Guest { attempt, work, home_knows: true });
        true
    }

    /// The attempt of this task that this node holds in any form, queued tasks of its own home
    /// excepted.
    fn held_attempt(&self, task: TaskId) -> Option<Attempt> {
        let running = self.running.get(&task).map(|running| running.attempt);
        let staging = self.staging.get(&task).map(|staged| staged.attempt);
        let guest = self.guests.get(&task).map(|guest| guest.attempt);
        running.or(staging).or(guest)
    }

    /// Whether a queue's entry is still wanted.
    fn is_current(&self, ready: Ready) -> bool {
        if self.homes.home_of(ready.task) == self.options.me {
            self.ledger.is_held_here(ready.task, ready.attempt)
        } else {
            self.guests.get(&ready.task).is_some_and(|guest| guest.attempt == ready.attempt)
        }
    }

    /// Takes the work of a queued task; `None` when the entry is out of date.
    pub(crate) fn take_work(&mut self, ready: Ready) -> Option<Work> {
        if !self.is_current(ready) {
            return None;
        }
        if self.homes.home_of(ready.task) == self.options.me {
            self.ledger.work(ready.task)
        } else {
            self.guests.remove(&ready.task).map(|guest| guest.work)
        }
    }

    /// Fills free slots: tasks with all inputs first, then LReadyQ, then SReadyQ.
    pub(crate) fn dispatch(&mut self, now: Time, out: &mut Out) {
        let staging_max = STAGING_PER_SLOT * self.slots.total() as usize;
        let launches_max = out.launches.len() + STEP_LAUNCHES_MAX;
        while self.slots.free() > 0 && out.launches.len() < launches_max {
            if let Some(&task) = self.staged.front() {
                let Some(staged) = self.staging.get(&task) else {
                    self.staged.pop_front();
                    continue;
                };
                if !staged.work.is_instant() && staged.work.cpus() > self.slots.free() {
                    return; // It is next; narrower tasks do not overtake it for ever.
                }
                self.staged.pop_front();
                let staged = self.staging.remove(&task).expect("looked at above");
                self.start(now, task, staged, out);
                continue;
            }
            if self.staging.len() >= staging_max {
                break;
            }
            let Some(ready) = self.local.pop().or_else(|| self.shared.pop()) else { break };
            if let Some(work) = self.take_work(ready) {
                self.stage(now, ready, work, out);
            }
        }
        self.prefetch(now, staging_max, out);
    }

    /// While all slots are busy, brings the inputs of the next dedicated tasks.
    fn prefetch(&mut self, now: Time, staging_max: usize, out: &mut Out) {
        while self.staging.len() < staging_max {
            let Some(ready) = self.local.peek() else { return };
            let needs = self.is_current(ready) && self.needs_fetch(ready.task);
            if self.is_current(ready) && !needs {
                return;
            }
            self.local.pop();
            if let Some(work) = self.take_work(ready) {
                self.stage(now, ready, work, out);
            }
        }
    }

    fn needs_fetch(&self, task: TaskId) -> bool {
        let me = self.options.me.0;
        let absent = |input: &wire::InputAt| {
            input.node != me && !self.copies.contains(&object_of(task, input))
        };
        match self.guests.get(&task) {
            Some(guest) => guest.work.inputs.iter().any(absent),
            None => self.ledger.inputs(task).any(absent),
        }
    }

    /// Takes the task out of its queue and sees to its inputs.
    fn stage(&mut self, now: Time, ready: Ready, work: Work, out: &mut Out) {
        let Ready { task, attempt, .. } = ready;
        let (cpus, slots) = (work.cpus(), self.slots.total());
        if cpus > slots && !work.is_instant() {
            let error = format!("it needs {cpus} cpus and node {} has {slots}", self.options.me);
            let outcome = Outcome { error, exit_code: 1, ..Default::default() };
            self.finish(now, task, attempt, now, (0, 0), outcome, out);
            return;
        }
        let missing = BTreeMap::new();
        let mut staged =
            Staged { attempt, work, since: now, missing, moved_bytes: 0, local_bytes: 0 };
        for input in &staged.work.inputs {
            let object = object_of(task, input);
            let here = input.node == self.options.me.0 || self.copies.contains(&object);
            if here {
                staged.local_bytes += input.size_bytes;
                continue;
            }
            staged.moved_bytes += input.size_bytes;
            staged.missing.insert(object, (NodeId(input.node), input.size_bytes));
            // Single flight: however many tasks want it, it comes once.
            let waiting = self.fetching.entry(object).or_default();
            if waiting.is_empty() {
                let fetch = Fetch {
                    object,
                    from: NodeId(input.node),
                    size_bytes: input.size_bytes,
                    settings: staged.work.settings.clone(),
                };
                out.fetches.push(fetch);
            }
            if !waiting.contains(&task) {
                waiting.push(task);
            }
        }
        let complete =
            staged.missing.is_empty() || self.options.mutant == Some(Mutant::LaunchWithoutInputs);
        self.staging.insert(task, staged);
        if complete {
            self.staged.push_back(task);
        }
    }

    fn start(&mut self, now: Time, task: TaskId, staged: Staged, out: &mut Out) {
        let Staged { attempt, work, moved_bytes, local_bytes, .. } = staged;
        let slot = (!work.is_instant()).then(|| self.slots.take(work.cpus()));
        let spec = work.spec.clone();
        let running = Running { attempt, spec, slot, started: now, moved_bytes, local_bytes };
        let slot = slot.unwrap_or(0);
        self.running.insert(task, running);
        out.events.push(Event::Started { task, attempt, slot });
        out.launches.push(work.launch(task, attempt, slot));
    }

    /// A fetch ended.
    pub fn on_fetched(
        &mut self,
        now: Time,
        object: ObjectId,
        result: Result<(), String>,
        out: &mut Out,
    ) {
        let Some(tasks) = self.fetching.get(&object) else { return };
        match result {
            Ok(()) => {
                let tasks = self.fetching.remove(&object).unwrap_or_default();
                self.retries.remove(&object);
                self.copies.insert(object);
                for task in tasks {
                    self.input_arrived(now, task, object, out);
                }
            }
            Err(error) => {
                let tasks = tasks.clone();
                self.fetch_failed(now, object, &tasks, &error, out);
            }
        }
    }

    fn input_arrived(&mut self, now: Time, task: TaskId, object: ObjectId, out: &mut Out) {
        let Some(staged) = self.staging.get_mut(&task) else { return };
        let Some((from, bytes)) = staged.missing.remove(&object) else { return };
        let (attempt, took) = (staged.attempt, now.since(staged.since));
        out.events.push(Event::Fetched { task, attempt, from, bytes, took });
        if staged.missing.is_empty() {
            self.staged.push_back(task);
        }
    }

    fn fetch_failed(
        &mut self,
        now: Time,
        object: ObjectId,
        tasks: &[TaskId],
        error: &str,
        out: &mut Out,
    ) {
        let wanted = tasks.iter().find_map(|task| {
            let staged = self.staging.get(task)?;
            let &(node, size_bytes) = staged.missing.get(&object)?;
            Some((node, size_bytes, staged.work.settings.clone()))
        });
        let Some((node, size_bytes, settings)) = wanted else {
            self.fetching.remove(&object);
            self.retries.remove(&object);
            return;
        };
        let fetch = Fetch { object, from: node, size_bytes, settings };
        let retry = self.retries.entry(object).or_insert(Retry { tries: 0, at: None, fetch });
        retry.tries += 1;
        if retry.tries < FETCH_TRIES_MAX {
            let doubled = FETCH_RETRY_START.0 << retry.tries.min(16);
            retry.at = Some(now + Span(doubled.min(FETCH_RETRY_MAX.0)));
            return;
        }
        self.fetching.remove(&object);
        self.retries.remove(&object);
        let error = format!("input {} of {} on node {node}: {error}", object.output, object.task);
        for &task in tasks {
            if let Some(staged) = self.staging.remove(&task) {
                let outcome = Outcome { error: error.clone(), exit_code: 1, ..Default::default() };
                self.finish(now, task, staged.attempt, now, (0, 0), outcome, out);
            }
        }
    }

    pub(crate) fn retry_fetches(&mut self, now: Time, out: &mut Out) {
        for (object, retry) in &mut self.retries {
            if retry.at.is_some_and(|at| at <= now) {
                retry.at = None;
                if self.fetching.contains_key(object) {
                    out.fetches.push(retry.fetch.clone());
                }
            }
        }
        let fetching = &self.fetching;
        self.retries.retain(|object, _| fetching.contains_key(object));
    }

    /// An attempt launched here has ended.
    pub fn on_finished(
        &mut self,
        now: Time,
        task: TaskId,
        attempt: Attempt,
        outcome: Outcome,
        out: &mut Out,
    ) {
        let current = self.running.get(&task).is_some_and(|running| running.attempt == attempt);
        if !current {
            return; // It was stopped meanwhile.
        }
        let running = self.running.remove(&task).expect("looked at above");
        // A no-op takes no time; how long the step took that carried it out is not its length.
        let started = if running.slot.is_some() { running.started } else { now };
        self.slots.give_back(running.slot);
        if outcome.is_done() {
            self.estimates.completed(&running.spec.kind, now.since(started));
        }
        let bytes = (running.moved_bytes, running.local_bytes);
        self.finish(now, task, attempt, started, bytes, outcome, out);
    }

    /// Tells the task's home how the attempt ended.
    #[expect(clippy::too_many_arguments, reason = "what a completion consists of")]
    fn finish(
        &mut self,
        now: Time,
        task: TaskId,
        attempt: Attempt,
        started: Time,
        (moved_bytes, local_bytes): (u64, u64),
        outcome: Outcome,
        out: &mut Out,
    ) {
        let done = outcome.is_done();
        let end = if done { EventEnd::Done } else { EventEnd::Failed };
        out.events.push(Event::Ended { task, attempt, end, started, moved_bytes, local_bytes });
        let completion = wire::Completion {
            job: task.job.0,
            local: task.local.0,
            attempt: attempt.0,
            verdict: end as i32,
            exit_code: outcome.exit_code,
            error: outcome.error,
            stderr_tail: outcome.stderr_tail,
            queued_ns: 0,
            started_ns: started.0,
            finished_ns: now.0,
            output_sizes: outcome.output_sizes,
            moved_bytes,
            local_bytes,
            node: self.options.me.0,
            lost: outcome.lost,
            ..Default::default()
        };
        let home = self.homes.home_of(task);
        if home == self.options.me {
            self.complete(now, home, completion, out);
        } else {
            out.completions.entry(home).or_default().push(completion);
        }
    }

    pub(crate) fn forget_staged(&mut self, task: TaskId) {
        self.staging.remove(&task);
        self.staged.retain(|&other| other != task);
    }
    pub(crate) fn forget_running(&mut self, task: TaskId) {
        if let Some(running) = self.running.remove(&task) {
            self.slots.give_back(running.slot);
        }
    }

    /// A recovered home asks which of these this node has.
    pub(crate) fn on_holding(&mut self, from: NodeId, tasks: &[wire::TaskAttempt], out: &mut Out) {
        let mut not_held = Vec::new();
        for asked in tasks {
            let task = TaskId::new(asked.job, asked.local);
            let in_transit = self.transit.values().any(|transit| transit.has(task));
            if self.held_attempt(task) != Some(Attempt(asked.attempt)) && !in_transit {
                not_held.push(task_attempt(task, Attempt(asked.attempt)));
            }
        }
        if !not_held.is_empty() {
            let body = wire::message::Body::NotHeld(wire::NotHeld { tasks: not_held });
            out.reliable.push((from, body));
        }
    }
}
