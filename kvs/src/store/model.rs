//! Tests the store against a trivially correct model: clone the state, apply, keep or discard.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use proto::wire::{KvBatch, KvKind, KvOp, KvResult, KvStatus};
use proto::{NodeId, PartitionId};

use crate::{Record, Store, Write, key_partition, make_map};

const PARTITIONS: u32 = 2;

#[derive(Clone, Default)]
struct Model {
    count: BTreeMap<u32, u64>,
    entries: BTreeMap<Vec<u8>, (u64, Vec<u8>)>,
}

impl Model {
    fn apply(&mut self, batch: &KvBatch) -> Vec<KvResult> {
        let before = self.clone();
        let version = self.count.get(&batch.partition).copied().unwrap_or(0) + 1;
        let mut changed = false;
        let mut results = Vec::new();
        for (at, op) in batch.ops.iter().enumerate() {
            let result = self.one(op, version, &mut changed);
            let conflict = result.status() == KvStatus::Conflict;
            results.push(result);
            if conflict {
                *self = before;
                let aborted = KvResult { status: KvStatus::Aborted as i32, ..KvResult::default() };
                let mut all = vec![aborted; batch.ops.len()];
                all[at] = results.swap_remove(at);
                return all;
            }
        }
        if changed {
            self.count.insert(batch.partition, version);
        }
        results
    }

    fn one(&mut self, op: &KvOp, version: u64, changed: &mut bool) -> KvResult {
        let key = op.key.to_vec();
        let old = self.entries.get(&key).cloned();
        let result = |status: KvStatus, entry: Option<&(u64, Vec<u8>)>, value: bool| KvResult {
            status: status as i32,
            version: entry.map_or(0, |entry| entry.0),
            value: entry.filter(|_| value).map_or(Vec::new(), |entry| entry.1.clone()).into(),
        };
        let new = match op.kind() {
            KvKind::Lookup => {
                let status = if old.is_some() { KvStatus::Ok } else { KvStatus::Absent };
                return result(status, old.as_ref(), true);
            }
            KvKind::Remove => {
                *changed |= self.entries.remove(&key).is_some();
                let status = if old.is_some() { KvStatus::Ok } else { KvStatus::Absent };
                return result(status, None, false);
            }
            KvKind::Cas => {
                let expected = (!op.expect_absent).then(|| op.expected.to_vec());
                if expected != old.as_ref().map(|entry| entry.1.clone()) {
                    return result(KvStatus::Conflict, old.as_ref(), true);
                }
                op.value.to_vec()
            }
            KvKind::Append => [old.map_or(Vec::new(), |entry| entry.1), op.value.to_vec()].concat(),
            KvKind::Insert => op.value.to_vec(),
        };
        *changed = true;
        self.entries.insert(key, (version, new));
        KvResult { status: KvStatus::Ok as i32, version, value: Vec::new().into() }
    }
}

fn ops() -> impl Strategy<Value = Vec<KvOp>> {
    let short = || proptest::collection::vec(0u8..2, 0..3);
    let op = (0i32..5, 0u8..6, short(), short(), any::<bool>()).prop_map(
        |(kind, key, value, expected, expect_absent)| KvOp {
            kind,
            key: vec![b'k', key].into(),
            value: value.into(),
            expected: expected.into(),
            expect_absent,
        },
    );
    proptest::collection::vec(op, 0..8)
}

/// Applies the writes to a model of the disk.
fn persist(disk: &mut BTreeMap<(PartitionId, Vec<u8>), Vec<u8>>, writes: Vec<Write>) {
    for write in writes {
        match write.value {
            Some(value) => drop(disk.insert((write.partition, write.key), value)),
            None => drop(disk.remove(&(write.partition, write.key))),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None,
        ..ProptestConfig::default() })]
    #[test]
    fn the_store_does_what_the_model_does(
        steps in proptest::collection::vec((ops(), proptest::bool::weighted(0.1)), 1..24),
    ) {
        let map = Arc::new(make_map(1, 1, PARTITIONS));
        let mut store = Store::new(NodeId(0), map.clone());
        let mut model = Model::default();
        let mut disk = BTreeMap::new();
        for (ops, restart) in steps {
            for partition in 0..PARTITIONS {
                let here = |op: &&KvOp| key_partition(&op.key, PARTITIONS).0 == partition;
                let ops = ops.iter().filter(here).cloned().collect();
                let batch = KvBatch { partition, epoch: 1, ops, number: None };
                let mut writes = Vec::new();
                let results = store.apply(&batch, &mut writes).unwrap();
                prop_assert_eq!(results, model.apply(&batch));
                persist(&mut disk, writes);
            }
            if restart {
                let used = store.used_bytes();
                let records = disk.iter().map(|((partition, key), value)| Record {
                    partition: *partition, key: key.clone(), value: value.clone(),
                });
                store = Store::recover(NodeId(0), map.clone(), records).unwrap();
                prop_assert_eq!(store.used_bytes(), used);
            }
            prop_assert_eq!(store.len(), model.entries.len());
            for (key, (version, value)) in &model.entries {
                let partition = key_partition(key, PARTITIONS);
                let found = store.lookup(partition, key);
                prop_assert_eq!(&found.value[..], &value[..]);
                prop_assert_eq!(found.version, *version);
            }
        }
    }
}
