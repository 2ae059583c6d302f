//! Single bits flip in the files of a node's disk, at hundreds of places. When the files are opened
//! again, the contents are the same, or an error reports the damage. There is never a third
//! outcome.
//!
//! This process opens the records as the node does (`daemon::store`, `daemon::instance`).
//! `system/replicas` tests that a node with such an error discards its replicas.

#![expect(clippy::print_stderr, reason = "how it came out is worth a line")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use daemon::instance::StateDir;
use daemon::store::RocksStore;
use kvs::Record;
use starling_tests::Instance;

/// The number of flips in each file with records. In small files every byte is flipped, in other
/// files a few.
const FLIPS_EACH: u64 = 180;
const SMALL_BYTES: u64 = 40;
const FLIPS_OTHER: u64 = 10;
const CUTS: u64 = 30;
/// Records of a log or manifest are in blocks of this size, each after a checksum, a length and a
/// type.
const BLOCK_BYTES: usize = 32_768;
const HEADER_BYTES: usize = 7;
const LENGTHS_MAX: usize = 40;
const OF_RECORDS: [&str; 3] = [".sst", ".log", "MANIFEST"];
/// Long enough for a sync of everything that was written.
const QUIET: Duration = Duration::from_secs(3);

/// Everything that a start reads.
#[derive(PartialEq, Debug)]
struct Found {
    incarnation: u32,
    store: u64,
    records: Vec<Record>,
}

fn read(state: &Path) -> Result<Found, String> {
    let place = StateDir::open(state).map_err(|error| error.to_string())?;
    let (store, _) = RocksStore::open(place.db()).map_err(|error| error.to_string())?;
    let records: Result<Vec<Record>, _> = store.records().collect();
    let records = records.map_err(|error| error.to_string())?;
    Ok(Found { incarnation: place.incarnation().0, store: place.store(), records })
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder of the test");
    for entry in fs::read_dir(from).expect("a folder of the test").flatten() {
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        // Objects and logs do not belong to the store.
        match path.is_dir() {
            true if entry.file_name() == "db" => copy(&path, &target),
            true => {}
            false => drop(fs::copy(path, target).expect("files can be copied")),
        }
    }
}

/// The state of a node that was killed when everything was synced: tables, a log, a manifest.
fn saved(into: &Path) {
    let mut instance = Instance::up_with_copies(3, 1, 2);
    let insert = |number: u32| {
        let (key, value) = (format!("key-{number}"), format!("{number}-").repeat(40));
        instance.starling(&["kv", "insert", &key, &value]).ok();
    };
    (0..20).for_each(insert);
    instance.starling(&["submit", "--file", "uts:tree=tiny,duration=1ms", "--wait"]).ok();
    instance.wait_for_copies();
    // A restart of the node moves earlier writes to tables.
    for node in 0..3 {
        instance.kill(node);
    }
    instance.start_missing();
    instance.wait_for_copies();
    let insert = |number: u32| {
        let key = format!("key-{number}");
        instance.starling(&["kv", "insert", &key, &format!("new-{number}")]).ok();
    };
    (10..30).for_each(insert);
    instance.starling(&["submit", "--file", "bag:tasks=300,duration=600s"]).ok();
    std::thread::sleep(QUIET);
    instance.kill(1);
    copy(&instance.directory().join("nodes/1/state"), into);
}

fn files(state: &Path) -> Vec<PathBuf> {
    let in_folder = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).expect("a folder of the test").flatten();
        entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect()
    };
    let mut all = [in_folder(state), in_folder(&state.join("db"))].concat();
    all.sort();
    all
}

/// The name of a file without its number.
fn kind(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match path.extension() {
        Some(extension) => format!(".{}", extension.display()),
        None => name.split('-').next().unwrap_or_default().to_owned(),
    }
}

/// The positions of the record lengths in the last block. A length that points past the end looks
/// as if the rest had never been written.
fn last_lengths(bytes: &[u8]) -> Vec<usize> {
    let mut at = (bytes.len() - 1) / BLOCK_BYTES * BLOCK_BYTES;
    let mut found = Vec::new();
    while at + HEADER_BYTES <= bytes.len() {
        found.push(at + 5); // The higher byte of two.
        at += HEADER_BYTES + usize::from(u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]));
    }
    found.split_off(found.len().saturating_sub(LENGTHS_MAX))
}

/// By file: the number of unchanged contents, and the number of errors.
#[derive(Default)]
struct Seen {
    by_file: BTreeMap<String, (u32, u32)>,
    /// Files that RocksDB opened without an error although synced data were missing.
    only_by_mark: u32,
}

