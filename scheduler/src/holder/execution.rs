//! Holding and running ready tasks: launches and completions. The way from queue to slot is in
//! `staging.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use proto::event::{End as EventEnd, Reason, RetryReason};
use proto::work::{Outcome, Stay, Turn};
use proto::{Attempt, Event, NodeId, ObjectId, TaskId, Time, wire};
use resources::Rested;

use crate::holder::Holder;
use crate::holder::queues::ready_queue::{PLAIN, Ready};
use crate::holder::slots::Seat;
use crate::holder::staging::Staged;
use crate::holder::task::{Work, is_command, is_upload, of_variant, unpack};
use crate::objects::data::{Reads, is_real};
use crate::objects::drain::AttemptKey;
use crate::objects::output_copies::UnreportedEnd;
use crate::objects::shared_files::SharedFile;
use crate::output::{Out, send_tasks_not_held, task_attempt};
use crate::{Mutant, Scheduler};

/// A remote task that this node holds.
#[derive(Debug)]
pub(crate) struct RemoteTask {
    pub(crate) attempt: Attempt,
    pub(crate) work: Work,
    /// Its home knows that the task is here. Until then it is not passed on. Otherwise the report
    /// of the next move could reach the home first; then the report of this one would name the
    /// wrong holder.
    pub(crate) home_knows: bool,
}

#[derive(Debug)]
pub(crate) struct Running {
    pub(in crate::holder) attempt: Attempt,
    spec: Arc<wire::Spec>,
    /// The task's slots and claim; a no-op has none.
    seat: Option<Seat>,
    /// It waits for other tasks without its seat.
    rests: bool,
    /// The claim that it had then.
    rested: Option<Box<Rested>>,
    pub(in crate::holder) started: Time,
    pub(in crate::holder) reads: Reads,
    pins: Vec<ObjectId>,
    /// Bytes reserved for the task's outputs.
    output_bytes: u64,
    shared_files: Vec<SharedFile>,
    real: bool,
    /// This node was its home, and has recorded for the next home that it runs here.
    pub(in crate::holder) handed_on: bool,
}

impl Running {
    pub(crate) fn attempt(&self) -> Attempt {
        self.attempt
    }
    pub(crate) fn is_handed_on(&self) -> bool {
        self.handed_on
    }
    pub(crate) fn seat(&self) -> Option<&Seat> {
        self.seat.as_ref()
    }
    /// Whether it runs on several nodes.
    pub(crate) fn is_gang(&self) -> bool {
        self.spec.nodes > 1
    }
    pub(crate) fn spec(&self) -> &wire::Spec {
        &self.spec
    }
    /// Whether it waits without its seat.
    pub(crate) fn rests(&self) -> bool {
        self.rests
    }
    /// It waits for other tasks. Returns its seat.
    pub(crate) fn rest(&mut self) -> Option<Seat> {
        self.rests |= self.seat.is_some();
        self.seat.take()
    }
    pub(crate) fn go_on(&mut self, seat: Seat) {
        (self.seat, self.rests, self.rested) = (Some(seat), false, None);
    }
    pub(crate) fn keep_rested(&mut self, rested: Rested) {
        self.rested = Some(Box::new(rested));
    }
    pub(crate) fn rested(&self) -> Option<&Rested> {
        self.rested.as_deref()
    }
    /// The attempt ends without a completion.
    pub(crate) fn ended(&self, task: TaskId, end: EventEnd) -> Event {
        let Self { attempt, started, .. } = *self;
        let Reads { moved_bytes, local_bytes, .. } = self.reads;
        Event::Ended { task, attempt, end, started, moved_bytes, local_bytes }
    }
}

#[cfg(test)]
impl Running {
    pub(crate) fn has_seat(&self) -> bool {
        self.seat.is_some()
    }
}

impl Holder {
    /// The attempt has ended, and its end is reported later. False if it does not run here.
    pub(super) fn leave_seat(&mut self, now: Time, task: TaskId, attempt: Attempt) -> bool {
        let running = self.running.get_mut(&task).filter(|it| it.attempt == attempt);
        let Some(running) = running else { return false };
        match running.seat.take() {
            None if running.rests => {}
            None => running.started = now, // A no-op takes no time.
            seat => self.slots.give_back(seat),
        }
        true
    }
    /// The attempt of this task that this node holds in any form, except for queued tasks of its
    /// own home.
    fn held_attempt(&self, task: TaskId) -> Option<Attempt> {
        let running = self.running.get(&task).map(|running| running.attempt);
        let staging = self.staging.get(&task).map(|staged| staged.attempt);
        let remote = self.remote_tasks.get(&task).map(|remote| remote.attempt);
        running.or(staging).or(remote)
    }
}

