//! One machine of a study: a node, and what it takes to serve its inputs one after another.

use std::collections::{BTreeMap, VecDeque};

use foldhash::fast::FixedState;
use hashbrown::HashSet;
use node::{Input, Node};
use proto::work::{Fetch, Outcome};
use proto::{Attempt, ObjectId, TaskId, Time};

/// An attempt in a slot, until its end.
#[derive(Debug)]
pub(super) struct Attempting {
    pub(super) cpus: u32,
    pub(super) outcome: Outcome,
    pub(super) objects: Vec<ObjectId>,
}

/// How far the log is durable, as in the loop of a real node.
#[derive(Debug, Default)]
pub(super) struct Log {
    pub(super) written_seq: u64,
    /// The batch up to which a sync is under way.
    pub(super) asked_seq: u64,
    pub(super) synced_seq: u64,
    pub(super) synced_at: Time,
    pub(super) client_waits: bool,
    /// A sync will begin by itself then.
    pub(super) begins_at: Option<Time>,
}

#[derive(Debug)]
pub(super) struct Machine {
    pub(super) node: Node,
    pub(super) inbox: VecDeque<Input>,
    pub(super) busy_until: Time,
    pub(super) step_scheduled: bool,
    pub(super) timer_at: Option<Time>,
    pub(super) log: Log,
    pub(super) busy_slots: u32,
    pub(super) running: BTreeMap<(TaskId, Attempt), Attempting>,
    pub(super) objects: HashSet<ObjectId, FixedState>,
    /// Transfers under way to this node, and those that wait because there are too many.
    pub(super) fetching: usize,
    pub(super) fetches: VecDeque<Fetch>,
}

impl Machine {
    pub(super) fn new(node: Node) -> Self {
        Self {
            node,
            inbox: VecDeque::new(),
            busy_until: Time::ZERO,
            step_scheduled: false,
            timer_at: None,
            log: Log::default(),
            busy_slots: 0,
            running: BTreeMap::new(),
            objects: HashSet::with_hasher(FixedState::with_seed(0)),
            fetching: 0,
            fetches: VecDeque::new(),
        }
    }
}
