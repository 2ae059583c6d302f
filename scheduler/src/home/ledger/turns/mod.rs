//! Turns at the home of a task: each is checked, applied and recorded as a whole.
//!
//! A turn counts if its attempt is the current one and its number is the next one. The new state,
//! the spawned tasks and the verdict go into one batch. So the tasks of a committed turn exist
//! exactly once, and nothing of any other turn exists. The next attempt starts where the last turn
//! ended, on whichever node.
//!
//! `spawn.rs` has the places of children, `inputs.rs` their edges from earlier ones, `awaits.rs`
//! the waits, `check.rs` the limits, `explain.rs` the sentences for a reader.

mod awaits;
pub(crate) mod check;
mod explain;
mod inputs;
mod mail;
mod recovery;
mod spawn;
mod state;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proto::event::{Event, Turned};
use proto::variable::add_sums;
use proto::wire::message::Body;
use proto::wire::{self, TurnResult, TurnVerdict};
use proto::{Attempt, JobId, LocalId, NodeId, PartitionId, TaskId, Time};

use crate::holder::task::Work;
use crate::home::Home;
use crate::home::ledger::{End, Ledger, State};
use crate::output::Out;
use crate::policy::Decision;
use crate::{Mutant, Scheduler};
pub(crate) use mail::Suspended;
pub(crate) use state::PartTurns;
use state::TaskTurns;

/// The chunks of spawned tasks that are not synced yet, by number.
pub(crate) type Born = BTreeMap<(JobId, PartitionId), BTreeSet<u32>>;

/// How a home takes a turn.
enum Fence {
    /// It is the next one of the current attempt.
    Next,
    /// It was committed before.
    Repeated,
    Fenced,
}

impl Ledger {
    /// The turns that the task has committed, for its next attempt.
    pub(crate) fn resume_of(&self, task: TaskId) -> Option<Arc<wire::Resume>> {
        let letters = self.letters_of(task);
        let Some(turns) = self.turns_of(task) else {
            let has_some = !letters.is_empty();
            let only_letters = || wire::Resume { letters, ..wire::Resume::default() };
            return has_some.then(|| Arc::new(only_letters()));
        };
        let forgets =
            turns.verdict == TurnVerdict::TurnYield && self.mutant == Some(Mutant::YieldDropsState);
        let key = |(key, &ordinal): (&String, &u64)| wire::ChildKey { key: key.clone(), ordinal };
        Some(Arc::new(wire::Resume {
            seq: turns.seq,
            state: turns.state.clone().filter(|_| !forgets),
            children: turns.children.clone(),
            keys: turns.keys.iter().map(key).collect(),
            awaited: self.ends_of(task, turns),
            letters,
        }))
    }

    fn turns_of_mut(&mut self, task: TaskId) -> Option<&mut TaskTurns> {
        self.part_mut(task)?.turns.as_mut()?.tasks.get_mut(&task.local.index())
    }

    fn turns_of(&self, task: TaskId) -> Option<&TaskTurns> {
        self.part(task)?.turns.as_ref()?.tasks.get(&task.local.index())
    }

    /// Whether the task has committed turns. It is never run again for a lost output, and never
    /// recalled: tasks that it has spawned exist already.
    pub(crate) fn has_turned(&self, task: TaskId) -> bool {
        let index = task.local.index();
        let turns = self.part(task).and_then(|part| part.turns.as_ref());
        turns.is_some_and(|turns| turns.tasks.contains_key(&index) || turns.sealed.contains(&index))
    }

