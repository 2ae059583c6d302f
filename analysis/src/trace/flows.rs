//! Flows between slices, bounded in number and memory.

use foldhash::fast::FixedState;
use hashbrown::{HashMap, HashSet};
use proto::{LocalId, NodeId, Time};

use super::SLOT_MOVES;

/// The maximum number of flows of data in a trace, and that of flows of moves.
pub const FLOWS_MAX: usize = 100_000;

/// The edges of a job along which data flows: the first [`FLOWS_MAX`] ones.
#[derive(Clone, Debug, Default)]
pub struct Edges {
    /// Child and parent.
    pairs: Vec<(LocalId, LocalId)>,
    left_out: u64,
}

impl Edges {
    /// Adds the distinct parents of a task.
    pub fn add(&mut self, child: LocalId, parents: impl IntoIterator<Item = LocalId>) {
        for parent in parents {
            match self.pairs.len() < FLOWS_MAX {
                true => self.pairs.push((child, parent)),
                false => self.left_out += 1,
            }
        }
    }
}

/// The numbers of flows of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FlowCounts {
    /// From a parent to a child.
    pub data: u64,
    /// From the node that a task has left.
    pub moves: u64,
    /// Over [`FLOWS_MAX`].
    pub left_out: u64,
    /// Without a slice at the beginning, or with a beginning after the end by the clocks of nodes.
    pub unmatched: u64,
}

/// A slice.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Place {
    pub(super) node: NodeId,
    pub(super) slot: u32,
    pub(super) started: Time,
    pub(super) ended: Time,
}

/// A flow, from a slice to the start of another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Flow {
    pub(super) id: u64,
    pub(super) from: Place,
    /// In the first slice, and not after the start of the second one.
    pub(super) leaves: Time,
    pub(super) to: Place,
}

#[derive(Debug, Default)]
pub(super) struct Flows {
    /// In order.
    pairs: Vec<(LocalId, LocalId)>,
    /// Those of the pairs, in order.
    parents: Vec<LocalId>,
    /// The last slice of each parent that is done.
    ended: HashMap<LocalId, Place, FixedState>,
    /// The slices at which flows of moves begin.
    left: HashSet<(NodeId, Time), FixedState>,
    pub(super) counts: FlowCounts,
}

impl Flows {
    pub(super) fn new(edges: Edges) -> Self {
        let Edges { mut pairs, left_out } = edges;
        pairs.sort_unstable();
        pairs.dedup();
        let mut parents: Vec<LocalId> = pairs.iter().map(|&(_, parent)| parent).collect();
        parents.sort_unstable();
        parents.dedup();
        let counts = FlowCounts { left_out, ..FlowCounts::default() };
        Self { pairs, parents, counts, ..Self::default() }
    }

    /// A task is done.
    pub(super) fn ended(&mut self, task: LocalId, place: Place) {
        if self.parents.binary_search(&task).is_ok() {
            self.ended.insert(task, place);
        }
    }

    /// The flows of data to an attempt.
    pub(super) fn of_data(&mut self, child: LocalId, to: Place) -> Vec<Flow> {
        let first = self.pairs.partition_point(|&(of, _)| of < child);
        let count = self.pairs[first..].partition_point(|&(of, _)| of == child);
        let mut flows = Vec::new();
        for at in first..first + count {
            let from = self.ended.get(&self.pairs[at].1).copied();
            let Some((from, leaves)) = from.and_then(|from| Some((from, leaves(from, to)?))) else {
                self.counts.unmatched += 1;
                continue;
            };
            // Further attempts of children have flows of their own.
            if self.counts.data >= FLOWS_MAX as u64 {
                self.counts.left_out += 1;
                continue;
            }
            self.counts.data += 1;
            flows.push(Flow { id: self.id(), from, leaves, to });
        }
        flows
    }

    /// The flow of a move, and whether it is the first one of its slice.
    pub(super) fn of_move(
        &mut self,
        (node, left): (NodeId, Time),
        to: Place,
    ) -> Option<(Flow, bool)> {
        if left > to.started {
            self.counts.unmatched += 1;
            return None;
        }
        if self.counts.moves >= FLOWS_MAX as u64 {
            self.counts.left_out += 1;
            return None;
        }
        self.counts.moves += 1;
        let from = Place { node, slot: SLOT_MOVES, started: left, ended: Time(left.0 + 1) };
        let flow = Flow { id: self.id(), from, leaves: left, to };
        Some((flow, self.left.insert((node, left))))
    }

    fn id(&self) -> u64 {
        self.counts.data + self.counts.moves
    }
}

/// When data leaves a slice for another one. Viewers bind it to the slice that is open then.
fn leaves(from: Place, to: Place) -> Option<Time> {
    let last = Time(from.ended.0.saturating_sub(1)).max(from.started);
    Some(last.min(to.started)).filter(|&leaves| leaves >= from.started)
}