impl Scheduler {
    /// A home sent these tasks. A push of an earlier home may arrive after the present home has
    /// asked for the task and placed it on another node. The number of the attempt distinguishes
    /// this case from a push by a home that this node does not know yet.
    pub(crate) fn on_push(&mut self, from: NodeId, push: wire::Push, out: &mut Out) {
        let (partitions, leaves) = (self.routing.homes().partitions(), push.leaves);
        let Some(tasks) = push.bundle.and_then(|bundle| unpack(bundle, partitions)) else { return };
        self.stealing.forget_unacked_grants_of(&tasks);
        let me = self.options.me;
        let mut not_held: BTreeMap<NodeId, Vec<wire::TaskAttempt>> = BTreeMap::new();
        for (task, attempt, work) in tasks {
            let home = self.routing.homes().owner(task.partition());
            let is_late = attempt.0 >> 32 < self.routing.homes().epoch(task.partition());
            if let Some(home) = home.filter(|&home| is_late && home != from && home != me) {
                not_held.entry(home).or_default().push(task_attempt(task, attempt));
                continue;
            }
            self.note_class(&work);
            if work.has_request() && !self.holder.fits_here(&work) {
                // The home has an earlier offer of this node.
                let home = home.unwrap_or(from);
                not_held.entry(home).or_default().push(task_attempt(task, attempt));
                continue;
            }
            let input_bytes = work.input_bytes();
            let ready = self.arriving(task, attempt, &work);
            if self.take_in(task, attempt, work, out) {
                // A task that came for its request alone may go on to another node that fits.
                let local_queue = ready.class == PLAIN
                    || input_bytes > 0 && !self.holder.waits_for_others(ready.class);
                let event = Event::Queued {
                    task,
                    attempt,
                    local_queue,
                    reason: Reason::Pushed,
                    input_bytes,
                };
                self.enqueue(local_queue, ready);
                out.events.extend(leaves.then_some(Event::Moved { task, attempt, from }));
                out.events.push(event);
            }
        }
        send_tasks_not_held(not_held, RetryReason::NotHeld, out);
    }

    /// A ready task arrives. If this node is its home by now, its records decide whether it is
    /// wanted. Returns false if it is not.
    pub(crate) fn take_in(
        &mut self,
        task: TaskId,
        attempt: Attempt,
        work: Work,
        out: &mut Out,
    ) -> bool {
        if self.routing.homes().is_home_of(task) {
            self.home.ledger.take_home(task, attempt, out)
        } else {
            self.take_remote_task(task, attempt, work, out)
        }
    }

    /// Returns false if this attempt or a later one is here already.
    fn take_remote_task(
        &mut self,
        task: TaskId,
        attempt: Attempt,
        work: Work,
        out: &mut Out,
    ) -> bool {
        if let Some(known) = self.holder.held_attempt(task) {
            if known >= attempt {
                return false;
            }
            self.drop_task(task, known, out);
            self.report_dropped(task, known, out);
        }
        self.holder.local_jobs.record_activity(task.job);
        self.holder.remote_tasks.insert(task, RemoteTask { attempt, work, home_knows: true });
        true
    }

    /// The attempt was dropped here. Its home places the task again if it counts on the attempt.
    pub(crate) fn report_dropped(&mut self, task: TaskId, attempt: Attempt, out: &mut Out) {
        if self.options.mutant != Some(Mutant::ReplacedUnreported) {
            self.report_not_held(task, attempt, RetryReason::NotHeld, out);
        }
    }
    /// This node does not hold the attempt any more, because it was dropped or moved.
    pub(crate) fn report_not_held(
        &mut self,
        task: TaskId,
        attempt: Attempt,
        why: RetryReason,
        out: &mut Out,
    ) {
        if self.routing.homes().is_home_of(task) {
            return self.home.ledger.replace_dropped(task, attempt, why, out);
        }
        let tasks = [(self.routing.homes().home_of(task), vec![task_attempt(task, attempt)])];
        send_tasks_not_held(tasks.into(), why, out);
    }

