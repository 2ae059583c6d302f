//! Calls that make calls: requests of a running call, its waits, and calls that run on top of one
//! that waits.
//!
//! A call that waits has given its slot back, so another call starts. It gets a process of its own
//! as long as the node has fewer than its limit. At the limit a process that waits runs calls of
//! its own call itself. If nothing of that helps, one wait ends with an error.
//!
//! No call waits for one that a client has submitted. At the limit such a call stays in the queue.
//! It gives its slot back as well, so that calls of calls can have it.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use proto::{Attempt, JobId, TaskId, wire};

use super::call::{Call, spec_of};
use super::events::RESTARTS_MAX;
use super::pool::Pool;
use super::wire::Malformed;
use super::worker::{Stage, Why, Worker};
use crate::table::Key;

/// The processes of a node for each slot, as long as calls can start.
const PROCESSES_PER_SLOT: usize = 2;
/// With all processes waiting for this time, and calls that none of them may run, one more starts.
const STUCK_MAX: Duration = Duration::from_millis(500);
/// The queued calls of a node that have given their slots back.
const QUEUED_RESTING_MAX: usize = 1024;
/// The files of answers that a call may have left are looked at when they are this many.
const FILES_KEPT: usize = 64;
/// The calls that one process runs on top of one another.
const STACK_MAX: usize = 128;

/// A request of a running call.
#[derive(Debug)]
pub struct CallRequest {
    /// The task of the call.
    pub task: TaskId,
    pub attempt: Attempt,
    /// Its description.
    pub spec: Arc<wire::Spec>,
    /// What earlier attempts have committed.
    pub resume: Option<Arc<wire::Resume>>,
    /// The number of variables that its job declares.
    pub variables: u32,
    /// The request, in JSON, and its bytes.
    pub json: Vec<u8>,
    pub data: Vec<u8>,
}

/// An answer to a request, or news that was not asked for.
#[derive(Debug, Default)]
pub struct CallAnswer {
    /// In JSON, with its bytes.
    pub json: Vec<u8>,
    pub data: Vec<u8>,
    /// The job of the call's own calls, once it is open.
    pub job: Option<JobId>,
    /// A file that `json` names. The worker removes it.
    pub file: Option<PathBuf>,
    /// The answer ends no request.
    pub is_news: bool,
}

/// Takes the answers for one request, and the news that follow from it.
pub type CallAnswers = Arc<dyn Fn(CallAnswer) + Send + Sync>;

/// Serves running calls that submit further calls. No function may block.
pub trait CallHost: fmt::Debug + Send + Sync {
    fn ask(&self, request: CallRequest, answers: CallAnswers);
    /// The call waits and needs no slot, or wants its slot again.
    fn rests(&self, task: TaskId, attempt: Attempt, rests: bool);
    /// The call has ended: what it has opened ends with it.
    fn ended(&self, task: TaskId, attempt: Attempt);
}

/// The state of a call that makes calls.
#[derive(Debug, Default)]
pub(super) struct Nested {
    /// It has asked for something.
    asked: bool,
    pub(super) job: Option<JobId>,
    /// It waits since then, without a slot.
    pub(super) rests: Option<Instant>,
    /// It wants its slot again.
    returns: bool,
    /// Files of answers. Those that the call has not removed go with it.
    files: Vec<PathBuf>,
    /// It or a call below it was cancelled: it is interrupted once it is the first.
    pub(super) ends: bool,
}

impl Nested {
    fn take_answer(&mut self, answer: &CallAnswer) {
        self.job = answer.job.or(self.job);
        if let Some(file) = &answer.file {
            if self.files.len() >= FILES_KEPT {
                self.files.retain(|file| file.exists());
            }
            self.files.push(file.clone());
        }
    }
}

/// Removes the file of an answer. Mostly the worker has done it.
fn remove(file: &Path) {
    let _ = std::fs::remove_file(file);
}

impl Worker {
    /// Whether the call that it runs waits.
    pub(super) fn rests(&self) -> bool {
        self.calls.front().is_some_and(|call| call.nested.rests.is_some())
    }
}

