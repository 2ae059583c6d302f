//! Before a task starts with which a node has died: its home, where that is another, is to know.
//!
//! It asks when its turn has come, and keeps its slot until the answer is here; so that what its
//! home notes as started runs. Where the answer does not come for long (the home is away) others
//! have the slot, and the home is told that the task does not start: with what others do to this
//! node it has nothing to do. It gets into line again when the home knows that, and asks again when
//! its turn has come. Several of one home that is away so do not keep the others waiting one after
//! another.

use std::collections::VecDeque;

use proto::limits::{START_ASK_AGAIN, START_ASK_DOUBLED_MAX, START_ASK_PATIENCE};
use proto::{Attempt, Incarnation, NodeId, Span, TaskId, Time};

use crate::out::{Out, task_attempt};
use crate::staging::Staged;
use crate::{Mutant, Scheduler};

/// What a staged task's home knows of its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asks {
    Not,
    /// It was told, and the task keeps a slot until it answers.
    Waits,
    /// It was told, and has not answered for long: the task is in no line until it knows that it
    /// does not start.
    Late,
}

/// Which life of which home.
type Asked = (Option<NodeId>, Incarnation);
/// Until when, who, and whom it has asked.
type Line = VecDeque<(Time, TaskId, Asked)>;

/// Tasks that wait for an answer. On most nodes there are never any.
#[derive(Debug, Default)]
pub(crate) struct Asking(Option<Box<Waiting>>);

#[derive(Debug, Default)]
struct Waiting {
    /// Those that keep a slot, and for how long.
    until: Line,
    /// Those that keep none, and when they look whether another home is to be asked.
    late: Line,
    /// It runs, and nothing else may beside it.
    alone: Option<TaskId>,
}

impl Asking {
    fn waiting(&mut self) -> &mut Waiting {
        self.0.get_or_insert_default()
    }
    pub(crate) fn late(&self) -> usize {
        self.0.as_ref().map_or(0, |waiting| waiting.late.len())
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
        let waiting = self.0.as_ref()?;
        let first = |line: &Line| line.front().map(|&(at, ..)| at);
        first(&waiting.until).into_iter().chain(first(&waiting.late)).min()
    }
    pub(crate) fn forget(&mut self, task: TaskId, asks: Asks) {
        match asks {
            Asks::Waits => self.waiting().until.retain(|&(_, other, _)| other != task),
            Asks::Late => self.waiting().late.retain(|&(_, other, _)| other != task),
            Asks::Not => {}
        }
    }
    fn take_due(&mut self, now: Time) -> Option<(TaskId, Asked)> {
        take_due(&mut self.0.as_mut()?.until, now)
    }
    fn take_late(&mut self, now: Time) -> Option<(TaskId, Asked)> {
        take_due(&mut self.0.as_mut()?.late, now)
    }
}

fn take_due(line: &mut Line, now: Time) -> Option<(TaskId, Asked)> {
    line.pop_front_if(|(at, ..)| *at <= now).map(|(_, task, asked)| (task, asked))
}

impl Scheduler {
    pub(crate) fn must_ask(&self, task: TaskId) -> bool {
        let unsure = |staged: &Staged| staged.work.deaths > 0;
        !self.homes.is_home_of(task)
            && self.staging.get(&task).is_some_and(|staged| unsure(staged))
            && self.options.mutant != Some(Mutant::SuspectsUnasked)
    }

    /// Its turn has come, and there is room for it.
    pub(crate) fn ask_to_start(&mut self, now: Time, task: TaskId, out: &mut Out) {
        let staged = self.staging.get_mut(&task).expect("who is in line is staged");
        staged.asks = Asks::Waits;
        staged.slot = Some(self.slots.take(staged.work.cpus()));
        if staged.work.alone {
            self.asking.leave_alone(task);
        }
        let start = task_attempt(task, staged.attempt);
        let doubled = staged.late.min(START_ASK_DOUBLED_MAX);
        let until = now + Span(START_ASK_PATIENCE.0 << doubled);
        let asked = self.home_asked(task);
        let line = &mut self.asking.waiting().until;
        let place = line.partition_point(|&(other, ..)| other <= until);
        line.insert(place, (until, task, asked));
        self.tell_start(start, out);
    }

    /// Its home knows.
    pub(crate) fn may_start(&mut self, now: Time, task: TaskId, attempt: Attempt, out: &mut Out) {
        let waits = |staged: &Staged| staged.attempt == attempt && staged.asks == Asks::Waits;
        if self.stopping || !self.staging.get(&task).is_some_and(|staged| waits(staged)) {
            return;
        }
        self.asking.forget(task, Asks::Waits);
        self.start_staged(now, task, out);
    }

    /// Its home knows that it has not started.
    pub(crate) fn may_ask_again(&mut self, task: TaskId, attempt: Attempt) {
        let staged = self.staging.get_mut(&task).filter(|staged| staged.attempt == attempt);
        let Some(staged) = staged.filter(|staged| staged.asks == Asks::Late) else { return };
        staged.asks = Asks::Not;
        staged.late += 1;
        self.asking.forget(task, Asks::Late);
        self.staged.push_back(task);
    }

    /// Others have the slots of those that have waited for long.
    pub(crate) fn stop_waiting(&mut self, now: Time, out: &mut Out) {
        while let Some((task, asked)) = self.asking.take_due(now) {
            let staged = self.staging.get_mut(&task).expect("who asks is staged");
            staged.asks = Asks::Late;
            let start = task_attempt(task, staged.attempt);
            let slot = staged.slot.take();
            self.slots.give_back(slot);
            self.asking.ended(task);
            self.asking.waiting().late.push_back((now + START_ASK_AGAIN, task, asked));
            self.tell_no_start(start, out);
        }
        while let Some((task, before)) = self.asking.take_late(now) {
            let asked = self.home_asked(task);
            self.asking.waiting().late.push_back((now + START_ASK_AGAIN, task, asked));
            // The one that was told may have died with the answer. While it is only away the word
            // is on its way.
            if asked != before {
                let staged = self.staging.get(&task).expect("who asks is staged");
                self.tell_no_start(task_attempt(task, staged.attempt), out);
            }
        }
    }

    fn home_asked(&self, task: TaskId) -> Asked {
        let home = self.homes.owner(task.partition());
        (home, home.map_or(Incarnation(0), |home| self.incarnation_of(home)))
    }
}