impl Seen {
    /// Opens a copy after `change` was applied to one file.
    fn try_one(
        &mut self,
        saved: &Path,
        expected: &Found,
        file: &Path,
        change: &dyn Fn(&mut Vec<u8>),
        what: &str,
    ) {
        let dir = tempfile::tempdir().expect("a temporary directory");
        copy(saved, dir.path());
        let target = dir.path().join(file.strip_prefix(saved).expect("it is in there"));
        let mut bytes = fs::read(&target).expect("files can be read");
        change(&mut bytes);
        fs::write(&target, bytes).expect("files can be written");
        let (same, loud) = self.by_file.entry(kind(file)).or_default();
        match read(dir.path()) {
            Ok(found) => {
                let records = (found.records.len(), expected.records.len());
                assert!(found == *expected, "{what}: silently another ({records:?} records)");
                *same += 1;
            }
            Err(error) => {
                assert!(!error.trim().is_empty(), "{what}: an empty error text");
                *loud += 1;
                self.only_by_mark += u32::from(error.contains("that were synced are not there"));
            }
        }
    }

    fn total(&self) -> u32 {
        self.by_file.values().map(|(same, loud)| same + loud).sum()
    }
}

#[test]
fn a_flipped_bit_is_reported_or_changes_nothing() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let (saved_at, whole) = (dir.path().join("saved"), dir.path().join("whole"));
    saved(&saved_at);
    copy(&saved_at, &whole);
    let expected = read(&whole).expect("the undamaged file can be read");
    assert!(expected.records.len() > 100, "{} records", expected.records.len());
    let mut seen = Seen::default();
    for file in files(&saved_at) {
        let length = fs::metadata(&file).expect("it is there").len();
        let flips = match () {
            () if OF_RECORDS.contains(&kind(&file).as_str()) => FLIPS_EACH.min(length),
            () if length <= SMALL_BYTES => length,
            () => FLIPS_OTHER,
        };
        for number in 0..flips {
            // A stride that reaches each part of the file, and each bit.
            let at = (number * length / flips + number % 7).min(length - 1) as usize;
            let bit = 1_u8 << (number % 8);
            let what = format!("bit {bit:#x} of byte {at} of {length} of {}", file.display());
            seen.try_one(&saved_at, &expected, &file, &|bytes| bytes[at] ^= bit, &what);
        }
    }
    for file in files(&saved_at) {
        if [".log", "MANIFEST"].contains(&kind(&file).as_str()) {
            let bytes = fs::read(&file).expect("files can be read");
            for at in last_lengths(&bytes) {
                let what = format!("the length at {at} of {} of {}", bytes.len(), file.display());
                seen.try_one(&saved_at, &expected, &file, &|bytes| bytes[at] ^= 0x40, &what);
                let (kind, bit) = (at + 1, 1_u8 << (at % 8));
                let what = format!("bit {bit:#x} of the kind at {kind} of {}", file.display());
                seen.try_one(&saved_at, &expected, &file, &|bytes| bytes[kind] ^= bit, &what);
            }
        }
    }
    let (by_file, only_by_mark) = (&seen.by_file, seen.only_by_mark);
    eprintln!("{} flips, (the same, told) by file: {by_file:?}", seen.total());
    eprintln!("{only_by_mark} of those told only because of the mark");
    // If the log ends just after a block's edge, no length is tried. The cuts show that the mark is
    // needed.
    assert!(seen.total() >= 500, "{by_file:?}");
    for kind in [".sst", ".log", "MANIFEST", "CURRENT", "SYNCED", "incarnation", "store"] {
        let loud = by_file.get(kind).map_or(0, |(_, loud)| *loud);
        assert!(loud > 0, "no flip in {kind} was told: {by_file:?}");
    }
    truncations_are_reported(&saved_at, &expected);
}

/// The lack of synced data is detected wherever a file is cut.
fn truncations_are_reported(saved: &Path, expected: &Found) {
    let mut seen = Seen::default();
    for file in files(saved) {
        if !OF_RECORDS.contains(&kind(&file).as_str()) {
            continue;
        }
        let length = fs::metadata(&file).expect("it is there").len();
        for number in 0..CUTS {
            let to = (length - 1).saturating_sub(number * length / CUTS) as usize;
            let what = format!("{} ends at {to} of {length}", file.display());
            seen.try_one(saved, expected, &file, &|bytes| bytes.truncate(to), &what);
        }
    }
    let (by_file, only_by_mark) = (&seen.by_file, seen.only_by_mark);
    eprintln!("(the same, told) after cuts: {by_file:?}; {only_by_mark} only because of the mark");
    assert!(by_file.values().all(|(_, loud)| *loud > 0) && only_by_mark > 0, "{by_file:?}");
}
