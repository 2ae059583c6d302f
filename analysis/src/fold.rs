/*!
One pass over the events of a run: counts, bytes, times.

The order of the events does not matter, so logs may be folded one after another. Memory is four
bytes a task (where it ended, if it did) and a bounded series, however long the run.
*/

use std::collections::BTreeMap;

use proto::busy::BusySeries;
use proto::event::{End, Event};
use proto::{Attempt, JobId, LocalId, NodeId, PartitionId, Span, TaskId, Time};

use crate::events::Entry;
use crate::stages::Tally;
use crate::waits::Slots;

/// What one node did for the job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NodeTally {
    pub slots: u32,
    /// Attempts that ended here.
    pub executions: u64,
    pub busy: Span,
    pub fetches: u64,
    pub moved_bytes: u64,
    pub local_bytes: u64,
    /// Tasks this node took from others.
    pub stolen: u64,
    /// Tasks this node, as a home, sent elsewhere.
    pub pushed: u64,
}

/// Where and how a task ended, in one word: 0 is "not yet".
const END_BITS: u32 = 2;

/// Adds up the events of one job (or of all jobs).
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
    /// Of this kind no attempt counts among what slots did.
    loads: Option<u32>,
    /// How many further slots attempts take that run.
    wide: BTreeMap<(NodeId, TaskId, Attempt), u32>,
}

impl Fold {
    /// Of one job only.
    #[must_use]
    pub fn of_job(job: JobId) -> Self {
        Self { job: Some(job), ..Self::default() }
    }

    /// Loads that come before the clock starts, by the number of their kind: what slots did then is
    /// not looked at.
    #[must_use]
    pub fn before_the_clock(self, loads: Option<u32>) -> Self {
        Self { loads, ..self }
    }

    /// An attempt counts on the slots that it takes by the log: on one, where that does not say.
    pub fn push(&mut self, entry: &Entry) {
        self.push_sized(entry, 1);
    }

    /// The event of a task that takes `slots` slots while it runs.
    pub fn push_sized(&mut self, entry: &Entry, slots: u32) {
        self.push_task(entry, slots, None);
    }

    /// As [`Self::push_sized`], with the number of the task's kind where kinds are told apart
    /// ([`crate::Kinds`]).
    pub fn push_task(&mut self, entry: &Entry, slots: u32, kind: Option<u32>) {
        if let Event::NodeStarted { node, slots, .. } = entry.event {
            self.nodes.entry(node).or_default().slots = slots;
            return;
        }
        if self.job.is_some_and(|job| job_of(&entry.event) != Some(job)) {
            return;
        }
        self.first_event = earliest(self.first_event, entry.time);
        match entry.event {
            Event::Staged { job, partition, first, tasks } => {
                // Chunks may come again: the highest index counts, not the sum.
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
        // A home that died before it wrote its log may say it again.
        if partition[index] != 0 {
            self.committed_twice += 1;
            return;
        }
        partition[index] = (node.0 << END_BITS | end as u32) + 1;
        self.ends[end as usize] += 1;
        self.produced_bytes += output_bytes;
    }

    /// Tasks that ended so.
    #[must_use]
    pub fn ended(&self, end: End) -> u64 {
        self.ends[end as usize]
    }

    /// Tasks the homes have stored.
    #[must_use]
    pub fn staged(&self) -> u64 {
        self.staged.values().sum()
    }

    /// Ends of tasks that the log tells more than once. Not an error after a crash of a home.
    #[must_use]
    pub fn committed_twice(&self) -> u64 {
        self.committed_twice
    }

    /// Where a task ended, once it has.
    #[must_use]
    pub fn ended_at(&self, task: TaskId) -> Option<(NodeId, End)> {
        let partition = self.ended_at.get(&(task.job, task.partition()))?;
        let word = partition.get(task.local.index() as usize)?.checked_sub(1)?;
        let end = [End::Done, End::Failed, End::Cancelled, End::Skipped]
            [(word & ((1 << END_BITS) - 1)) as usize];
        Some((NodeId(word >> END_BITS), end))
    }

    /// Bytes that tasks read from objects made on another node, whether moved for them or already
    /// here as a copy. `inputs` are the edges along which data flows: (parent, child, bytes).
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

/// The job an event belongs to; `None` for events of a node.
#[must_use]
pub fn job_of(event: &Event) -> Option<JobId> {
    match *event {
        Event::NodeStarted { .. } => None,
        Event::Staged { job, .. } | Event::Visible { job } | Event::JobEnded { job, .. } => {
            Some(job)
        }
        _ => task_of(event).map(|task| task.job),
    }
}

/// The task an event belongs to, if it is about one.
#[must_use]
pub fn task_of(event: &Event) -> Option<TaskId> {
    match *event {
        Event::NodeStarted { .. }
        | Event::Staged { .. }
        | Event::Visible { .. }
        | Event::Removing { .. }
        | Event::Shifted { .. }
        | Event::PolicyChanged { .. }
        | Event::Retuned { .. }
        | Event::JobEnded { .. } => None,
        Event::Queued { task, .. }
        | Event::Pushed { task, .. }
        | Event::Stolen { task, .. }
        | Event::Fetched { task, .. }
        | Event::Started { task, .. }
        | Event::Widened { task, .. }
        | Event::Ended { task, .. }
        | Event::Committed { task, .. }
        | Event::Replaced { task, .. }
        | Event::Stale { task, .. }
        | Event::Dismissed { task, .. }
        | Event::TakenOver { task, .. }
        | Event::CrashCounted { task, .. }
        | Event::Spared { task, .. }
        | Event::Stalled { task, .. }
        | Event::MissedWakeupRepaired { task } => Some(task),
    }
}
