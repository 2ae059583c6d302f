//! Before a task starts with which a node has died: its home, where that is another, is to know.
//!
//! It asks when its turn has come, and keeps its slot until the answer is here; so that what its
//! home notes as started runs. Where the answer does not come for long (the home is away) others
//! have the slot, and the home is told that the task does not start: with what others do to this
//! node it has nothing to do. It gets into line again when the home knows that, and asks again when
//! its turn has come. Several of one home that is away so do not keep the others waiting one after
//! another.

use std::collections::VecDeque;

use proto::limits::{START_ASK_AGAIN, START_ASK_DOUBLED_MAX, START_ASK_TIMEOUT};
use proto::{Attempt, Incarnation, NodeId, Span, TaskId, Time};

use crate::output::{Out, task_attempt};
use crate::staging::Staged;
use crate::{Mutant, Scheduler};

/// What a staged task's home knows of its start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StartPermission {
    NotNeeded,
    /// It was told, and the task keeps a slot until it answers.
    Requested,
    /// It was told, and has not answered for long: the task is in no line until it knows that it
    /// does not start.
    Overdue,
}

/// Which life of which home.
type AskedOwner = (Option<NodeId>, Incarnation);
/// Until when, who, and whom it has asked.
type Line = VecDeque<(Time, TaskId, AskedOwner)>;

/// Tasks that wait for an answer. On most nodes there are never any.
#[derive(Debug, Default)]
pub(crate) struct StartRequests(Option<Box<OpenRequests>>);

#[derive(Debug, Default)]
struct OpenRequests {
    /// Those that keep a slot, and for how long.
    until: Line,
    /// Those that keep none, and when they look whether another home is to be asked.
    late: Line,
    /// It runs, and nothing else may beside it.
    alone: Option<TaskId>,
}

impl StartRequests {
    fn open(&mut self) -> &mut OpenRequests {
        self.0.get_or_insert_default()
    }
    pub(crate) fn late(&self) -> usize {
        self.0.as_ref().map_or(0, |open| open.late.len())
    }
    /// Nothing else may start.
    pub(crate) fn any_exclusive(&self) -> bool {
        self.0.as_ref().is_some_and(|open| open.alone.is_some())
    }
    pub(crate) fn set_exclusive(&mut self, task: TaskId) {
        self.open().alone = Some(task);
    }
    /// It runs no more.
    pub(crate) fn ended(&mut self, task: TaskId) {
        if let Some(open) = &mut self.0 {
            open.alone = open.alone.filter(|&alone| alone != task);
        }
    }
    pub(crate) fn deadline(&self) -> Option<Time> {
        let open = self.0.as_ref()?;
        let first = |line: &Line| line.front().map(|&(at, ..)| at);
        first(&open.until).into_iter().chain(first(&open.late)).min()
    }
    pub(crate) fn forget(&mut self, task: TaskId, start_permission: StartPermission) {
        match start_permission {
            StartPermission::Requested => self.open().until.retain(|&(_, other, _)| other != task),
            StartPermission::Overdue => self.open().late.retain(|&(_, other, _)| other != task),
            StartPermission::NotNeeded => {}
        }
    }
    fn take_due(&mut self, now: Time) -> Option<(TaskId, AskedOwner)> {
        take_due(&mut self.0.as_mut()?.until, now)
    }
    fn take_late(&mut self, now: Time) -> Option<(TaskId, AskedOwner)> {
        take_due(&mut self.0.as_mut()?.late, now)
    }
}

fn take_due(line: &mut Line, now: Time) -> Option<(TaskId, AskedOwner)> {
    line.pop_front_if(|(at, ..)| *at <= now).map(|(_, task, asked)| (task, asked))
}

impl Scheduler {
    pub(crate) fn needs_start_permission(&self, task: TaskId) -> bool {
        let unsure = |staged: &Staged| staged.work.deaths > 0;
        !self.homes.is_home_of(task)
            && self.staging.get(&task).is_some_and(|staged| unsure(staged))
            && self.options.mutant != Some(Mutant::StartWithoutPermission)
    }

    /// Its turn has come, and there is room for it.
    pub(crate) fn request_start(&mut self, now: Time, task: TaskId, out: &mut Out) {
        let staged = self.staging.get_mut(&task).expect("who is in line is staged");
        staged.start_permission = StartPermission::Requested;
        staged.slot = Some(self.slots.take(staged.work.cpus()));
        if staged.work.alone {
            self.start_requests.set_exclusive(task);
        }
        let start = task_attempt(task, staged.attempt);
        let doubled = staged.late.min(START_ASK_DOUBLED_MAX);
        let until = now + Span(START_ASK_TIMEOUT.0 << doubled);
        let asked = self.home_asked(task);
        let line = &mut self.start_requests.open().until;
        let place = line.partition_point(|&(other, ..)| other <= until);
        line.insert(place, (until, task, asked));
        self.report_start(start, out);
    }

    /// Its home knows.
    pub(crate) fn on_start_permitted(
        &mut self,
        now: Time,
        task: TaskId,
        attempt: Attempt,
        out: &mut Out,
    ) {
        let waits = |staged: &Staged| {
            staged.attempt == attempt && staged.start_permission == StartPermission::Requested
        };
        if self.stopping || !self.staging.get(&task).is_some_and(|staged| waits(staged)) {
            return;
        }
        self.start_requests.forget(task, StartPermission::Requested);
        self.start_staged(now, task, out);
    }

    /// Its home knows that it has not started.
    pub(crate) fn on_start_withdrawn(&mut self, task: TaskId, attempt: Attempt) {
        let staged = self.staging.get_mut(&task).filter(|staged| staged.attempt == attempt);
        let Some(staged) =
            staged.filter(|staged| staged.start_permission == StartPermission::Overdue)
        else {
            return;
        };
        staged.start_permission = StartPermission::NotNeeded;
        staged.late += 1;
        self.start_requests.forget(task, StartPermission::Overdue);
        self.awaiting_slot.push_back(task);
    }

    /// Others have the slots of those that have waited for long.
    pub(crate) fn expire_start_requests(&mut self, now: Time, out: &mut Out) {
        while let Some((task, asked)) = self.start_requests.take_due(now) {
            let staged = self.staging.get_mut(&task).expect("who asks is staged");
            staged.start_permission = StartPermission::Overdue;
            let start = task_attempt(task, staged.attempt);
            let slot = staged.slot.take();
            self.slots.give_back(slot);
            self.start_requests.ended(task);
            self.start_requests.open().late.push_back((now + START_ASK_AGAIN, task, asked));
            self.withdraw_start(start, out);
        }
        while let Some((task, before)) = self.start_requests.take_late(now) {
            let asked = self.home_asked(task);
            self.start_requests.open().late.push_back((now + START_ASK_AGAIN, task, asked));
            // The one that was told may have died with the answer. While it is only away the word
            // is on its way.
            if asked != before {
                let staged = self.staging.get(&task).expect("who asks is staged");
                self.withdraw_start(task_attempt(task, staged.attempt), out);
            }
        }
    }

    fn home_asked(&self, task: TaskId) -> AskedOwner {
        let home = self.homes.owner(task.partition());
        (home, home.map_or(Incarnation(0), |home| self.incarnation_of(home)))
    }
}
