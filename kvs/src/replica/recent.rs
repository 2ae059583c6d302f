//! Cache of the latest changes of all replicas of a node, for replicas that lag a little. Its size
//! is bounded per partition and in total.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use proto::PartitionId;

use crate::limits::{COPY_RECENT_BYTES, COPY_RECENT_CHANGES};
use proto::wire;

/// The number and bytes of changes that all replicas of a node together keep in memory for others.
const COPY_RECENT_CHANGES_ALL: usize = 1 << 16;
const COPY_RECENT_BYTES_ALL: usize = 16 << 20;

#[derive(Debug, Default)]
pub(super) struct Recent {
    of: BTreeMap<PartitionId, Changes>,
    /// All kept changes in order of arrival. At most half of the items refer to dropped changes.
    order: VecDeque<(PartitionId, u64)>,
    /// The number of the last change.
    last: u64,
    bytes: usize,
    /// The number of kept changes.
    count: usize,
}

/// The consecutive changes of one partition.
#[derive(Debug, Default)]
struct Changes {
    all: VecDeque<(u64, Arc<wire::Change>)>,
    bytes: usize,
}

impl Recent {
    pub(super) fn add(&mut self, partition: PartitionId, change: Arc<wire::Change>) {
        if !is_kept(&change) {
            return self.forget(partition);
        }
        let bytes = cost(&change);
        self.last += 1;
        let changes = self.of.entry(partition).or_default();
        changes.all.push_back((self.last, change));
        changes.bytes += bytes;
        self.bytes += bytes;
        self.count += 1;
        self.order.push_back((partition, self.last));
        while changes.all.len() > COPY_RECENT_CHANGES || changes.bytes > COPY_RECENT_BYTES {
            self.bytes -= changes.drop_oldest();
            self.count -= 1;
        }
        while self.bytes > COPY_RECENT_BYTES_ALL || self.count > COPY_RECENT_CHANGES_ALL {
            self.drop_oldest();
        }
        if self.order.len() > 2 * self.count {
            self.forget_order_of_gone();
        }
    }

    fn drop_oldest(&mut self) {
        let Some((partition, number)) = self.order.pop_front() else { return };
        let Some(changes) = self.of.get_mut(&partition) else { return };
        if changes.all.front().is_some_and(|(oldest, _)| *oldest == number) {
            self.bytes -= changes.drop_oldest();
            self.count -= 1;
        }
        if changes.all.is_empty() {
            self.of.remove(&partition);
        }
    }

    pub(super) fn forget(&mut self, partition: PartitionId) {
        let Some(changes) = self.of.remove(&partition) else { return };
        self.bytes -= changes.bytes;
        self.count -= changes.all.len();
    }

    fn forget_order_of_gone(&mut self) {
        let of = &self.of;
        self.order.retain(|(partition, number)| {
            let oldest = of.get(partition).and_then(|changes| changes.all.front());
            oldest.is_some_and(|(oldest, _)| oldest <= number)
        });
    }

    /// The changes of a partition from the first one on for which `fits` holds.
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
    /// Returns the bytes of the dropped change; 0 if there is none.
    fn drop_oldest(&mut self) -> usize {
        let bytes = self.all.pop_front().map_or(0, |(_, change)| cost(&change));
        self.bytes -= bytes;
        bytes
    }
}

/// The memory that a change takes.
fn cost(change: &wire::Change) -> usize {
    let writes = change.writes.capacity() * size_of::<wire::RecordWrite>();
    size_of::<wire::Change>() + writes + payload(change)
}

fn payload(change: &wire::Change) -> usize {
    change.writes.iter().map(|write| write.key.len() + write.value.len()).sum()
}

/// True if the change is small enough to be kept.
pub(super) fn is_kept(change: &wire::Change) -> bool {
    cost(change) <= COPY_RECENT_BYTES
}

/// Copies a change into memory of its own. The bytes of a received change belong to its packet, and
/// would keep the whole packet allocated.
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
    let wire::Change { partition, epoch, before, after, snapshot_chunk, .. } = *change;
    Arc::new(wire::Change { partition, epoch, before, after, snapshot_chunk, writes })
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
    }

    #[test]
    fn many_changes_of_one_partition_leave_those_of_others() {
        let value = Bytes::from(vec![7; 20]);
        let mut recent = Recent::default();
        for partition in 1..100 {
            recent.add(PartitionId(partition), Arc::new(change(&value)));
        }
        for _ in 0..2 * COPY_RECENT_CHANGES_ALL {
            recent.add(PartitionId(0), Arc::new(change(&value)));
            assert!(recent.order.len() <= 2 * recent.count);
        }
        assert_eq!((recent.of.len(), recent.count), (100, 99 + COPY_RECENT_CHANGES));
        let sum: usize = recent.of.values().map(|changes| changes.bytes).sum();
        assert_eq!(recent.bytes, sum);
        // A change that is too large drops all earlier ones.
        let large = Bytes::from(vec![7; 2 * COPY_RECENT_BYTES]);
        recent.add(PartitionId(0), Arc::new(change(&large)));
        assert!(recent.since(PartitionId(0), |_| true).is_none());
        assert_eq!(recent.count, 99);
    }
}
