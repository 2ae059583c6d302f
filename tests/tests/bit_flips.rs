//! Single bits flip in what a node has on disk, at hundreds of places in all of its files: opened
//! again it has exactly what it had, or an error says that it has not. Never something else.
//!
//! The records are opened as the node opens them (`daemon::store`, `daemon::instance`), in this
//! process; that a node which finds an error gives its copy up is in `system/replicas`.

#![expect(clippy::print_stderr, reason = "how it came out is worth a line")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use daemon::instance::StateDir;
use daemon::store::RocksStore;
use kvs::Record;
use starling_tests::Instance;

/// Of the files with records. Small files have each of their bytes flipped, other files a few.
const FLIPS_EACH: u64 = 180;
const SMALL_BYTES: u64 = 40;
const FLIPS_OTHER: u64 = 10;
const CUTS: u64 = 30;
/// Records of a log or manifest lie in blocks of this size, behind a checksum, a length, a type.
const BLOCK_BYTES: usize = 32_768;
const HEADER_BYTES: usize = 7;
const LENGTHS_MAX: usize = 40;
const OF_RECORDS: [&str; 3] = [".sst", ".log", "MANIFEST"];
/// Long enough for everything that was written to be synced.
const QUIET: Duration = Duration::from_secs(3);

/// All that a start reads.
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
        // Objects and logs are not the store's.
        match path.is_dir() {
            true if entry.file_name() == "db" => copy(&path, &target),
            true => {}
            false => drop(fs::copy(path, target).expect("files can be copied")),
        }
    }
}

/// The state of a node that was killed when all it had was synced: tables, a log, a manifest.
fn saved(into: &Path) {
    let mut instance = Instance::up_with_copies(3, 1, 2);
    let insert = |number: u32| {
        let (key, value) = (format!("key-{number}"), format!("{number}-").repeat(40));
        instance.starling(&["kv", "insert", &key, &value]).ok();
    };
    (0..20).for_each(insert);
    instance.starling(&["submit", "--file", "uts:tree=tiny,duration=1ms", "--wait"]).ok();
    instance.wait_for_copies();
    // What was written so far is in tables once a node has come back.
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

/// What a file is called without its number.
fn kind(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    match path.extension() {
        Some(extension) => format!(".{}", extension.display()),
        None => name.split('-').next().unwrap_or_default().to_owned(),
    }
}

/// Where the lengths of the records in the last block are: one that points past the end looks as if
/// the rest had never been written.
fn last_lengths(bytes: &[u8]) -> Vec<usize> {
    let mut at = (bytes.len() - 1) / BLOCK_BYTES * BLOCK_BYTES;
    let mut found = Vec::new();
    while at + HEADER_BYTES <= bytes.len() {
        found.push(at + 5); // The higher byte of two.
        at += HEADER_BYTES + usize::from(u16::from_le_bytes([bytes[at + 4], bytes[at + 5]]));
    }
    found.split_off(found.len().saturating_sub(LENGTHS_MAX))
}

/// How often the contents were the same, and how often an error was told, by file.
#[derive(Default)]
struct Seen {
    by_file: BTreeMap<String, (u32, u32)>,
    /// What RocksDB had opened without a word, and lacked what had been synced.
    only_by_mark: u32,
}

impl Seen {
    /// Opens a copy in which `change` was done to one file.
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
                assert!(!error.trim().is_empty(), "{what}: an error without a word");
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
    let expected = read(&whole).expect("what nobody has damaged");
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
            // A stride that meets each part of the file, and each bit.
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
    // Where the log ends just behind a block's edge none is; that the mark is needed the cuts tell.
    assert!(seen.total() >= 500, "{by_file:?}");
    for kind in [".sst", ".log", "MANIFEST", "CURRENT", "SYNCED", "incarnation", "store"] {
        let loud = by_file.get(kind).map_or(0, |(_, loud)| *loud);
        assert!(loud > 0, "no flip in {kind} was told: {by_file:?}");
    }
    truncations_are_reported(&saved_at, &expected);
}

/// What was synced is missed, wherever a file ends instead.
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
