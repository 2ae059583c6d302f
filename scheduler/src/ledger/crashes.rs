//! Commands with which what ran them has died: a task that takes its node down must not take down
//! one node after another, and no task fails for what another task, an operator or a power cut did.
//!
//! Only commands run what is not ours, so only they are counted. A command that its own home starts
//! is noted first, in the batch on which the launch depends. One that starts elsewhere is told to
//! its home as it starts; the home may hear of a death before it hears of the start. Then it has
//! only been *held*: that counts for nothing, but from then on a holder asks before it starts the
//! task (`TasksMoved.starts`).
//!
//! The death of an incarnation that had started tasks is *in doubt* at first: they wait until the
//! home knows what it says of them (`death_evidence.rs`). It is *counted* against each where a
//! majority of the other nodes lived through it; [`CRASHES_MAX`] counted crashes fail a task.
//! Otherwise it is counted apart. From [`CRASHES_ALONE_MIN`] counted crashes on, or one death that
//! is counted apart, nothing else runs beside the task on its node. So the last death is no other
//! task's doing.
//!
//! Where there is one node, there are no witnesses: a death is counted where the task ran alone,
//! and one that was not alone becomes one when all that ran beside it have ended well.

use std::collections::{BTreeMap, BTreeSet};

use proto::event::{RetryReason, Spared};
use proto::limits::{
    CRASH_LIMIT_MAX, CRASHED_TASK_BACKOFF, CRASHED_TASK_BACKOFF_DOUBLINGS_MAX, CRASHES_ALONE_MIN,
    CRASHES_MAX, DEATHS_KEPT_MAX,
};
use proto::marks::{Mark, mark};
use proto::wire::StartFact;
use proto::{Attempt, Event, Incarnation, NodeId, Span, TaskId, Time, wire};

use super::segment::{Side, State};
use super::{End, Ending, Ledger, RecordError};
use crate::Mutant;
use crate::output::Out;
use crate::task::is_command;

/// An incarnation that is no more.
pub(crate) type Death = (NodeId, Incarnation);

/// One death of what ran a task, or of what had it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crash {
    attempt: Attempt,
    node: NodeId,
    incarnation: Incarnation,
    fact: StartFact,
}

/// A death that has not been judged, and what had started there.
#[derive(Debug)]
pub(crate) struct Doubt {
    pub(crate) since: Time,
    pub(crate) tasks: BTreeSet<(TaskId, Attempt)>,
}

/// What the ledger knows of deaths beside the records of tasks.
#[derive(Debug, Default)]
pub(crate) struct Crashes {
    pub(crate) doubts: BTreeMap<Death, Doubt>,
    /// What ran together on the only node when it died, and has not ended since.
    beside: BTreeMap<Death, BTreeSet<TaskId>>,
    /// A task that ran beside the others has ended badly: the culprit stays unknown.
    tainted: BTreeSet<Death>,
}

impl Crash {
    fn death(&self) -> Death {
        (self.node, self.incarnation)
    }
    fn is_counted(&self) -> bool {
        matches!(self.fact, StartFact::DiedRunning | StartFact::RunnerDied)
    }

    /// It had started there.
    fn ran(&self) -> bool {
        !matches!(self.fact, StartFact::DiedHolding | StartFact::Stopped)
    }

    fn describe(&self) -> String {
        let Self { attempt, node, incarnation: Incarnation(incarnation), .. } = self;
        match self.fact {
            StartFact::RunnerDied => format!(
                "the process that starts commands on node {node} (incarnation {incarnation}) died \
                 while it ran attempt {attempt}"
            ),
            _ => {
                format!(
                    "node {node} (incarnation {incarnation}) died while it ran attempt {attempt}"
                )
            }
        }
    }
}

