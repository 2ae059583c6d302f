//! Nodes that die while they run commands. A task that takes its node down must not take down one
//! node after another. And no task fails because of another task, an operator or a power cut.
//!
//! Only commands run foreign code, so only commands are counted. A command that starts on its home
//! is recorded first, in the batch on which the launch depends. The start of a command on another
//! node is reported to its home. The home may learn of a death before it learns of the start. Then
//! the command was only *held*, which is no evidence; but from then on a holder asks before it
//! starts the task (`TasksMoved.starts`).
//!
//! The death of an incarnation with started tasks is *in doubt* at first: the tasks wait until the
//! home can judge it (`death_evidence.rs`). It is a *strike* against each of them if a majority of
//! the other nodes lived through it; [`CRASHES_MAX`] counted crashes fail a task. Otherwise the
//! death is counted apart. From [`CRASHES_ALONE_MIN`] counted crashes on, or one death counted
//! apart, the task runs alone on its node. So the last death cannot be the work of another task.
//!
//! A single node has no witnesses. There a death is a strike if the task ran alone. If several
//! tasks ran, it becomes a strike against the last one when all others have ended well.

use std::collections::{BTreeMap, BTreeSet};

use proto::event::{RetryReason, Spared};
use proto::limits::{CRASH_LIMIT_MAX, CRASHES_ALONE_MIN, CRASHES_MAX};
use proto::marks::{Mark, mark};
use proto::wire::StartFact;
use proto::{Attempt, Event, Incarnation, NodeId, Span, TaskId, Time, wire};

use crate::Mutant;
use crate::holder::task::{is_call, is_command};
use crate::home::ledger::records::{Side, State};
use crate::home::ledger::{Cell, End, Ending, Ledger, RecordError};
use crate::output::Out;

/// The number of remembered deaths of one task.
const DEATHS_KEPT_MAX: usize = 16;

/// A task with two deaths counted apart rests up to this long before it starts again. The maximum
/// doubles each time, at most `CRASHED_TASK_BACKOFF_DOUBLINGS_MAX` times.
const CRASHED_TASK_BACKOFF: Span = Span::from_secs(2);
const CRASHED_TASK_BACKOFF_DOUBLINGS_MAX: usize = 3;

/// An incarnation that has ended.
pub(crate) type Death = (NodeId, Incarnation);

/// One death of the node or process that ran a task, or of its holder.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Crash {
    attempt: Attempt,
    node: NodeId,
    incarnation: Incarnation,
    fact: StartFact,
}

/// A death that has not been judged, and the tasks that had started there.
#[derive(Debug)]
struct Doubt {
    since: Time,
    tasks: BTreeSet<(TaskId, Attempt)>,
}

/// All that the ledger knows of deaths beside the task records.
#[derive(Debug, Default)]
pub(crate) struct Crashes {
    doubts: BTreeMap<Death, Doubt>,
    /// Tasks that ran together on the only node when it died, and have not ended since.
    beside: BTreeMap<Death, BTreeSet<TaskId>>,
    /// Deaths after which one of several suspects ended badly: the cause stays unknown.
    tainted: BTreeSet<Death>,
}

impl Crash {
    fn death(&self) -> Death {
        (self.node, self.incarnation)
    }
    fn is_counted(&self) -> bool {
        matches!(self.fact, StartFact::DiedRunning | StartFact::RunnerDied)
    }

    /// Whether the task had started there.
    fn ran(&self) -> bool {
        !matches!(self.fact, StartFact::DiedHolding | StartFact::Stopped)
    }