    fn fence(&self, task: TaskId, turn: &wire::Turn) -> Fence {
        let attempt = Attempt(turn.attempt);
        let Some(cell) = self.cell(task) else { return Fence::Fenced };
        let last = self.turns_of(task);
        let seq = last.map_or(0, |turns| turns.seq);
        let is_last = |turns: &TaskTurns| turns.attempt == attempt && turns.number == turn.number;
        if last.is_some_and(is_last) && turn.seq == seq {
            return match self.mutant == Some(Mutant::SeqIgnored) {
                true => Fence::Next,
                false => Fence::Repeated,
            };
        }
        let is_current = cell.state == State::Ready && cell.attempt == attempt;
        let any_attempt = self.mutant == Some(Mutant::TurnWithoutAttempt)
            && !matches!(cell.state, State::Ended(_));
        match is_current && turn.seq == seq + 1 || any_attempt {
            true => Fence::Next,
            // The end of a task leaves nothing but its attempt.
            false if cell.state == State::Ended(End::Done) && cell.attempt == attempt => {
                Fence::Repeated
            }
            false => Fence::Fenced,
        }
    }

    /// Whether the task was done before. Other tasks may have ended since because of it.
    fn is_rebuilt(&self, task: TaskId) -> bool {
        let index = task.local.index();
        let segment = self.part(task).and_then(|part| part.segment(index));
        segment.is_some_and(|segment| {
            let rebuilds = segment.cell(index).map_or(0, |cell| cell.rebuilds);
            rebuilds > 0 || !segment.output_sums(index).is_empty()
        })
    }

    /// Adds the children and the state of a turn.
    fn commit_turn(
        &mut self,
        now: Time,
        task: TaskId,
        turn: &mut wire::Turn,
        out: &mut Out,
    ) -> (u64, u64, u32) {
        let spawned = turn.spawned.take().unwrap_or_default();
        let count = spawned.tasks.len() as u32;
        let keys = spawned.keys.clone();
        let first = if count > 0 { self.bear(now, task, spawned, out) } else { 0 };
        let Some(part) = self.part_mut(task) else { return (0, 0, 0) };
        part.count.turns += 1;
        let turns = part.turns.get_or_insert_default();
        let own = turns.tasks.entry(task.local.index()).or_default();
        let ordinal = own.add_children(first, count);
        let named = keys.into_iter().map(|it| (it.key, ordinal + u64::from(it.task)));
        own.keys.extend(named);
        (own.seq, own.attempt, own.verdict) = (turn.seq, Attempt(turn.attempt), turn.verdict());
        own.number = turn.number;
        add_sums(&mut own.sums, &turn.sums, 1);
        add_sums(&mut part.count.sums, &turn.sums, 1);
        own.awaits = std::mem::take(&mut turn.awaits);
        own.forget_other_ends();
        own.mail_wait = turn.mail_wait.take();
        own.spawned = count;
        if let Some(state) = turn.state.take() {
            own.state = Some(state);
        }
        if !turn.sums.is_empty() {
            self.report_part(now, task);
        }
        self.turn_mail(now, task, turn, out);
        (ordinal, first, count)
    }

    /// Records the last turn of a task.
    fn record_turn(&self, task: TaskId, is_done: bool, out: &mut Out) {
        let index = task.local.index();
        if let Some(turns) = self.turns_of(task) {
            let record = turns.record(index, is_done);
            let place = (task.partition(), task.job);
            out.facts.turns.get_or_insert_default().insert((place, index), record);
        }
    }

    /// The attempt has ended with this turn, and the task waits for others or for a slot.
    fn put_back(
        &mut self,
        now: Time,
        task: TaskId,
        (pending, suspends): (BTreeSet<LocalId>, bool),
        out: &mut Out,
    ) {
        self.start_is_over(task, out);
        self.release_holder(task);
        self.give_place_back(task);
        let Some(cell) = self.cell_mut(task) else { return };
        cell.state = State::Waiting;
        cell.again = false;
        let is_complete = cell.missing == 0;
        self.waiting += 1;
        if suspends {
            self.suspend(now, task);
        } else if pending.is_empty() && is_complete {
            self.ready.push_back(task);
        } else {
            self.begin_wait(now, task, pending);
        }
    }

