//! The parts of a job at one home, in the order of their partitions.
//!
//! A home has a thousand parts of a large job, and each event of a task looks its part up several
//! times. So the place of the last look-up is remembered, and a hash table has the place of each
//! part. A tree of 1,000 entries costs 40 ns a look-up where the table costs 5.

use std::cell::Cell;
use std::ops::Index;

use hashbrown::HashMap;
use proto::PartitionId;

use super::Part;

type FixedState = foldhash::fast::FixedState;

/// A list of so few partitions is searched without a table.
const LIST_MAX: usize = 8;

#[derive(Debug)]
pub(crate) struct Parts {
    /// Ascending.
    partitions: Vec<PartitionId>,
    #[expect(clippy::vec_box, reason = "a part is large, and an insert moves those behind it")]
    parts: Vec<Box<Part>>,
    /// Whether the counts of each part have changed since their last report.
    changed: Vec<bool>,
    /// Empty, or the place of each partition. It is never iterated.
    places: HashMap<PartitionId, u32, FixedState>,
    /// The place that was found last.
    last: Cell<usize>,
}

impl Default for Parts {
    fn default() -> Self {
        let places = HashMap::with_hasher(FixedState::with_seed(0));
        Self {
            partitions: Vec::new(),
            parts: Vec::new(),
            changed: Vec::new(),
            places,
            last: Cell::new(0),
        }
    }
}

impl Parts {
    fn place(&self, partition: PartitionId) -> Option<usize> {
        let last = self.last.get();
        if self.partitions.get(last) == Some(&partition) {
            return Some(last);
        }
        let place = match self.places.is_empty() {
            true => self.partitions.iter().position(|&it| it == partition)?,
            false => *self.places.get(&partition)? as usize,
        };
        self.last.set(place);
        Some(place)
    }
    /// The place of the first part that is not of an earlier partition.
    fn lower_bound(&self, partition: PartitionId) -> usize {
        self.partitions.partition_point(|&it| it < partition)
    }
    pub(crate) fn get(&self, partition: PartitionId) -> Option<&Part> {
        Some(&self.parts[self.place(partition)?])
    }
    pub(crate) fn get_mut(&mut self, partition: PartitionId) -> Option<&mut Part> {
        let at = self.place(partition)?;
        Some(&mut self.parts[at])
    }
    pub(crate) fn get_or_default(&mut self, partition: PartitionId) -> &mut Part {
        let at = self.place(partition).unwrap_or_else(|| self.add(partition, Box::default()));
        &mut self.parts[at]
    }
    pub(crate) fn contains(&self, partition: PartitionId) -> bool {
        self.place(partition).is_some()
    }
    /// Adds a part of a partition that has none yet.
    pub(crate) fn insert(&mut self, partition: PartitionId, part: Box<Part>) {
        assert!(!self.contains(partition), "{partition} has a part already");
        self.add(partition, part);
    }
    fn add(&mut self, partition: PartitionId, part: Box<Part>) -> usize {
        let at = self.lower_bound(partition);
        self.partitions.insert(at, partition);
        self.parts.insert(at, part);
        self.changed.insert(at, false);
        self.number(at);
        at
    }
    pub(crate) fn remove(&mut self, partition: PartitionId) -> Option<Box<Part>> {
        let at = self.place(partition)?;
        self.partitions.remove(at);
        self.changed.remove(at);
        self.places.remove(&partition);
        self.number(at);
        Some(self.parts.remove(at))
    }
    /// Writes the places of the partitions from this place on. Most parts arrive in order.
    fn number(&mut self, from: usize) {
        let count = self.partitions.len();
        if count <= LIST_MAX {
            self.places.clear();
            return;
        }
        let from = if self.places.is_empty() { 0 } else { from };
        for (place, &partition) in (0u32..).zip(&self.partitions).skip(from) {
            self.places.insert(partition, place);
        }
    }
    /// The counts of the part have changed.
    pub(crate) fn mark_changed(&mut self, partition: PartitionId) {
        if let Some(at) = self.place(partition) {
            self.changed[at] = true;
        }
    }
    pub(crate) fn mark_all_changed(&mut self) {
        self.changed.fill(true);
    }
    /// The parts that have changed since the last call.
    pub(crate) fn take_changed(&mut self) -> impl Iterator<Item = (PartitionId, &mut Part)> {
        let marks = self.changed.iter_mut();
        let parts = self.partitions.iter().copied().zip(self.parts.iter_mut().map(AsMut::as_mut));
        marks.zip(parts).filter_map(|(mark, part)| std::mem::take(mark).then_some(part))
    }
    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }
    pub(crate) fn partitions(&self) -> &[PartitionId] {
        &self.partitions
    }
    pub(crate) fn values(&self) -> impl Iterator<Item = &Part> {
        self.parts.iter().map(AsRef::as_ref)
    }
    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut Part> {
        self.parts.iter_mut().map(AsMut::as_mut)
    }
    pub(crate) fn iter(&self) -> impl Iterator<Item = (PartitionId, &Part)> {
        self.partitions.iter().copied().zip(self.values())
    }
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (PartitionId, &mut Part)> {
        self.partitions.iter().copied().zip(self.parts.iter_mut().map(AsMut::as_mut))
    }
    /// The parts of this partition and of later ones.
    pub(crate) fn from(
        &self,
        partition: PartitionId,
    ) -> impl Iterator<Item = (PartitionId, &Part)> {
        let at = self.lower_bound(partition);
        let parts = self.parts[at..].iter().map(AsRef::as_ref);
        self.partitions[at..].iter().copied().zip(parts)
    }
}

