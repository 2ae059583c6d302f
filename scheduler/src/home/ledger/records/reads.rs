//! What other rooms read of a job and of a task.

use std::sync::Arc;

use proto::wire::Openness;
use proto::{Attempt, Incarnation, LocalId, NodeId, Time, wire};

use super::{Cell, Job, State};

impl Job {
    #[inline]
    pub(crate) fn settings(&self) -> &Arc<wire::JobSettings> {
        &self.settings
    }
    #[inline]
    pub(crate) fn is_visible(&self) -> bool {
        self.visible
    }
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }
    /// Its commit has arrived, and its end has not.
    #[inline]
    pub(crate) fn is_under_way(&self) -> bool {
        self.visible && !self.ended
    }
    #[inline]
    pub(crate) fn open_tasks(&self) -> u64 {
        self.open
    }
    /// Its commit has arrived, and tasks of it are open here.
    pub(crate) fn is_running(&self) -> bool {
        self.visible && self.open > 0
    }
    /// Tasks of it are here, and its commit is not.
    pub(crate) fn awaits_commit(&self) -> bool {
        !self.visible && self.open > 0
    }
    /// Whether clients may add tasks to some part.
    pub(crate) fn grows(&self) -> bool {
        self.parts.values().any(|part| part.openness == Openness::Open)
    }
    pub(crate) fn is_report_due(&self) -> bool {
        self.report_at.is_some()
    }
    /// No event of the job is earlier. The submitter's clock may be ahead: the time of arrival here
    /// is the upper limit.
    pub(crate) fn earliest(&self) -> Time {
        match self.visible {
            true => self.submitted.min(self.touched),
            false => self.touched,
        }
    }
    /// The last question to its home whether there is such a job, without activity since.
    pub(crate) fn open_question(&self) -> Option<u64> {
        Some(self.question).filter(|&question| question != 0)
    }
    /// The tasks from the place of the last search on, in the order of their ids.
    pub(crate) fn tasks_to_search(&self) -> impl Iterator<Item = LocalId> + '_ {
        let from = self.looked_to;
        self.parts.from(from.partition()).flat_map(move |(partition, part)| {
            let first = if partition == from.partition() { from.index() } else { 0 };
            let indices = part.indices().skip_while(move |&index| index < first);
            indices.map(move |index| LocalId::new(partition, index))
        })
    }
}

impl Cell {
    #[inline]
    pub(crate) fn state(&self) -> State {
        self.state
    }
    #[inline]
    pub(crate) fn attempt(&self) -> Attempt {
        self.attempt
    }
    /// The node where the task is queued or runs, or where it ran.
    #[inline]
    pub(crate) fn holder(&self) -> NodeId {
        self.holder
    }
    #[inline]
    pub(crate) fn holder_incarnation(&self) -> Incarnation {
        self.holder_incarnation
    }
    /// The task is ready or runs on this node.
    #[inline]
    pub(crate) fn is_held_by(&self, node: NodeId) -> bool {
        self.state == State::Ready && self.holder == node
    }
    /// Whether its home has recorded the start of the current attempt.
    #[inline]
    pub(crate) fn has_started(&self) -> bool {
        self.started
    }
    /// The number of inputs that are missing, and of all inputs.
    #[inline]
    pub(crate) fn missing(&self) -> (u32, u32) {
        (self.missing, self.slots)
    }
    /// Its outputs were lost. According to the records the earlier end still counts.
    #[inline]
    pub(crate) fn is_rebuilt(&self) -> bool {
        self.rebuilds > 0
    }
}