    /// A task of a part with turns has ended: it waits no longer, and those that await it go on.
    pub(crate) fn turns_ended(&mut self, task: TaskId, end: End, out: &mut Out) {
        let index = task.local.index();
        if self.turns_of(task).is_some() {
            self.stop_wait(task);
            if end == End::Done {
                self.record_turn(task, true, out);
                self.seal(task);
            }
        }
        let turns = self.part(task).and_then(|part| part.turns.as_ref());
        if turns.is_some_and(|turns| turns.waiters.contains_key(&index)) {
            self.wake_waiters(task);
        }
    }

    fn seal(&mut self, task: TaskId) {
        let index = task.local.index();
        if let Some(turns) = self.part_mut(task).and_then(|part| part.turns.as_mut()) {
            turns.tasks.remove(&index);
            turns.sealed.insert(index);
        }
    }

    /// The outputs of a task that spawned others are lost. It cannot run again, so its job cannot
    /// end well.
    pub(crate) fn lose_turned(&mut self, now: Time, task: TaskId) {
        let name = self.name(task);
        if let Some(part) = self.part_mut(task) {
            part.count.lost = format!(
                "the outputs of task '{name}' ({}) are lost, and a task that has committed turns \
                 does not run again; hint: more replicas of its outputs",
                task.local
            );
        }
        self.report_part(now, task);
    }

    /// The counts of the task's part have changed.
    pub(in crate::home::ledger) fn report_part(&mut self, now: Time, task: TaskId) {
        let interval = self.report_interval;
        let Some(job) = self.jobs.get_mut(&task.job) else { return };
        job.parts.mark_changed(task.partition());
        job.report_soon(now, interval);
    }
}

impl Home {
    fn set_waits_at(&mut self, task: TaskId, node: Option<NodeId>) {
        if let Some(own) = self.ledger.turns_of_mut(task) {
            own.waits_at = node;
        }
    }

    fn set_verdict(&mut self, task: TaskId, verdict: TurnVerdict) {
        if let Some(own) = self.ledger.turns_of_mut(task) {
            own.verdict = verdict;
        }
    }

    /// The answer to a turn that was committed before.
    fn repeat_reply(&self, task: TaskId, reply: &mut wire::TurnReply) {
        let Some(turns) = self.ledger.turns_of(task) else { return };
        (reply.ordinal, reply.count) = (turns.ordinals() - u64::from(turns.spawned), turns.spawned);
        if let Some(last) = turns.children.last().filter(|_| turns.spawned > 0) {
            let first = last.first + u64::from(last.count - turns.spawned);
            reply.first = LocalId::new(task.partition(), first).0;
        }
        let waited = !turns.awaits.is_empty() || turns.mail_wait.is_some();
        if turns.verdict == TurnVerdict::TurnMore && waited {
            (reply.goes_on, reply.awaited) = (true, self.ledger.ends_of(task, turns));
            if let Some(wait) = &turns.mail_wait {
                reply.letters = self.ledger.letters_for(task, wait).unwrap_or_default();
            }
        }
    }
}

