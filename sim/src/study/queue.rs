//! What is going to happen in a study, by time and then in the order in which it was decided. Small
//! entries: a run of a million tasks handles tens of millions of them.
//!
//! A radix heap (Ahuja, Mehlhorn, Orlin and Tarjan 1990): nothing is ever decided for the past, so
//! an entry only has to lie in the bucket of the highest bit in which its time differs from now. A
//! bucket is looked through once when its turn comes, and its entries move to lower ones. Unlike a
//! binary heap it walks through memory in order, which counts when there are millions of entries;
//! and entries of one time are always in one bucket, in the order in which they came.

use std::collections::VecDeque;

use proto::work::Fetch;
use proto::{Attempt, TaskId, Time, wire};

use super::talk::Talk;

#[derive(Debug)]
pub(super) enum What {
    Step(u32),
    Timer(u32),
    Packet(Box<wire::Packet>),
    Talk(Talk),
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

#[derive(Debug)]
struct Bucket {
    entries: Vec<(Time, What)>,
    earliest: Time,
}

#[derive(Debug)]
pub(super) struct Queue {
    /// The time that was taken out last.
    now: Time,
    /// Of exactly that time.
    current: VecDeque<What>,
    /// By the highest bit in which the times of the entries differ from `now`.
    later: Vec<Bucket>,
    /// A bit for each bucket that is not empty.
    filled: u64,
}

impl Default for Queue {
    fn default() -> Self {
        let bucket = |_| Bucket { entries: Vec::new(), earliest: Time(u64::MAX) };
        let later = (0..BITS).map(bucket).collect();
        Self { now: Time::ZERO, current: VecDeque::new(), later, filled: 0 }
    }
}

impl Queue {
    pub(super) fn push(&mut self, at: Time, what: What) {
        assert!(at >= self.now, "nothing is decided for the past");
        let differs = at.0 ^ self.now.0;
        if differs == 0 {
            return self.current.push_back(what);
        }
        let highest = BITS - 1 - differs.leading_zeros() as usize;
        let bucket = &mut self.later[highest];
        bucket.earliest = bucket.earliest.min(at);
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

    pub(super) fn pop(&mut self) -> Option<(Time, What)> {
        if self.current.is_empty() {
            let lowest = self.filled.trailing_zeros() as usize;
            let bucket = self.later.get_mut(lowest)?;
            self.now = std::mem::replace(&mut bucket.earliest, Time(u64::MAX));
            self.filled &= !(1 << lowest);
            let mut entries = std::mem::take(&mut bucket.entries);
            for (at, what) in entries.drain(..) {
                self.push(at, what);
            }
            // Its room serves again, unless it was a crowd that will not come back soon.
            if entries.capacity() <= BUCKET_KEPT {
                self.later[lowest].entries = entries;
            }
        }
        self.current.pop_front().map(|what| (self.now, what))
    }
}

/// Entries for which a bucket keeps its room.
const BUCKET_KEPT: usize = 4096;

const _: () = assert!(size_of::<(Time, What)>() <= 32);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    /// As a sorted list would have it: by time, then in the order of arrival.
    #[test]
    fn it_is_a_stable_priority_queue() {
        for seed in 0..50 {
            let mut dice = Dice::new(seed);
            let (mut queue, mut expected) = (Queue::default(), Vec::new());
            let mut now = 1_000_000_000_000;
            for number in 0..2_000_u32 {
                if dice.chance(600) {
                    let span = 1 << dice.below(34);
                    let at = Time(now + dice.below(span));
                    queue.push(at, What::Timer(number));
                    expected.push((at, number));
                }
                expected.sort_by_key(|&(at, number)| (at, number));
                assert_eq!(queue.next_at(), expected.first().map(|&(at, _)| at), "seed {seed}");
                if dice.chance(500) && !expected.is_empty() {
                    let (at, number) = expected.remove(0);
                    let popped = queue.pop().expect("as many are in it");
                    assert!(
                        matches!(popped, (time, What::Timer(it)) if (time, it) == (at, number))
                    );
                    now = at.0;
                }
            }
            assert_eq!(expected.is_empty(), queue.next_at().is_none());
        }
    }
}
