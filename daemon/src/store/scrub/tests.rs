use std::fs;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use kvs::{Batch, Write};
use proto::PartitionId;
use xxhash_rust::xxh3::xxh3_64;

use super::*;
use crate::store::keys;

const PIECE_BYTES: usize = 16 << 10;

fn key(number: u32) -> String {
    format!("key-{number:04}")
}

/// About a kilobyte that cannot be compressed, so that each record has its own bytes on disk.
fn put(number: u32) -> Write {
    let bytes =
        (0..128).flat_map(|at| xxh3_64(&[number, at].map(u32::to_le_bytes).concat()).to_le_bytes());
    let (partition, key) = (PartitionId(number % 3), key(number).into_bytes());
    Write { partition, key, value: Some(bytes.collect()) }
}

fn remove(number: u32) -> Write {
    Write { value: None, ..put(number) }
}

fn write(store: &mut RocksStore, seq: u64, writes: Vec<Write>) {
    store.write(&Batch { seq, cleared: Vec::new(), writes }).unwrap();
}

fn filled(dir: &Path) -> RocksStore {
    let (mut store, _) = RocksStore::open(dir).unwrap();
    write(&mut store, 1, (0..600).map(put).collect());
    store
}

/// The sum of the remaining pieces of a pass, and their number.
fn rest_of_pass(scrubber: &mut Scrubber) -> Result<(Piece, u32), StoreError> {
    let (mut all, mut pieces) = (Piece::default(), 0);
    while !all.is_last {
        let Piece { records, bytes, is_last } = scrubber.piece(PIECE_BYTES)?;
        assert!(bytes < PIECE_BYTES as u64 + 2000, "a piece of {bytes} bytes");
        (all.records, all.bytes, all.is_last) = (all.records + records, all.bytes + bytes, is_last);
        pieces += 1;
    }
    Ok((all, pieces))
}

fn tables(dir: &Path) -> Vec<PathBuf> {
    let is_table = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "sst");
    fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().path()).filter(is_table).collect()
}

/// Flips one bit in the middle of a file in place, so that open file handles read it too.
fn flip(path: &Path) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let (at, mut byte) = (file.metadata().unwrap().len() / 2, [0]);
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
}

#[test]
fn a_pass_counts_every_record_and_byte() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = filled(dir.path());
    write(&mut store, 2, (0..50).map(put).collect()); // Rewritten records count once.
    write(&mut store, 3, (100..150).map(remove).collect());
    let stored = |record: kvs::Record| 4 + record.key.len() + record.value.len() + 4;
    let expected: usize = store.records().map(|record| stored(record.unwrap())).sum();
    let expected = expected + LAST_SEQ_KEY.len() + 8;
    let mut scrubber = store.scrubber();
    for _ in 0..2 {
        scrubber.begin().unwrap();
        assert!(!tables(dir.path()).is_empty(), "what was in memory alone is in a table");
        let (all, pieces) = rest_of_pass(&mut scrubber).unwrap();
        assert_eq!((all.records, all.bytes), (550, expected as u64));
        assert!(pieces > 20, "{pieces} pieces");
    }
}

#[test]
fn an_empty_store_is_one_piece() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = RocksStore::open(dir.path()).unwrap();
    let mut scrubber = store.scrubber();
    scrubber.begin().unwrap();
    let all = Piece { is_last: true, ..Piece::default() };
    assert_eq!(rest_of_pass(&mut scrubber), Ok((all, 1)));
}

#[test]
fn a_flipped_bit_in_a_table_is_found_and_found_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path());
    let mut scrubber = store.scrubber();
    scrubber.begin().unwrap();
    assert_eq!(rest_of_pass(&mut scrubber).unwrap().0.records, 600);
    let [table] = &tables(dir.path())[..] else { panic!("one table is enough for all") };
    flip(table);
    scrubber.begin().unwrap();
    let error = rest_of_pass(&mut scrubber).unwrap_err();
    let name = table.file_name().unwrap().to_string_lossy().into_owned();
    let text = error.to_string();
    assert!(error.is_loss() && text.contains("checksum") && text.contains(&name), "{text}");
    assert_eq!(scrubber.piece(PIECE_BYTES), Err(error), "the same piece again");
    flip(table);
    let (rest, _) = rest_of_pass(&mut scrubber).unwrap();
    assert!((1..600).contains(&rest.records), "{} records after the damage", rest.records);
}

#[test]
fn a_pass_goes_on_while_records_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let mut store = filled(dir.path());
    let mut scrubber = store.scrubber();
    scrubber.begin().unwrap();
    let (mut seq, mut seen, mut is_last) = (1, 0, false);
    while !is_last {
        let piece = scrubber.piece(PIECE_BYTES).unwrap();
        (seen, is_last) = (seen + piece.records, piece.is_last);
        seq += 1;
        // The key after which it continues is removed; others are added before and after it.
        let place =
            scrubber.after.get(8..).map(|number| String::from_utf8_lossy(number).into_owned());
        let gone = place.and_then(|number| number.parse().ok()).map(remove);
        let new = [format!("a-{seq}"), format!("z-{seq}")].into_iter().flat_map(|key| {
            (0..3).map(move |partition| {
                let (partition, key) = (PartitionId(partition), key.clone().into_bytes());
                Write { partition, key, value: Some(b"new".to_vec()) }
            })
        });
        write(&mut store, seq, new.chain(gone).collect());
        store.shared.db.flush().unwrap();
    }
    assert!(seen >= 600, "{seen} records");
    scrubber.begin().unwrap();
    let left = store.records().count() as u64;
    assert_eq!(rest_of_pass(&mut scrubber).unwrap().0.records, left);
}

/// RocksDB finds no error in it.
#[test]
fn a_record_that_does_not_fit_its_checksum_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path());
    let mut scrubber = store.scrubber();
    scrubber.begin().unwrap();
    scrubber.piece(PIECE_BYTES).unwrap();
    let at = |number: u32| keys::stored(PartitionId(number % 3), key(number).as_bytes());
    let other = store.shared.db.get(at(400)).unwrap().unwrap();
    store.shared.db.put(at(500), other).unwrap();
    let error = rest_of_pass(&mut scrubber).unwrap_err();
    assert!(error.is_loss() && error.to_string().contains("checksum"), "{error}");
}

#[test]
fn a_flipped_bit_in_the_manifest_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let store = filled(dir.path());
    let mut scrubber = store.scrubber();
    scrubber.begin().unwrap();
    store.sync().unwrap();
    scrubber.begin().unwrap();
    let current = fs::read_to_string(dir.path().join("CURRENT")).unwrap();
    let manifest = dir.path().join(current.trim_end());
    flip(&manifest);
    let error = scrubber.begin().unwrap_err();
    assert!(error.is_loss() && error.to_string().contains("manifest"), "{error}");
    flip(&manifest);
    scrubber.begin().unwrap();
    // A manifest that CURRENT does not name may be deleted.
    fs::write(dir.path().join("CURRENT"), "MANIFEST-999999\n").unwrap();
    scrubber.begin().unwrap();
}
