/*!
Sums the events of a run in one pass: counts, bytes and times. The reports are made from it.

The order of events does not matter, so logs may be folded one after another. For a run of any
length, memory is four bytes per task (its node and end) and a bounded time series.
*/

use std::collections::BTreeMap;

use proto::busy::BusySeries;
use proto::event::{End, Event};
use proto::{Attempt, JobId, LocalId, NodeId, PartitionId, Span, TaskId, Time};

use crate::events::Entry;
use crate::stages::Tally;
use crate::waits::Slots;

/// The work of one node for the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeTally {
    pub slots: u32,
    /// Attempts that ended here.
    pub executions: u64,
    pub busy: Span,
    pub fetches: u64,
    pub moved_bytes: u64,
    pub local_bytes: u64,
    /// Tasks that this node stole.
    pub stolen: u64,
    /// Tasks that this node, as a home, pushed elsewhere.
    pub pushed: u64,
}

/// The bits of the end in a packed word of node and end; the word 0 means "not yet".
const END_BITS: u32 = 2;

/// Sums the events of one job, or of all jobs.
#[derive(Clone, Debug, Default)]
pub struct Fold {
    job: Option<JobId>,
    pub(crate) nodes: BTreeMap<NodeId, NodeTally>,
    /// By job and partition: for each task `(node << 2 | end) + 1`.
    ended_at: BTreeMap<(JobId, PartitionId), Vec<u32>>,
    staged: BTreeMap<(JobId, PartitionId), u64>,
    ends: [u64; 4],
    pub(crate) busy: BusySeries,
    pub(crate) busy_total: Span,
    pub(crate) work: Span,
    pub(crate) produced_bytes: u64,
    pub(crate) first_start: Option<Time>,
    pub(crate) last_end: Option<Time>,
    pub(crate) first_event: Option<Time>,
    pub(crate) wakeups: u64,
    pub(crate) replaced: u64,
    pub(crate) stale: u64,
    committed_twice: u64,
    /// By the number of a kind.
    pub(crate) kinds: BTreeMap<u32, Tally>,
    pub(crate) slots: Slots,
    /// Attempts of this kind do not count in the sums of slots.
    loads: Option<u32>,
    /// The number of further slots that running attempts take.
    wide: BTreeMap<(NodeId, TaskId, Attempt), u32>,
    /// The parts of gangs that other nodes lead: their begin, and their slots.
    parts: BTreeMap<(NodeId, TaskId, Attempt), (Time, u32)>,
}

impl Fold {
    /// Sums the events of one job only.
    #[must_use]
    pub fn of_job(job: JobId) -> Self {
        Self { job: Some(job), ..Self::default() }
    }

    /// The kind of the load tasks that run before the clock starts. Their slot times are ignored.
    #[must_use]
    pub fn before_the_clock(self, loads: Option<u32>) -> Self {
        Self { loads, ..self }
    }

    /// Adds an event. An attempt counts on the slots in the log, or on one if the log has none.
    pub fn push(&mut self, entry: &Entry) {
        self.push_sized(entry, 1);
    }

    /// Adds an event of a task that takes `slots` slots.
    pub fn push_sized(&mut self, entry: &Entry, slots: u32) {
        self.push_task(entry, slots, None);
    }

    /// As [`Self::push_sized`], with the number of the task's kind if kinds are distinguished
    /// ([`crate::Kinds`]).
    pub fn push_task(&mut self, entry: &Entry, slots: u32, kind: Option<u32>) {
        if let Event::NodeStarted { node, slots, .. } = entry.event {
            self.nodes.entry(node).or_default().slots = slots;
            return;
        }
        if self.job.is_some_and(|job| entry.event.job() != Some(job)) {
            return;
        }
        self.first_event = earliest(self.first_event, entry.time);
        match entry.event {
            Event::Staged { job, partition, first, tasks } => {
                // A chunk may be stored repeatedly, so the highest index counts, not the sum.
                let known = self.staged.entry((job, partition)).or_default();
                *known = (*known).max(first + tasks);
            }
            Event::Pushed { .. } => self.node(entry).pushed += 1,
            Event::Stolen { .. } => self.node(entry).stolen += 1,
            Event::Fetched { took, .. } => {
                self.node(entry).fetches += 1;
                self.slots.fetched(took);
            }
            Event::Started { task, attempt, slot } => {
                self.first_start = earliest(self.first_start, entry.time);
                if kind.is_none() || kind != self.loads {
                    self.slots.started(entry.node, slot, (task, attempt), entry.time);
                }
            }
            Event::Widened { task, attempt, slot } => {
                *self.wide.entry((entry.node, task, attempt)).or_default() += 1;
                if kind.is_none() || kind != self.loads {
                    self.slots.started(entry.node, slot, (task, attempt), entry.time);
                }
            }
            Event::PartBegan { task, attempt, slot } => {
                let part = self.parts.entry((entry.node, task, attempt)).or_default();
                *part = (entry.time, part.1 + 1);
                self.slots.started(entry.node, slot, (task, attempt), entry.time);
            }
            Event::PartEnded { task, attempt } => {
                self.part_ended(entry, (task, attempt), kind);
                self.slots.ended(entry.node, (task, attempt), entry.time);
            }
            Event::Ended { task, attempt, .. } => {
                let more = self.wide.remove(&(entry.node, task, attempt)).unwrap_or_default();
                self.attempt_ended(entry, slots.max(1 + more), kind);
                self.slots.ended(entry.node, (task, attempt), entry.time);
            }
            Event::Committed { task, end, node, output_bytes, .. } => {
                self.task_ended(task, end, node, output_bytes);
                self.last_end = self.last_end.max(Some(entry.time));
            }
            Event::Replaced { .. } => self.replaced += 1,
            Event::Stale { .. } => self.stale += 1,
            Event::MissedWakeupRepaired { .. } => self.wakeups += 1,
            _ => {}
        }
    }

