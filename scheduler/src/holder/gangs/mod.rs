//! Gangs: tasks that hold several nodes at once. The holder of the task leads its gang, and its
//! node has the first part, which runs the command. `line.rs` is the line of gangs on each node,
//! `lead.rs` the leader of one gang; `tend.rs` joins both with the scheduler.

mod groups;
pub(crate) mod lead;
pub(crate) mod line;
mod parts;
mod tend;
#[cfg(test)]
mod tests;
mod turns;

use std::collections::BTreeMap;

use proto::{Attempt, NodeId, TaskId, Time};
use resources::{Fit, PoolSet};

use crate::Mutant;
use crate::holder::Holder;
use crate::holder::gangs::lead::{Lead, Phase};
use crate::holder::gangs::line::{Line, Room, Stamp};
use crate::holder::slots::{Need, Seat, Slots};

/// The gangs that this node leads, and the parts of gangs that hold it or wait for it.
#[derive(Debug)]
pub(crate) struct Gangs {
    line: Line<Fit, Seat>,
    leads: BTreeMap<TaskId, Lead>,
    /// The version of the map by which each gang has chosen its nodes.
    chosen_by: BTreeMap<TaskId, u64>,
    /// The oldest part that waits here, and the pools that were short of it since.
    kept: Option<(Stamp, PoolSet)>,
    /// The joined parts that the shell knows, and the nodes that lead their gangs.
    told: BTreeMap<(TaskId, Attempt), NodeId>,
}

/// A part of a gang on one node, for checkers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GangPart {
    pub task: TaskId,
    pub attempt: Attempt,
    /// The gang starts or runs.
    pub joined: bool,
    /// The slots that it holds, and that no attempt uses.
    pub slots: u32,
}

impl Gangs {
    fn new(mutant: Option<Mutant>) -> Self {
        Self {
            line: Line::new(mutant == Some(Mutant::WoundIgnoresAge)),
            leads: BTreeMap::new(),
            chosen_by: BTreeMap::new(),
            kept: None,
            told: BTreeMap::new(),
        }
    }
    fn is_empty(&self) -> bool {
        self.line.is_empty() && self.leads.is_empty()
    }
    pub(crate) fn deadline(&self) -> Option<Time> {
        let renewals = self.leads.values().filter_map(Lead::deadline);
        renewals.chain(self.line.deadline()).min()
    }
}

impl Holder {
    pub(crate) fn has_gangs(&self) -> bool {
        self.gangs.is_some()
    }
    fn gangs_mut(&mut self) -> &mut Gangs {
        let mutant = self.mutant;
        self.gangs.get_or_insert_with(|| Box::new(Gangs::new(mutant)))
    }
    /// The pools that a gang waits for: no other task takes of these.
    pub(crate) fn kept_by_gang(&self) -> PoolSet {
        let kept = self.gangs.as_ref().and_then(|gangs| gangs.kept);
        kept.map_or(PoolSet::EMPTY, |(_, pools)| pools)
    }
    /// All inputs of the task are here: nodes are reserved for it.
    pub(crate) fn gather_gang(&mut self, task: TaskId) {
        let staged = &self.staging[&task];
        let stamp = Stamp::new(staged.work.spec.priority, task);
        let mut lead = Lead::new(self.me, staged.attempt, stamp, staged.work.spec.nodes as usize);
        lead.starts_without_lock = self.mutant == Some(Mutant::StartWithoutLock);
        let before = self.gangs_mut().leads.insert(task, lead);
        debug_assert!(before.is_none(), "nothing would free the nodes of {task}'s last attempt");
    }
    /// Whether the task waits for the nodes of its gang.
    pub(crate) fn gathers_gang(&self, task: TaskId) -> bool {
        self.gangs.as_ref().is_some_and(|gangs| gangs.leads.contains_key(&task))
    }
    /// The number of staged tasks that wait for other nodes.
    pub(crate) fn gangs_staged(&self) -> usize {
        let leads = self.gangs.iter().flat_map(|gangs| gangs.leads.keys());
        leads.filter(|&task| self.staging.contains_key(task)).count()
    }
    /// The nodes of a gang, this node first.
    pub(crate) fn gang_nodes(&self, task: TaskId) -> Vec<NodeId> {
        let lead = self.gangs.as_ref().and_then(|gangs| gangs.leads.get(&task));
        lead.map_or_else(Vec::new, Lead::nodes)
    }
    /// Whether a gang holds this node or runs here.
    pub(crate) fn is_held_by_gang(&self) -> bool {
        let mut parts = self.gangs.iter().flat_map(|gangs| gangs.line.parts());
        parts.any(|(_, part)| part.is_joined() || part.seat().is_some())
    }
    /// Whether the gang has all of its nodes: its task starts or runs.
    fn is_whole(&self, task: TaskId) -> bool {
        let lead = self.gangs.as_ref().and_then(|gangs| gangs.leads.get(&task));
        lead.is_some_and(|lead| lead.phase == Phase::Whole)
    }
    /// The parts of gangs that hold this node or wait for it.
    pub(crate) fn gang_parts(&self) -> impl Iterator<Item = GangPart> + '_ {
        let parts = self.gangs.iter().flat_map(|gangs| gangs.line.parts());
        parts.map(|(stamp, part)| GangPart {
            task: stamp.task,
            attempt: part.attempt,
            joined: part.is_joined(),
            slots: part.seat().map_or(0, |seat| 1 + self.slots.more(seat.first).len() as u32),
        })
    }
}

/// The resources of this node during one step.
struct NodeRoom<'a> {
    slots: &'a mut Slots,
    /// A task runs alone, or one that rested waits for its seat: nothing else starts.
    closed: bool,
    /// Nothing is held for gangs: the node is paused, or a task that rested waits for its seat.
    frees: bool,
    first_to_wait: Option<Stamp>,
    waiting_priority: Option<i32>,
    kept: Option<(Stamp, PoolSet)>,
    keeps: Option<(Stamp, PoolSet)>,
}

impl Room for NodeRoom<'_> {
    type Need = Fit;
    type Seat = Seat;

    fn yields(&self, stamp: Stamp) -> bool {
        self.frees
            || self.first_to_wait.is_some_and(|first| first < stamp)
            || self.waiting_priority.is_some_and(|priority| priority > stamp.priority())
    }
    fn take(&mut self, need: &Fit) -> Option<Seat> {
        if self.closed {
            return None;
        }
        self.slots.take(Need::Fit(need), PoolSet::EMPTY)
    }
    fn give_back(&mut self, seat: Seat) {
        self.slots.give_back(Some(seat));
    }
    fn keep(&mut self, stamp: Stamp, need: &Fit) {
        let before = self.kept.filter(|(of, _)| *of == stamp);
        let short = self.slots.short(Need::Fit(need));
        let pools = before.map_or(short, |(_, pools)| pools.with(short));
        self.keeps = Some((stamp, pools));
    }
}