    /// Whether an entry of a queue is still wanted.
    pub(crate) fn is_current(&self, ready: Ready) -> bool {
        if self.routing.homes().is_home_of(ready.task) {
            self.home.ledger.is_held_here(ready.task, ready.attempt)
        } else {
            self.holder
                .remote_tasks
                .get(&ready.task)
                .is_some_and(|remote| remote.attempt == ready.attempt)
        }
    }

    /// Takes the work of a queued task; `None` if the entry is outdated.
    pub(crate) fn take_work(&mut self, ready: Ready) -> Option<Work> {
        if self.routing.homes().is_home_of(ready.task) {
            return self.home.ledger.work_held_here(ready.task, ready.attempt);
        }
        if !self.is_current(ready) {
            return None;
        }
        self.holder.remote_tasks.remove(&ready.task).map(|remote| remote.work)
    }

    pub(crate) fn start(&mut self, now: Time, task: TaskId, staged: Staged, out: &mut Out) {
        let Staged { attempt, work, class, reads, pins, output_bytes, shared_files, seat, .. } =
            staged;
        let seat = match seat {
            None if !work.is_instant() => {
                Some(self.holder.take_seat(&work, class).expect("a task that starts fits"))
            }
            seat => seat,
        };
        if work.alone {
            self.holder.start_requests.set_exclusive(task);
        }
        if self.routing.homes().is_home_of(task) {
            self.home.ledger.note_start(task, out);
        } else if is_command(&work.spec) && work.deaths == 0 {
            // Its home mostly learns of the start before a death; a task with deaths has asked.
            self.report_start(task_attempt(task, attempt), out);
        }
        self.want_variables(now, task, &work, out);
        if let Some(resume) = work.resume.clone() {
            self.holder.continue_turns(task, attempt, &resume);
        }
        let real = is_real(&work.spec, &work.settings);
        let spec = work.spec.clone();
        let slot = seat.as_ref().map(|seat| seat.first);
        // A no-op without a request makes no use of it.
        let is_noop = matches!(work.spec.body, Some(wire::spec::Body::Noop(_)));
        let is_told = work.has_request() || !is_noop;
        let granted =
            seat.as_ref().filter(|_| is_told).and_then(|seat| self.holder.slots.granted(seat));
        let running = Running {
            attempt,
            spec,
            seat,
            rests: false,
            rested: None,
            started: now,
            reads,
            pins,
            output_bytes,
            shared_files,
            real,
            handed_on: false,
        };
        let (slot, is_instant) = (slot.unwrap_or(0), slot.is_none());
        let mut launch = Box::new(work.launch(task, attempt, slot));
        if let Some(granted) = &granted {
            launch.spec = of_variant(&launch.spec, granted.variant);
        }
        launch.granted = granted;
        if work.is_gang() {
            launch.gang = self.gang_of(task, &work, launch.granted.as_deref());
        }
        self.holder.expect_notice(task, attempt, &running.spec);
        self.holder.running.insert(task, Box::new(running));
        out.events.push(Event::Started { task, attempt, slot });
        let more = self.holder.slots.more(slot).iter().filter(|_| !is_instant);
        out.events.extend(more.map(|&slot| Event::Widened { task, attempt, slot }));
        out.launches.push(launch);
    }

