//! The bounded view of a job, and the lens that makes it.

mod merge;
mod top;

use std::collections::BTreeMap;

use proto::event::End;
use proto::{Event, JobId, LocalId, NodeId, TaskId, Time};

use crate::attempt::{AttemptRow, Outcome};
use crate::failures::{FailureGroup, FailureKey};
use crate::groups::{Bounded, Levelled, LinkKey, NodeKey};
use crate::histogram::Histogram;
use crate::join::Joiner;
use crate::series::Series;

pub use top::{Shown, Top};

/// The number of separate nodes, and of pairs of nodes between which data moved. Beyond it
/// neighbours share a sum.
pub const VIEW_NODES_MAX: usize = 256;
pub const VIEW_LINKS_MAX: usize = 4096;
/// The number of separate kinds of tasks in a view; further ones are added together.
pub const VIEW_KINDS_MAX: usize = 64;
/// The number of separate groups of alike failures; further ones are added together.
const VIEW_FAILURES_MAX: usize = 1024;
/// The number of attempts of a kind that a view has one by one: the longest.
const VIEW_SLOWEST_MAX: usize = 32;

/// The lanes of [`Busy`].
pub const WORKING: usize = 0;
pub const LOST: usize = 1;
/// The lanes of [`NodeView::waits`]: tasks in a ready queue, and tasks that fetch inputs.
pub const READY: usize = 0;
pub const FETCHING: usize = 1;

/// Slot time: of attempts that succeeded, and of others. It is exact.
pub type Busy = Series<2>;

/// The attempts of a kind or of all kinds.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Work {
    /// By outcome.
    pub attempts: [u64; 4],
    pub busy_us: u64,
    pub lost_us: u64,
    pub moved_bytes: u64,
    pub local_bytes: u64,
    pub ran: Histogram,
    pub first_start_us: Option<u64>,
    pub last_end_us: Option<u64>,
    /// Tasks that their homes committed, by end, and the bytes that they made.
    pub committed: [u64; 4],
    pub made_bytes: u64,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct KindView {
    pub work: Work,
    pub waited: Histogram,
    pub busy: Busy,
    pub slowest: Top<VIEW_SLOWEST_MAX>,
}

#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct NodeView {
    pub work: Work,
    pub busy: Busy,
    /// Of the attempts in detail only.
    pub waits: Series<2>,
    pub stolen: u64,
    pub pushed: u64,
}

/// Objects that moved from a node to another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Link {
    pub objects: u64,
    pub bytes: u64,
    pub took_us: u64,
}

/// Counts of events beside attempts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    pub stolen: u64,
    pub pushed: u64,
    pub replaced: u64,
    pub stale: u64,
    pub wakeups_repaired: u64,
    pub crashes: u64,
}

/// All that is shown of a job, in bounded memory.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct View {
    pub work: Work,
    pub counts: Counts,
    pub kinds: Bounded<String, KindView, VIEW_KINDS_MAX>,
    pub nodes: Levelled<NodeKey, NodeView, VIEW_NODES_MAX>,
    pub links: Levelled<LinkKey, Link, VIEW_LINKS_MAX>,
    pub failures: Bounded<FailureKey, FailureGroup, VIEW_FAILURES_MAX>,
    /// The slots of each node.
    pub slots: BTreeMap<u32, u32>,
    /// The attempts of which waits and single attempts are shown.
    pub detailed: u64,
}

/// Which tasks are shown in detail: one of `2^level`, the same ones on each node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sampling {
    pub level: u32,
}

impl Sampling {
    #[must_use]
    pub fn has(self, task: LocalId) -> bool {
        // Fibonacci hashing: neighbours are spread.
        let mixed = (task.0 ^ task.0 >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.level == 0 || mixed >> (64 - self.level.min(63)) == 0
    }
}

/// Reads events, and sums them up.
#[derive(Clone, Debug)]
pub struct Lens<K> {
    joiner: Joiner,
    sampling: Sampling,
    /// The kind of a task.
    kind_of: K,
    names: Vec<String>,
    view: View,
    /// By number of the kind; the last one is of unknown kinds.
    kinds: Vec<KindView>,
}

impl<K: FnMut(LocalId) -> u32> Lens<K> {
    /// `origin`: time 0. `kind_of`: the number of a task's kind in `names`.
    pub fn new(
        job: JobId,
        origin: Time,
        sampling: Sampling,
        names: Vec<String>,
        kind_of: K,
    ) -> Self {
        let kinds = vec![KindView::default(); names.len() + 1];
        let joiner = Joiner::new(job, origin);
        Self { joiner, sampling, kind_of, names, view: View::default(), kinds }
    }

    pub fn push(&mut self, node: NodeId, time: Time, event: &Event) {
        if !self.joiner.wants(event) {
            return;
        }
        let in_detail = event.task().is_none_or(|task| self.sampling.has(task.local));
        let mut ended = Vec::new();
        self.joiner.push(node, time, event, in_detail, &mut |row| ended.push(row));
        for row in ended {
            self.add_sampled(row);
        }
        self.count(node, event);
    }

    /// Adds an attempt. Its kind is set already.
    pub fn add(&mut self, row: &AttemptRow) {
        let at = (row.kind as usize).min(self.names.len());
        self.view.add(row, self.sampling.has(row.task), &mut self.kinds[at]);
    }

