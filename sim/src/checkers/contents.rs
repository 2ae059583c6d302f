//! *Contents*: replicas at equal positions hold equal records. Records that all members have synced
//! are part of the start of every later primary.
//!
//! For each partition the checker keeps the sum of records at each position that a primary
//! assigned. A replica may lack a change, have an extra one, or have an old value. The checker
//! finds this as soon as the replica counts as whole.

use std::collections::BTreeMap;

use kvs::replica::Position;
use proto::PartitionId;

use super::{Verdict, Violation};
use crate::state::disk::BatchState;

/// The first replica seen at a position.
#[derive(Clone, Copy, Debug)]
struct Point {
    before: Position,
    sum: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Histories {
    points: BTreeMap<PartitionId, BTreeMap<Position, Point>>,
    /// The last position that every member had synced, so that it may have been acknowledged.
    settled: BTreeMap<PartitionId, Position>,
}

impl Histories {
    /// A batch has changed a replica of a node.
    pub(crate) fn on_stand(&mut self, node: usize, stand: &BatchState) -> Verdict {
        let BatchState { partition, before, state, sum } = *stand;
        if !state.is_whole {
            return Ok(());
        }
        let at = state.position;
        let point = Point { before: before.position, sum };
        let known = *self.points.entry(partition).or_default().entry(at).or_insert(point);
        let nothing = at == Position::default() && sum != 0;
        if known.sum != sum || nothing {
            let text = format!(
                "{partition}: the copy of n{node} has come from {before:?} to {at:?} and holds \
                 other records than the first that was there (which came from {:?})",
                known.before
            );
            return Err(Violation::new("contents", text));
        }
        Ok(())
    }

    /// True if the history of `new` contains `old`.
    fn descends(&self, partition: PartitionId, new: Position, old: Position) -> bool {
        let Some(points) = self.points.get(&partition) else { return old == Position::default() };
        let mut at = new;
        while at.seq > old.seq {
            let Some(point) = points.get(&at) else { return false };
            at = point.before;
        }
        at == old
    }

    /// The position before any change of this epoch.
    pub(crate) fn before(&self, partition: PartitionId, at: Position, epoch: u64) -> Position {
        let points = self.points.get(&partition);
        let mut at = at;
        while at.epoch >= epoch
            && let Some(point) = points.and_then(|points| points.get(&at))
        {
            at = point.before;
        }
        at
    }

    /// Every member has synced this position: it must never be lost.
    pub(crate) fn settle(&mut self, partition: PartitionId, at: Position) -> Verdict {
        let last = self.settled.get(&partition).copied().unwrap_or_default();
        if self.descends(partition, at, last) {
            self.settled.insert(partition, at);
        } else if !self.descends(partition, last, at) {
            let text = format!("{partition}: {at:?} is settled, and {last:?} was in another past");
            return Err(Violation::new("contents", text));
        }
        Ok(())
    }

    pub(crate) fn settled(&self, partition: PartitionId) -> Position {
        self.settled.get(&partition).copied().unwrap_or_default()
    }

    /// Checks a replica at this position, or a primary that starts from it: it must include all
    /// settled changes.
    pub(crate) fn has_settled(&self, who: &str, partition: PartitionId, at: Position) -> Verdict {
        let settled = self.settled(partition);
        if self.descends(partition, at, settled) {
            return Ok(());
        }
        let text = format!("{partition}: {who} is at {at:?} and lacks {settled:?}, which all had");
        Err(Violation::new("contents", text))
    }
}

#[cfg(test)]
mod tests {
    use kvs::replica::CopyState;

    use super::*;

    const P: PartitionId = PartitionId(3);

    fn at(epoch: u64, seq: u64) -> Position {
        Position { epoch, seq }
    }
    fn stand(before: Position, position: Position, sum: u64) -> BatchState {
        let state = |position| CopyState { position, ..CopyState::default() };
        BatchState { partition: P, before: state(before), state: state(position), sum }
    }

    #[test]
    fn equal_positions_are_equal_records() {
        let mut histories = Histories::default();
        histories.on_stand(0, &stand(at(0, 0), at(1, 1), 5)).unwrap();
        histories.on_stand(1, &stand(at(0, 0), at(1, 1), 5)).unwrap();
        histories.on_stand(2, &stand(at(0, 0), at(1, 1), 6)).unwrap_err();
        let mut half = stand(at(0, 0), at(1, 1), 6);
        half.state.is_whole = false;
        histories.on_stand(2, &half).unwrap();
        histories.on_stand(2, &stand(at(0, 0), at(0, 0), 6)).unwrap_err();
    }

    #[test]
    fn what_is_settled_is_in_every_future() {
        let mut histories = Histories::default();
        let steps = [(at(0, 0), at(1, 1)), (at(1, 1), at(1, 2)), (at(1, 1), at(2, 2))];
        for (number, (before, after)) in (1..).zip(steps) {
            histories.on_stand(0, &stand(before, after, number)).unwrap();
        }
        histories.settle(P, at(1, 1)).unwrap();
        histories.has_settled("n1", P, at(2, 2)).unwrap();
        histories.has_settled("n1", P, at(0, 0)).unwrap_err();
        histories.settle(P, at(2, 2)).unwrap();
        histories.settle(P, at(1, 1)).unwrap();
        assert_eq!(histories.settled(P), at(2, 2));
        histories.settle(P, at(1, 2)).unwrap_err();
        histories.has_settled("n1", P, at(1, 2)).unwrap_err();
    }
}
