//! What is going to happen in a study, by time and then by number. Small entries: a run of a
//! million tasks handles tens of millions of them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use proto::work::Fetch;
use proto::{Attempt, TaskId, Time, wire};

#[derive(Debug)]
pub(super) enum What {
    Step(u32),
    Timer(u32),
    Packet(Box<wire::Packet>),
    Ended(u32, Box<(TaskId, Attempt)>),
    /// The request for an object has reached the node that has it.
    Serve(Box<Transfer>),
    /// The last byte is here.
    Arrived(Box<Transfer>),
    SyncBegin(u32),
    SyncEnd(u32, u64),
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
    /// The node that was asked had it.
    pub(super) found: bool,
}

#[derive(Debug)]
struct Entry {
    at: Time,
    number: u64,
    what: What,
}
impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

#[derive(Debug, Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Reverse<Entry>>,
    last_number: u64,
}

impl Queue {
    pub(super) fn push(&mut self, at: Time, what: What) {
        self.last_number += 1;
        self.heap.push(Reverse(Entry { at, number: self.last_number, what }));
    }
    pub(super) fn next_at(&self) -> Option<Time> {
        self.heap.peek().map(|Reverse(entry)| entry.at)
    }
    pub(super) fn pop(&mut self) -> Option<(Time, What)> {
        self.heap.pop().map(|Reverse(entry)| (entry.at, entry.what))
    }
}
