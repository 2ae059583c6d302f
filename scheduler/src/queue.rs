//! A ready queue: max-priority by rank (input bytes or urgency), first in first out among equals.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use proto::{Attempt, TaskId};

/// A ready task in a queue. Queues are caches: whoever pops it asks the record whether this attempt
/// is still the current one, so nothing has to be searched when a task is cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ready {
    pub(crate) task: TaskId,
    pub(crate) attempt: Attempt,
    /// The highest goes first.
    pub(crate) rank: u64,
}

#[derive(PartialEq, Eq, Debug)]
struct Ranked {
    ready: Ready,
    arrival: u64,
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_rank = self.ready.rank.cmp(&other.ready.rank);
        by_rank.then(other.arrival.cmp(&self.arrival))
    }
}
impl PartialOrd for Ranked {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// LReadyQ or SReadyQ.
#[derive(Debug, Default)]
pub(crate) struct ReadyQueue {
    ranked: BinaryHeap<Ranked>,
    /// All of the lowest rank: no heap is needed to keep their order.
    unranked: VecDeque<Ready>,
    arrivals: u64,
}

impl ReadyQueue {
    pub(crate) fn push(&mut self, ready: Ready) {
        if ready.rank == 0 {
            self.unranked.push_back(ready);
        } else {
            self.arrivals += 1;
            self.ranked.push(Ranked { ready, arrival: self.arrivals });
        }
    }
    pub(crate) fn pop(&mut self) -> Option<Ready> {
        match self.ranked.pop() {
            Some(ranked) => Some(ranked.ready),
            None => {
                let ready = self.unranked.pop_front();
                self.shrink();
                ready
            }
        }
    }
    /// The one that [`Self::pop`] gives next.
    #[must_use]
    pub(crate) fn peek(&self) -> Option<Ready> {
        let first = self.ranked.peek().map(|ranked| ranked.ready);
        first.or_else(|| self.unranked.front().copied())
    }
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.ranked.len() + self.unranked.len()
    }
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Memory follows live tasks.
    fn shrink(&mut self) {
        let capacity = self.unranked.capacity();
        if capacity > 1024 && self.unranked.len() < capacity / 4 {
            self.unranked.shrink_to(capacity / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn highest_rank_first_then_in_order_of_arrival() {
        let mut queue = ReadyQueue::default();
        for (index, rank) in [(0, 0), (1, 5), (2, 9), (3, 5), (4, 0)] {
            let task = TaskId::new(1, index);
            queue.push(Ready { task, attempt: Attempt(1), rank });
        }
        let order: Vec<u64> =
            std::iter::from_fn(|| queue.pop()).map(|ready| ready.task.local.index()).collect();
        assert_eq!(order, [2, 1, 3, 0, 4]);
        assert!(queue.is_empty());
    }
}
