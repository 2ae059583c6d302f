//! The queue of future events of a study, by time and then by order of insertion. Entries are
//! small, because a run of a million tasks has tens of millions of them.
//!
//! It is a radix heap (Ahuja, Mehlhorn, Orlin and Tarjan 1990). No event is ever scheduled in the
//! past. So the bucket of an entry is the highest bit in which its time differs from the current
//! one. Each bucket is scanned once when it is due, and its entries move to lower buckets. Unlike a
//! binary heap, this reads memory in order, which matters with millions of entries. Entries with
//! equal times are always in one bucket, in order of insertion. Entries are stored in blocks that
//! are freed one by one, so the queue takes little more memory than it fills.

use std::collections::VecDeque;

use proto::work::Fetch;
use proto::{Attempt, TaskId, Time, wire};

use super::probe_events::ProbeEvent;

#[derive(Debug)]
pub(super) enum ScalingEvent {
    Step(u32),
    Timer(u32),
    Packet(Box<wire::Packet>),
    ProbeEvent(ProbeEvent),
    Ended(u32, Box<(TaskId, Attempt)>),
    /// The request for an object has arrived at its source.
    Serve(Box<Transfer>),
    /// The last byte has arrived.
    Arrived(Box<Transfer>),
    SyncBegin(u32),
    /// Of a node's incarnation, up to this batch.
    SyncEnd(u32, u32, u64),
    /// The process of a node dies, restarts or freezes.
    Die(u32),
    Start(u32),
    Freeze(u32),
    /// The client has time for its next chunk.
    Submit,
    /// The client sends a prepared request.
    Request(u32, Box<wire::Request>),
    Response(Box<wire::Response>),
    /// A packet large enough to take time on the sender's card.
    LargePacket(Box<wire::Packet>),
    /// The bytes of a load start to arrive.
    Load(Box<Load>),
}

/// The bytes of a load, from outside the cluster.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) node: u32,
    pub(super) key: (TaskId, Attempt),
    pub(super) bytes: u64,
}

/// An object in transfer.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) to: u32,
    pub(super) fetch: Fetch,
    /// Of the requesting node.
    pub(super) incarnation: u32,
    /// The incarnation of the source; 0 if the source does not have the object.
    pub(super) found: u32,
}

const BITS: usize = u64::BITS as usize;

type Entry = (Time, ScalingEvent);
const _: () = assert!(size_of::<Entry>() <= 32);

/// Entries of one block. In tests blocks are small, so that many are allocated and freed.
const BLOCK_ENTRIES: usize = if cfg!(test) { 16 } else { 2048 };

/// A first-in, first-out queue.
#[derive(Debug, Default)]
struct Fifo {
    /// Only the last block may be empty.
    blocks: VecDeque<VecDeque<Entry>>,
}

impl Fifo {
    fn push(&mut self, entry: Entry) {
        match self.blocks.back_mut() {
            Some(block) if block.len() < BLOCK_ENTRIES => block.push_back(entry),
            last => {
                let room = if last.is_some() { BLOCK_ENTRIES } else { 1 };
                let mut block = VecDeque::with_capacity(room);
                block.push_back(entry);
                self.blocks.push_back(block);
            }
        }
    }
    fn pop(&mut self) -> Option<Entry> {
        let block = self.blocks.front_mut()?;
        let entry = block.pop_front();
        // The last block is reused.
        if block.is_empty() && self.blocks.len() > 1 {
            self.blocks.pop_front();
        }
        entry
    }
    fn is_empty(&self) -> bool {
        self.blocks.front().is_none_or(VecDeque::is_empty)
    }
}

#[derive(Debug)]
struct Bucket {
    entries: Fifo,
    earliest: Time,
    latest: Time,
}

impl Default for Bucket {
    fn default() -> Self {
        Self { entries: Fifo::default(), earliest: Time(u64::MAX), latest: Time::ZERO }
    }
}

#[derive(Debug)]
pub(super) struct Queue {
    /// The time of the last removed entry.
    now: Time,
    /// Entries of exactly that time.
    current: Fifo,
    /// By the highest bit in which an entry's time differs from `now`.
    later: Vec<Bucket>,
    /// A bit for each bucket that is not empty.
    filled: u64,
}

impl Default for Queue {
    fn default() -> Self {
        let later = (0..BITS).map(|_| Bucket::default()).collect();
        Self { now: Time::ZERO, current: Fifo::default(), later, filled: 0 }
    }
}

impl Queue {
    pub(super) fn push(&mut self, at: Time, what: ScalingEvent) {
        assert!(at >= self.now, "nothing is decided for the past");
        let differs = at.0 ^ self.now.0;
        if differs == 0 {
            return self.current.push((at, what));
        }
        let highest = BITS - 1 - differs.leading_zeros() as usize;
        let bucket = &mut self.later[highest];
        bucket.earliest = bucket.earliest.min(at);
        bucket.latest = bucket.latest.max(at);
        bucket.entries.push((at, what));
        self.filled |= 1 << highest;
    }

    pub(super) fn next_at(&self) -> Option<Time> {
        if !self.current.is_empty() {
            return Some(self.now);
        }
        let lowest = self.filled.trailing_zeros() as usize;
        self.later.get(lowest).map(|bucket| bucket.earliest)
    }

    pub(super) fn pop(&mut self) -> Option<(Time, ScalingEvent)> {
        if self.current.is_empty() {
            let lowest = self.filled.trailing_zeros() as usize;
            let bucket = self.later.get_mut(lowest)?;
            self.now = std::mem::replace(&mut bucket.earliest, Time(u64::MAX));
            self.filled &= !(1 << lowest);
            let latest = std::mem::replace(&mut bucket.latest, Time::ZERO);
            let mut entries = std::mem::take(&mut bucket.entries);
            if latest == self.now {
                // All entries of one time at once: nodes in the same state take the same time.
                bucket.entries = std::mem::replace(&mut self.current, entries);
            } else {
                while let Some((at, what)) = entries.pop() {
                    self.push(at, what);
                }
                self.later[lowest].entries = entries;
            }
        }
        self.current.pop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::SimRng;

    /// Compares it with a sorted list: by time, then by order of insertion.
    #[test]
    fn it_is_a_stable_priority_queue() {
        for seed in 0..50 {
            let mut dice = SimRng::new(seed);
            let (mut queue, mut expected) = (Queue::default(), Vec::new());
            let mut now = 1_000_000_000_000;
            for number in 0..2_000_u32 {
                if dice.chance(600) {
                    // Many at one time, some far away.
                    let span = 1 << dice.below(if seed % 2 == 0 { 34 } else { 3 });
                    let at = Time(now + dice.below(span));
                    queue.push(at, ScalingEvent::Timer(number));
                    expected.push((at, number));
                }
                expected.sort_by_key(|&(at, number)| (at, number));
                assert_eq!(queue.next_at(), expected.first().map(|&(at, _)| at), "seed {seed}");
                if dice.chance(500) && !expected.is_empty() {
                    let (at, number) = expected.remove(0);
                    let popped = queue.pop().expect("as many are in it");
                    assert!(
                        matches!(popped, (t, ScalingEvent::Timer(it)) if (t, it) == (at, number))
                    );
                    now = at.0;
                }
            }
            assert_eq!(expected.is_empty(), queue.next_at().is_none());
        }
    }
}
