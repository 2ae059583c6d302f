//! The letter for which a task waits, in the record of its turns.

use proto::{LocalId, TaskId, Time, wire};

use crate::home::ledger::Ledger;
use crate::home::ledger::turns::state::TaskTurns;

/// A task that waits for a letter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Suspended {
    /// Only a letter of this task ends the wait.
    pub(crate) from: Option<LocalId>,
    /// The wait ends then without a letter.
    pub(crate) until: Option<Time>,
}

impl Ledger {
    /// The wait of the task's last turn.
    pub(in crate::home::ledger) fn mail_wait_of(&self, task: TaskId) -> Option<&wire::MailWait> {
        self.turns_of(task)?.mail_wait.as_ref()
    }

    /// Whether the last turn of the task waits for a letter.
    pub(super) fn awaits_mail(&self, task: TaskId) -> bool {
        self.mail_wait_of(task).is_some()
    }

    /// The wait of the task for a letter, if it still waits.
    pub(crate) fn suspended(&self, task: TaskId) -> Option<Suspended> {
        self.turns_of(task)?.suspended
    }

    /// Returns the former one.
    pub(in crate::home::ledger) fn set_suspended(
        &mut self,
        task: TaskId,
        suspended: Option<Suspended>,
    ) -> Option<Suspended> {
        std::mem::replace(&mut self.turns_of_mut(task)?.suspended, suspended)
    }

    /// The index of a child.
    pub(in crate::home::ledger) fn child_of(&self, task: TaskId, ordinal: u64) -> Option<u64> {
        self.turns_of(task)?.child(ordinal)
    }

    /// The number of children of the task.
    pub(in crate::home::ledger) fn children_of(&self, task: TaskId) -> u64 {
        self.turns_of(task).map_or(0, TaskTurns::ordinals)
    }
}
