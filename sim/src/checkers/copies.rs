//! *Copies*: what depends on a change leaves a node only when every member of the configuration
//! has the change. *Map*: of each partition never two primaries acknowledge at a time; the epochs
//! under which changes are acknowledged only grow, and each has one primary.

use std::collections::{BTreeMap, VecDeque};

use kvs::Batch;
use kvs::membership::member;
use kvs::replica::{Position, copy_record};
use proto::{Incarnation, NodeId, PartitionId};

use super::Violation;
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
}

impl Acked {
    pub(crate) fn forget(&mut self, node: usize) {
        self.written.remove(&node);
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

    fn acknowledge(
        &mut self,
        written: Written,
        by: (NodeId, Incarnation),
    ) -> Result<(), Violation> {
        let Written { partition, position, .. } = written;
        if let Some(last) = self.acked.last.get(&partition) {
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
        self.acked.last.insert(partition, Last { position, by });
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