    /// A call loses only its own worker, and only to SIGKILL: another signal fails the attempt.
    fn describe(&self, is_call: bool) -> String {
        let Self { attempt, node, incarnation: Incarnation(incarnation), .. } = self;
        match self.fact {
            StartFact::RunnerDied if is_call => format!(
                "its worker on node {node} (incarnation {incarnation}) was killed by SIGKILL while \
                 it ran attempt {attempt}"
            ),
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

/// The number of deaths recorded for a task, and whether it must run alone.
pub(crate) fn suspicion(side: Option<&Side>) -> (u8, bool) {
    let crashes = side.map_or(&[][..], |side| &side.crashes);
    let crash_count = crashes.iter().filter(|crash| crash.is_counted()).count();
    let is_apart =
        |crash: &Crash| matches!(crash.fact, StartFact::DiedApart | StartFact::DiedBeside);
    let alone = crash_count >= usize::from(CRASHES_ALONE_MIN) || crashes.iter().any(is_apart);
    (u8::try_from(crashes.len()).unwrap_or(u8::MAX), alone)
}

impl Ledger {
    /// The deaths that are not judged yet, each with the time since when.
    pub(crate) fn doubts(&self) -> Vec<(Death, Time)> {
        self.crashes.doubts.iter().map(|(&death, doubt)| (death, doubt.since)).collect()
    }
    /// The number of tasks that had started there, if the death is not judged yet.
    pub(crate) fn tasks_in_doubt(&self, death: Death) -> Option<usize> {
        Some(self.crashes.doubts.get(&death)?.tasks.len())
    }

    /// The current attempt starts at its holder. For a command this is recorded.
    pub(crate) fn note_start(&mut self, task: TaskId, out: &mut Out) {
        if !self.spec(task).is_some_and(|spec| is_command(spec)) {
            return;
        }
        let Some(cell) = self.cell_mut(task) else { return };
        if cell.state == State::Ready && !std::mem::replace(&mut cell.started, true) {
            self.record_start(task, StartFact::Started, out);
        }
    }

    /// The attempt has ended in a way that is no evidence against the task.
    pub(crate) fn start_is_over(&mut self, task: TaskId, out: &mut Out) {
        let started = self.cell_mut(task).is_some_and(|cell| std::mem::take(&mut cell.started));
        if started {
            self.record_start(task, StartFact::StartOver, out);
        }
    }

    /// The holder of the current attempt has died. The task is placed again: at once, or when the
    /// death is judged.
    pub(crate) fn holder_died(&mut self, now: Time, task: TaskId, why: RetryReason, out: &mut Out) {
        let Some(cell) = self.cell(task).filter(|cell| cell.state == State::Ready) else { return };
        let death = (cell.holder, cell.holder_incarnation);
        match cell.started {
            true => self.doubt(now, task),
            false => self.note_held(task, death, out),
        }
        self.replace_ready(task, why, out);
    }

    /// The attempt had started at its holder, which has died.
    fn doubt(&mut self, now: Time, task: TaskId) {
        if self.mutant == Some(Mutant::CrashesUncounted) {
            return;
        }
        let Some(cell) = self.cell_mut(task) else { return };
        // The record of the start stays for the next home.
        (cell.started, cell.death_unresolved) = (false, true);
        let (death, attempt) = ((cell.holder, cell.holder_incarnation), cell.attempt);
        let fresh = || Doubt { since: now, tasks: BTreeSet::new() };
        self.crashes.doubts.entry(death).or_insert_with(fresh).tasks.insert((task, attempt));
    }

    /// The dead node held the task and had not started it, as far as is known. From now on the task
    /// starts only after this home knows.
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

    /// Applies the judgement of a death to the tasks that had started there.
    pub(crate) fn judge(&mut self, now: Time, death: Death, fact: StartFact, out: &mut Out) {
        let Some(doubt) = self.crashes.doubts.remove(&death) else { return };
        let (node, incarnation) = death;
        let mut spared = Vec::new();
        for (task, attempt) in doubt.tasks {
            let is_in_doubt = |cell: &Cell| cell.death_unresolved && cell.attempt == attempt;
            let Some(cell) = self.cell_mut(task).filter(|cell| is_in_doubt(cell)) else { continue };
            cell.death_unresolved = false;
            if matches!(cell.state, State::Ended(_)) {
                continue;
            }
            match self.note_death(task, Crash { attempt, node, incarnation, fact }, out) {
                Some(error) => self.fail_for_crashes(now, task, error, out),
                None => spared.push(task),
            }
        }
        // Tasks with the fewest deaths go first: each one that ends well leaves fewer suspects.
        spared.sort_by_key(|&task| suspicion(self.side(task)).0);
        for task in spared {
            self.goes_first(task);
            self.ready.push_back(task);
        }
    }

    /// Whether a task without missing inputs may have deaths on record; `None`: it must not be
    /// placed.
    pub(crate) fn placeable(&self, task: TaskId) -> Option<bool> {
        let index = task.local.index();
        let segment = self.part(task)?.segment(index)?;
        let cell = segment.cell(index)?;
        let is_complete = cell.state == State::Waiting && cell.missing == 0;
        is_complete.then(|| cell.death_unresolved || segment.side(index).is_some())
    }

    /// Whether a ready task must not be placed yet: its last death is not judged, or it rests.
    pub(crate) fn awaits_verdict(&mut self, now: Time, task: TaskId) -> bool {
        let Some(cell) = self.cell(task) else { return false };
        let (death_unresolved, has_rested) = (cell.death_unresolved, cell.has_rested);
        if death_unresolved || has_rested {
            return death_unresolved;
        }
        let rest = self.rest_after_deaths(task);
        if rest == Span::ZERO {
            return false;
        }
        self.cell_mut(task).expect("looked at above").has_rested = true;
        self.unreleased.insert((now + rest, task));
        true
    }

    /// If several tasks each take their node down, and these nodes die together, too few nodes live
    /// through any of the deaths to find the culprits. So from the second death that is counted
    /// apart on, a task rests: each task for another time, and each time up to twice as long.
    fn rest_after_deaths(&self, task: TaskId) -> Span {
        let crashes = self.crashes_of(task);
        let apart = crashes.iter().filter(|crash| crash.fact == StartFact::DiedApart).count();
        let Some(doubled) = apart.checked_sub(2) else { return Span::ZERO };
        let doublings = doubled.min(CRASHED_TASK_BACKOFF_DOUBLINGS_MAX) as u32;
        let longest = CRASHED_TASK_BACKOFF.doubled_times(doublings);
        // Knuth's multiplier: anything that differs between tasks and deaths is enough.
        let dice = (task.job.0 ^ task.local.0).wrapping_add(apart as u64);
        Span((dice.wrapping_mul(6_364_136_223_846_793_005) >> 16) % longest.0)
    }

    /// The process that starts commands on the task's node has died, but not the node. A process
    /// that `hung` may have waited for a disk: that is not counted.
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

    /// Records a death. `Some`: there are too many now, and the task fails with this error.
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

    /// The number of deaths while the task ran, counted crashes or not.
    fn deaths(&self, task: TaskId) -> u32 {
        let crashes = self.crashes_of(task);
        u32::try_from(crashes.iter().filter(|crash| crash.ran()).count()).unwrap_or(u32::MAX)
    }

    /// Keeps a death with the task. A later judgement of the same death replaces an earlier one.
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

    /// A task has ended. If it ended well, fewer tasks are suspects of the deaths that it ran
    /// through. Otherwise the cause of these deaths stays unknown.
    pub(in crate::home::ledger) fn clear_of_deaths(
        &mut self,
        task: TaskId,
        end: End,
        out: &mut Out,
    ) {
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

    /// All tasks beside it have ended well: the death becomes a strike. The last counted crash is
    /// always one of a task that ran alone.
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

    /// The task has ended well since: its deaths are no longer evidence.
    pub(in crate::home::ledger) fn forget_crashes(&mut self, task: TaskId) {
        let index = task.local.index();
        if let Some(segment) = self.part_mut(task).and_then(|part| part.segment_mut(index))
            && segment.side(index).is_some()
        {
            segment.side_mut(index).crashes.clear();
        }
    }

    /// The text about the deaths of a task for clients and in its error.
    pub(crate) fn describe_crashes(&self, task: TaskId) -> String {
        let crashes = self.side(task).into_iter().flat_map(|side| &side.crashes);
        let limit = self.spec(task).map_or(0, |spec| spec.crash_limit);
        let counts = |crash: &&Crash| if limit == 0 { crash.is_counted() } else { crash.ran() };
        let is_call = self.spec(task).is_some_and(|spec| is_call(spec));
        let crashes: Vec<String> =
            crashes.filter(counts).map(|crash| crash.describe(is_call)).collect();
        let of = match limit {
            0 => String::new(),
            limit => format!(" (its crash limit is {limit})"),
        };
        let often = match crashes.len() {
            1 => "once".to_owned(),
            count => format!("{count} times"),
        };
        let named = crashes.iter().take(DEATHS_KEPT_MAX).map(String::as_str);
        format!(
            "what ran it died {often}{of}, so it is not started again: {}; hint: look for \
             what it does to its node: memory, signals to other processes, full disks",
            named.collect::<Vec<_>>().join(", ")
        )
    }

    /// Fails a task after too many deaths.
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
        let ending = Ending::of_error(error);
        self.end(now, task, End::Failed, node, ending, out);
    }

    /// Handles a task that an earlier home, or an earlier incarnation, had started according to the
    /// records.
    pub(in crate::home::ledger) fn find_started(
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
            cell.started = false; // The node lives, and has ended the task itself.
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

    /// Loads a stored record of starts and deaths.
    pub(in crate::home::ledger) fn load_starts(
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
            let begins = fact == StartFact::Started;
            let is_void =
                begins && self.recalls.is_void_start(task, Attempt(attempt), cell.attempt);
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

    /// Adds the deaths that another ledger knows.
    pub(in crate::home::ledger) fn take_crashes(&mut self, theirs: Crashes) {
        for (death, tasks) in theirs.beside {
            self.crashes.beside.entry(death).or_default().extend(tasks);
        }
        self.crashes.tainted.extend(theirs.tainted);
    }

    /// The node that started the task holds it, whatever holder was known before.
    fn load_started(&mut self, task: TaskId, start: Crash) {
        let (me, this) = (self.me, (self.me, self.incarnation));
        let cell = self.cell_mut(task).expect("looked at before");
        let waits = start.node == me && (start.node, start.incarnation) != this;
        let by_home = start.attempt > cell.attempt; // No message names this attempt.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_loses_its_worker_and_a_command_the_process_that_started_it() {
        let (attempt, node, incarnation) = (Attempt(4), NodeId(2), Incarnation(1));
        let crash = Crash { attempt, node, incarnation, fact: StartFact::RunnerDied };
        assert_eq!(
            crash.describe(true),
            format!(
                "its worker on node n2 (incarnation 1) was killed by SIGKILL while it ran attempt \
                 {attempt}"
            )
        );
        assert!(crash.describe(false).starts_with("the process that starts commands on node n2"));
        let of_node = Crash { fact: StartFact::DiedRunning, ..crash };
        assert!(of_node.describe(true).starts_with("node n2 (incarnation 1) died"));
    }
}
