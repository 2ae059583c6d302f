//! Who still reads the outputs of the tasks homed here: counts, kept in memory alone. Each reader
//! is counted once, when its end is durable; what a restart forgets is never counted again. So a
//! count can only be too high: an object is let go of late, never early.

use std::collections::BTreeMap;

use proto::{Attempt, JobId, NodeId, ObjectId, PartitionId, TaskId};

use crate::object_table::remove_of_job;

#[derive(Debug)]
struct ReaderCount {
    /// Edges to tasks that have not ended.
    left: u32,
    /// Where it was made.
    node: NodeId,
}

#[derive(Debug, Default)]
pub(crate) struct ReaderCounts {
    objects: BTreeMap<ObjectId, ReaderCount>,
    /// A bug on purpose: the first reader's end counts for all.
    first_is_all: bool,
}

impl ReaderCounts {
    pub(crate) fn new(first_is_all: bool) -> Self {
        Self { objects: BTreeMap::new(), first_is_all }
    }
    /// An output of a task that has ended, with so many edges to readers.
    pub(crate) fn expect(&mut self, object: ObjectId, readers: u32, node: NodeId) {
        if readers > 0 {
            self.objects.insert(object, ReaderCount { left: readers, node });
        }
    }

    /// Somebody reads it: it has not been let go of.
    pub(crate) fn has(&self, object: &ObjectId) -> bool {
        self.objects.contains_key(object)
    }
    /// Whether somebody reads what one of these tasks has made; both ends included.
    pub(crate) fn any_of(&self, first: TaskId, last: TaskId) -> bool {
        let from = ObjectId { task: first, attempt: Attempt(0), output: 0 };
        self.objects.range(from..).next().is_some_and(|(object, _)| object.task <= last)
    }
    /// A reader that had ended reads it once more.
    pub(crate) fn again(&mut self, object: &ObjectId) {
        if let Some(reading) = self.objects.get_mut(object) {
            reading.left += 1;
        }
    }

    /// Where it was made, or lies instead.
    pub(crate) fn maker_of(&self, object: &ObjectId) -> Option<NodeId> {
        self.objects.get(object).map(|reading| reading.node)
    }
    /// All that lies there and is read.
    pub(crate) fn made_on(&self, node: NodeId) -> Vec<ObjectId> {
        let there = self.objects.iter().filter(|(_, reading)| reading.node == node);
        there.map(|(&object, _)| object).collect()
    }

    /// It lies on another node from now on.
    pub(crate) fn moved(&mut self, object: &ObjectId, node: NodeId) {
        if let Some(reading) = self.objects.get_mut(object) {
            reading.node = node;
        }
    }

    /// So many edges' readers have ended. Returns where it was made when those were the last.
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
        // The home restarts and counts anew; the first reader does not tell again.
        let mut readers = ReaderCounts::default();
        readers.expect(object(7), 2, NodeId(4));
        assert_eq!(readers.consume(&object(7), 1), None);
        readers.forget_job(JobId(1));
        assert!(readers.objects.is_empty());
    }
}
