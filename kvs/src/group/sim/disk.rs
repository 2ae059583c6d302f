//! A simulated disk. At a crash it keeps all synced batches and a random prefix of the others.

use std::collections::{BTreeMap, VecDeque};

use crate::{Record, Write, keys};

#[derive(Debug, Default)]
pub(super) struct Disk {
    records: BTreeMap<Vec<u8>, Vec<u8>>,
    unsynced: VecDeque<(u64, Vec<Write>)>,
}

impl Disk {
    pub(super) fn write(&mut self, number: u64, writes: Vec<Write>) {
        self.unsynced.push_back((number, writes));
    }

    pub(super) fn sync(&mut self, number: u64) {
        while self.unsynced.front().is_some_and(|&(flush, _)| flush <= number) {
            self.keep_one();
        }
    }

    fn keep_one(&mut self) {
        let Some((_, writes)) = self.unsynced.pop_front() else { return };
        for write in writes {
            match write.value {
                Some(value) => self.records.insert(write.key, value),
                None => self.records.remove(&write.key),
            };
        }
    }

    /// A power failure: the first `kept` unsynced batches survive.
    pub(super) fn lose(&mut self, kept: usize) {
        (0..kept).for_each(|_| self.keep_one());
        self.unsynced.clear();
    }

    pub(super) fn records(&self) -> Vec<Record> {
        assert!(self.unsynced.is_empty(), "read at a start only");
        let partition = keys::META_PARTITION;
        let record = |(key, value): (&Vec<u8>, &Vec<u8>)| Record {
            partition,
            key: key.clone(),
            value: value.clone(),
        };
        self.records.iter().map(record).collect()
    }
}