    /// The end of an attempt is reported. `waited_since`: it has ended then, without its seat.
    pub(crate) fn end_attempt_at(
        &mut self,
        now: Time,
        waited_since: Option<Time>,
        (task, attempt): AttemptKey,
        outcome: Box<Outcome>,
        out: &mut Out,
    ) {
        let at = waited_since.unwrap_or(now);
        let current =
            self.holder.running.get(&task).is_some_and(|running| running.attempt == attempt);
        if !current || self.objects.holds_end_back(&(task, attempt)) {
            return; // It was stopped meanwhile, or is reported twice.
        }
        if self.holder.is_to_move(task, attempt) {
            return self.move_attempt(task, attempt, out);
        }
        self.holder.forget_notice(task);
        let mut running = self.holder.running.remove(&task).expect("looked at above");
        self.holder.start_requests.ended(task);
        // A no-op takes no time; the duration of the step that ran it says nothing about it.
        let has_run = running.seat.is_some() || running.rests || waited_since.is_some();
        let started = if has_run { running.started } else { at };
        if outcome.is_done() {
            let moved_bytes = running.reads.moved_bytes;
            self.note_length(now, &running.spec.kind, at.since(started), moved_bytes);
        }
        if outcome.turn.is_some() || self.holder.attempt_turns.is_some() {
            self.keep_outputs_of_parent(task, &mut running, &outcome);
        }
        self.keep_outputs(task, &running, &outcome);
        self.free_resources(&running, out);
        (running.pins, running.shared_files, running.output_bytes) = (Vec::new(), Vec::new(), 0);
        self.objects.count_reads(running.reads, at.since(started));
        let ended = UnreportedEnd { at, started, reads: running.reads, outcome };
        let what = (&*running.spec, running.real);
        let ended = self.share_first(now, (task, attempt), what, ended, out);
        if !self.objects.sends_at_its_limit() || ended.is_some() {
            self.holder.slots.give_back(running.seat.take());
        }
        match ended {
            Some(ended) => {
                if waited_since.is_some() {
                    self.holder.job_tallies.held_ends.insert((task, attempt), at);
                }
                self.report_ended(now, (task, attempt), ended, out);
            }
            None => {
                self.holder.running.insert(task, running);
            }
        }
    }

    /// Reports an end that was held back: other nodes have the outputs now.
    pub(crate) fn report_held_back(
        &mut self,
        now: Time,
        made: AttemptKey,
        ended: UnreportedEnd,
        out: &mut Out,
    ) {
        if let Some(running) = self.holder.running.remove(&made.0) {
            self.holder.slots.give_back(running.seat);
        }
        self.holder.job_tallies.held_ends.insert(made, ended.at);
        self.report_ended(now, made, ended, out);
    }

    fn report_ended(
        &mut self,
        now: Time,
        (task, attempt): AttemptKey,
        ended: UnreportedEnd,
        out: &mut Out,
    ) {
        let UnreportedEnd { at, started, reads, mut outcome } = ended;
        let turn = outcome.turn.take().map(|turn| *turn);
        match outcome.is_done() {
            true => self.stats.attempts_done += 1,
            false => self.stats.attempts_failed += 1,
        }
        let completion = self.completion(at, task, attempt, started, reads, outcome, out);
        self.report_end(now, task, completion, turn, out);
    }

    /// A task that has committed turns cannot run again, so its outputs are on as many nodes as its
    /// record.
    fn keep_outputs_of_parent(&self, task: TaskId, running: &mut Running, outcome: &Outcome) {
        let turned =
            self.holder.attempt_turns.as_ref().is_some_and(|turns| turns.contains_key(&task));
        if outcome.turn.is_some() || turned {
            let copies = self.routing.homes().copies();
            let spec = Arc::make_mut(&mut running.spec);
            spec.outputs.iter_mut().for_each(|it| it.replicas = it.replicas.max(copies));
        }
    }

    /// Adds the outputs of an attempt to the objects here.
    fn keep_outputs(&mut self, task: TaskId, running: &Running, outcome: &Outcome) {
        let (attempt, real) = (running.attempt, running.real);
        for (output, &size_bytes) in (0u32..).zip(&outcome.output_sizes) {
            if size_bytes > 0 || real {
                let object = ObjectId { task, attempt, output };
                let declared = running.spec.outputs.get(output as usize);
                let is_upload = is_upload(&running.spec);
                let stay = declared.map_or_else(Stay::default, |it| Stay::of_output(it, is_upload));
                self.objects.add_output(object, size_bytes, real, stay);
            }
        }
    }

    /// Releases the inputs of an attempt that ran, and the space reserved for it.
    fn free_resources(&mut self, running: &Running, out: &mut Out) {
        self.objects.return_space(running.output_bytes, &running.shared_files);
        self.unpin(&running.pins, out);
    }

