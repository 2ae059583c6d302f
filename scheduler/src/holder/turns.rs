//! Turns at the holder of a task: an attempt that runs here commits what it has done so far.
//!
//! A turn is repeated until the task's home answers, so it survives the failure of that home. Until
//! then the attempt counts as held here, and its next turn or its end waits.

use std::collections::BTreeMap;

use proto::event::End as EventEnd;

use proto::wire::message::Body;
use proto::wire::{self, TurnResult, TurnVerdict};
use proto::work::{Turn, TurnAnswer, TurnCommit};
use proto::{Attempt, LocalId, PartitionId, Span, TaskId, Time};

use crate::holder::Holder;
use crate::home::ledger::turns::check::check_turn;
use crate::limits::{REPEAT_MAX, TURN_AGAIN};
use crate::output::Out;
use crate::{Mutant, Scheduler};

/// The turns of attempts here, answered or not, if they or earlier attempts have sent some.
pub(crate) type TurnsOfAttempts = BTreeMap<TaskId, AttemptTurns>;

#[derive(Debug)]
pub(crate) struct AttemptTurns {
    attempt: Attempt,
    /// The last committed turn of the task.
    seq: u64,
    /// The number of turns that this attempt has sent. If there are any, its end is one too.
    sent: u64,
    pending: Option<Unanswered>,
    /// The attempt has ended meanwhile.
    end: Option<Box<(wire::Completion, Option<Turn>)>>,
}

/// A turn without an answer.
#[derive(Debug)]
struct Unanswered {
    turn: wire::Turn,
    /// When it is sent again, and the pause after that.
    due: Time,
    pause: Span,
}

impl AttemptTurns {
    /// `seq`: the last turn that earlier attempts have committed.
    fn new(attempt: Attempt, seq: u64) -> Self {
        Self { attempt, seq, sent: 0, pending: None, end: None }
    }
}

impl Holder {
    /// An attempt starts here. It continues the turns of earlier attempts.
    pub(crate) fn continue_turns(&mut self, task: TaskId, attempt: Attempt, resume: &wire::Resume) {
        let fresh = AttemptTurns::new(attempt, resume.seq);
        self.attempt_turns.get_or_insert_default().insert(task, fresh);
    }

    fn turns_of_attempt(&mut self, task: TaskId, attempt: Attempt) -> &mut AttemptTurns {
        let fresh = || AttemptTurns::new(attempt, 0);
        let own = self.attempt_turns.get_or_insert_default().entry(task).or_insert_with(fresh);
        if own.attempt != attempt {
            *own = fresh();
        }
        own
    }

    /// The attempt has no more turns here.
    pub(crate) fn forget_turns(&mut self, task: TaskId, attempt: Attempt) {
        let Some(turns) = &mut self.attempt_turns else { return };
        if turns.get(&task).is_some_and(|own| own.attempt == attempt) {
            turns.remove(&task);
        }
        if turns.is_empty() {
            self.attempt_turns = None;
        }
    }

    /// Whether the attempt waits for the answer to its last turn. The turn is sent again soon: the
    /// home may have lost it.
    pub(crate) fn awaits_turn_reply(&mut self, task: TaskId, attempt: Attempt) -> bool {
        let own = self.attempt_turns.as_mut().and_then(|turns| turns.get_mut(&task));
        let pending = own.filter(|own| own.attempt == attempt).and_then(|own| own.pending.as_mut());
        let Some(unanswered) = pending else { return false };
        (unanswered.due, unanswered.pause) = (Time::ZERO, TURN_AGAIN);
        true
    }

    /// Attempts of a partition with turns that are not answered.
    pub(crate) fn unanswered_turns(&self, partition: PartitionId) -> Vec<(TaskId, Attempt)> {
        self.attempts_with_turns().filter(|(task, _)| task.partition() == partition).collect()
    }

    /// Attempts that wait for answers to their turns. Some have ended.
    pub(crate) fn attempts_with_turns(&self) -> impl Iterator<Item = (TaskId, Attempt)> + '_ {
        let turns = self.attempt_turns.iter().flat_map(|turns| turns.iter());
        turns.filter(|(_, own)| own.pending.is_some()).map(|(&task, own)| (task, own.attempt))
    }

    /// When an unanswered turn is sent again.
    pub(crate) fn next_repeated_turn(&self) -> Option<Time> {
        let turns = self.attempt_turns.as_ref()?;
        turns.values().filter_map(|own| Some(own.pending.as_ref()?.due)).min()
    }
}

