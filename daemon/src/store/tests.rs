use std::fs;

use kvs::Write;

use super::*;

fn write(partition: u32, key: &str, value: Option<&[u8]>) -> Write {
    Write {
        partition: PartitionId(partition),
        key: key.as_bytes().to_vec(),
        value: value.map(<[u8]>::to_vec),
    }
}

fn contents(store: &RocksStore) -> Vec<(u32, Vec<u8>, Vec<u8>)> {
    store.records().map(|r| r.map(|r| (r.partition.0, r.key, r.value)).unwrap()).collect()
}

fn the_log(dir: &Path) -> PathBuf {
    let is_log = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "log");
    let mut logs: Vec<_> =
        fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).filter(is_log).collect();
    logs.sort();
    logs.pop().unwrap()
}

/// A copy of the files as they are, like those after a crash of the process.
fn copied(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

#[test]
fn records_come_back_in_order_with_the_last_batch() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, last_seq) = RocksStore::open(dir.path()).unwrap();
    assert_eq!((last_seq, contents(&store).len()), (0, 0));
    let first = [write(256, "a", Some(b"1")), write(1, "b", Some(b"")), write(1, "a", Some(b"3"))];
    store.write(&Batch { seq: 5, cleared: Vec::new(), writes: first.to_vec() }).unwrap();
    let second = [write(1, "b", None), write(1, "c", Some(b"x")), write(1, "c", Some(b"y"))];
    store.write(&Batch { seq: 6, cleared: Vec::new(), writes: second.to_vec() }).unwrap();
    assert_eq!(store.syncer().sync(), Ok(6));
    drop(store);
    let (store, last_seq) = RocksStore::open(dir.path()).unwrap();
    assert_eq!(last_seq, 6);
    assert_eq!(store.sync(), Ok(0), "a number of an earlier opening is none of this one");
    let expected = [(1, "a", "3"), (1, "c", "y"), (256, "a", "1")];
    assert_eq!(contents(&store), expected.map(|(p, k, v)| (p, k.into(), v.into())));
}

/// A node's promises are stored like all records, but under no partition.
#[test]
fn records_of_the_node_itself_come_back() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = RocksStore::open(dir.path()).unwrap();
    let own = write(keys::META_PARTITION.0, "mg", Some(b"promise"));
    let writes = vec![write(7, "a", Some(b"1")), own];
    store.write(&Batch { seq: 3, cleared: Vec::new(), writes }).unwrap();
    drop(store);
    let (store, last_seq) = RocksStore::open(dir.path()).unwrap();
    let own = (keys::META_PARTITION.0, b"mg".to_vec(), b"promise".to_vec());
    assert_eq!((last_seq, contents(&store).last()), (3, Some(&own)));
    assert_eq!(contents(&store).len(), 2, "the number of the last batch is no record");
}

#[test]
fn a_prefix_is_removed_from_its_partition_only() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = RocksStore::open(dir.path()).unwrap();
    let writes = [1, 2].map(|p| ["a", "ab", "ac\u{7f}", "b"].map(|k| write(p, k, Some(b""))));
    store.write(&Batch { seq: 1, cleared: Vec::new(), writes: writes.concat() }).unwrap();
    store.remove_prefix(PartitionId(1), b"a").unwrap();
    assert_eq!(contents(&store).len(), 5);
    store.remove_prefix(PartitionId(2), b"").unwrap();
    assert_eq!(contents(&store), [(1, b"b".to_vec(), vec![])]);
}

#[test]
fn a_second_opener_gets_an_in_use_error() {
    let dir = tempfile::tempdir().unwrap();
    let (_store, _) = RocksStore::open(dir.path()).unwrap();
    let error = RocksStore::open(dir.path()).unwrap_err();
    assert_eq!(error, StoreError::InUse { path: dir.path().to_owned() });
}

#[test]
fn a_path_that_cannot_be_a_directory_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    let error = RocksStore::open(file.join("db")).unwrap_err();
    assert!(matches!(error, StoreError::Failed { .. }), "{error}");
}

#[test]
fn operating_errors_are_distinguished() {
    let io = |number| from_io(Path::new("/d"), &std::io::Error::from_raw_os_error(number));
    let path = PathBuf::from("/d");
    assert_eq!(io(28), StoreError::NoSpace { path: path.clone() });
    assert!(matches!(io(24), StoreError::NoFiles { .. }) && !io(24).is_loss());
    assert!(matches!(io(13), StoreError::NoPermission { .. }));
    assert!(matches!(io(30), StoreError::NoPermission { .. }));
    assert!(matches!(io(5), StoreError::Failed { .. }));
}

