//! The slots of the node: its executing threads.

use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
pub(crate) struct Slots {
    free: BTreeSet<u32>,
    /// The further slots of tasks that take several, by the first slot.
    wide: BTreeMap<u32, Vec<u32>>,
    total: u32,
}

impl Slots {
    pub(crate) fn new(total: u32) -> Self {
        Self { free: (0..total).collect(), wide: BTreeMap::new(), total }
    }
    pub(crate) fn free(&self) -> u32 {
        self.free.len() as u32
    }
    pub(crate) fn total(&self) -> u32 {
        self.total
    }
    /// Takes the lowest free slots; the first of them names the set.
    pub(crate) fn take(&mut self, cpus: u32) -> u32 {
        assert!(cpus > 0, "a task takes at least one slot");
        assert!(cpus <= self.free(), "slots are counted before they are taken");
        let first = self.free.pop_first().expect("counted above");
        let more: Vec<u32> = (1..cpus).filter_map(|_| self.free.pop_first()).collect();
        if !more.is_empty() {
            self.wide.insert(first, more);
        }
        first
    }
    /// The further slots of a task that takes several.
    pub(crate) fn more(&self, first: u32) -> &[u32] {
        self.wide.get(&first).map(AsRef::as_ref).unwrap_or_default()
    }
    pub(crate) fn give_back(&mut self, first: Option<u32>) {
        let Some(first) = first else { return };
        let fresh = self.free.insert(first);
        assert!(fresh, "slot {first} was free already");
        self.free.extend(self.wide.remove(&first).unwrap_or_default());
    }
}
