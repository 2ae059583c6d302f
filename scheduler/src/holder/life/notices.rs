//! Signals before an end. The command of an attempt gets one signal before its node ends, or when
//! its node is drained.
//! Its exit after that is a move: the task runs again elsewhere, and nothing is counted against it.

use std::collections::BTreeMap;

use proto::event::{End, RetryReason};
use proto::{Attempt, NodeId, TaskId, Time, wire};

use crate::holder::Holder;
use crate::holder::task::Work;
use crate::objects::drain::AttemptKey;
use crate::output::Out;
use crate::{Mutant, Scheduler};

/// The signal of a command that can be moved. Those of a task on several nodes cannot.
pub(crate) fn notice_of(spec: &wire::Spec) -> Option<&wire::Notice> {
    match &spec.body {
        Some(wire::spec::Body::Command(command)) if spec.nodes <= 1 => command.notice.as_deref(),
        _ => None,
    }
}

/// The attempts here with commands that get a signal.
#[derive(Debug, Default)]
pub(crate) struct Notices(BTreeMap<TaskId, Noticed>);

#[derive(Debug)]
struct Noticed {
    attempt: Attempt,
    /// When the command is told of the end of this node; `None`: no end is known.
    due: Option<Time>,
    told: bool,
}

impl Holder {
    /// An attempt starts here.
    pub(crate) fn expect_notice(&mut self, task: TaskId, attempt: Attempt, spec: &wire::Spec) {
        let Some(notice) = notice_of(spec) else { return };
        let noticed = Noticed { attempt, due: self.life().notice_at(notice), told: false };
        self.notices.get_or_insert_default().0.insert(task, noticed);
    }

    /// The attempt has ended, or was stopped.
    pub(crate) fn forget_notice(&mut self, task: TaskId) {
        let Some(notices) = &mut self.notices else { return };
        notices.0.remove(&task);
        if notices.0.is_empty() {
            self.notices = None;
        }
    }

    /// Whether the end of this attempt is a move.
    pub(crate) fn is_to_move(&self, task: TaskId, attempt: Attempt) -> bool {
        let told = self.notices.as_ref().and_then(|notices| notices.0.get(&task));
        let counts = self.mutant == Some(Mutant::MovedFails);
        !counts && told.is_some_and(|it| it.told && it.attempt == attempt)
    }

    /// Sends the signals that are due.
    fn tell_notices(&mut self, now: Time, out: &mut Out) {
        let leaves = self.life().leaves();
        let again = self.mutant == Some(Mutant::ToldAgain);
        if !leaves && !self.life().has_end() {
            return;
        }
        let Some(notices) = &mut self.notices else { return };
        for (&task, it) in notices.0.iter_mut().filter(|(_, it)| again || !it.told) {
            if leaves || it.due.is_some_and(|due| due <= now) {
                it.told = true;
                out.notices.get_or_insert_default().push((task, it.attempt));
            }
        }
    }

    fn noticed(&self) -> Vec<AttemptKey> {
        let notices = self.notices.iter().flat_map(|notices| notices.0.iter());
        notices.map(|(&task, it)| (task, it.attempt)).collect()
    }
}

impl Scheduler {
    /// Whether the node is drained and the task has a signal: it would be moved at once.
    pub(crate) fn would_move(&self, node: NodeId, work: &Work) -> bool {
        notice_of(&work.spec).is_some() && self.routing.homes().is_leaving(node)
    }

    /// Tells commands of the end of this node, and moves those that run at the deadline of its
    /// drain.
    pub(crate) fn tend_notices(&mut self, now: Time, out: &mut Out) {
        if self.holder.notices.is_none() {
            return;
        }
        self.holder.tell_notices(now, out);
        if self.move_by().is_some_and(|by| by <= now) {
            for (task, attempt) in self.holder.noticed() {
                self.move_attempt(task, attempt, out);
            }
        }
    }

    /// When the commands that can be moved are killed, if this node is drained with a deadline.
    fn move_by(&self) -> Option<Time> {
        let by = self.routing.homes().leaves_by(self.options.me);
        let is_ignored = self.options.mutant == Some(Mutant::DeadlineIgnored);
        by.filter(|_| self.holder.life().leaves() && !is_ignored)
    }

    /// When a command has to be told, or killed.
    pub(crate) fn next_notice(&self) -> Option<Time> {
        let notices = self.holder.notices.as_ref()?;
        let untold = notices.0.values().filter(|it| !it.told).filter_map(|it| it.due).min();
        untold.into_iter().chain(self.move_by()).min()
    }

    /// The attempt is over: its task runs again elsewhere.
    pub(crate) fn move_attempt(&mut self, task: TaskId, attempt: Attempt, out: &mut Out) {
        let running = self.holder.running.get(&task).filter(|running| running.attempt == attempt);
        out.events.extend(running.map(|running| running.ended(task, End::Cancelled)));
        self.drop_task(task, attempt, out);
        if self.options.mutant == Some(Mutant::MovedUnreported) {
            return;
        }
        self.report_not_held(task, attempt, RetryReason::Moved, out);
    }
}