#[test]
fn damage_inside_the_log_is_never_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = RocksStore::open(dir.path().join("db")).unwrap();
    let mut ends = Vec::new();
    for seq in 1..=3 {
        let value = vec![b'v'; 1000];
        store
            .write(&Batch { seq, cleared: Vec::new(), writes: vec![write(1, "k", Some(&value))] })
            .unwrap();
        ends.push(fs::metadata(the_log(&dir.path().join("db"))).unwrap().len());
    }
    let after = |name: &str, change: &dyn Fn(&mut Vec<u8>)| {
        let copy = dir.path().join(name);
        copied(&dir.path().join("db"), &copy);
        let log = the_log(&copy);
        let mut bytes = fs::read(&log).unwrap();
        change(&mut bytes);
        fs::write(log, bytes).unwrap();
        RocksStore::open(copy).map(|(_, last_seq)| last_seq)
    };
    assert_eq!(after("whole", &|_| ()), Ok(3));
    assert_eq!(after("cut", &|log| log.truncate(ends[1] as usize + 200)), Ok(2));
    let flipped = after("flipped", &|log| log[ends[0] as usize + 200] ^= 1);
    assert!(matches!(flipped, Err(StoreError::Damaged { .. })), "{flipped:?}");
}

/// A wrong bit in its kind makes a record look like one of a recycled log. RocksDB alone would read
/// it in an endless loop.
#[test]
fn a_record_of_a_recycled_log_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = RocksStore::open(dir.path()).unwrap();
    for seq in 1..=3 {
        let writes = vec![write(1, &format!("key-{seq}"), Some(&[7; 20_000]))];
        store.write(&Batch { seq, cleared: Vec::new(), writes }).unwrap();
    }
    store.sync().unwrap();
    let log = the_log(dir.path());
    let whole = fs::read(&log).unwrap();
    let second = 7 + usize::from(u16::from_le_bytes([whole[4], whole[5]]));
    for (record, kind) in [(0, 1), (second, 2), (32 << 10, 4)] {
        let copy = tempfile::tempdir().unwrap();
        copied(dir.path(), copy.path());
        let mut bytes = whole.clone();
        assert_eq!(bytes[record + 6], kind, "whole, first and last part of a record");
        bytes[record + 6] = kind + 4;
        fs::write(copy.path().join(log.file_name().unwrap()), bytes).unwrap();
        let error = RocksStore::open(copy.path()).unwrap_err();
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains(&format!("at byte {record}")), "{error}");
    }
    let copy = tempfile::tempdir().unwrap();
    copied(dir.path(), copy.path());
    assert!(RocksStore::open(copy.path()).is_ok(), "an undamaged store opens");
}

#[test]
fn a_store_without_its_root_file_is_not_an_empty_store() {
    let dir = tempfile::tempdir().unwrap();
    let (mut store, _) = RocksStore::open(dir.path()).unwrap();
    store
        .write(&Batch { seq: 1, cleared: Vec::new(), writes: vec![write(1, "k", Some(b"v"))] })
        .unwrap();
    drop(store);
    fs::remove_file(dir.path().join("CURRENT")).unwrap();
    let error = RocksStore::open(dir.path()).unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
}

/// RocksDB finds no error in foreign bytes that were written through it; the record's checksum
/// does.
#[test]
fn a_record_that_is_not_what_was_written_is_no_record() {
    let swap = |shared: &Shared| {
        let (one, two) = (keys::stored(PartitionId(1), b"a"), keys::stored(PartitionId(1), b"b"));
        let value = shared.db.get(&two).unwrap().unwrap();
        shared.db.put(&one, value).unwrap();
    };
    let shorten = |shared: &Shared| {
        shared.db.put(keys::stored(PartitionId(1), b"b"), b"xy").unwrap();
    };
    let flip = |shared: &Shared| {
        let key = keys::stored(PartitionId(1), b"b");
        let mut value = shared.db.get(&key).unwrap().unwrap();
        value[1] ^= 4;
        shared.db.put(&key, value).unwrap();
    };
    for damage in [swap as fn(&Shared), shorten, flip] {
        let dir = tempfile::tempdir().unwrap();
        let (mut store, _) = RocksStore::open(dir.path()).unwrap();
        let writes = vec![write(1, "a", Some(b"first")), write(1, "b", Some(b"second"))];
        store.write(&Batch { seq: 1, cleared: Vec::new(), writes }).unwrap();
        assert_eq!(contents(&store).len(), 2);
        damage(&store.shared);
        let error = store.records().find_map(Result::err).unwrap();
        assert!(error.is_loss() && error.to_string().contains("checksum"), "{error}");
        let (partition, after) = (PartitionId(1), None);
        let page = PageRequest { partition, after, bytes: 1 << 20, number: 1 };
        assert!(store.reader().page(&page).is_err(), "a page skips nothing either");
    }
}