    fn node(&mut self, entry: &Entry) -> &mut NodeTally {
        self.nodes.entry(entry.node).or_default()
    }

    /// A part of a gang is no attempt. Whether the gang has succeeded is known at its first node.
    fn part_ended(&mut self, entry: &Entry, key: (TaskId, Attempt), kind: Option<u32>) {
        let Some((began, slots)) = self.parts.remove(&(entry.node, key.0, key.1)) else { return };
        let held = Span(entry.time.since(began).0 * u64::from(slots));
        self.busy.add(began, entry.time, slots);
        self.busy_total.0 += held.0;
        self.work.0 += held.0;
        if let Some(kind) = kind {
            self.kinds.entry(kind).or_default().add_part(held);
        }
        self.node(entry).busy.0 += held.0;
    }

    fn attempt_ended(&mut self, entry: &Entry, slots: u32, kind: Option<u32>) {
        let Event::Ended { end, started, moved_bytes, local_bytes, .. } = entry.event else {
            unreachable!("called for Ended only");
        };
        let ran = Span(entry.time.since(started).0 * u64::from(slots));
        self.first_start = earliest(self.first_start, started);
        self.busy.add(started, entry.time, slots);
        self.busy_total.0 += ran.0;
        if end == End::Done {
            self.work.0 += ran.0;
        }
        if let Some(kind) = kind {
            self.kinds.entry(kind).or_default().add(started, entry.time, slots);
        }
        let node = self.node(entry);
        node.executions += 1;
        node.busy.0 += ran.0;
        node.moved_bytes += moved_bytes;
        node.local_bytes += local_bytes;
    }

    fn task_ended(&mut self, task: TaskId, end: End, node: NodeId, output_bytes: u64) {
        let partition = self.ended_at.entry((task.job, task.partition())).or_default();
        let index = usize::try_from(task.local.index()).expect("an index fits memory");
        if partition.len() <= index {
            partition.resize(index + 1, 0);
        }
        // A home that died before it wrote its log may repeat the commit.
        if partition[index] != 0 {
            self.committed_twice += 1;
            return;
        }
        partition[index] = (node.0 << END_BITS | end as u32) + 1;
        self.ends[end as usize] += 1;
        self.produced_bytes += output_bytes;
    }

    /// The number of tasks with this end.
    #[must_use]
    pub fn ended(&self, end: End) -> u64 {
        self.ends[end as usize]
    }

    /// The number of tasks that the homes have stored.
    #[must_use]
    pub fn staged(&self) -> u64 {
        self.staged.values().sum()
    }

    /// The number of repeated ends in the log. They are no error after a home crashed.
    #[must_use]
    pub fn committed_twice(&self) -> u64 {
        self.committed_twice
    }

    /// The node and the end of a task that has ended.
    #[must_use]
    pub fn ended_at(&self, task: TaskId) -> Option<(NodeId, End)> {
        let partition = self.ended_at.get(&(task.job, task.partition()))?;
        let word = partition.get(task.local.index() as usize)?.checked_sub(1)?;
        let end = [End::Done, End::Failed, End::Cancelled, End::Skipped]
            [(word & ((1 << END_BITS) - 1)) as usize];
        Some((NodeId(word >> END_BITS), end))
    }

    /// The bytes that tasks read from objects made on another node, whether transferred for the
    /// task or already present as a copy. `inputs` are the data edges: (parent, child, bytes).
    #[must_use]
    pub fn remote_bytes(
        &self,
        job: JobId,
        inputs: impl Iterator<Item = (LocalId, LocalId, u64)>,
    ) -> u64 {
        inputs
            .filter(|&(parent, child, _)| {
                let at = |local| self.ended_at(TaskId { job, local }).map(|(node, _)| node);
                matches!((at(parent), at(child)), (Some(from), Some(to)) if from != to)
            })
            .map(|(.., bytes)| bytes)
            .sum()
    }

    pub(crate) fn total(&self, of: impl Fn(&NodeTally) -> u64) -> u64 {
        self.nodes.values().map(of).sum()
    }
}

fn earliest(known: Option<Time>, time: Time) -> Option<Time> {
    Some(known.map_or(time, |known| known.min(time)))
}
