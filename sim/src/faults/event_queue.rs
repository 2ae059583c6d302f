//! The queue of future events, ordered by time and then by number. There is no other order.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use node::Input;
use proto::work::Fetch;
use proto::{Attempt, ClientId, JobId, TaskId, Time, wire};

use crate::faults::strikes::injection::Fault;

/// A client that sends requests to nodes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum ExternalClient {
    Job(usize),
    Kv(usize),
    HotKeyClient(usize),
    Observer,
}

#[derive(Debug)]
pub(crate) enum SimEvent {
    Step {
        node: usize,
        life: u32,
    },
    /// A local input for this life of a process.
    Input {
        node: usize,
        life: u32,
        input: Box<Input>,
    },
    Packet {
        to: usize,
        packet: Box<wire::Packet>,
    },
    Timer {
        node: usize,
        life: u32,
        at: Time,
    },
    Synced {
        node: usize,
        life: u32,
        seq: u64,
        /// The number of the sync on its machine.
        number: u64,
    },
    Ended {
        node: usize,
        life: u32,
        task: TaskId,
        attempt: Attempt,
    },
    Fetched {
        node: usize,
        life: u32,
        fetch: Box<Fetch>,
    },
    /// The printed output of a job is removed.
    Erased {
        node: usize,
        life: u32,
        job: JobId,
        number: u64,
    },
    Request {
        node: usize,
        client: ClientId,
        request: Box<wire::Request>,
    },
    Response {
        client: ClientId,
        response: Box<wire::Response>,
    },
    Timeout {
        who: ExternalClient,
        request: u64,
    },
    Wake {
        who: ExternalClient,
    },
    Start {
        node: usize,
    },
    /// A doomed machine that took no further step.
    Die {
        node: usize,
        life: u32,
    },
    Fault(Fault),
    /// The user pauses a node, or resumes it.
    Pause {
        node: usize,
        paused: bool,
    },
    /// An operator drains a node.
    Drain {
        node: usize,
    },
    /// The cluster declares a process failed.
    Evict {
        node: usize,
        incarnation: u32,
    },
}

#[derive(Debug)]
struct Scheduled {
    at: Time,
    number: u64,
    what: SimEvent,
}
impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.number == other.number
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.number).cmp(&(other.at, other.number))
    }
}

/// One connection of a client to one life of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connection {
    pub who: ExternalClient,
    pub node: usize,
    pub life: u32,
}

#[derive(Debug, Default)]
pub(crate) struct Queue {
    heap: BinaryHeap<Reverse<Scheduled>>,
    last_number: u64,
}

impl Queue {
    pub(crate) fn push(&mut self, at: Time, what: SimEvent) {
        self.last_number += 1;
        self.heap.push(Reverse(Scheduled { at, number: self.last_number, what }));
    }
    /// The next event, if it is due by `until`.
    pub(crate) fn pop_until(&mut self, until: Time) -> Option<(Time, SimEvent)> {
        match self.heap.peek() {
            Some(Reverse(next)) if next.at <= until => {}
            _ => return None,
        }
        self.heap.pop().map(|Reverse(next)| (next.at, next.what))
    }
}
