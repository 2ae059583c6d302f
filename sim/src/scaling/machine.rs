//! One machine of a study: a node that serves its inputs one after another, with their cost.

use std::collections::VecDeque;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use node::{Input, Node};
use proto::work::{Fetch, Outcome};
use proto::{Attempt, ObjectId, TaskId, Time};

use super::probe_events::ProbeEvent;
use crate::state::disk::Disk;

/// An attempt in a slot, until its end.
#[derive(Debug)]
pub(super) struct Attempting {
    pub(super) cpus: u32,
    pub(super) outcome: Box<Outcome>,
    pub(super) objects: Vec<(ObjectId, u64)>,
}

/// An object on a machine.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoredObject {
    pub(super) size_bytes: u64,
    /// Another node made it.
    pub(super) copy: bool,
}

/// The progress of syncs of the log, as in the loop of a real node.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) written_seq: u64,
    /// The last batch of the current sync.
    pub(super) asked_seq: u64,
    pub(super) synced_seq: u64,
    pub(super) synced_at: Time,
    pub(super) client_waits: bool,
    /// The time at which the next sync starts by itself.
    pub(super) begins_at: Option<Time>,
}

/// An input that the node has not handled yet. In large clusters most of them are steal probes and
/// their answers.
#[derive(Debug)]
pub(super) enum PendingInput {
    ProbeEvent(ProbeEvent),
    Input(Box<Input>),
}

impl PendingInput {
    pub(super) fn of(input: Input) -> Self {
        Self::Input(Box::new(input))
    }
    pub(super) fn into_input(self) -> Input {
        match self {
            Self::ProbeEvent(probe_event) => Input::Packet(probe_event.into_packet()),
            Self::Input(input) => *input,
        }
    }
}

#[derive(Debug)]
pub(super) struct Machine {
    pub(super) node: Node,
    /// False while the process is dead. Then `node` is out of date.
    pub(super) up: bool,
    pub(super) incarnation: u32,
    /// Only on nodes that will die.
    pub(super) disk: Option<Box<Disk>>,
    pub(super) inbox: VecDeque<PendingInput>,
    pub(super) busy_until: Time,
    pub(super) step_scheduled: bool,
    pub(super) timer_at: Option<Time>,
    pub(super) log: Log,
    pub(super) busy_slots: u32,
    /// Boxed, because a table has more room than entries.
    pub(super) running: HashMap<(TaskId, Attempt), Box<Attempting>, FixedState>,
    pub(super) objects: HashMap<ObjectId, StoredObject, FixedState>,
    /// Current transfers to this node, and those above the limit that wait.
    pub(super) fetching: usize,
    pub(super) fetches: VecDeque<Fetch>,
    /// The bytes of objects that its card sent and received.
    pub(super) out_bytes: u64,
    pub(super) in_bytes: u64,
}

impl Machine {
    pub(super) fn new(node: Node) -> Self {
        Self {
            node,
            up: true,
            incarnation: 1,
            disk: None,
            inbox: VecDeque::new(),
            busy_until: Time::ZERO,
            step_scheduled: false,
            timer_at: None,
            log: Log::default(),
            busy_slots: 0,
            running: HashMap::with_hasher(FixedState::with_seed(0)),
            objects: HashMap::with_hasher(FixedState::with_seed(0)),
            fetching: 0,
            fetches: VecDeque::new(),
            out_bytes: 0,
            in_bytes: 0,
        }
    }

    /// Stores the outputs of an attempt that ended here.
    pub(super) fn keep(&mut self, objects: Vec<(ObjectId, u64)>) {
        let held = |size_bytes| StoredObject { size_bytes, copy: false };
        self.objects.extend(objects.into_iter().map(|(object, size)| (object, held(size))));
    }

    /// Ends the process: its memory and its running attempts are lost.
    pub(super) fn stop(&mut self) {
        self.up = false;
        self.inbox.clear();
        self.timer_at = None;
        self.log = Log::default();
        self.busy_slots = 0;
        self.running.clear();
        self.fetching = 0;
        self.fetches.clear();
        if let Some(disk) = &mut self.disk {
            disk.crash();
        }
    }
}