    /// The view so far. `end`: the end of the job, at which attempts without an end were stopped.
    pub fn finish(mut self, end: Option<Time>) -> View {
        let mut stopped = Vec::new();
        self.joiner.finish(end, &mut |row| stopped.push(row));
        for row in stopped {
            self.add_sampled(row);
        }
        let names = self.names.into_iter().chain([String::new()]);
        for (name, kind) in names.zip(&self.kinds) {
            if *kind != KindView::default() {
                self.view.kinds.add(name, kind);
            }
        }
        self.view
    }

    fn add_sampled(&mut self, mut row: AttemptRow) {
        row.kind = (self.kind_of)(row.task);
        self.add(&row);
    }

    /// Counts an event that ends no attempt.
    pub(crate) fn count(&mut self, node: NodeId, event: &Event) {
        if !self.joiner.wants(event) {
            return;
        }
        let view = &mut self.view;
        let of_node = |view: &mut View, change: fn(&mut NodeView)| {
            view.nodes.change(NodeKey(node.0), change);
        };
        match *event {
            Event::NodeStarted { node, slots, .. } => {
                let known = view.slots.entry(node.0).or_default();
                *known = slots.max(*known);
            }
            Event::Stolen { .. } => {
                view.counts.stolen += 1;
                of_node(view, |node| node.stolen += 1);
            }
            Event::Pushed { .. } => {
                view.counts.pushed += 1;
                of_node(view, |node| node.pushed += 1);
            }
            Event::Fetched { from, bytes, took, .. } => {
                view.links.change(LinkKey(from.0, node.0), |link| {
                    link.objects += 1;
                    link.bytes = link.bytes.saturating_add(bytes);
                    link.took_us = link.took_us.saturating_add(took.0 / 1_000);
                });
            }
            Event::Committed { task, end, output_bytes, .. } => {
                self.committed(task, end, output_bytes);
            }
            Event::Replaced { .. } => view.counts.replaced += 1,
            Event::Stale { .. } => view.counts.stale += 1,
            Event::MissedWakeupRepaired { .. } => view.counts.wakeups_repaired += 1,
            Event::CrashCounted { .. } => view.counts.crashes += 1,
            _ => {}
        }
    }

    fn committed(&mut self, task: TaskId, end: End, bytes: u64) {
        let at = ((self.kind_of)(task.local) as usize).min(self.names.len());
        for work in [&mut self.view.work, &mut self.kinds[at].work] {
            work.committed[end as usize] += 1;
            work.made_bytes = work.made_bytes.saturating_add(bytes);
        }
    }
}

impl View {
    fn add(&mut self, row: &AttemptRow, in_detail: bool, kind: &mut KindView) {
        let (start, end, width) = (row.start_us, row.end_us(), u64::from(row.width()));
        let lane = if row.outcome == Outcome::Done { WORKING } else { LOST };
        if row.is_part {
            return self.add_part(row, lane, kind);
        }
        self.work.add(row);
        kind.work.add(row);
        kind.busy.add(lane, start, end, width);
        self.nodes.change(NodeKey(row.node), |node| {
            node.work.add(row);
            node.busy.add(lane, start, end, width);
            if in_detail {
                let queued = start.saturating_sub(row.wait_us);
                node.waits.add(READY, queued, start - row.fetch_us.min(start), 1);
                node.waits.add(FETCHING, start.saturating_sub(row.fetch_us), start, 1);
            }
        });
        if !in_detail {
            return;
        }
        self.detailed += 1;
        kind.waited.add(row.wait_us);
        kind.slowest.add(row);
    }

    /// A part of a gang adds to the slot time of its node, and is no attempt.
    fn add_part(&mut self, row: &AttemptRow, lane: usize, kind: &mut KindView) {
        let (start, end, width) = (row.start_us, row.end_us(), u64::from(row.width()));
        self.work.add_slots(row);
        kind.work.add_slots(row);
        kind.busy.add(lane, start, end, width);
        self.nodes.change(NodeKey(row.node), |node| {
            node.work.add_slots(row);
            node.busy.add(lane, start, end, width);
        });
    }

    /// The number of attempts.
    #[must_use]
    pub fn attempts(&self) -> u64 {
        self.work.attempts.iter().sum()
    }

    /// The part that no sampling changes.
    #[must_use]
    pub fn exact(&self) -> Self {
        let mut exact = self.clone();
        exact.detailed = 0;
        let kinds = exact.kinds.kept.values_mut().chain(&mut exact.kinds.rest);
        kinds.for_each(|kind| {
            kind.waited = Histogram::default();
            kind.slowest = Top::default();
        });
        exact.nodes.sums.values_mut().for_each(|node| node.waits = Series::default());
        exact
    }
}

impl Work {
    fn add(&mut self, row: &AttemptRow) {
        self.attempts[row.outcome as usize] += 1;
        self.add_slots(row);
        self.moved_bytes = self.moved_bytes.saturating_add(row.moved_bytes);
        self.local_bytes = self.local_bytes.saturating_add(row.local_bytes);
        self.ran.add(row.ran_us);
        self.first_start_us =
            Some(self.first_start_us.map_or(row.start_us, |it| it.min(row.start_us)));
        self.last_end_us = self.last_end_us.max(Some(row.end_us()));
    }

    fn add_slots(&mut self, row: &AttemptRow) {
        let slot_us = row.ran_us.saturating_mul(row.width().into());
        self.busy_us = self.busy_us.saturating_add(slot_us);
        if row.outcome != Outcome::Done {
            self.lost_us = self.lost_us.saturating_add(slot_us);
        }
    }
}