impl Pool {
    /// A request of a call.
    pub(super) fn hear_ask(
        &mut self,
        id: u64,
        (number, seq): (u64, u64),
        (json, data): (&[u8], &[u8]),
    ) -> Result<(), Malformed> {
        let worker = self.workers.get_mut(&id).expect("it is heard");
        let call = worker.calls.iter_mut().find(|call| call.number == number);
        let call = call.ok_or(Malformed("a request of a call that it does not have"))?;
        call.nested.asked = true;
        let (task, attempt) = call.key;
        let launch = &call.launch;
        let request = CallRequest {
            task,
            attempt,
            spec: launch.spec.clone(),
            resume: launch.resume.clone(),
            variables: launch.settings.variables,
            json: json.to_vec(),
            data: data.to_vec(),
        };
        let answers = self.answers.clone();
        let told = move |answer: CallAnswer| answers(number, seq, answer);
        match &self.shared.config.host {
            Some(host) => host.ask(request, Arc::new(told)),
            None => told(CallAnswer {
                json: br#"{"error": "ClusterError", "text": "this node serves no calls of calls"}"#
                    .to_vec(),
                ..CallAnswer::default()
            }),
        }
        Ok(())
    }

    /// Passes an answer on, unless the call has ended.
    pub(super) fn answer(&mut self, number: u64, seq: u64, answer: &CallAnswer) {
        for (&id, worker) in &mut self.workers {
            let call = worker.calls.iter_mut().find(|call| call.number == number);
            let Some(call) = call else { continue };
            call.nested.take_answer(answer);
            let seq = if answer.is_news { 0 } else { seq };
            worker.outgoing.answer(number, seq, &answer.json, &answer.data);
            self.write_more(id);
            return;
        }
        answer.file.iter().for_each(|file| remove(file));
    }

    /// A call waits for its calls, or wants to go on.
    pub(super) fn hear_rest(
        &mut self,
        id: u64,
        number: u64,
        rests: bool,
        now: Instant,
    ) -> Result<(), Malformed> {
        let worker = self.workers.get_mut(&id).expect("it is heard");
        let call = worker.calls.iter_mut().find(|call| call.number == number);
        let call = call.ok_or(Malformed("a wait of a call that it does not have"))?;
        let key = call.key;
        if rests {
            (call.nested.rests, call.nested.returns) = (Some(now), false);
        } else if call.nested.rests.is_some() {
            call.nested.returns = true;
        } else {
            worker.outgoing.go_on(number, false); // It has its slot.
            self.write_more(id);
            return Ok(());
        }
        self.tell_host(key, rests);
        Ok(())
    }

    fn tell_host(&self, (task, attempt): Key, rests: bool) {
        if let Some(host) = &self.shared.config.host {
            host.rests(task, attempt, rests);
        }
    }

    /// The call has its slot again.
    pub(super) fn go_on(&mut self, key: Key, now: Instant) {
        for (&id, worker) in &mut self.workers {
            let call = worker.calls.iter_mut().find(|call| call.key == key && call.nested.returns);
            let Some(call) = call else { continue };
            let number = call.number;
            call.went_on(now);
            worker.outgoing.go_on(number, false);
            self.write_more(id);
            return;
        }
    }

    /// The call has left its worker: what it has opened ends with it. A call that starts again has
    /// a slot again, sooner or later.
    pub(super) fn leave_nested(&self, call: &mut Call, starts_again: bool) {
        let nested = std::mem::take(&mut call.nested);
        let (task, attempt) = call.key;
        nested.files.iter().for_each(|file| remove(file));
        if let (true, Some(host)) = (nested.asked, &self.shared.config.host) {
            host.ended(task, attempt);
        }
        if starts_again && nested.rests.is_some() {
            self.tell_host(call.key, false);
        }
    }

    /// Gives a call to a worker with a waiting call that has submitted it. `Err`: there is none,
    /// or a worker of its own may start.
    pub(super) fn stack(&mut self, call: Box<Call>) -> Result<(), Box<Call>> {
        let is_coming = |it: &Worker| it.stage == Stage::Starting && it.is_for(&call);
        let has_room = self.processes() < PROCESSES_PER_SLOT * self.slots();
        if has_room || self.workers.values().any(is_coming) {
            return Err(call);
        }
        let job = call.key.0.job;
        let fits = |worker: &Worker| {
            worker.stage == Stage::Ready
                && worker.is_for(&call)
                && worker.interrupted.is_none()
                && worker.calls.len() < STACK_MAX
                && worker.calls.front().is_some_and(|first| first.takes_calls_of(job))
        };
        let Some((&id, _)) = self.workers.iter().find(|(_, it)| fits(it)) else { return Err(call) };
        self.hand_over(id, call);
        Ok(())
    }

    /// Ends the call at this place of a worker, and those on top of it first.
    pub(super) fn unwind(&mut self, id: u64, place: usize, now: Instant) {
        let Some(worker) = self.workers.get_mut(&id) else { return };
        worker.calls.iter_mut().take(place + 1).for_each(|call| call.nested.ends = true);
        self.interrupt(id, Why::Cancelled, now);
    }

