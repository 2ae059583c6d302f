//! Permission to start a task that was on a node when it crashed.
//!
//! Such a task starts only after its remote home has durably recorded the start. So later crashes
//! are charged to tasks that really ran. The task keeps its slot while it waits for the answer.
//!
//! If the home does not answer within `START_ASK_TIMEOUT`, the slot is freed and the start is
//! withdrawn. Once the home has acknowledged the withdrawal, the task queues again and asks in its
//! turn. So the tasks of an unreachable home do not block other tasks one after another.

use std::collections::VecDeque;

use proto::{Attempt, Incarnation, NodeId, TaskId, Time};

use crate::holder::Holder;
use crate::holder::staging::Staged;
use crate::limits::START_ASK_TIMEOUT;
use crate::output::{Out, task_attempt};
use crate::{Mutant, Scheduler};
use proto::Span;

/// The wait for permission doubles after each late answer, at most this many times.
const START_ASK_DOUBLED_MAX: u32 = 3;
/// After it has lost its slot, the holder repeats the request at this interval, to the present
/// home.
const START_ASK_AGAIN: Span = Span::from_secs(5);

/// The state of a staged task's request to start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum StartPermission {
    NotNeeded,
    /// The home was asked; the task keeps a slot until the answer.
    Requested,
    /// The request timed out and the start is withdrawn. The task is in no queue until its home
    /// acknowledges the withdrawal.
    Overdue,
}

/// The home that was asked, and its incarnation.
type AskedOwner = (Option<NodeId>, Incarnation);
/// Entries in the order of their times: time, task, and the home that was asked.
type Line = VecDeque<(Time, TaskId, AskedOwner)>;

/// Tasks that wait for an answer. Boxed, because most nodes never have any.
#[derive(Debug, Default)]
pub(crate) struct StartRequests(Option<Box<OpenRequests>>);

#[derive(Debug, Default)]
struct OpenRequests {
    /// Tasks that keep a slot, by the end of their timeout.
    until: Line,
    /// Tasks without a slot, by the time of the next check whether their home has changed.
    late: Line,
    /// A task that runs alone: no other task may start beside it.
    alone: Option<TaskId>,
}

impl StartRequests {
    fn open(&mut self) -> &mut OpenRequests {
        self.0.get_or_insert_default()
    }
    pub(crate) fn late(&self) -> usize {
        self.0.as_ref().map_or(0, |open| open.late.len())
    }
    /// Whether a task runs alone, so that no other may start.
    pub(crate) fn any_exclusive(&self) -> bool {
        self.0.as_ref().is_some_and(|open| open.alone.is_some())
    }
    pub(crate) fn set_exclusive(&mut self, task: TaskId) {
        self.open().alone = Some(task);
    }
    /// The task has ended: if it ran alone, others may start again.
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

impl Holder {
    /// The home has recorded that the task did not start: the task queues again.
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
        self.join_line(task);
    }
}

impl Scheduler {
    pub(crate) fn needs_start_permission(&self, task: TaskId) -> bool {
        let unsure = |staged: &Staged| staged.work.deaths > 0;
        !self.routing.homes().is_home_of(task)
            && self.holder.staging.get(&task).is_some_and(|staged| unsure(staged))
            && self.options.mutant != Some(Mutant::StartWithoutPermission)
    }

    /// The task is next and there is space for it. It takes a slot, and its home is asked.
    pub(crate) fn request_start(&mut self, now: Time, task: TaskId, out: &mut Out) {
        let staged = &self.holder.staging[&task];
        let (work, class) = (staged.work.clone(), staged.class);
        // The first part of a gang has its seat already.
        let seat = match staged.seat.is_some() {
            true => None,
            false => self.holder.take_seat(&work, class),
        };
        let staged = self.holder.staging.get_mut(&task).expect("a task in line is staged");
        staged.start_permission = StartPermission::Requested;
        staged.seat = staged.seat.take().or(seat);
        if staged.work.alone {
            self.holder.start_requests.set_exclusive(task);
        }
        let start = task_attempt(task, staged.attempt);
        let timeout = START_ASK_TIMEOUT.doubled_times(staged.late.min(START_ASK_DOUBLED_MAX));
        let until = now + timeout;
        let asked = self.home_asked(task);
        let line = &mut self.holder.start_requests.open().until;
        let place = line.partition_point(|&(other, ..)| other <= until);
        line.insert(place, (until, task, asked));
        self.report_start(start, out);
    }

    /// The home has recorded the start: the task starts.
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
        let staged = self.holder.staging.get(&task).filter(|staged| waits(staged));
        let Some(staged) = staged.filter(|_| !self.holder.stopping) else { return };
        if !self.holder.life_fits(&staged.work) || self.holder.slots.is_paused() {
            // The answer came after the latest start, or after a user had paused the node.
            self.unstage(task, out);
            self.report_dropped(task, attempt, out);
            return;
        }
        self.holder.start_requests.forget(task, StartPermission::Requested);
        self.start_staged(now, task, out);
    }

    /// Frees the slots of tasks after their requests timed out, and withdraws the starts.
    pub(crate) fn expire_start_requests(&mut self, now: Time, out: &mut Out) {
        while let Some((task, asked)) = self.holder.start_requests.take_due(now) {
            let staged = self.holder.staging.get_mut(&task).expect("a task that asks is staged");
            staged.start_permission = StartPermission::Overdue;
            let start = task_attempt(task, staged.attempt);
            let seat = staged.seat.take();
            self.holder.slots.give_back(seat);
            self.holder.start_requests.ended(task);
            self.holder.start_requests.open().late.push_back((now + START_ASK_AGAIN, task, asked));
            self.withdraw_start(start, out);
        }
        while let Some((task, before)) = self.holder.start_requests.take_late(now) {
            let asked = self.home_asked(task);
            self.holder.start_requests.open().late.push_back((now + START_ASK_AGAIN, task, asked));
            // The home that was asked may have crashed before it answered. The same incarnation
            // needs no second message: the link retransmits the first.
            if asked != before {
                let staged = self.holder.staging.get(&task).expect("a task that asks is staged");
                self.withdraw_start(task_attempt(task, staged.attempt), out);
            }
        }
    }

    fn home_asked(&self, task: TaskId) -> AskedOwner {
        let home = self.routing.homes().owner(task.partition());
        (home, home.map_or(Incarnation(0), |home| self.incarnation_of(home)))
    }
}
