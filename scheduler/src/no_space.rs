//! Tasks for which there was no room on the disk of this node. Others may have them, but what comes
//! back stays: among nodes none of which has the room it would wander for ever, and as each node
//! that it comes to grants it a new patience, nobody would ever refuse it.

use std::collections::BTreeMap;

use proto::limits::OFFERED_TASKS_MAX;
use proto::{JobId, LocalId, TaskId};

/// What has become of one that others may have had.
#[derive(Clone, Copy, Default, Debug)]
struct Offered {
    /// There was no room although nothing was under way here: to this end it is offered once.
    is_offered: bool,
    /// Nobody had room for it: it is in LReadyQ, for good.
    pinned_here: bool,
}

#[derive(Default, Debug)]
pub(crate) struct NoSpace {
    /// Those of the last step.
    current: Vec<TaskId>,
    offered: BTreeMap<TaskId, Offered>,
    /// How many of these stay.
    pinned_here: usize,
}

impl NoSpace {
    /// In this step there is no room for these.
    pub(crate) fn set_current(&mut self, tasks: impl Iterator<Item = TaskId>) {
        self.current.clear();
        self.current.extend(tasks);
    }
    /// Whether there was none even alone, and it is to be offered to others: once.
    pub(crate) fn offer_once(&mut self, task: TaskId) -> bool {
        let Some(offered) = self.entry(task) else { return false };
        let first = !std::mem::replace(&mut offered.is_offered, true);
        let goes = first && std::mem::take(&mut offered.pinned_here);
        self.pinned_here -= usize::from(goes);
        first
    }
    /// A thief has got it.
    pub(crate) fn note_stolen(&mut self, task: TaskId) {
        if self.current.contains(&task) {
            self.entry(task);
        }
    }
    /// This node has stolen it. Whether it had it before, and no room for it: then it stays.
    pub(crate) fn note_return(&mut self, task: TaskId) -> bool {
        let Some(offered) = self.offered.get_mut(&task) else { return false };
        self.pinned_here += usize::from(!std::mem::replace(&mut offered.pinned_here, true));
        true
    }
    pub(crate) fn is_pinned_here(&self, task: TaskId) -> bool {
        self.offered.get(&task).is_some_and(|offered| offered.pinned_here)
    }
    /// Tasks of LReadyQ that nobody else may have.
    pub(crate) fn pinned_here(&self) -> usize {
        self.pinned_here
    }
    /// It is not in a queue of this node any more, and not for want of room.
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