impl Index<PartitionId> for Parts {
    type Output = Part;

    fn index(&self, partition: PartitionId) -> &Part {
        self.get(partition).expect("the partition has a part")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use super::*;

    fn check(parts: &Parts, expected: &BTreeMap<PartitionId, u64>) {
        let seen = parts.iter().map(|(partition, part)| (partition, part.tasks));
        assert!(seen.eq(expected.iter().map(|(&partition, &tasks)| (partition, tasks))));
        for partition in (0..64).map(PartitionId) {
            let tasks = parts.get(partition).map(|part| part.tasks);
            assert_eq!(tasks, expected.get(&partition).copied(), "{partition}");
            let from = parts.from(partition).map(|it| it.0);
            assert!(from.eq(expected.range(partition..).map(|it| *it.0)), "from {partition}");
        }
    }

    #[test]
    fn parts_are_found_and_in_order_after_any_inserts_and_removals() {
        let (mut parts, mut expected) = (Parts::default(), BTreeMap::new());
        let mut marks = BTreeSet::new();
        for step in 0..400u64 {
            // The first half mostly adds, the second half mostly removes.
            let random = step.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
            let partition = PartitionId(u32::try_from(random % 64).expect("small"));
            let removes = (random >> 8) % 4 < if step < 200 { 1 } else { 3 };
            if removes {
                let removed = parts.remove(partition).map(|part| part.tasks);
                assert_eq!(removed, expected.remove(&partition));
            } else if (random >> 10).is_multiple_of(2) && !expected.contains_key(&partition) {
                let mut part = Box::<Part>::default();
                part.tasks = step;
                parts.insert(partition, part);
                expected.insert(partition, step);
            } else {
                parts.get_or_default(partition).tasks = step;
                expected.insert(partition, step);
            }
            // A mark stays with its part until it is taken.
            let marked = PartitionId(u32::try_from(random % 7).expect("small"));
            parts.mark_changed(marked);
            marks.insert(marked);
            marks.retain(|partition| expected.contains_key(partition));
            if step % 5 == 0 {
                let taken = parts.take_changed().map(|part| part.0);
                assert!(taken.eq(std::mem::take(&mut marks)));
            }
            check(&parts, &expected);
        }
        assert!(expected.len() < 32, "both forms of the list were in use");
    }
}