    fn slots(&self) -> usize {
        self.shared.config.slots.max(1) as usize
    }

    /// The number of workers that live. One that ends counts while it may still run a call.
    fn processes(&self) -> usize {
        let lives = |it: &&Worker| it.stage != Stage::Ending || !it.calls.is_empty();
        self.workers.values().filter(lives).count()
    }

    /// Whether a worker more may start, with none to be ended for it.
    pub(super) fn may_start_more(&mut self, now: Instant) -> bool {
        let lives = self.processes();
        let resting = self.workers.values().filter(|it| it.rests()).count();
        let slots = self.slots();
        if lives - resting < slots && lives < PROCESSES_PER_SLOT * slots {
            self.stuck = None;
            return true;
        }
        if lives > resting || resting == 0 {
            self.stuck = None; // A call runs, and will end or wait.
            return false;
        }
        let rested = self.queue.iter().filter(|call| call.has_yielded()).count();
        let is_awaited = self.is_awaited();
        // Each wait is longer than the one before, since each takes further calls to this node.
        let wait = if is_awaited { STUCK_MAX } else { STUCK_MAX * (1 + rested as u32) };
        if now < *self.stuck.get_or_insert(now) + wait {
            return false;
        }
        self.stuck = None;
        if rested < QUEUED_RESTING_MAX && (self.rest_queued(now) || !is_awaited) {
            return false;
        }
        // Twice the limit, so that calls of other runtimes and jobs may end the waits.
        if lives < 2 * PROCESSES_PER_SLOT * slots + 4 {
            return true;
        }
        self.end_a_wait(now);
        false
    }

    /// Queued calls that no call waits for give their slots back. False: none has one.
    fn rest_queued(&mut self, now: Instant) -> bool {
        let mut keys = Vec::new();
        for call in &mut self.queue {
            // A call with devices would start without them.
            if !call.is_nested() && call.nested.rests.is_none() && call.binding.is_none() {
                call.nested.rests = Some(now);
                keys.push(call.key);
            }
        }
        keys.iter().for_each(|key| self.tell_host(*key, true));
        !keys.is_empty()
    }

    /// A call goes to a worker. If it had given its slot back, it has one again sooner or later.
    pub(super) fn leave_queue(&self, call: &mut Call) {
        if call.nested.rests.take().is_some() {
            self.tell_host(call.key, false);
        }
    }

    /// Whether the queue has a call that another one may wait for.
    pub(super) fn is_awaited(&self) -> bool {
        self.queue.iter().any(|call| call.is_nested())
    }

    /// All processes wait, and none of them may run what should start. A call that only wants its
    /// slot again goes on without one; else the newest wait ends in an error.
    fn end_a_wait(&mut self, now: Instant) {
        let rank = |worker: &Worker| {
            let nested = &worker.calls.front()?.nested;
            Some((nested.returns, nested.rests?))
        };
        let last = self.workers.iter().filter(|(_, it)| it.interrupted.is_none());
        let last = last.filter_map(|(id, worker)| Some((rank(worker)?, *id))).max();
        let Some(((returns, _), id)) = last else { return };
        let worker = self.workers.get_mut(&id).expect("it was just found");
        let call = worker.calls.front_mut().expect("it rests");
        let (key, number) = (call.key, call.number);
        call.went_on(now);
        worker.outgoing.go_on(number, !returns);
        self.write_more(id);
        // It goes on at once: a slot may become free only by that.
        self.tell_host(key, false);
    }
}

impl Call {
    /// Whether a call has submitted it.
    fn is_nested(&self) -> bool {
        spec_of(&self.launch).nested
    }

    /// Of a queued call: it has given its slot back.
    pub(super) fn has_yielded(&self) -> bool {
        self.nested.rests.is_some()
    }

    /// Whether calls of this job may run on top of it.
    fn takes_calls_of(&self, job: JobId) -> bool {
        self.nested.rests.is_some()
            && !self.nested.returns
            && self.nested.job == Some(job)
            && self.restarts < RESTARTS_MAX
    }

    /// The wait has ended; its time does not count.
    fn went_on(&mut self, now: Instant) {
        let since = self.nested.rests.take();
        self.nested.returns = false;
        if let (Some(since), Some(sent)) = (since, &mut self.sent) {
            *sent += now.saturating_duration_since(since);
        }
    }
}
