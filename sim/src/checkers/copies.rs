//! *Copies*: what depends on a change leaves a node only when every member of the configuration
//! has the change. *Map*: each epoch of a partition has one primary, and what a primary
//! acknowledges all primaries after it began with. It may say so late: one that slept while it was
//! replaced wakes, finds the answers of all members, and is right; what it tells is part of what
//! its successor went on from. (Its reads are *linear*'s.) In the end every new copy at a live
//! node is one of the configuration.

use std::collections::{BTreeMap, VecDeque};

use kvs::Batch;
use kvs::membership::member;
use kvs::replica::{Position, copy_record};
use proto::{Incarnation, NodeId, PartitionId};

use super::{Verdict, Violation};
use crate::world::World;

/// A change that a primary has written, and that may not be everywhere yet.
#[derive(Clone, Copy, Debug)]
struct Written {
    batch: u64,
    partition: PartitionId,
    position: Position,
}

/// What was acknowledged last of a partition.
#[derive(Clone, Copy, Debug)]
struct Last {
    position: Position,
    by: (NodeId, Incarnation),
}

#[derive(Debug, Default)]
pub(crate) struct Acked {
    written: BTreeMap<usize, VecDeque<Written>>,
    last: BTreeMap<PartitionId, Last>,
    /// By epoch: what the primary of it began with.
    begun: BTreeMap<PartitionId, BTreeMap<u64, Position>>,
}

impl Acked {
    pub(crate) fn forget(&mut self, node: usize) {
        self.written.remove(&node);
    }

    /// A partition is active again: its primary is at this position.
    pub(crate) fn begins(&mut self, partition: PartitionId, epoch: u64, position: Position) {
        self.begun.entry(partition).or_default().insert(epoch, position);
    }

    /// The first primary after this epoch began without the change.
    fn is_left_out(&self, partition: PartitionId, position: Position) -> Option<Position> {
        let begun = self.begun.get(&partition)?;
        let (_, &next) = begun.range(position.epoch + 1..).next()?;
        (position > next).then_some(next)
    }
}

impl World {
    /// A batch is in the log of a node; what of it are changes that it orders itself?
    pub(crate) fn note_written(&mut self, index: usize, batch: &Batch) {
        if !self.homes_move() {
            return;
        }
        let Some(node) = &self.machines[index].node else { return };
        let written = self.acked.written.entry(index).or_default();
        for write in &batch.writes {
            let partition = write.partition;
            let served = node.serves(partition).is_some();
            let Some(position) = served.then(|| copy_record(write)).flatten() else { continue };
            written.push_back(Written { batch: batch.seq, partition, position: position.0 });
        }
    }

    /// What a node has let go of by now.
    pub(crate) fn note_acknowledged(&mut self, index: usize) {
        let Some(node) = &self.machines[index].node else { return };
        let acknowledged = node.acknowledged();
        let incarnation = Incarnation(self.machines[index].incarnation);
        let mut done = Vec::new();
        let Some(written) = self.acked.written.get_mut(&index) else { return };
        while let Some(first) = written.pop_front_if(|first| first.batch <= acknowledged) {
            done.push(first);
        }
        for written in done {
            let by = (NodeId(index as u32), incarnation);
            if let Err(violation) = self.acknowledge(written, by) {
                return self.judge(Err(violation));
            }
        }
    }

    /// The cluster has come to rest: a copy that is still to be filled was forgotten.
    pub(crate) fn no_copy_is_forgotten(&self) -> Verdict {
        for (partition, entry) in (0..).map(PartitionId).zip(&self.map.partitions) {
            if let Some(node) = entry.learners.iter().find(|node| self.is_live(**node)) {
                let text = format!("{partition}: n{node} waits for ever to be filled: {entry:?}");
                return Err(Violation::new("copies", text));
            }
        }
        Ok(())
    }

    fn acknowledge(
        &mut self,
        written: Written,
        by: (NodeId, Incarnation),
    ) -> Result<(), Violation> {
        let Written { partition, position, .. } = written;
        if let Some(next) = self.acked.is_left_out(partition, position) {
            let text = format!(
                "{partition}: {by:?} acknowledges {position:?}, but its successor began with {next:?}"
            );
            return Err(Violation::new("map", text));
        }
        let last = self.acked.last.get(&partition);
        if let Some(last) = last.filter(|last| position.epoch >= last.position.epoch) {
            let backward = position <= last.position;
            let two = position.epoch == last.position.epoch && by != last.by;
            if backward || two {
                let text = format!(
                    "{partition}: {by:?} acknowledges {position:?} after {:?} did {:?}",
                    last.by, last.position
                );
                return Err(Violation::new("map", text));
            }
        }
        if last.is_none_or(|last| position > last.position) {
            self.acked.last.insert(partition, Last { position, by });
        }
        let entry = &self.map.partitions[partition.0 as usize];
        for &node in &entry.replicas {
            let machine = &self.machines[node as usize];
            let known = member(&self.map, NodeId(node)).map_or(0, |member| member.incarnation);
            // What another life of it has the map does not know yet.
            if !machine.is_up() || known.max(1) != machine.incarnation {
                continue;
            }
            let (at, whole) = machine.disk.copy(partition);
            if at < position || !whole {
                let text = format!(
                    "{partition}: {by:?} acknowledges {position:?}, but n{node} is at {at:?} \
                     (whole: {whole})"
                );
                return Err(Violation::new("copies", text));
            }
        }
        Ok(())
    }
}
