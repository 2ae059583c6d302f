//! Atomic write batches, stored records and pages of records: the interface between the pure crates
//! and the node's disk.

use proto::PartitionId;

/// One write to one partition. `key` begins with a namespace byte (see [`crate::keys`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    pub partition: PartitionId,
    pub key: Vec<u8>,
    /// `None` removes the key. For the key of a whole job ([`crate::keys::is_whole_job`]) it
    /// removes all records of that job.
    pub value: Option<Vec<u8>>,
}

/// All writes of one step. The log stores all of them or none.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    /// Grows by one with each batch of an incarnation.
    pub seq: u64,
    /// Partitions that lose all their records before `writes` are applied.
    pub cleared: Vec<PartitionId>,
    pub writes: Vec<Write>,
}

impl Batch {
    /// Deletes all records of a partition, and drops the pending writes to it from this batch.
    pub fn clear(&mut self, partition: PartitionId) {
        self.writes.retain(|write| write.partition != partition);
        if !self.cleared.contains(&partition) {
            self.cleared.push(partition);
        }
    }

    /// Merges the next batch into this one, so that both are one atomic write.
    ///
    /// # Panics
    /// When `later` does not have a higher `seq`.
    pub fn absorb(&mut self, later: Self) {
        assert!(later.seq > self.seq, "batches come in order");
        self.seq = later.seq;
        if !later.cleared.is_empty() {
            self.writes.retain(|write| !later.cleared.contains(&write.partition));
            self.cleared.extend(later.cleared);
        }
        self.writes.extend(later.writes);
    }
}

/// A stored record. Recovery reads records ordered by partition, then by key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    pub partition: PartitionId,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// A request for records of a partition in key order: those after `after`, or from the first one.
///
/// The page reflects all batches written before the request, and may include later ones.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageRequest {
    pub partition: PartitionId,
    pub after: Option<Vec<u8>>,
    /// A page ends with the first record that exceeds this size. It holds at least one record if
    /// there is one.
    pub bytes: usize,
    /// Returned with the page.
    pub number: u64,
}

/// The answer to a [`PageRequest`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    pub partition: PartitionId,
    pub number: u64,
    pub records: Vec<Record>,
    /// No record follows this page.
    pub end: bool,
}

impl Page {
    /// Fills a page from an iterator over the records that follow the requested key.
    pub fn fill<E>(
        request: &PageRequest,
        records: impl Iterator<Item = Result<Record, E>>,
    ) -> Result<Self, E> {
        let mut page = Self {
            partition: request.partition,
            number: request.number,
            records: Vec::new(),
            end: true,
        };
        let mut bytes = 0;
        for record in records {
            if bytes > request.bytes {
                page.end = false;
                break;
            }
            let record = record?;
            bytes += record.key.len() + record.value.len();
            page.records.push(record);
        }
        Ok(page)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_cleared_takes_the_writes_before_it_along() {
        let write = |partition, key: &str| Write {
            partition: PartitionId(partition),
            key: key.as_bytes().to_vec(),
            value: Some(Vec::new()),
        };
        let mut batch = Batch { seq: 4, cleared: Vec::new(), writes: vec![write(1, "a")] };
        batch.writes.push(write(2, "b"));
        let writes = vec![write(1, "c")];
        batch.absorb(Batch { seq: 5, cleared: vec![PartitionId(1)], writes });
        let expected = Batch {
            seq: 5,
            cleared: vec![PartitionId(1)],
            writes: vec![write(2, "b"), write(1, "c")],
        };
        assert_eq!(batch, expected);
    }
}