impl Scheduler {
    /// A holder commits a turn of a task that is homed here.
    pub(crate) fn on_turn_of(
        &mut self,
        now: Time,
        from: NodeId,
        mut turn: wire::Turn,
        out: &mut Out,
    ) {
        let task = TaskId::new(turn.job, turn.local);
        let mut reply = wire::TurnReply {
            job: turn.job,
            local: turn.local,
            attempt: turn.attempt,
            seq: turn.seq,
            number: turn.number,
            ..wire::TurnReply::default()
        };
        match self.home.ledger.fence(task, &turn) {
            Fence::Next if self.home.ledger.is_removed(task.job) => {
                self.home.ledger.give_up(now, task, End::Cancelled, "", out);
                reply.set_result(TurnResult::Fenced);
            }
            Fence::Next => match self.check(now, task, &mut turn) {
                Ok(()) => self.take_turn(now, from, task, &mut turn, &mut reply, out),
                Err(error) => {
                    self.mail_before_commit(now, task, &mut turn, out);
                    reply.set_result(TurnResult::TurnRefused);
                    reply.error = error;
                }
            },
            Fence::Repeated => self.home.repeat_reply(task, &mut reply),
            Fence::Fenced => {
                if self.options.mutant == Some(Mutant::AbortedChildrenLive)
                    && let Some(spawned) = turn.spawned.take()
                    && self.home.ledger.cell(task).is_some()
                {
                    self.home.ledger.bear(now, task, spawned, out);
                }
                self.mail_before_commit(now, task, &mut turn, out);
                if self.options.mutant == Some(Mutant::SumBeforeCommit)
                    && let Some(part) = self.home.ledger.part_mut(task)
                {
                    add_sums(&mut part.count.sums, &turn.sums, 1);
                }
                out.events.push(Event::Stale { task, attempt: Attempt(turn.attempt) });
                reply.set_result(TurnResult::Fenced);
            }
        }
        out.reliable.push((from, Body::TurnReply(reply)));
    }

    /// A mutant sends the events of turns that do not count.
    fn mail_before_commit(
        &mut self,
        now: Time,
        task: TaskId,
        turn: &mut wire::Turn,
        out: &mut Out,
    ) {
        let sends = self.options.mutant == Some(Mutant::EventBeforeCommit);
        if sends && self.home.ledger.cell(task).is_some() {
            turn.consumed.clear();
            self.home.ledger.turn_mail(now, task, turn, out);
        }
    }

    fn check(&mut self, now: Time, task: TaskId, turn: &mut wire::Turn) -> Result<(), String> {
        check::check_turn(turn)?;
        let before = self.home.ledger.turns_of(task);
        self.home.ledger.check_awaits(task, turn, before, self.routing.homes())?;
        let fresh = turn.spawned.as_ref().map_or(0, |spawned| spawned.tasks.len() as u64);
        self.home.ledger.check_mail(task, turn, fresh, self.routing.homes())?;
        let ends = matches!(turn.verdict(), TurnVerdict::TurnDone | TurnVerdict::TurnFailed);
        let adds = turn.spawned.is_some() || !turn.sums.is_empty() || !turn.events.is_empty();
        if (adds || !ends) && self.home.ledger.is_rebuilt(task) {
            return Err("the task was done before and runs again for a lost output: it can \
                        neither spawn nor commit; hint: more replicas of its outputs"
                .to_owned());
        }
        let Some(spawned) = &mut turn.spawned else { return Ok(()) };
        check::check_keys(spawned, before)?;
        check::check_ranges(before)?;
        self.home.ledger.find_inputs(task, &mut spawned.inputs)?;
        self.home.ledger.check_room(now, task, spawned.tasks.len())
    }

