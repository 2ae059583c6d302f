//! A ready queue: max-priority by input bytes, first in first out among equals.

use std::cmp::Ordering;
use std::collections::{BinaryHeap, VecDeque};

use proto::{Attempt, TaskId};

/// A ready task in a queue. Queues are caches: whoever pops it asks the record whether this attempt
/// is still the current one, so nothing has to be searched when a task is cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ready {
    pub(crate) task: TaskId,
    pub(crate) attempt: Attempt,
    pub(crate) input_bytes: u64,
}

#[derive(PartialEq, Eq, Debug)]
struct Ranked {
    ready: Ready,
    arrival: u64,
}

impl Ord for Ranked {
    fn cmp(&self, other: &Self) -> Ordering {
        let by_bytes = self.ready.input_bytes.cmp(&other.ready.input_bytes);
        by_bytes.then(other.arrival.cmp(&self.arrival))
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
    with_bytes: BinaryHeap<Ranked>,
    /// All of the lowest rank: no heap is needed to keep their order.
    without_bytes: VecDeque<Ready>,
    arrivals: u64,
}

impl ReadyQueue {
    pub(crate) fn push(&mut self, ready: Ready) {
        if ready.input_bytes == 0 {
            self.without_bytes.push_back(ready);
        } else {
            self.arrivals += 1;
            self.with_bytes.push(Ranked { ready, arrival: self.arrivals });
        }
    }
    pub(crate) fn pop(&mut self) -> Option<Ready> {
        match self.with_bytes.pop() {
            Some(ranked) => Some(ranked.ready),
            None => {
                let ready = self.without_bytes.pop_front();
                self.shrink();
                ready
            }
        }
    }
    /// The one that [`Self::pop`] gives next.
    #[must_use]
    pub(crate) fn peek(&self) -> Option<Ready> {
        let first = self.with_bytes.peek().map(|ranked| ranked.ready);
        first.or_else(|| self.without_bytes.front().copied())
    }
    #[must_use]
    pub(crate) fn len(&self) -> usize {
        self.with_bytes.len() + self.without_bytes.len()
    }
    #[must_use]
    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Memory follows live tasks.
    fn shrink(&mut self) {
        let capacity = self.without_bytes.capacity();
        if capacity > 1024 && self.without_bytes.len() < capacity / 4 {
            self.without_bytes.shrink_to(capacity / 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_bytes_first_then_in_order_of_arrival() {
        let mut queue = ReadyQueue::default();
        for (index, input_bytes) in [(0, 0), (1, 5), (2, 9), (3, 5), (4, 0)] {
            let task = TaskId::new(1, index);
            queue.push(Ready { task, attempt: Attempt(1), input_bytes });
        }
        let order: Vec<u64> =
            std::iter::from_fn(|| queue.pop()).map(|ready| ready.task.local.index()).collect();
        assert_eq!(order, [2, 1, 3, 0, 4]);
        assert!(queue.is_empty());
    }
}
