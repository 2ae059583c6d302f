//! The variables of jobs with tasks that run here.
//!
//! A value is used as soon as it is known. The node remembers which value is known to be synced at
//! the job's home. While it knows a better one, the turns and ends of the job's tasks wait, and it
//! sends that value again and again.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use proto::variable::{check_value, improves};
use proto::wire::message::Body;
use proto::wire::{VarRule, VarValue};
use proto::work::{Outcome, Turn};
use proto::{Attempt, JobId, Span, TaskId, Time, wire};

use crate::holder::Holder;
use crate::holder::task::Work;
use crate::limits::REPEAT_MAX;
use crate::output::Out;
use crate::{Mutant, Scheduler};

/// A node repeats values that are not known to be synced after this time.
const VARIABLE_AGAIN: Span = Span::from_secs(1);

/// The variables of the jobs that have tasks here.
pub(crate) type Variables = BTreeMap<JobId, JobVariables>;

#[derive(Debug, Default)]
pub(crate) struct JobVariables {
    /// By index. Fewer than declared: the home has not answered.
    cells: BTreeMap<u32, Cell>,
    /// The number of declared variables.
    declared: u32,
    /// When the home is asked again, and the pause after that.
    again: Option<(Time, Span)>,
    /// Attempts have set values in this step.
    is_changed: bool,
    waiting: Vec<Waiting>,
}

#[derive(Debug, Default)]
struct Cell {
    declared: wire::VarDeclared,
    value: Option<VarValue>,
    synced: Option<VarValue>,
}

/// A turn or an end that waits until the values that it may rest on are synced.
#[derive(Debug)]
struct Waiting {
    values: Vec<(u32, VarValue)>,
    task: TaskId,
    attempt: Attempt,
    step: Step,
}

#[derive(Debug)]
enum Step {
    Turn(Box<Turn>),
    /// The attempt has ended at this time, and has given its seat back.
    End(Time, Box<Outcome>),
}

impl Cell {
    fn rule(&self) -> VarRule {
        self.declared.rule()
    }
    fn has_synced(&self, value: &VarValue) -> bool {
        !improves(self.rule(), self.synced.as_ref(), value)
    }
    fn unsynced(&self) -> Option<&VarValue> {
        self.value.as_ref().filter(|value| !self.has_synced(value))
    }
    /// As the shell sees it.
    fn seen(&self, index: u32) -> wire::Variable {
        let declared = Some(self.declared.clone());
        wire::Variable { index, declared, value: self.value.clone(), sum: None }
    }
}

impl JobVariables {
    fn unsynced(&self) -> impl Iterator<Item = (u32, &VarValue)> + '_ {
        self.cells.iter().filter_map(|(&index, cell)| Some((index, cell.unsynced()?)))
    }

    /// Takes the home's values. Returns those that are better than the known ones, or new.
    fn merge(&mut self, push: wire::VarPush) -> Vec<wire::Variable> {
        let mut changed = Vec::new();
        for wire::Variable { index, declared, value, .. } in push.variables {
            let is_new = !self.cells.contains_key(&index);
            let cell = self.cells.entry(index).or_default();
            cell.declared = declared.unwrap_or_default();
            let rule = cell.rule();
            let is_better =
                value.as_ref().is_some_and(|value| improves(rule, cell.value.as_ref(), value));
            if is_better {
                cell.value.clone_from(&value);
            }
            if push.synced && value.as_ref().is_some_and(|value| !cell.has_synced(value)) {
                cell.synced = value;
            }
            if is_better || is_new {
                changed.push(cell.seen(index));
            }
        }
        changed
    }

    /// Takes the steps that may go on.
    fn released(&mut self) -> Vec<Waiting> {
        let cells = &self.cells;
        let may_go = |waiting: &mut Waiting| {
            waiting.values.iter().all(|(index, value)| cells[index].has_synced(value))
        };
        self.waiting.extract_if(.., may_go).collect()
    }
}

impl Holder {
    pub(crate) fn next_variables(&self) -> Option<Time> {
        let jobs = self.variables.as_ref()?;
        jobs.values().filter_map(|job| Some(job.again?.0)).min()
    }
    pub(crate) fn forget_variables(&mut self, job: JobId, out: &mut Out) {
        let Some(jobs) = &mut self.variables else { return };
        if jobs.remove(&job).is_some() {
            out.variables.get_or_insert_default().changed.push((job, None));
        }
        if jobs.is_empty() {
            self.variables = None;
        }
    }
}