impl Scheduler {
    /// The turn of an attempt goes to the task's home.
    pub(crate) fn begin_turn(
        &mut self,
        now: Time,
        task: TaskId,
        attempt: Attempt,
        turn: Turn,
        out: &mut Out,
    ) {
        let answer = |answer, out: &mut Out| out.turn_answers.push((task, attempt, answer));
        let Some(running) = self.holder.running.get(&task).filter(|it| it.attempt == attempt)
        else {
            return answer(TurnAnswer::Fenced, out);
        };
        let is_over = matches!(turn.verdict, TurnVerdict::TurnWait | TurnVerdict::TurnYield);
        if !is_over && turn.verdict != TurnVerdict::TurnMore {
            let text = "the end of an attempt is reported with its outcome";
            return answer(TurnAnswer::Refused(text.to_owned()), out);
        }
        if is_over && running.is_gang() {
            let text = "a task on several nodes cannot give them back and go on: it may spawn and \
                        commit, and end";
            return answer(TurnAnswer::Refused(text.to_owned()), out);
        }
        let costs = is_over.then(|| wire::Completion {
            job: task.job.0,
            local: task.local.0,
            attempt: attempt.0,
            started_ns: running.started.0,
            finished_ns: now.0,
            moved_bytes: running.reads.moved_bytes,
            local_bytes: running.reads.local_bytes,
            node: self.options.me.0,
            ..wire::Completion::default()
        });
        let turn = wire_turn(task, attempt, turn, costs);
        let own = self.holder.turns_of_attempt(task, attempt);
        if own.pending.is_some() {
            let text = "the former turn of the attempt is not answered yet".to_owned();
            return answer(TurnAnswer::Refused(text), out);
        }
        if let Err(error) = check_turn(&turn) {
            return answer(TurnAnswer::Refused(error), out);
        }
        self.send_turn(now, task, turn, out);
    }

    /// Numbers a turn and gives it to the task's home.
    fn send_turn(&mut self, now: Time, task: TaskId, mut turn: wire::Turn, out: &mut Out) {
        let own = self.holder.turns_of_attempt(task, Attempt(turn.attempt));
        own.sent += 1;
        (turn.seq, turn.number) = (own.seq + 1, own.sent);
        let (due, pause) = (now + TURN_AGAIN, TURN_AGAIN);
        own.pending = Some(Unanswered { turn: turn.clone(), due, pause });
        self.give_turn(now, task, turn, out);
    }

    fn give_turn(&mut self, now: Time, task: TaskId, turn: wire::Turn, out: &mut Out) {
        if self.routing.homes().is_home_of(task) {
            self.on_turn_of(now, self.options.me, turn, out);
        } else {
            out.reliable.push((self.routing.homes().home_of(task), Body::Turn(Box::new(turn))));
        }
    }

    /// Reports an end as a turn, if the attempt has committed turns or spawned tasks. Returns the
    /// completion of any other attempt.
    pub(crate) fn end_with_turn(
        &mut self,
        now: Time,
        task: TaskId,
        completion: wire::Completion,
        turn: Option<Turn>,
        out: &mut Out,
    ) -> Option<wire::Completion> {
        let attempt = Attempt(completion.attempt);
        let known = self.holder.attempt_turns.as_mut().and_then(|turns| turns.get_mut(&task));
        let known = known.filter(|own| own.attempt == attempt);
        if turn.is_none() && known.as_ref().is_none_or(|own| own.sent == 0) {
            self.holder.forget_turns(task, attempt);
            return Some(completion);
        }
        if let Some(own) = known
            && own.pending.is_some()
        {
            own.end = Some(Box::new((completion, turn)));
            return None;
        }
        let is_done = completion.verdict == wire::Verdict::Done as i32;
        let last = match is_done {
            true => Turn { verdict: TurnVerdict::TurnDone, ..turn.unwrap_or_default() },
            false => Turn { verdict: TurnVerdict::TurnFailed, ..Turn::default() },
        };
        let last = wire_turn(task, attempt, last, Some(completion));
        self.send_turn(now, task, last, out);
        None
    }

