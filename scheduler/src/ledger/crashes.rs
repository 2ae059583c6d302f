//! Commands with which what ran them has died: a task that takes its node down must not take down
//! one node after another.
//!
//! Only commands run what is not ours, so only they are counted. A command that its own home starts
//! is noted first, in the batch on which the launch depends; a home that comes back, or another
//! that takes over, finds the start without an end. What another node holds is not noted until that
//! node has died once: that counts against all it held, because nobody knows what ran. From then on
//! a holder asks before it starts them (`Moved.starts`), so that only what ran is counted.
//!
//! From [`CRASHES_ALONE_MIN`] deaths on nothing else runs beside the task on its node. So the last
//! death is nobody else's doing, and who merely ran beside a culprit is not failed with it; unless
//! it has ended well, or its holder has given up waiting for the home, and dies of something else
//! before the home has heard that.

use proto::event::Again;
use proto::limits::{CRASHES_ALONE_MIN, CRASHES_MAX};
use proto::marks::{Mark, mark};
use proto::wire::StartFact;
use proto::{Attempt, Event, Incarnation, NodeId, TaskId, Time, wire};

use super::segment::State;
use super::{End, Ending, Ledger, RecordError};
use crate::Mutant;
use crate::out::Out;
use crate::work::is_command;

/// One death of what ran a task, or of what had it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crash {
    attempt: Attempt,
    node: NodeId,
    incarnation: Incarnation,
    fact: StartFact,
}

impl Crash {
    fn describe(&self) -> String {
        let Self { attempt, node, incarnation: Incarnation(incarnation), .. } = self;
        match self.fact {
            StartFact::RunnerDied => format!(
                "the process that starts commands on node {node} (incarnation {incarnation}) died \
                 while it ran attempt {attempt}"
            ),
            StartFact::DiedRunning => {
                format!(
                    "node {node} (incarnation {incarnation}) died while it ran attempt {attempt}"
                )
            }
            _ => {
                format!(
                    "node {node} (incarnation {incarnation}) died while it had attempt {attempt}"
                )
            }
        }
    }
}

impl Ledger {
    /// The current attempt starts where it is held: of a command, that is to be known whatever
    /// dies.
    pub(crate) fn note_start(&mut self, task: TaskId, out: &mut Out) {
        if !self.spec(task).is_some_and(|spec| is_command(spec)) {
            return;
        }
        let Some(cell) = self.cell_mut(task) else { return };
        if cell.state == State::Ready && !std::mem::replace(&mut cell.started, true) {
            self.record_start(task, StartFact::Started, out);
        }
    }

    /// The attempt has ended in a way that says nothing against the task.
    pub(crate) fn start_is_over(&mut self, task: TaskId, out: &mut Out) {
        let started = self.cell_mut(task).is_some_and(|cell| std::mem::take(&mut cell.started));
        if started {
            self.record_start(task, StartFact::StartOver, out);
        }
    }

    /// What held the current attempt has died: the task is placed again, or fails.
    pub(crate) fn holder_died(&mut self, now: Time, task: TaskId, why: Again, out: &mut Out) {
        match self.died_with(task, out) {
            Some(error) => self.fail_for_crashes(now, task, error, out),
            None => self.replace_ready(task, why, out),
        }
    }

    /// `Some`: once too often, and why it fails.
    fn died_with(&mut self, task: TaskId, out: &mut Out) -> Option<String> {
        let cell = self.cell(task).filter(|cell| cell.state == State::Ready)?;
        let fact = match (cell.started, cell.strikes) {
            (true, _) => StartFact::DiedRunning,
            (false, 0) => StartFact::DiedHolding,
            (false, _) => return None, // It would have asked before it started it.
        };
        self.strike(task, fact, out)
    }

    /// Counts a death. `Some`: it was one too many.
    pub(crate) fn strike(
        &mut self,
        task: TaskId,
        fact: StartFact,
        out: &mut Out,
    ) -> Option<String> {
        let cell = self.cell(task)?;
        self.strike_by(task, (cell.holder, cell.holder_incarnation), fact, out)
    }

    /// As [`Self::strike`], of one who had it without the knowledge of this home.
    pub(crate) fn strike_by(
        &mut self,
        task: TaskId,
        (node, incarnation): (NodeId, Incarnation),
        fact: StartFact,
        out: &mut Out,
    ) -> Option<String> {
        if !self.spec(task).is_some_and(|spec| is_command(spec))
            || self.mutant == Some(Mutant::CrashesUncounted)
        {
            return None;
        }
        let cell = self.cell_mut(task)?;
        let attempt = cell.attempt;
        // Who had it before may be told of late: then it runs where it is by now.
        cell.started &= (node, incarnation) != (cell.holder, cell.holder_incarnation);
        cell.strikes = cell.strikes.saturating_add(1);
        let strikes = cell.strikes;
        if self.mutant != Some(Mutant::CrashesForgotten) {
            record(task, attempt, (node, incarnation), fact, out);
        }
        self.keep_crash(task, Crash { attempt, node, incarnation, fact });
        let Incarnation(incarnation) = incarnation;
        mark(if strikes < CRASHES_MAX { Mark::Struck } else { Mark::StruckOut });
        out.events.push(Event::Struck { task, attempt, node, incarnation, strikes });
        (strikes >= CRASHES_MAX).then(|| self.describe_crashes(task))
    }

    fn keep_crash(&mut self, task: TaskId, crash: Crash) {
        let index = task.local.index();
        if let Some(segment) = self.part_mut(task).and_then(|part| part.segment_mut(index)) {
            let crashes = &mut segment.side_mut(index).crashes;
            if crashes.len() < CRASHES_MAX.into() {
                crashes.push(crash);
            }
        }
    }