    /// Reports the end of the attempt to the task's home.
    #[expect(clippy::too_many_arguments, reason = "what a completion consists of")]
    pub(crate) fn finish(
        &mut self,
        now: Time,
        task: TaskId,
        attempt: Attempt,
        started: Time,
        reads: Reads,
        outcome: impl Into<Box<Outcome>>,
        out: &mut Out,
    ) {
        let mut outcome = outcome.into();
        let turn = outcome.turn.take().map(|turn| *turn);
        let completion = self.completion(now, task, attempt, started, reads, outcome, out);
        self.report_end(now, task, completion, turn, out);
    }

    pub(crate) fn report_end(
        &mut self,
        now: Time,
        task: TaskId,
        mut completion: wire::Completion,
        turn: Option<Turn>,
        out: &mut Out,
    ) {
        if turn.is_some() || self.holder.attempt_turns.is_some() {
            match self.end_with_turn(now, task, completion, turn, out) {
                Some(plain) => completion = plain,
                None => return,
            }
        }
        if self.routing.homes().is_home_of(task) {
            self.complete(now, self.options.me, &mut completion, out);
        } else {
            let home = self.routing.homes().home_of(task);
            if self.routing.homes().moves()
                && self.options.mutant != Some(Mutant::RecentCompletionsForgotten)
            {
                self.holder.recent_completions.note(task, completion.clone());
            }
            out.completions.entry(home).or_default().push(completion);
        }
    }

    /// The end of an attempt in the form that its home gets.
    #[expect(clippy::too_many_arguments, reason = "what a completion consists of")]
    #[expect(clippy::boxed_local, reason = "its parts are moved out of the box")]
    pub(crate) fn completion(
        &self,
        now: Time,
        task: TaskId,
        attempt: Attempt,
        started: Time,
        reads: Reads,
        outcome: Box<Outcome>,
        out: &mut Out,
    ) -> wire::Completion {
        let outcome = *outcome;
        let done = outcome.is_done();
        let end = if done { EventEnd::Done } else { EventEnd::Failed };
        let Reads { moved_bytes, local_bytes, .. } = reads;
        out.events.push(Event::Ended { task, attempt, end, started, moved_bytes, local_bytes });
        wire::Completion {
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
            hung: outcome.hung,
            inputs: reads.inputs,
            inputs_local: reads.made_here,
            inputs_copied: reads.copied,
            lost_inputs: Vec::new(),
            output_sums: outcome.output_sums,
            inline: outcome.inline,
            stdout_bytes: outcome.captured.stdout_bytes,
            stderr_bytes: outcome.captured.stderr_bytes,
            cpu_us: outcome.used.cpu_us,
            max_rss_kib: outcome.used.max_rss_kib,
        }
    }

    pub(crate) fn forget_staged(&mut self, task: TaskId, out: &mut Out) {
        self.unstage(task, out);
    }
    pub(crate) fn forget_running(&mut self, task: TaskId, out: &mut Out) {
        if let Some(mut running) = self.holder.running.remove(&task) {
            let attempt = running.attempt;
            let ended = self.objects.unreported_end(&(task, attempt));
            self.holder.job_tallies.stopped.push((task, attempt, ended));
            self.holder.start_requests.ended(task);
            self.holder.forget_notice(task);
            self.holder.slots.give_back(running.seat.take());
            self.free_resources(&running, out);
        }
    }

    /// A home asks which of these attempts this node has.
    pub(crate) fn on_held_tasks_query(
        &mut self,
        from: NodeId,
        tasks: &[wire::TaskAttempt],
        out: &mut Out,
    ) {
        let mut not_held = Vec::new();
        for asked in tasks {
            let (task, attempt) = (TaskId::new(asked.job, asked.local), Attempt(asked.attempt));
            let in_transit = self.stealing.is_in_transit(task, attempt);
            let held = self.holder.held_attempt(task) == Some(attempt) || in_transit;
            if self.holder.awaits_turn_reply(task, attempt) || held {
                continue;
            }
            if let Some(end) = self.holder.recent_completions.of(task, attempt) {
                out.completions.entry(from).or_default().push(end.clone());
            } else {
                not_held.push(task_attempt(task, attempt));
            }
        }
        if !not_held.is_empty() {
            let body = wire::message::Body::TasksNotHeld(wire::TasksNotHeld {
                tasks: not_held,
                ..Default::default()
            });
            out.reliable.push((from, body));
        }
    }
}
