//! Reader counts for outputs of tasks homed here, in memory only. A reader is subtracted once,
//! after its end is durable. A restart can lose subtractions but never repeats them. So a count can
//! only be too high: an object may be freed late, never early.

use std::collections::BTreeMap;

use proto::{Attempt, JobId, NodeId, ObjectId, PartitionId, TaskId};

use crate::objects::object_table::remove_of_job;

#[derive(Debug)]
struct ReaderCount {
    /// The number of edges to tasks that have not ended.
    left: u32,
    /// The node that made the object, or that holds it instead.
    node: NodeId,
}

#[derive(Debug, Default)]
pub(crate) struct ReaderCounts {
    objects: BTreeMap<ObjectId, ReaderCount>,
    /// A mutant: the first reader's end counts for all.
    first_is_all: bool,
}

impl ReaderCounts {
    pub(crate) fn new(first_is_all: bool) -> Self {
        Self { objects: BTreeMap::new(), first_is_all }
    }
    /// Begins to count an output of an ended task, with this number of edges to readers.
    pub(crate) fn expect(&mut self, object: ObjectId, readers: u32, node: NodeId) {
        if readers > 0 {
            self.objects.insert(object, ReaderCount { left: readers, node });
        }
    }

    /// Whether some task still reads the object; then it has not been freed.
    pub(crate) fn has(&self, object: &ObjectId) -> bool {
        self.objects.contains_key(object)
    }
    /// Whether some task reads outputs of the tasks from `first` to `last`; both ends included.
    pub(crate) fn any_of(&self, first: TaskId, last: TaskId) -> bool {
        let from = ObjectId { task: first, attempt: Attempt(0), output: 0 };
        self.objects.range(from..).next().is_some_and(|(object, _)| object.task <= last)
    }
    /// A reader that had ended reads the object again.
    pub(crate) fn again(&mut self, object: &ObjectId) {
        if let Some(reading) = self.objects.get_mut(object) {
            reading.left += 1;
        }
    }

    /// The node that made the object, or that holds it instead.
    pub(crate) fn maker_of(&self, object: &ObjectId) -> Option<NodeId> {
        self.objects.get(object).map(|reading| reading.node)
    }
    /// All objects on that node that are still read.
    pub(crate) fn made_on(&self, node: NodeId) -> Vec<ObjectId> {
        let there = self.objects.iter().filter(|(_, reading)| reading.node == node);
        there.map(|(&object, _)| object).collect()
    }

    /// Another node has the object from now on.
    pub(crate) fn moved(&mut self, object: &ObjectId, node: NodeId) {
        if let Some(reading) = self.objects.get_mut(object) {
            reading.node = node;
        }
    }

    /// The readers of these edges have ended. Returns the maker if they were the last.
    pub(crate) fn consume(&mut self, object: &ObjectId, readers: u32) -> Option<NodeId> {
        let reading = self.objects.get_mut(object)?;
        reading.left = reading.left.saturating_sub(readers);
        if reading.left > 0 && !self.first_is_all {
            return None;
        }
        self.objects.remove(object).map(|reading| reading.node)
    }

    pub(crate) fn forget_partition(&mut self, partition: PartitionId) {
        self.objects.retain(|object, _| object.task.partition() != partition);
    }
    pub(crate) fn forget_job(&mut self, job: JobId) {
        remove_of_job(&mut self.objects, job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(attempt: u64) -> ObjectId {
        ObjectId { task: TaskId::new(1, 3), attempt: Attempt(attempt), output: 0 }
    }

    #[test]
    fn the_last_reader_frees_the_object() {
        let mut readers = ReaderCounts::default();
        readers.expect(object(7), 3, NodeId(4));
        assert_eq!(readers.consume(&object(7), 2), None);
        assert_eq!(readers.consume(&object(6), 1), None, "another attempt's output");
        assert_eq!(readers.consume(&object(7), 1), Some(NodeId(4)));
        assert_eq!(readers.consume(&object(7), 1), None, "once");
    }

    #[test]
    fn a_restart_makes_it_late_never_early() {
        let mut readers = ReaderCounts::default();
        readers.expect(object(7), 2, NodeId(4));
        readers.consume(&object(7), 1);
        // The home restarts and counts from the beginning; the first reader does not report again.
        let mut readers = ReaderCounts::default();
        readers.expect(object(7), 2, NodeId(4));
        assert_eq!(readers.consume(&object(7), 1), None);
        readers.forget_job(JobId(1));
        assert!(readers.objects.is_empty());
    }
}
