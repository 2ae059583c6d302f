//! What is going to happen in a study, by time and then in the order in which it was decided. Small
//! entries: a run of a million tasks handles tens of millions of them.
//!
//! A radix heap (Ahuja, Mehlhorn, Orlin and Tarjan 1990): nothing is ever decided for the past, so
//! an entry only has to lie in the bucket of the highest bit in which its time differs from now. A
//! bucket is looked through once when its turn comes, and its entries move to lower ones. Unlike a
//! binary heap it walks through memory in order, which counts when there are millions of entries;
//! and entries of one time are always in one bucket, in the order in which they came. Entries lie
//! in blocks that are let go of one by one: a crowd takes no more room than it fills.

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
    /// The request for an object has reached the node that has it.
    Serve(Box<Transfer>),
    /// The last byte is here.
    Arrived(Box<Transfer>),
    SyncBegin(u32),
    /// Of a node's incarnation, up to this batch.
    SyncEnd(u32, u32, u64),
    /// The process of a node ends, starts again, or stands still.
    Die(u32),
    Start(u32),
    Freeze(u32),
    /// The client has time for its next chunk.
    Submit,
    /// The client sends what it has prepared.
    Request(u32, Box<wire::Request>),
    Response(Box<wire::Response>),
    /// A packet so large that it takes its time of the sender's card.
    LargePacket(Box<wire::Packet>),
    /// A load whose time counts begins to come in.
    Load(Box<Load>),
}

/// The bytes of a load, from outside the cluster.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) node: u32,
    pub(super) key: (TaskId, Attempt),
    pub(super) bytes: u64,
}

/// An object on its way.
#[derive(Debug)]
pub(super) struct Transfer {
    pub(super) to: u32,
    pub(super) fetch: Fetch,
    /// Of the node that asked.
    pub(super) incarnation: u32,
    /// The incarnation of the node that had it; 0 when it has it not.
    pub(super) found: u32,
}

const BITS: usize = u64::BITS as usize;

type Entry = (Time, ScalingEvent);
const _: () = assert!(size_of::<Entry>() <= 32);

/// Entries of one block; in tests so few that many blocks come and go.
const BLOCK_ENTRIES: usize = if cfg!(test) { 16 } else { 2048 };

/// First in, first out.
#[derive(Debug, Default)]
struct Fifo {
    /// None is empty but the last.
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
        // The room of the last one serves again.
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
    /// The time that was taken out last.
    now: Time,
    /// Of exactly that time.
    current: Fifo,
    /// By the highest bit in which the times of the entries differ from `now`.
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
                // All at once: nodes that do the same take the same time for it.
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

    /// As a sorted list would have it: by time, then in the order of arrival.
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
                        matches!(popped, (time, ScalingEvent::Timer(it)) if (time, it) == (at, number))
                    );
                    now = at.0;
                }
            }
            assert_eq!(expected.is_empty(), queue.next_at().is_none());
        }
    }
}
