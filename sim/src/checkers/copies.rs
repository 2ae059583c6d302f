//! *Copies*: messages that depend on a change leave a node only when every member of the
//! configuration has the change. Irrevocable ones leave only when every member would still have it
//! after a power cut. A new primary serves only when every other member has promised its epoch, and
//! it serves the records that it has read. At the end every live learner has become a member, and
//! all members are at the primary's position.
//!
//! *Map*: each epoch of a partition has one primary, and a change that a primary acknowledges is
//! part of the start of all later primaries. The acknowledgement may be late. A primary that slept
//! while it was replaced may find the answers of all members when it resumes. That is correct,
//! because its successor started with this change. (Checker *linear* covers its reads.)
//!
//! The checks are in `faults/replica_records.rs`.

use std::collections::{BTreeMap, VecDeque};

use kvs::replica::Position;
use proto::{Incarnation, NodeId, PartitionId};

use super::contents::Histories;
use super::{Verdict, Violation};

/// A change that a primary has written, and that some members may lack.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Written {
    pub(crate) batch: u64,
    pub(crate) partition: PartitionId,
    pub(crate) position: Position,
}

/// The last acknowledged position of a partition.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Last {
    pub(crate) position: Position,
    pub(crate) by: (NodeId, Incarnation),
}

#[derive(Debug, Default)]
pub(crate) struct Acked {
    /// By node: changes that some log lacks, and changes that some member has not synced.
    pub(crate) written: BTreeMap<usize, VecDeque<Written>>,
    pub(crate) unsettled: BTreeMap<usize, VecDeque<Written>>,
    pub(crate) last: BTreeMap<PartitionId, Last>,
    /// By epoch: the position at which its primary started.
    pub(crate) begun: BTreeMap<PartitionId, BTreeMap<u64, Position>>,
    /// The position of a node's replica when it was read for a take-over.
    pub(crate) read: BTreeMap<(usize, PartitionId), Position>,
    /// The last positions of replicas that their nodes have removed, because the map no longer
    /// lists them.
    pub(crate) removed_at: BTreeMap<(usize, PartitionId), Position>,
    pub(crate) histories: Histories,
}

impl Acked {
    pub(crate) fn forget(&mut self, node: usize) {
        self.written.remove(&node);
        self.unsettled.remove(&node);
        self.read.retain(|&(reader, _), _| reader != node);
    }

    /// A partition is active again: its primary starts at this position.
    pub(crate) fn begins(
        &mut self,
        node: usize,
        partition: PartitionId,
        epoch: u64,
        position: Position,
    ) -> Verdict {
        self.begun.entry(partition).or_default().insert(epoch, position);
        if let Some(read) = self.read.remove(&(node, partition)).filter(|read| *read != position) {
            let text = format!("{partition}: n{node} has read {read:?} and serves {position:?}");
            return Err(Violation::new("copies", text));
        }
        self.histories.has_settled(&format!("n{node}, which begins,"), partition, position)
    }

    /// The start of the next primary after this epoch, if it lacks the change.
    pub(crate) fn is_left_out(
        &self,
        partition: PartitionId,
        position: Position,
    ) -> Option<Position> {
        let begun = self.begun.get(&partition)?;
        let (_, &next) = begun.range(position.epoch + 1..).next()?;
        (position > next).then_some(next)
    }
}
