//! Tasks that did not fit on this node's disk. Each may be stolen by other nodes; if it returns, it
//! is pinned here. Otherwise a task that fits nowhere would migrate without end: every node starts
//! a new timeout, so no node would ever refuse it.

use std::collections::BTreeMap;

use proto::limits::OFFERED_TASKS_MAX;
use proto::{JobId, LocalId, TaskId};

/// The history of a task that other nodes may have had.
#[derive(Clone, Copy, Default, Debug)]
struct Tried {
    /// The task did not fit although nothing ran here: for this reason it is offered once.
    is_offered: bool,
    /// No node had space for the task: it is pinned in the local queue.
    stays: bool,
}

#[derive(Default, Debug)]
pub(crate) struct Roomless {
    /// The tasks that did not fit in the last step.
    now: Vec<TaskId>,
    tried: BTreeMap<TaskId, Tried>,
    /// The number of pinned tasks.
    staying: usize,
}

impl Roomless {
    /// These tasks do not fit in this step.
    pub(crate) fn are_now(&mut self, tasks: impl Iterator<Item = TaskId>) {
        self.now.clear();
        self.now.extend(tasks);
    }
    /// The task does not fit even alone. Returns whether it is offered to other nodes, which is
    /// done once.
    pub(crate) fn offers(&mut self, task: TaskId) -> bool {
        let Some(tried) = self.try_others(task) else { return false };
        let first = !std::mem::replace(&mut tried.is_offered, true);
        let goes = first && std::mem::take(&mut tried.stays);
        self.staying -= usize::from(goes);
        first
    }
    /// A thief has got the task.
    pub(crate) fn stolen(&mut self, task: TaskId) {
        if self.now.contains(&task) {
            self.try_others(task);
        }
    }
    /// This node has stolen the task. Returns true if the task was here before and did not fit:
    /// then it is pinned.
    pub(crate) fn comes(&mut self, task: TaskId) -> bool {
        let Some(tried) = self.tried.get_mut(&task) else { return false };
        self.staying += usize::from(!std::mem::replace(&mut tried.stays, true));
        true
    }
    pub(crate) fn stays(&self, task: TaskId) -> bool {
        self.tried.get(&task).is_some_and(|tried| tried.stays)
    }
    /// The number of tasks in the local queue that no other node may take.
    pub(crate) fn staying(&self) -> usize {
        self.staying
    }
    /// The task is in no queue of this node any more, and not for lack of space.
    pub(crate) fn forget(&mut self, task: TaskId) {
        let tried = self.tried.remove(&task);
        self.staying -= usize::from(tried.is_some_and(|tried| tried.stays));
    }
    pub(crate) fn forget_job(&mut self, job: JobId) {
        let (first, last) = (LocalId(0), LocalId(u64::MAX));
        let all = TaskId { job, local: first }..=TaskId { job, local: last };
        let of_job: Vec<TaskId> = self.tried.range(all).map(|(&task, _)| task).collect();
        of_job.into_iter().for_each(|task| self.forget(task));
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.tried.is_empty() && self.staying == 0
    }

    /// `None`: too many are remembered.
    fn try_others(&mut self, task: TaskId) -> Option<&mut Tried> {
        let room = self.tried.len() < OFFERED_TASKS_MAX || self.tried.contains_key(&task);
        room.then(|| self.tried.entry(task).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_back_stays_and_is_offered_once_more_at_most() {
        let (task, other) = (TaskId::new(1, 1), TaskId::new(1, 2));
        let mut roomless = Roomless::default();
        roomless.stolen(task);
        assert!(!roomless.comes(task), "there was room for it");
        roomless.are_now([task].into_iter());
        roomless.stolen(task);
        roomless.stolen(other);
        roomless.are_now([].into_iter());
        assert!(roomless.comes(task) && !roomless.comes(other));
        assert!(roomless.comes(task) && roomless.stays(task) && roomless.staying() == 1);
        assert!(roomless.offers(task), "others may have ended what took their room");
        assert!(!roomless.stays(task) && roomless.staying() == 0);
        assert!(!roomless.offers(task));
        assert!(roomless.comes(task) && !roomless.offers(task) && roomless.stays(task));
        roomless.forget(task);
        assert!(!roomless.stays(task) && roomless.staying() == 0);
        assert!(roomless.offers(task) && roomless.comes(task) && roomless.offers(other));
        roomless.forget_job(task.job);
        assert!(roomless.is_empty());
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut roomless = Roomless::default();
        let offered = (0..2 * OFFERED_TASKS_MAX as u64).filter(|&local| {
            let task = TaskId::new(1, local);
            roomless.offers(task)
        });
        assert_eq!(offered.count(), OFFERED_TASKS_MAX);
    }
}