    fn take_turn(
        &mut self,
        now: Time,
        from: NodeId,
        task: TaskId,
        turn: &mut wire::Turn,
        reply: &mut wire::TurnReply,
        out: &mut Out,
    ) {
        let attempt = Attempt(turn.attempt);
        let (ordinal, first, count) = match turn.verdict() {
            TurnVerdict::TurnFailed => (0, 0, 0),
            _ => self.home.ledger.commit_turn(now, task, turn, out),
        };
        (reply.ordinal, reply.count) = (ordinal, count);
        reply.first = LocalId::new(task.partition(), first).0;
        let kind = match turn.verdict() {
            TurnVerdict::TurnDone => Some(Turned::Done),
            TurnVerdict::TurnWait => Some(Turned::Wait),
            TurnVerdict::TurnMore => Some(Turned::More),
            TurnVerdict::TurnYield => Some(Turned::Yield),
            TurnVerdict::TurnFailed => None,
        };
        if let Some(kind) = kind {
            let (seq, spawned) = (turn.seq, count.into());
            out.events.push(Event::Turned { task, attempt, seq, turn: kind, first, spawned });
        }
        match turn.verdict() {
            TurnVerdict::TurnMore => self.home.ledger.record_turn(task, false, out),
            TurnVerdict::TurnWait => self.take_wait(now, from, task, turn, reply, out),
            TurnVerdict::TurnYield => {
                self.home.ledger.record_turn(task, false, out);
                if self.options.mutant == Some(Mutant::YieldCountsAsStrike)
                    && let Some(cell) = self.home.ledger.cell_mut(task)
                {
                    cell.tries = cell.tries.saturating_add(1);
                    if cell.tries > 2 {
                        self.home.ledger.give_up(now, task, End::Failed, "", out);
                        return;
                    }
                }
                self.attempt_over(now, from, task, turn, BTreeSet::new(), out);
            }
            TurnVerdict::TurnDone | TurnVerdict::TurnFailed => {
                self.home.ledger.record_turn(task, false, out);
                if let Some(completion) = turn.completion.take() {
                    let mut completion = wire::Completion {
                        job: turn.job,
                        local: turn.local,
                        attempt: turn.attempt,
                        ..completion
                    };
                    self.complete(now, from, &mut completion, out);
                }
            }
        }
    }

    /// The attempt goes on if all tasks that it waits for have ended, or if a letter is there.
    fn take_wait(
        &mut self,
        now: Time,
        from: NodeId,
        task: TaskId,
        turn: &wire::Turn,
        reply: &mut wire::TurnReply,
        out: &mut Out,
    ) {
        let Some(turns) = self.home.ledger.turns_of(task) else { return };
        let pending = self.home.ledger.unended(task, turns);
        let letters = match &turns.mail_wait {
            Some(wait) => self.home.ledger.letters_for(task, wait),
            None => Some(Vec::new()),
        };
        if pending.is_empty()
            && let Some(letters) = letters
        {
            (reply.goes_on, reply.letters) = (true, letters);
            reply.awaited = self.home.ledger.ends_of(task, turns);
            self.home.set_verdict(task, TurnVerdict::TurnMore);
            return self.home.ledger.record_turn(task, false, out);
        }
        self.home.ledger.record_turn(task, false, out);
        self.attempt_over(now, from, task, turn, pending, out);
    }

    /// The node where the command of a task waits without a slot: the next attempt goes on there.
    /// A later attempt is placed as any other.
    pub(crate) fn take_node_of_waiting(&mut self, task: TaskId, work: &Work) -> Option<Decision> {
        let node = self.home.ledger.turns_of(task)?.waits_at?;
        self.home.set_waits_at(task, None);
        match node == self.options.me {
            true => Some(Decision::Local),
            false => self.fits_node(node, work).then_some(Decision::Push(node)),
        }
    }

    fn attempt_over(
        &mut self,
        now: Time,
        from: NodeId,
        task: TaskId,
        turn: &wire::Turn,
        pending: BTreeSet<LocalId>,
        out: &mut Out,
    ) {
        if let Some(completion) = &turn.completion {
            self.home.ledger.count_execution(task, completion);
        }
        self.home.set_waits_at(task, (turn.verdict() == TurnVerdict::TurnWait).then_some(from));
        if from == self.options.me {
            self.end_turned_attempt(now, task, Attempt(turn.attempt), out);
        }
        let suspends =
            turn.verdict() == TurnVerdict::TurnWait && self.home.ledger.awaits_mail(task);
        self.home.ledger.put_back(now, task, (pending, suspends), out);
    }

    /// The chunks of a step are synced: their tasks may start.
    pub(crate) fn on_chunks_born(&mut self, from: NodeId, born: &wire::ChunksBorn) {
        if from == self.options.me {
            let (job, partition) = (JobId(born.job), PartitionId(born.partition));
            self.home.ledger.activate_born(job, partition, &born.chunks);
        }
    }
}