    /// What its holder and those who ask are told of it.
    pub(crate) fn describe_crashes(&self, task: TaskId) -> String {
        let index = task.local.index();
        let side = self.part(task).and_then(|part| part.segment(index)?.side(index));
        let crashes = side.into_iter().flat_map(|side| &side.crashes);
        let crashes: Vec<String> = crashes.map(Crash::describe).collect();
        format!(
            "what ran it died {} times, so it is not started again: {}; hint: look for what it \
             does to its node: memory, signals to other processes, full disks",
            crashes.len(),
            crashes.join(", ")
        )
    }

    /// Ends a task that has taken too much down with it.
    pub(crate) fn fail_for_crashes(
        &mut self,
        now: Time,
        task: TaskId,
        error: String,
        out: &mut Out,
    ) {
        let Some(cell) = self.cell(task) else { return };
        let (attempt, node) = (cell.attempt, cell.holder);
        let index = task.local.index();
        let detail =
            wire::EndDetail { index, exit_code: 1, error: error.clone(), ..Default::default() };
        self.keep_failure(task, attempt, node, &detail);
        let ending = Ending { error, exit_code: 1, ..Ending::default() };
        self.end(now, task, End::Failed, node, ending, out);
    }

    /// A task that had been started by a home that is no more, as far as its records tell.
    pub(super) fn find_started(
        &mut self,
        now: Time,
        task: TaskId,
        died: impl Fn(NodeId, Incarnation) -> bool,
        out: &mut Out,
    ) {
        let Some(cell) = self.cell_mut(task) else { return };
        let (started, strikes) = (cell.started, cell.strikes);
        cell.died_here = false;
        if !died(cell.holder, cell.holder_incarnation) {
            cell.started = false; // It lives, and has ended it itself.
            return;
        }
        let fact = match started {
            true => StartFact::DiedRunning,
            false if strikes == 0 => StartFact::DiedHolding,
            false => return,
        };
        if let Some(error) = self.strike(task, fact, out) {
            self.fail_for_crashes(now, task, error, out);
        }
    }

    fn record_start(&self, task: TaskId, fact: StartFact, out: &mut Out) {
        let Some(cell) = self.cell(task) else { return };
        let (attempt, by) = (cell.attempt, (cell.holder, cell.holder_incarnation));
        if self.mutant != Some(Mutant::CrashesForgotten) {
            record(task, attempt, by, fact, out);
        }
    }

    /// The part of it that recovery repeats.
    pub(super) fn load_starts(
        &mut self,
        record: &wire::StartRecord,
        place: impl Fn(u64) -> TaskId,
    ) -> Result<(), RecordError> {
        let columns = record.index.iter().zip(&record.attempt).zip(record.fact());
        let by = record.node.iter().zip(&record.incarnation);
        for (((&index, &attempt), fact), (&node, &incarnation)) in columns.zip(by) {
            let task = place(index);
            let Some(cell) = self.cell(task) else {
                return Err(RecordError(format!("task {task} was started but is not stored")));
            };
            if matches!(cell.state, State::Ended(_)) || self.is_earlier(task, Attempt(attempt)) {
                continue;
            }
            let (node, incarnation) = (NodeId(node), Incarnation(incarnation));
            let crash = Crash { attempt: Attempt(attempt), node, incarnation, fact };
            self.load_start(task, crash);
        }
        Ok(())
    }

    fn load_start(&mut self, task: TaskId, start: Crash) {
        let attempt = start.attempt;
        let current = self.cell(task).expect("looked at before").attempt;
        match start.fact {
            StartFact::Started if attempt < current => {} // It was placed again since.
            StartFact::Started => self.load_started(task, start),
            StartFact::StartOver => {
                let cell = self.cell_mut(task).expect("looked at before");
                cell.started &= attempt != current;
            }
            _ => {
                let cell = self.cell_mut(task).expect("looked at before");
                let by = (start.node, start.incarnation);
                cell.started &= attempt != current || by != (cell.holder, cell.holder_incarnation);
                cell.strikes = cell.strikes.saturating_add(1);
                self.keep_crash(task, start);
            }
        }
    }

    /// Who started it has it, whoever else was taken for its holder.
    fn load_started(&mut self, task: TaskId, start: Crash) {
        let (me, this) = (self.me, (self.me, self.incarnation));
        let cell = self.cell_mut(task).expect("looked at before");
        let waits = start.node == me && (start.node, start.incarnation) != this;
        let by_home = start.attempt > cell.attempt; // It was in no message.
        let state = if waits || by_home { State::Waiting } else { State::Ready };
        let (was, before) = (cell.state, std::mem::replace(&mut cell.holder, start.node));
        (cell.state, cell.attempt) = (state, start.attempt);
        (cell.holder_incarnation, cell.started) = (start.incarnation, true);
        self.waiting += u64::from(state == State::Waiting);
        self.waiting -= u64::from(was == State::Waiting);
        self.forget_away(before, task);
        if state == State::Ready && start.node != me {
            self.away.entry(start.node).or_default().insert(task);
        }
    }
}

/// Nothing else runs beside a task that has so many deaths to its name.
pub(crate) fn runs_alone(strikes: u8, mutant: Option<Mutant>) -> bool {
    strikes >= CRASHES_ALONE_MIN && mutant != Some(Mutant::SuspectsTogether)
}

fn record(
    task: TaskId,
    attempt: Attempt,
    (node, incarnation): (NodeId, Incarnation),
    fact: StartFact,
    out: &mut Out,
) {
    let record = out.facts.starts.get_or_insert_default();
    let record = record.entry((task.partition(), task.job)).or_default();
    record.index.push(task.local.index());
    record.attempt.push(attempt.0);
    record.node.push(node.0);
    record.incarnation.push(incarnation.0);
    record.fact.push(fact as i32);
}
