//! The latest changes of all copies of a node, for others that lag a little. Each partition has a
//! bound, and all of them together have one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use proto::PartitionId;
use proto::limits::{
    COPY_RECENT_BYTES, COPY_RECENT_BYTES_ALL, COPY_RECENT_CHANGES, COPY_RECENT_CHANGES_ALL,
};
use proto::wire;

#[derive(Debug, Default)]
pub(super) struct Recent {
    of: BTreeMap<PartitionId, Changes>,
    /// All in the order in which they came, and some that have gone already.
    order: VecDeque<(PartitionId, u64)>,
    /// The number of the last one.
    last: u64,
    bytes: usize,
}

/// Of one partition, without gap.
#[derive(Debug, Default)]
struct Changes {
    all: VecDeque<(u64, Arc<wire::Change>)>,
    bytes: usize,
}

impl Recent {
    pub(super) fn add(&mut self, partition: PartitionId, change: Arc<wire::Change>) {
        self.last += 1;
        let bytes = cost(&change);
        let changes = self.of.entry(partition).or_default();
        changes.all.push_back((self.last, change));
        changes.bytes += bytes;
        self.bytes += bytes;
        self.order.push_back((partition, self.last));
        while changes.all.len() > COPY_RECENT_CHANGES || changes.bytes > COPY_RECENT_BYTES {
            self.bytes -= changes.drop_oldest();
        }
        while self.bytes > COPY_RECENT_BYTES_ALL || self.order.len() > COPY_RECENT_CHANGES_ALL {
            self.drop_oldest();
        }
    }

    fn drop_oldest(&mut self) {
        let Some((partition, number)) = self.order.pop_front() else { return };
        let Some(changes) = self.of.get_mut(&partition) else { return };
        if changes.all.front().is_some_and(|(oldest, _)| *oldest == number) {
            self.bytes -= changes.drop_oldest();
        }
        if changes.all.is_empty() {
            self.of.remove(&partition);
        }
    }

    pub(super) fn forget(&mut self, partition: PartitionId) {
        self.bytes -= self.of.remove(&partition).map_or(0, |changes| changes.bytes);
    }

    /// Those of a partition from the first that fits on.
    pub(super) fn since(
        &self,
        partition: PartitionId,
        fits: impl Fn(&wire::Change) -> bool,
    ) -> Option<Vec<Arc<wire::Change>>> {
        let all = &self.of.get(&partition)?.all;
        let at = all.iter().position(|(_, change)| fits(change))?;
        Some(all.range(at..).map(|(_, change)| Arc::clone(change)).collect())
    }
}

impl Changes {
    /// Its bytes; the oldest of an empty one has none.
    fn drop_oldest(&mut self) -> usize {
        let bytes = self.all.pop_front().map_or(0, |(_, change)| cost(&change));
        self.bytes -= bytes;
        bytes
    }
}

/// What a change takes in memory.
fn cost(change: &wire::Change) -> usize {
    let writes = change.writes.capacity() * size_of::<wire::RecordWrite>();
    size_of::<wire::Change>() + writes + payload(change)
}

fn payload(change: &wire::Change) -> usize {
    change.writes.iter().map(|write| write.key.len() + write.value.len()).sum()
}

/// The same in memory of its own. What came in a packet refers to the bytes of that, which stay as
/// long as any part of them is kept.
pub(super) fn of_its_own(change: &wire::Change) -> Arc<wire::Change> {
    let mut bytes = Vec::with_capacity(payload(change));
    for write in &change.writes {
        bytes.extend_from_slice(&write.key);
        bytes.extend_from_slice(&write.value);
    }
    let mut left = Bytes::from(bytes);
    let copied = change.writes.iter().map(|write| wire::RecordWrite {
        key: left.split_to(write.key.len()),
        value: left.split_to(write.value.len()),
        removed: write.removed,
    });
    let writes = copied.collect();
    let wire::Change { partition, epoch, before, after, fill, .. } = *change;
    Arc::new(wire::Change { partition, epoch, before, after, fill, writes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(value: &Bytes) -> wire::Change {
        let write = |value| wire::RecordWrite { key: "k".into(), value, removed: false };
        let writes = vec![write(value.slice(..8)), write(Bytes::new()), write(value.slice(8..))];
        wire::Change { writes, epoch: 3, ..wire::Change::default() }
    }

    #[test]
    fn what_is_kept_of_a_packet_does_not_keep_the_packet() {
        let packet = Bytes::from(vec![7; 1000]);
        let came = change(&packet.slice(10..30));
        let kept = of_its_own(&came);
        assert_eq!(*kept, came);
        drop(came);
        assert!(packet.is_unique());
    }

    #[test]
    fn all_partitions_together_have_a_bound_and_the_oldest_go_first() {
        let value = Bytes::from(vec![7; COPY_RECENT_BYTES / 4]);
        let mut recent = Recent::default();
        let number = (2 * COPY_RECENT_BYTES_ALL / value.len()) as u32;
        for partition in 0..number {
            recent.add(PartitionId(partition), Arc::new(change(&value)));
            assert!(recent.bytes <= COPY_RECENT_BYTES_ALL);
        }
        let has = |recent: &Recent, partition| {
            recent.since(PartitionId(partition), |_| true).is_some_and(|found| found.len() == 1)
        };
        assert!(has(&recent, number - 1) && has(&recent, number * 2 / 3) && !has(&recent, 0));
        recent.forget(PartitionId(number - 1));
        assert!(!has(&recent, number - 1));
        // Small ones of one partition: what is old of the others goes, and the list stays short.
        for _ in 0..2 * COPY_RECENT_CHANGES_ALL {
            recent.add(PartitionId(0), Arc::new(change(&value.slice(..20))));
            assert!(recent.order.len() <= COPY_RECENT_CHANGES_ALL);
        }
        assert_eq!(recent.of.len(), 1);
        assert_eq!(recent.bytes, recent.of[&PartitionId(0)].bytes);
        assert_eq!(recent.of[&PartitionId(0)].all.len(), COPY_RECENT_CHANGES);
    }
}
