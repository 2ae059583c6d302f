//! The parts of a job at one home, in the order of their partitions.
//!
//! A home has a thousand parts of a large job, and each event of a task looks its part up several
//! times. The partitions stand in one array, so a look-up is a binary search within 4 KiB. Most
//! parts arrive in order, and are appended.

use std::ops::Index;

use proto::PartitionId;

use super::Part;

#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// Ascending.
    partitions: Vec<PartitionId>,
    parts: Vec<Box<Part>>,
}

impl Parts {
    fn place(&self, partition: PartitionId) -> Result<usize, usize> {
        match self.partitions.last() {
            Some(&last) if last < partition => Err(self.partitions.len()),
            _ => self.partitions.binary_search(&partition),
        }
    }
    pub(crate) fn get(&self, partition: PartitionId) -> Option<&Part> {
        let at = self.place(partition).ok()?;
        self.parts.get(at).map(AsRef::as_ref)
    }
    pub(crate) fn get_mut(&mut self, partition: PartitionId) -> Option<&mut Part> {
        let at = self.place(partition).ok()?;
        self.parts.get_mut(at).map(AsMut::as_mut)
    }
    pub(crate) fn get_or_default(&mut self, partition: PartitionId) -> &mut Part {
        let at = self.place(partition).unwrap_or_else(|at| {
            self.add(at, partition, Box::default());
            at
        });
        &mut self.parts[at]
    }
    pub(crate) fn contains(&self, partition: PartitionId) -> bool {
        self.place(partition).is_ok()
    }
    /// Adds a part of a partition that has none yet.
    pub(crate) fn insert(&mut self, partition: PartitionId, part: Box<Part>) {
        let at = self.place(partition).expect_err("the partition has no part yet");
        self.add(at, partition, part);
    }
    fn add(&mut self, at: usize, partition: PartitionId, part: Box<Part>) {
        self.partitions.insert(at, partition);
        self.parts.insert(at, part);
    }
    pub(crate) fn remove(&mut self, partition: PartitionId) -> Option<Box<Part>> {
        let at = self.place(partition).ok()?;
        self.partitions.remove(at);
        Some(self.parts.remove(at))
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
    pub(crate) fn from(&self, partition: PartitionId) -> impl Iterator<Item = (PartitionId, &Part)> {
        let at = self.place(partition).unwrap_or_else(|at| at);
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
    use super::*;

    #[test]
    fn parts_are_found_and_in_order_whatever_order_they_come_in() {
        let mut parts = Parts::default();
        for partition in [5, 1, 9, 3, 7].map(PartitionId) {
            parts.get_or_default(partition).tasks = u64::from(partition.0);
        }
        parts.get_or_default(PartitionId(3)).open = 1;
        assert_eq!(parts.partitions(), [1, 3, 5, 7, 9].map(PartitionId));
        assert!(parts.iter().all(|(partition, part)| u64::from(partition.0) == part.tasks));
        assert_eq!((parts[PartitionId(3)].open, parts.get(PartitionId(4)).is_some()), (1, false));
        let from = |first| parts.from(PartitionId(first)).map(|it| it.0.0).collect::<Vec<_>>();
        assert_eq!((from(4), from(9), from(10)), (vec![5, 7, 9], vec![9], vec![]));
        assert_eq!(parts.remove(PartitionId(5)).map(|part| part.tasks), Some(5));
        assert!(parts.remove(PartitionId(5)).is_none() && !parts.contains(PartitionId(5)));
        parts.insert(PartitionId(6), Box::default());
        assert_eq!(parts.partitions(), [1, 3, 6, 7, 9].map(PartitionId));
    }
}
