use proto::limits::{CHUNK_BYTES_MAX, KV_REPLY_BYTES_MAX};
use proto::wire::{ErrorCode, KvBatch, KvKind, KvOp, KvResult, KvStatus};

use super::*;
use crate::make_map;

fn store() -> Store {
    Store::new(NodeId(0), Arc::new(make_map(1, 1, 1)))
}

fn op(kind: KvKind, key: &str, value: &str) -> KvOp {
    let (key, value) = (key.to_owned().into(), value.to_owned().into());
    KvOp { kind: kind as i32, key, value, ..KvOp::default() }
}

fn cas(key: &str, expected: Option<&str>, value: &str) -> KvOp {
    KvOp {
        expected: expected.unwrap_or_default().to_owned().into(),
        expect_absent: expected.is_none(),
        ..op(KvKind::Cas, key, value)
    }
}

fn batch(ops: Vec<KvOp>) -> KvBatch {
    KvBatch { partition: 0, epoch: 1, ops, number: None }
}

fn apply(store: &mut Store, ops: Vec<KvOp>) -> Vec<KvResult> {
    store.apply(&batch(ops), &mut Vec::new()).unwrap()
}

fn refused(store: &mut Store, batch: &KvBatch) -> StoreError {
    let mut writes = Vec::new();
    let error = store.apply(batch, &mut writes).unwrap_err();
    assert!(writes.is_empty(), "a refused batch writes nothing");
    error
}

#[test]
fn a_failing_cas_undoes_its_batch() {
    let mut store = store();
    apply(&mut store, vec![op(KvKind::Insert, "a", "1"), op(KvKind::Insert, "b", "1")]);
    let mut writes = Vec::new();
    let ops = vec![
        op(KvKind::Remove, "a", ""),
        op(KvKind::Insert, "a", "2"),
        op(KvKind::Append, "c", "new"),
        cas("b", Some("other"), "2"),
        op(KvKind::Remove, "b", ""),
    ];
    let results = store.apply(&batch(ops), &mut writes).unwrap();
    let statuses: Vec<_> = results.iter().map(KvResult::status).collect();
    use KvStatus::{Aborted, Conflict};
    assert_eq!(statuses, [Aborted, Aborted, Aborted, Conflict, Aborted]);
    assert_eq!((&results[3].value[..], results[3].version), (&b"1"[..], 1));
    assert_eq!(writes, []);
    assert_eq!(&store.lookup(PartitionId(0), b"a").value[..], b"1");
    assert_eq!((store.len(), store.version(PartitionId(0), b"a")), (2, 1));
}

#[test]
fn cas_creates_only_what_is_absent() {
    let mut store = store();
    assert_eq!(apply(&mut store, vec![cas("a", None, "1")])[0].status(), KvStatus::Ok);
    assert_eq!(apply(&mut store, vec![cas("a", None, "2")])[0].status(), KvStatus::Conflict);
    assert_eq!(apply(&mut store, vec![cas("z", Some(""), "2")])[0].status(), KvStatus::Conflict);
    assert_eq!(apply(&mut store, vec![cas("a", Some("1"), "2")])[0].version, 2);
}

#[test]
fn a_watcher_sees_every_last_state_across_removal_and_restart() {
    let mut store = store();
    let partition = PartitionId(0);
    assert_eq!(store.changed_since(partition, b"a", 0), None);
    apply(&mut store, vec![op(KvKind::Insert, "a", "1")]);
    assert_eq!(store.changed_since(partition, b"a", 0).unwrap().version, 1);
    assert_eq!(store.changed_since(partition, b"a", 1), None);
    let mut writes = Vec::new();
    store.apply(&batch(vec![op(KvKind::Remove, "a", "")]), &mut writes).unwrap();
    let gone = store.changed_since(partition, b"a", 1).unwrap();
    assert_eq!((gone.status(), gone.version), (KvStatus::Absent, 0));
    // The key's own record is deleted, but the partition's count must continue.
    let records: Vec<_> = writes
        .into_iter()
        .filter_map(|w| Some(Record { partition: w.partition, key: w.key, value: w.value? }))
        .collect();
    let mut store = Store::recover(NodeId(0), Arc::new(make_map(1, 1, 1)), records).unwrap();
    assert_eq!(apply(&mut store, vec![op(KvKind::Insert, "a", "1")])[0].version, 3);
    assert!(store.changed_since(partition, b"a", 1).is_some());
}

#[test]
fn the_wrong_node_and_the_wrong_epoch_are_told_so() {
    let map = make_map(1, 2, 2);
    let theirs = crate::partitions_by_node(&map)[1][0];
    let mut store = Store::new(NodeId(0), Arc::new(map.clone()));
    let request = KvBatch { partition: theirs.0, epoch: 1, ops: vec![], number: None };
    assert_eq!(refused(&mut store, &request).code(), ErrorCode::WrongEpoch);

    let mut newer = map;
    newer.partitions[theirs.0 as usize].replicas = vec![0];
    newer.partitions[theirs.0 as usize].epoch = 2;
    store.set_map(Arc::new(newer));
    let stale = StoreError::WrongEpoch { partition: theirs, told: 1, current: 2 };
    assert_eq!(refused(&mut store, &request), stale);
    assert_eq!(store.apply(&KvBatch { epoch: 2, ..request }, &mut Vec::new()), Ok(vec![]));
    let nowhere = KvBatch { partition: 2, epoch: 1, ops: vec![], number: None };
    assert_eq!(
        refused(&mut store, &nowhere),
        StoreError::NoPartition { partition: PartitionId(2) }
    );
}