impl Scheduler {
    /// A task starts here: the node wants the values of its job from now on.
    pub(crate) fn want_variables(&mut self, now: Time, task: TaskId, work: &Work, out: &mut Out) {
        if work.settings.variables == 0 {
            return;
        }
        let jobs = self.holder.variables.get_or_insert_default();
        if let Entry::Vacant(entry) = jobs.entry(task.job) {
            let again = Some((now + VARIABLE_AGAIN, VARIABLE_AGAIN));
            let declared = work.settings.variables;
            entry.insert(JobVariables { declared, again, ..JobVariables::default() });
            self.send_variables(task.job, out);
        }
    }

    /// An attempt that runs here sets a variable. It is answered with false if it does not run, or
    /// if the variable is unknown here.
    pub fn on_set_variable(
        &mut self,
        now: Time,
        by: (TaskId, Attempt),
        set: (u32, VarValue),
        ticket: u64,
        out: &mut Out,
    ) {
        let done = self.set_variable(now, by, set, out);
        out.variables.get_or_insert_default().set.push((ticket, done));
    }

    fn set_variable(
        &mut self,
        now: Time,
        (task, attempt): (TaskId, Attempt),
        (index, value): (u32, VarValue),
        out: &mut Out,
    ) -> bool {
        let is_current = self.holder.running.get(&task).is_some_and(|it| it.attempt == attempt);
        let writer = self.options.writer();
        let jobs = self.holder.variables.as_mut().filter(|_| is_current);
        let Some(job) = jobs.and_then(|jobs| jobs.get_mut(&task.job)) else { return false };
        let Some(cell) = job.cells.get_mut(&index) else { return false };
        if cell.rule() == VarRule::VarSum || check_value(&value).is_err() {
            return false;
        }
        let seq = cell.value.as_ref().map_or(0, |value| value.seq);
        let value = match cell.rule() {
            VarRule::VarLast => VarValue { seq: seq + 1, writer, ..value },
            _ => VarValue { seq: 0, writer: 0, text: Vec::new(), ..value },
        };
        if improves(cell.rule(), cell.value.as_ref(), &value) {
            cell.value = Some(value);
            let news = out.variables.get_or_insert_default();
            news.changed.push((task.job, Some(cell.seen(index))));
            job.again = Some((now + VARIABLE_AGAIN, VARIABLE_AGAIN));
            job.is_changed = true;
        }
        true
    }

    /// Sends the values that are not known to be synced to the job's home.
    fn send_variables(&self, job_id: JobId, out: &mut Out) {
        let jobs = self.holder.variables.as_ref();
        let Some(job) = jobs.and_then(|jobs| jobs.get(&job_id)) else { return };
        let value = |(index, value): (u32, &VarValue)| wire::Variable {
            index,
            value: Some(value.clone()),
            ..wire::Variable::default()
        };
        let set = wire::VarSet { job: job_id.0, values: job.unsynced().map(value).collect() };
        out.reliable.push((self.routing.homes().job_home(job_id), Body::VarSet(set)));
    }

    /// The job's home announces values.
    pub(crate) fn on_var_push(&mut self, now: Time, mut push: wire::VarPush, out: &mut Out) {
        let (job_id, asks) = (JobId(push.job), push.asks);
        let jobs = self.holder.variables.as_mut();
        let Some(job) = jobs.and_then(|jobs| jobs.get_mut(&job_id)) else { return };
        if self.options.mutant == Some(Mutant::UsedBeforeSynced) {
            push.synced = true;
        }
        let changed = job.merge(push);
        if !changed.is_empty() {
            let news = out.variables.get_or_insert_default();
            news.changed.extend(changed.into_iter().map(|it| (job_id, Some(it))));
        }
        let is_known = job.cells.len() >= job.declared as usize;
        match job.again {
            _ if is_known && job.unsynced().next().is_none() => job.again = None,
            None => job.again = Some((now + VARIABLE_AGAIN, VARIABLE_AGAIN)),
            Some(_) => {}
        }
        let released = job.released();
        if asks {
            self.send_variables(job_id, out);
        }
        for Waiting { task, attempt, step, .. } in released {
            match step {
                Step::Turn(turn) => self.begin_turn(now, task, attempt, *turn, out),
                Step::End(at, outcome) => {
                    self.end_attempt_at(now, Some(at), (task, attempt), outcome, out);
                }
            }
        }
    }