    /// The home has answered a turn.
    pub(crate) fn on_turn_reply(&mut self, now: Time, reply: wire::TurnReply, out: &mut Out) {
        let (task, attempt) = (TaskId::new(reply.job, reply.local), Attempt(reply.attempt));
        let own = self.holder.attempt_turns.as_mut().and_then(|turns| turns.get_mut(&task));
        let Some(own) = own.filter(|own| own.attempt == attempt) else { return };
        // A repeated turn is answered twice. The second answer is not that of the next turn.
        let any_number = self.options.mutant == Some(Mutant::TurnNumberIgnored);
        let is_answer = |turn: &wire::Turn| {
            turn.seq == reply.seq && (turn.number == reply.number || any_number)
        };
        let Some(Unanswered { turn, .. }) = own.pending.take_if(|it| is_answer(&it.turn)) else {
            return;
        };
        let verdict = turn.verdict();
        let ends = matches!(verdict, TurnVerdict::TurnDone | TurnVerdict::TurnFailed);
        match reply.result() {
            TurnResult::Committed if ends => self.holder.forget_turns(task, attempt),
            TurnResult::Committed => {
                own.seq = reply.seq;
                let is_over = verdict != TurnVerdict::TurnMore && !reply.goes_on;
                if is_over {
                    return self.end_turned_attempt(now, task, attempt, out);
                }
                let commit = TurnCommit {
                    seq: reply.seq,
                    ordinal: reply.ordinal,
                    first: LocalId(reply.first),
                    count: reply.count,
                    awaited: reply.goes_on.then_some(reply.awaited),
                    letters: reply.letters,
                };
                self.go_on_after(now, task, attempt, TurnAnswer::Committed(commit), out);
            }
            TurnResult::Fenced => {
                out.turn_answers.push((task, attempt, TurnAnswer::Fenced));
                self.drop_task(task, attempt, out);
                self.report_dropped(task, attempt, out);
            }
            TurnResult::TurnRefused if ends => {
                self.holder.forget_turns(task, attempt);
                let failed = wire::Completion {
                    verdict: wire::Verdict::Failed as i32,
                    error: reply.error,
                    exit_code: 1,
                    output_sizes: Vec::new(),
                    output_sums: Vec::new(),
                    ..turn.completion.unwrap_or_default()
                };
                self.report_end(now, task, failed, None, out);
            }
            TurnResult::TurnRefused => {
                self.go_on_after(now, task, attempt, TurnAnswer::Refused(reply.error), out);
            }
        }
    }

    /// The attempt goes on, unless it has ended meanwhile.
    fn go_on_after(
        &mut self,
        now: Time,
        task: TaskId,
        attempt: Attempt,
        answer: TurnAnswer,
        out: &mut Out,
    ) {
        out.turn_answers.push((task, attempt, answer));
        let own = self.holder.attempt_turns.as_mut().and_then(|turns| turns.get_mut(&task));
        if let Some((completion, turn)) = own.and_then(|own| own.end.take()).map(|end| *end) {
            self.report_end(now, task, completion, turn, out);
        }
    }

    /// The turn has ended its attempt: its slot is free.
    pub(crate) fn end_turned_attempt(
        &mut self,
        now: Time,
        task: TaskId,
        attempt: Attempt,
        out: &mut Out,
    ) {
        let own = self.holder.attempt_turns.as_ref().and_then(|turns| turns.get(&task));
        let last = |own: &AttemptTurns| own.pending.as_ref().map_or(own.seq, |it| it.turn.seq);
        let seq = own.filter(|own| own.attempt == attempt).map_or(0, last);
        let running = self.holder.running.get(&task).filter(|running| running.attempt == attempt);
        if let Some(running) = running {
            let commit = TurnCommit { seq, ..TurnCommit::default() };
            out.turn_answers.push((task, attempt, TurnAnswer::Committed(commit)));
            debug_assert!(running.started <= now);
            out.events.push(running.ended(task, EventEnd::Done));
        }
        self.drop_task(task, attempt, out);
    }

    /// Sends unanswered turns again. While a partition has no active home, its turns wait in the
    /// queue of undelivered messages.
    pub(crate) fn repeat_turns(&mut self, now: Time, out: &mut Out) {
        let Some(turns) = &mut self.holder.attempt_turns else { return };
        let mut due = Vec::new();
        for (&task, own) in turns.iter_mut() {
            let Some(it) = own.pending.as_mut().filter(|it| it.due <= now) else { continue };
            it.pause = it.pause.doubled().min(REPEAT_MAX);
            it.due = now + it.pause;
            if self.routing.homes().active_owner(task.partition()).is_some() {
                due.push((task, it.turn.clone()));
            }
        }
        for (task, turn) in due {
            self.give_turn(now, task, turn, out);
        }
    }
}

fn wire_turn(
    task: TaskId,
    attempt: Attempt,
    turn: Turn,
    completion: Option<wire::Completion>,
) -> wire::Turn {
    let Turn { verdict, spawned, awaits, state, sums, events, consumed, mail_wait } = turn;
    wire::Turn {
        job: task.job.0,
        local: task.local.0,
        attempt: attempt.0,
        seq: 0,
        verdict: verdict as i32,
        spawned: (!spawned.tasks.is_empty()).then_some(spawned),
        awaits,
        state,
        completion,
        number: 0,
        sums,
        events,
        consumed,
        mail_wait,
    }
}