#[test]
fn batches_beyond_a_limit_are_refused_whole() {
    use KvKind::Insert;
    let mut store = store();
    let one = |second| batch(vec![op(Insert, "first", "1"), second]);
    let refused = |store: &mut Store, op| refused(store, &one(op));
    assert_eq!(refused(&mut store, op(Insert, "", "")), StoreError::EmptyKey { at: 1 });
    let long = "k".repeat(KEY_BYTES_MAX + 1);
    let too_long = StoreError::KeyTooLong { at: 1, bytes: KEY_BYTES_MAX + 1 };
    assert_eq!(refused(&mut store, op(Insert, &long, "")), too_long);
    let fat = "v".repeat(VALUE_BYTES_MAX + 1);
    let too_fat = StoreError::ValueTooLong { at: 1, bytes: VALUE_BYTES_MAX + 1 };
    assert_eq!(refused(&mut store, op(Insert, "k", &fat)), too_fat);
    assert_eq!(refused(&mut store, cas("k", Some(&fat), "")), too_fat);
    let unknown = KvOp { kind: 77, ..op(Insert, "k", "") };
    assert_eq!(refused(&mut store, unknown), StoreError::UnknownKind { at: 1, kind: 77 });
    let many = batch(vec![op(KvKind::Lookup, "k", ""); KV_OPS_MAX + 1]);
    assert_eq!(self::refused(&mut store, &many), StoreError::TooManyOps { ops: KV_OPS_MAX + 1 });
    assert!(store.is_empty());
    assert_eq!(store.used_bytes(), 0);
}

#[test]
fn values_that_grow_and_answers_that_add_up_meet_their_limit() {
    let mut store = store();
    let half = "v".repeat(VALUE_BYTES_MAX / 2);
    apply(&mut store, vec![op(KvKind::Append, "k", &half), op(KvKind::Append, "k", &half)]);
    let more = batch(vec![op(KvKind::Insert, "x", "1"), op(KvKind::Append, "k", "v")]);
    assert_eq!(
        refused(&mut store, &more),
        StoreError::ValueTooLong { at: 1, bytes: VALUE_BYTES_MAX + 1 }
    );
    let lookups = batch(vec![op(KvKind::Lookup, "k", ""); 2]);
    const { assert!(2 * VALUE_BYTES_MAX > KV_REPLY_BYTES_MAX) };
    assert_eq!(refused(&mut store, &lookups), StoreError::ReplyTooLong { at: 1 });
    assert_eq!(store.len(), 1);
}

#[test]
fn many_appends_to_one_key_are_linear_and_written_once() {
    let mut store = store();
    apply(&mut store, vec![op(KvKind::Insert, "log", &"x".repeat(CHUNK_BYTES_MAX))]);
    let mut writes = Vec::new();
    // If each append copied the value, this test would move 256 GiB.
    let ops = vec![op(KvKind::Append, "log", "y"); KV_OPS_MAX];
    store.apply(&batch(ops), &mut writes).unwrap();
    assert_eq!(writes.len(), 1);
    let bytes = CHUNK_BYTES_MAX + KV_OPS_MAX;
    assert_eq!(writes[0].value.as_ref().map(Vec::len), Some(8 + bytes));
    assert_eq!(store.lookup(PartitionId(0), b"log").value.len(), bytes);
}

#[test]
fn a_key_touched_often_is_written_once() {
    let mut store = store();
    let mut ops = Vec::new();
    for _ in 0..100 {
        ops.push(op(KvKind::Insert, "k", "short"));
        ops.push(op(KvKind::Remove, "k", ""));
    }
    ops.push(op(KvKind::Insert, "k", "last"));
    let mut writes = Vec::new();
    store.apply(&batch(ops), &mut writes).unwrap();
    let keys: Vec<_> = writes.iter().map(|write| &write.key[..]).collect();
    assert_eq!(keys, [&b"u"[..], b"uk"]);
}

#[test]
fn a_full_node_refuses_growth_and_lets_keys_go() {
    let mut store = store().with_budget(300);
    apply(&mut store, vec![op(KvKind::Insert, "a", &"v".repeat(150))]);
    let more = batch(vec![op(KvKind::Remove, "zz", ""), op(KvKind::Insert, "b", "v")]);
    assert!(matches!(refused(&mut store, &more), StoreError::Full { left_bytes: 53 }));
    apply(&mut store, vec![op(KvKind::Insert, "a", "")]);
    assert_eq!(apply(&mut store, more.ops)[1].status(), KvStatus::Ok);
    apply(&mut store, vec![op(KvKind::Remove, "a", ""), op(KvKind::Remove, "b", "")]);
    assert_eq!(store.used_bytes(), 0);
}

#[test]
fn damaged_records_are_never_skipped() {
    let load = |partition, key: &[u8], value: &[u8]| {
        let record =
            Record { partition: PartitionId(partition), key: key.to_vec(), value: value.to_vec() };
        Store::recover(NodeId(0), Arc::new(make_map(1, 1, 2)), [record]).map(|store| store.len())
    };
    let one = 1u64.to_le_bytes();
    let home = key_partition(b"k", 2).0;
    assert_eq!(load(home, b"uk", &one), Ok(1));
    assert_eq!(load(home, b"tk", b""), Ok(0));
    let reason = |result: Result<usize, DamagedRecord>| result.unwrap_err().reason;
    assert_eq!(reason(load(home, b"uk", &one[..7])), "it has no version");
    assert_eq!(reason(load(home, b"uk", &[0; 8])), "its version is 0");
    assert_eq!(reason(load(1 - home, b"uk", &one)), "its key belongs to another partition");
    assert_eq!(reason(load(2, b"uk", &one)), "the cluster has no such partition");
    assert_eq!(reason(load(home, b"u", &[1; 9])), "the count has a value");
}
