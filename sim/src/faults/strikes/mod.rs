//! What goes wrong in the fault world: the faults, and the changes of members.

pub(crate) mod disk_faults;
pub(crate) mod growth;
pub(crate) mod injection;
pub(crate) mod membership_churn;
pub(crate) mod permanent_loss;

use std::collections::BTreeMap;

use proto::{TaskId, Time};

use crate::faults::strikes::disk_faults::DiskFaults;
use crate::faults::strikes::injection::FaultOptions;

/// The faults of a world: those that may strike, and those that have.
pub(crate) struct Injection {
    options: FaultOptions,
    until: Time,
    /// The number of faults by kind.
    counts: BTreeMap<&'static str, u64>,
    /// The number of disks lost so far.
    disks_gone: u32,
    /// A lost disk belonged to a node that had reported too few copies of its data.
    lone_copy_went: bool,
    /// Incarnations that a task has killed.
    killers: BTreeMap<(usize, u32), TaskId>,
}

impl Injection {
    pub(crate) fn new(begin: Time) -> Self {
        Self {
            options: FaultOptions::none(),
            until: begin,
            counts: BTreeMap::new(),
            disks_gone: 0,
            lone_copy_went: false,
            killers: BTreeMap::new(),
        }
    }
    pub(crate) fn options(&self) -> &FaultOptions {
        &self.options
    }
    /// When the faults end.
    pub(crate) fn ends_at(&self) -> Time {
        self.until
    }
    pub(crate) fn strikes_at(&self, now: Time) -> bool {
        now < self.until
    }
    pub(crate) fn count(&mut self, kind: &'static str, faults: u64) {
        *self.counts.entry(kind).or_default() += faults;
    }
    /// The number of faults by kind.
    pub(crate) fn counts(&self) -> &BTreeMap<&'static str, u64> {
        &self.counts
    }
    /// True if no lost disk may have held the only copy of something.
    pub(crate) fn lost_fairly(&self, grows: bool, copies: u32) -> bool {
        (grows || self.disks_gone < copies) && !self.lone_copy_went
    }
    pub(crate) fn mend_disks(&mut self) {
        self.options.disks = DiskFaults::default();
    }
    /// The task has killed this incarnation of the node.
    pub(crate) fn note_killer(&mut self, victim: (usize, u32), task: TaskId) {
        self.killers.insert(victim, task);
    }
    pub(crate) fn killer_of(&self, node: usize, incarnation: u32) -> Option<TaskId> {
        self.killers.get(&(node, incarnation)).copied()
    }
}