/// How often what ran a task, or had it, has died; and whether nothing else may run beside it.
pub(crate) fn suspicion(side: Option<&Side>) -> (u8, bool) {
    let crashes = side.map_or(&[][..], |side| &side.crashes);
    let crash_count = crashes.iter().filter(|crash| crash.is_counted()).count();
    let is_apart =
        |crash: &Crash| matches!(crash.fact, StartFact::DiedApart | StartFact::DiedBeside);
    let alone = crash_count >= usize::from(CRASHES_ALONE_MIN) || crashes.iter().any(is_apart);
    (u8::try_from(crashes.len()).unwrap_or(u8::MAX), alone)
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

    /// What held the current attempt has died: the task is placed again, at once or when it is
    /// known what its death says of the task.
    pub(crate) fn holder_died(&mut self, now: Time, task: TaskId, why: RetryReason, out: &mut Out) {
        let Some(cell) = self.cell(task).filter(|cell| cell.state == State::Ready) else { return };
        let death = (cell.holder, cell.holder_incarnation);
        match cell.started {
            true => self.doubt(now, task),
            false => self.note_held(task, death, out),
        }
        self.replace_ready(task, why, out);
    }

    /// It had started where it is said to be held, and what ran it has died.
    fn doubt(&mut self, now: Time, task: TaskId) {
        if self.mutant == Some(Mutant::CrashesUncounted) {
            return;
        }
        let Some(cell) = self.cell_mut(task) else { return };
        // The record of the start stays: the next home is to find it.
        (cell.started, cell.unresolved_jobs) = (false, true);
        let (death, attempt) = ((cell.holder, cell.holder_incarnation), cell.attempt);
        let fresh = || Doubt { since: now, tasks: BTreeSet::new() };
        self.crashes.doubts.entry(death).or_insert_with(fresh).tasks.insert((task, attempt));
    }

    /// It was held by what has died, and had not started as far as is known: from now on it does
    /// not start before this home knows.
    pub(crate) fn note_held(&mut self, task: TaskId, (node, incarnation): Death, out: &mut Out) {
        let is_command = self.spec(task).is_some_and(|spec| is_command(spec));
        let Some(cell) = self.cell(task).filter(|_| is_command) else { return };
        let attempt = cell.attempt;
        let is_known = suspicion(self.side(task)).0 > 0;
        if !is_known && self.mutant != Some(Mutant::CrashesUncounted) {
            let fact = StartFact::DiedHolding;
            self.note_death(task, Crash { attempt, node, incarnation, fact }, out);
        }
    }

    /// What a death says of the tasks that had started there.
    pub(crate) fn judge(&mut self, now: Time, death: Death, fact: StartFact, out: &mut Out) {
        let Some(doubt) = self.crashes.doubts.remove(&death) else { return };
        let (node, incarnation) = death;
        let mut spared = Vec::new();
        for (task, attempt) in doubt.tasks {
            let is_in_doubt = |cell: &super::Cell| cell.unresolved_jobs && cell.attempt == attempt;
            let Some(cell) = self.cell_mut(task).filter(|cell| is_in_doubt(cell)) else { continue };
            cell.unresolved_jobs = false;
            if matches!(cell.state, State::Ended(_)) {
                continue;
            }
            match self.note_death(task, Crash { attempt, node, incarnation, fact }, out) {
                Some(error) => self.fail_for_crashes(now, task, error, out),
                None => spared.push(task),
            }
        }
        // Those with the fewest deaths first: what ends well leaves fewer to suspect.
        spared.sort_by_key(|&task| suspicion(self.side(task)).0);
        for task in spared {
            self.goes_first(task);
            self.ready.push_back(task);
        }
    }

    /// Whether a task that waits for no input has runs that died; `None`: it is not to be placed.
    pub(crate) fn placeable(&self, task: TaskId) -> Option<bool> {
        let index = task.local.index();
        let segment = self.part(task)?.segment(index)?;
        let cell = segment.cell(index)?;
        let is_complete = cell.state == State::Waiting && cell.missing == 0;
        is_complete.then(|| cell.unresolved_jobs || segment.side(index).is_some())
    }

    /// Whether a task that is ready is not to be placed yet: what its last run says of it is not
    /// known, or it rests.
    pub(crate) fn awaits_verdict(&mut self, now: Time, task: TaskId) -> bool {
        let Some(cell) = self.cell(task) else { return false };
        let (unresolved_jobs, has_rested) = (cell.unresolved_jobs, cell.has_rested);
        if unresolved_jobs || has_rested {
            return unresolved_jobs;
        }
        let rest = self.rest_after_deaths(task);
        if rest == Span::ZERO {
            return false;
        }
        self.cell_mut(task).expect("looked at above").has_rested = true;
        self.unreleased.insert((now + rest, task));
        true
    }

    /// Of several tasks that each kill their node none is found as long as their nodes die
    /// together: too few live through any of these deaths. From the second on that is counted apart
    /// a task rests for a while, each for another one, and each time up to twice as long.
    fn rest_after_deaths(&self, task: TaskId) -> Span {
        let crashes = self.crashes_of(task);
        let apart = crashes.iter().filter(|crash| crash.fact == StartFact::DiedApart).count();
        let Some(doubled) = apart.checked_sub(2) else { return Span::ZERO };
        let longest = CRASHED_TASK_BACKOFF.0 << doubled.min(CRASHED_TASK_BACKOFF_DOUBLINGS_MAX);
        // Knuth's multiplier: what differs from task to task and from time to time will do.
        let dice = (task.job.0 ^ task.local.0).wrapping_add(apart as u64);
        Span((dice.wrapping_mul(6_364_136_223_846_793_005) >> 16) % longest)
    }

    /// The process that starts commands on the task's node has died, the node has not. One that
    /// `hung` may have waited for a disk: that is not counted.
    pub(crate) fn runner_died(
        &mut self,
        task: TaskId,
        hung: bool,
        out: &mut Out,
    ) -> Option<String> {
        let cell = self.cell_mut(task)?;
        cell.started = false;
        let fact = if hung { StartFact::DiedApart } else { StartFact::RunnerDied };
        let attempt = cell.attempt;
        let (node, incarnation) = (cell.holder, cell.holder_incarnation);
        if !self.spec(task).is_some_and(|spec| is_command(spec))
            || self.mutant == Some(Mutant::CrashesUncounted)
        {
            return None;
        }
        self.note_death(task, Crash { attempt, node, incarnation, fact }, out)
    }

    /// Writes a death down. `Some`: it was one crash too many, and why the task fails.
    fn note_death(&mut self, task: TaskId, crash: Crash, out: &mut Out) -> Option<String> {
        let Crash { attempt, node, incarnation, fact } = crash;
        if self.mutant != Some(Mutant::CrashesForgotten) {
            record(task, attempt, (node, incarnation), fact, out);
        }
        let limit = self.spec(task).map_or(0, |spec| spec.crash_limit);
        self.keep_crash(task, crash);
        let crash_count = self.crash_count(task);
        let Incarnation(incarnation) = incarnation;
        if !crash.is_counted() {
            let why = match fact {
                StartFact::DiedHolding => Spared::Held,
                StartFact::DiedBeside => Spared::Beside,
                StartFact::Stopped => Spared::Stopped,
                _ => Spared::Apart,
            };
            out.events.push(Event::Spared { task, attempt, node, incarnation, why });
            let counts = limit > 0 && crash.ran();
            return (counts && self.deaths(task) >= limit).then(|| self.describe_crashes(task));
        }
        let is_enough = match limit {
            0 => crash_count >= CRASHES_MAX,
            limit => self.deaths(task) >= limit,
        };
        mark(if is_enough { Mark::CrashLimitReached } else { Mark::CrashCounted });
        out.events.push(Event::CrashCounted {
            task,
            attempt,
            node,
            incarnation,
            count: crash_count,
        });
        is_enough.then(|| self.describe_crashes(task))
    }

    /// How often what ran it has died, whatever that says of it.
    fn deaths(&self, task: TaskId) -> u32 {
        let crashes = self.crashes_of(task);
        u32::try_from(crashes.iter().filter(|crash| crash.ran()).count()).unwrap_or(u32::MAX)
    }

    /// A later word of the same death takes the place of an earlier one.
    fn keep_crash(&mut self, task: TaskId, crash: Crash) {
        if crash.fact == StartFact::DiedBeside {
            self.crashes.beside.entry(crash.death()).or_default().insert(task);
        }
        if crash.fact == StartFact::Stopped {
            return;
        }
        let kept_max = match self.spec(task).map_or(0, |spec| spec.crash_limit) {
            limit @ 1..=CRASH_LIMIT_MAX => DEATHS_KEPT_MAX.max(limit as usize),
            _ => DEATHS_KEPT_MAX,
        };
        let index = task.local.index();
        let Some(segment) = self.part_mut(task).and_then(|part| part.segment_mut(index)) else {
            return;
        };
        let crashes = &mut segment.side_mut(index).crashes;
        let is_same =
            |known: &&mut Crash| known.attempt == crash.attempt && known.death() == crash.death();
        let repeats = crash.fact != StartFact::RunnerDied;
        if let Some(known) = crashes.iter_mut().find(is_same).filter(|_| repeats) {
            *known = crash;
        } else {
            let oldest = crashes.iter().position(|known| !known.is_counted());
            if crashes.len() >= kept_max {
                crashes.remove(oldest.unwrap_or(0));
            }
            crashes.push(crash);
        }
    }

    /// A task has ended. If it ended well, fewer tasks are suspected of the deaths it ran through;
    /// otherwise the culprit of these deaths stays unknown.
    pub(super) fn clear_of_deaths(&mut self, task: TaskId, end: End, out: &mut Out) {
        if self.crashes.beside.is_empty() {
            return;
        }
        let crashes = self.crashes_of(task);
        let deaths: Vec<Death> = crashes.iter().map(Crash::death).collect();
        for death in deaths {
            let Some(open) = self.crashes.beside.get_mut(&death) else { continue };
            let is_well = end == End::Done && !self.crashes.tainted.contains(&death);
            open.remove(&task);
            let last = open.first().copied().filter(|_| open.len() == 1);
            if !is_well || open.len() < 2 {
                self.crashes.beside.remove(&death);
            }
            if let Some(last) = last.filter(|_| is_well) {
                self.convict(last, death, out);
            }
        }
    }

    /// All that ran beside it have ended well. The last counted crash is always one of a task that
    /// ran alone.
    fn convict(&mut self, task: TaskId, death: Death, out: &mut Out) {
        if self.crash_count(task) + 1 >= CRASHES_MAX {
            return;
        }
        let crashes = self.crashes_of(task);
        if let Some(&crash) = crashes.iter().find(|crash| crash.death() == death) {
            self.note_death(task, Crash { fact: StartFact::DiedRunning, ..crash }, out);
        }
    }

    pub(crate) fn crash_count(&self, task: TaskId) -> u8 {
        let crash_count = self.crashes_of(task).iter().filter(|crash| crash.is_counted()).count();
        u8::try_from(crash_count).unwrap_or(u8::MAX)
    }

    fn crashes_of(&self, task: TaskId) -> &[Crash] {
        self.side(task).map_or(&[][..], |side| &side.crashes)
    }

    fn side(&self, task: TaskId) -> Option<&Side> {
        let index = task.local.index();
        self.part(task)?.segment(index)?.side(index)
    }

    /// Its deaths say nothing any more: it has ended well since.
    pub(super) fn forget_crashes(&mut self, task: TaskId) {
        let index = task.local.index();
        if let Some(segment) = self.part_mut(task).and_then(|part| part.segment_mut(index))
            && segment.side(index).is_some()
        {
            segment.side_mut(index).crashes.clear();
        }
    }

    /// What its holder and those who ask are told of it.
    pub(crate) fn describe_crashes(&self, task: TaskId) -> String {
        let crashes = self.side(task).into_iter().flat_map(|side| &side.crashes);
        let limit = self.spec(task).map_or(0, |spec| spec.crash_limit);
        let counts = |crash: &&Crash| if limit == 0 { crash.is_counted() } else { crash.ran() };
        let crashes: Vec<String> = crashes.filter(counts).map(Crash::describe).collect();
        let (count, of) = match (crashes.len(), limit) {
            (count, 0) => (count, String::new()),
            (count, limit) => (count, format!(" (its crash limit is {limit})")),
        };
        let named = crashes.iter().take(DEATHS_KEPT_MAX).map(String::as_str);
        format!(
            "what ran it died {count} times{of}, so it is not started again: {}; hint: look for \
             what it does to its node: memory, signals to other processes, full disks",
            named.collect::<Vec<_>>().join(", ")
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
        let (started, death) = (cell.started, (cell.holder, cell.holder_incarnation));
        cell.died_here = false;
        if !died(cell.holder, cell.holder_incarnation) {
            cell.started = false; // It lives, and has ended it itself.
            return;
        }
        match started {
            true => self.doubt(now, task),
            false => self.note_held(task, death, out),
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
            let begins = matches!(fact, StartFact::Started | StartFact::StartOver);
            let is_void = begins && self.recalls.is_void(task, Attempt(attempt));
            if is_void || self.is_earlier(task, Attempt(attempt)) {
                continue;
            }
            let (node, incarnation) = (NodeId(node), Incarnation(incarnation));
            if let State::Ended(end) = cell.state {
                if fact == StartFact::DiedBeside && end != End::Done {
                    self.crashes.tainted.insert((node, incarnation));
                }
                continue;
            }
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
                let by = start.death();
                cell.started &= attempt != current || by != (cell.holder, cell.holder_incarnation);
                if start.fact == StartFact::DiedRunning
                    && let Some(open) = self.crashes.beside.get_mut(&by)
                {
                    open.remove(&task);
                }
                self.keep_crash(task, start);
            }
        }
    }

    /// Records of another ledger come into this one.
    pub(super) fn take_crashes(&mut self, theirs: Crashes) {
        for (death, tasks) in theirs.beside {
            self.crashes.beside.entry(death).or_default().extend(tasks);
        }
        self.crashes.tainted.extend(theirs.tainted);
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
        self.forget_held_remotely(before, task);
        if state == State::Ready && start.node != me {
            self.held_remotely.entry(start.node).or_default().insert(task);
        }
    }
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
