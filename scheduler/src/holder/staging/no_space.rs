//! Tasks that did not fit on this node's disk. Each may be stolen by other nodes; if it returns, it
//! is pinned here. Otherwise a task that fits nowhere would migrate without end: every node starts
//! a new timeout, so no node would ever refuse it.

use std::collections::BTreeMap;

use proto::{JobId, LocalId, TaskId};

/// The number of tasks without space that a node has offered to other nodes and remembers. It
/// offers each task once.
const OFFERED_TASKS_MAX: usize = 1024;

/// The history of a task that other nodes may have had.
#[derive(Clone, Copy, Default, Debug)]
struct Offered {
    /// The task did not fit although nothing ran here: for this reason it is offered once.
    is_offered: bool,
    /// No node had space for the task: it is pinned in the local queue.
    pinned_here: bool,
}

#[derive(Default, Debug)]
pub(crate) struct NoSpace {
    /// The tasks that did not fit in the last step.
    current: Vec<TaskId>,
    offered: BTreeMap<TaskId, Offered>,
    /// The number of pinned tasks.
    pinned_here: usize,
}

impl NoSpace {
    /// These tasks do not fit in this step.
    pub(crate) fn set_current(&mut self, tasks: impl Iterator<Item = TaskId>) {
        self.current.clear();
        self.current.extend(tasks);
    }
    /// The task does not fit even alone. Returns whether it is offered to other nodes, which is
    /// done once.
    pub(crate) fn offer_once(&mut self, task: TaskId) -> bool {
        let Some(offered) = self.entry(task) else { return false };
        let first = !std::mem::replace(&mut offered.is_offered, true);
        let goes = first && std::mem::take(&mut offered.pinned_here);
        self.pinned_here -= usize::from(goes);
        first
    }
    /// A thief has got the task.
    pub(crate) fn note_stolen(&mut self, task: TaskId) {
        if self.current.contains(&task) {
            self.entry(task);
        }
    }
    /// This node has stolen the task. Returns true if the task was here before and did not fit:
    /// then it is pinned.
    pub(crate) fn note_return(&mut self, task: TaskId) -> bool {
        let Some(offered) = self.offered.get_mut(&task) else { return false };
        self.pinned_here += usize::from(!std::mem::replace(&mut offered.pinned_here, true));
        true
    }
    pub(crate) fn is_pinned_here(&self, task: TaskId) -> bool {
        self.offered.get(&task).is_some_and(|offered| offered.pinned_here)
    }
    /// The number of tasks in the local queue that no other node may take.
    pub(crate) fn pinned_here(&self) -> usize {
        self.pinned_here
    }
    /// The task is in no queue of this node any more, and not for lack of space.
    pub(crate) fn forget(&mut self, task: TaskId) {
        let offered = self.offered.remove(&task);
        self.pinned_here -= usize::from(offered.is_some_and(|offered| offered.pinned_here));
    }
    pub(crate) fn forget_job(&mut self, job: JobId) {
        let (first, last) = (LocalId(0), LocalId(u64::MAX));
        let all = TaskId { job, local: first }..=TaskId { job, local: last };
        let of_job: Vec<TaskId> = self.offered.range(all).map(|(&task, _)| task).collect();
        of_job.into_iter().for_each(|task| self.forget(task));
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.offered.is_empty() && self.pinned_here == 0
    }

    /// `None`: too many are remembered.
    fn entry(&mut self, task: TaskId) -> Option<&mut Offered> {
        let room = self.offered.len() < OFFERED_TASKS_MAX || self.offered.contains_key(&task);
        room.then(|| self.offered.entry(task).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_returned_task_is_pinned_and_offered_once_more_at_most() {
        let (task, other) = (TaskId::new(1, 1), TaskId::new(1, 2));
        let mut no_space = NoSpace::default();
        no_space.note_stolen(task);
        assert!(!no_space.note_return(task), "there was room for it");
        no_space.set_current([task].into_iter());
        no_space.note_stolen(task);
        no_space.note_stolen(other);
        no_space.set_current([].into_iter());
        assert!(no_space.note_return(task) && !no_space.note_return(other));
        assert!(
            no_space.note_return(task)
                && no_space.is_pinned_here(task)
                && no_space.pinned_here() == 1
        );
        assert!(no_space.offer_once(task), "others may have ended what took their room");
        assert!(!no_space.is_pinned_here(task) && no_space.pinned_here() == 0);
        assert!(!no_space.offer_once(task));
        assert!(
            no_space.note_return(task)
                && !no_space.offer_once(task)
                && no_space.is_pinned_here(task)
        );
        no_space.forget(task);
        assert!(!no_space.is_pinned_here(task) && no_space.pinned_here() == 0);
        assert!(
            no_space.offer_once(task) && no_space.note_return(task) && no_space.offer_once(other)
        );
        no_space.forget_job(task.job);
        assert!(no_space.is_empty());
    }

    #[test]
    fn the_table_is_bounded() {
        let mut no_space = NoSpace::default();
        let offered = (0..2 * OFFERED_TASKS_MAX as u64).filter(|&local| {
            let task = TaskId::new(1, local);
            no_space.offer_once(task)
        });
        assert_eq!(offered.count(), OFFERED_TASKS_MAX);
    }
}