    /// The values that a step of this task may rest on, and that are not known to be synced.
    fn rests_on(&self, task: TaskId) -> Vec<(u32, VarValue)> {
        if self.options.mutant == Some(Mutant::EndBeforeBound) {
            return Vec::new();
        }
        let jobs = self.holder.variables.as_ref();
        let Some(job) = jobs.and_then(|jobs| jobs.get(&task.job)) else { return Vec::new() };
        job.unsynced().map(|(index, value)| (index, value.clone())).collect()
    }

    fn await_variables(
        &mut self,
        (task, attempt): (TaskId, Attempt),
        values: Vec<(u32, VarValue)>,
        step: Step,
    ) {
        if let Some(job) = self.holder.variables.as_mut().and_then(|it| it.get_mut(&task.job)) {
            job.waiting.push(Waiting { values, task, attempt, step });
        }
    }

    /// An attempt that runs here commits a turn. It waits for the values that the task may have
    /// used.
    pub fn on_turn(
        &mut self,
        now: Time,
        task: TaskId,
        attempt: Attempt,
        turn: Turn,
        out: &mut Out,
    ) {
        match self.rests_on(task) {
            values if values.is_empty() => self.begin_turn(now, task, attempt, turn, out),
            values => self.await_variables((task, attempt), values, Step::Turn(Box::new(turn))),
        }
    }

    /// An attempt launched here has ended. Its end waits for the values that the task may have
    /// used.
    pub fn on_finished(
        &mut self,
        now: Time,
        task: TaskId,
        attempt: Attempt,
        outcome: Box<Outcome>,
        out: &mut Out,
    ) {
        let is_waiting = |job: &JobVariables| {
            let is_end = |it: &Waiting| {
                (it.task, it.attempt) == (task, attempt) && matches!(it.step, Step::End(..))
            };
            job.waiting.iter().any(is_end)
        };
        let jobs = self.holder.variables.as_ref();
        if jobs.and_then(|jobs| jobs.get(&task.job)).is_some_and(is_waiting) {
            return; // It is reported twice.
        }
        match self.rests_on(task) {
            values if values.is_empty() => {
                self.end_attempt_at(now, None, (task, attempt), outcome, out);
            }
            _ if self.holder.is_to_move(task, attempt) => {
                self.end_attempt_at(now, None, (task, attempt), outcome, out);
            }
            values if self.holder.leave_seat(now, task, attempt) => {
                // It has ended before it was told.
                self.holder.forget_notice(task);
                self.await_variables((task, attempt), values, Step::End(now, outcome));
            }
            _ => {} // It was stopped meanwhile.
        }
    }

    /// Sends the values of this step: those that attempts here have set, and those that a job's
    /// home has taken. Of several values of a variable it sends the last one.
    pub(crate) fn send_changed_variables(&mut self, out: &mut Out) {
        self.home.jobs.announce_changed_variables(self.routing.homes(), out);
        let Some(jobs) = &mut self.holder.variables else { return };
        let changed = jobs
            .iter_mut()
            .filter_map(|(&job_id, job)| std::mem::take(&mut job.is_changed).then_some(job_id));
        for job in changed.collect::<Vec<_>>() {
            self.send_variables(job, out);
        }
    }

    /// Sends values again that are not known to be synced.
    pub(crate) fn repeat_variables(&mut self, now: Time, out: &mut Out) {
        let Some(jobs) = &mut self.holder.variables else { return };
        let mut due = Vec::new();
        for (&job_id, job) in jobs.iter_mut() {
            let Some((at, pause)) = job.again.filter(|(at, _)| *at <= now) else { continue };
            let pause = pause.doubled().min(REPEAT_MAX);
            job.again = Some((at.max(now) + pause, pause));
            let homes = self.routing.homes();
            if homes.active_owner(homes.job_partition(job_id)).is_some() {
                due.push(job_id);
            }
        }
        for job in due {
            self.send_variables(job, out);
        }
    }
}
