//! What one step of a node writes, atomically.

use proto::PartitionId;

/// One write to one partition. `key` begins with a namespace byte (see [`crate::keys`]).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    pub partition: PartitionId,
    pub key: Vec<u8>,
    /// `None` removes the key; of a whole job ([`crate::keys::is_whole_job`]), its records.
    pub value: Option<Vec<u8>>,
}

/// All writes of one step. They reach the log together or not at all.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Batch {
    /// Grows by one with each batch of an incarnation.
    pub seq: u64,
    /// Partitions of which every record goes before anything of this batch is written.
    pub cleared: Vec<PartitionId>,
    pub writes: Vec<Write>,
}

impl Batch {
    /// All records of a partition go, those that this batch was about to write among them.
    pub fn clear(&mut self, partition: PartitionId) {
        self.writes.retain(|write| write.partition != partition);
        if !self.cleared.contains(&partition) {
            self.cleared.push(partition);
        }
    }

    /// Takes in the batch after this one: both together are one write.
    ///
    /// # Panics
    /// When the other is not a later one.
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

/// A stored record, as recovery reads it: by partition, then by key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Record {
    pub partition: PartitionId,
    pub key: Vec<u8>,
    pub value: Vec<u8>,
}

/// Some records of a partition, in the order of keys: those after a key, or from the first on.
///
/// What is read is what the batches before the request left; later ones may be in it as well.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PageRequest {
    pub partition: PartitionId,
    pub after: Option<Vec<u8>>,
    /// A page ends with the first record that takes it over this size; one is always in it.
    pub bytes: usize,
    /// Comes back with the page.
    pub number: u64,
}

/// What a [`PageRequest`] is answered with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    pub partition: PartitionId,
    pub number: u64,
    pub records: Vec<Record>,
    /// No record follows.
    pub end: bool,
}

impl Page {
    /// Fills a page from the records that follow the key asked for.
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
