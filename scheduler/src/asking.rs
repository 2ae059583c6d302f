//! Before a task starts with which a node has died: its home, where that is another, is to know.
//!
//! It asks when its turn has come, and keeps its slot until the answer is here; so that what its
//! home notes as started runs. Where the answer does not come for long (the home is away) others
//! have the slot meanwhile.

use std::collections::VecDeque;

use proto::limits::START_ASK_PATIENCE;
use proto::{Attempt, TaskId, Time};

use crate::ledger::runs_alone;
use crate::out::{Out, task_attempt};
use crate::staging::Staged;
use crate::{Mutant, Scheduler};

/// What a staged task's home knows of its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asks {
    Not,
    /// It was told, and the task keeps a slot until it answers.
    Waits,
    /// It was told, and has not answered for long: the task is in line again.
    Late,
    /// It knows.
    Knows,
}

/// Tasks that wait for an answer. On most nodes there are never any.
#[derive(Debug, Default)]
pub(crate) struct Asking(Option<Box<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    /// Those that keep a slot, and for how long.
    until: VecDeque<(Time, TaskId)>,
    late: usize,
    /// It runs, and nothing else may beside it.
    alone: Option<TaskId>,
}

impl Asking {
    fn waiting(&mut self) -> &mut Waiting {
        self.0.get_or_insert_default()
    }
    pub(crate) fn late(&self) -> usize {
        self.0.as_ref().map_or(0, |waiting| waiting.late)
    }
    /// Nothing else may start.
    pub(crate) fn any_alone(&self) -> bool {
        self.0.as_ref().is_some_and(|waiting| waiting.alone.is_some())
    }
    pub(crate) fn leave_alone(&mut self, task: TaskId) {
        self.waiting().alone = Some(task);
    }
    /// It runs no more.
    pub(crate) fn ended(&mut self, task: TaskId) {
        if let Some(waiting) = &mut self.0 {
            waiting.alone = waiting.alone.filter(|&alone| alone != task);
        }
    }
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.0.as_ref()?.until.front().map(|&(until, _)| until)
    }
    pub(crate) fn forget(&mut self, task: TaskId, asks: Asks) {
        match asks {
            Asks::Waits => self.waiting().until.retain(|&(_, other)| other != task),
            Asks::Late => self.waiting().late -= 1,
            Asks::Not | Asks::Knows => {}
        }
    }
    fn take_due(&mut self, now: Time) -> Option<TaskId> {
        let until = &mut self.0.as_mut()?.until;
        until.pop_front_if(|(until, _)| *until <= now).map(|(_, task)| task)
    }
}

impl Scheduler {
    pub(crate) fn must_ask(&self, task: TaskId) -> bool {
        let unsure = |staged: &Staged| staged.work.strikes > 0 && staged.asks != Asks::Knows;
        !self.homes.is_home_of(task)
            && self.staging.get(&task).is_some_and(|staged| unsure(staged))
            && self.options.mutant != Some(Mutant::SuspectsUnasked)
    }

    /// Its turn has come, and there is room for it.
    pub(crate) fn ask_to_start(&mut self, now: Time, task: TaskId, out: &mut Out) {
        let staged = self.staging.get_mut(&task).expect("who is in line is staged");
        let before = std::mem::replace(&mut staged.asks, Asks::Waits);
        staged.slot = Some(self.slots.take(staged.work.cpus()));
        if runs_alone(staged.work.strikes, self.options.mutant) {
            self.asking.leave_alone(task);
        }
        let asked = task_attempt(task, staged.attempt);
        // A first question may still be on its way.
        self.asking.forget(task, before);
        self.asking.waiting().until.push_back((now + START_ASK_PATIENCE, task));
        // Again, too, if it has waited for long: the home that was asked may be another one by now.
        self.tell_start(asked, out);
    }

    /// Its home knows.
    pub(crate) fn may_start(&mut self, now: Time, task: TaskId, attempt: Attempt, out: &mut Out) {
        let staged = self.staging.get_mut(&task).filter(|staged| staged.attempt == attempt);
        let Some(staged) = staged.filter(|staged| staged.asks != Asks::Not) else { return };
        let before = std::mem::replace(&mut staged.asks, Asks::Knows);
        self.asking.forget(task, before);
        if before == Asks::Waits {
            self.start_staged(now, task, out);
        }
    }

    /// Others have the slots of those that have waited for long.
    pub(crate) fn stop_waiting(&mut self, now: Time) {
        while let Some(task) = self.asking.take_due(now) {
            let staged = self.staging.get_mut(&task).expect("who asks is staged");
            staged.asks = Asks::Late;
            self.asking.waiting().late += 1;
            let slot = staged.slot.take();
            self.slots.give_back(slot);
            self.asking.ended(task);
            self.staged.push_back(task);
        }
    }
}
