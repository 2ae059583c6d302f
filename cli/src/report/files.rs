//! Run records as files.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::limits::RECORDS_KEPT;
use lens::Record;
use lens::record::MAGIC;
use verb::errors::Failure;

/// The ending of a run record.
pub(crate) const ENDING: &str = "srr";
/// The record in the directory of a run.
pub(crate) const NAME: &str = "record.srr";
/// The largest record that is read.
const BYTES_MAX: u64 = 4 << 30;

pub(crate) fn bytes(record: &Record) -> Result<Vec<u8>, Failure> {
    record.write().map_err(|error| Failure::refused(error.to_string()).hint(error.hint()))
}

/// Reads a record, or the one in a directory.
pub(crate) fn read(path: &Path) -> Result<Record, Failure> {
    let file = if path.is_dir() { path.join(NAME) } else { path.to_owned() };
    let bytes = read_bytes(&file).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound if path.is_dir() => {
            Failure::refused(format!("{}: there is no run record", path.display()))
                .hint("name a directory below starling-runs, or a file that ends in .srr")
        }
        _ => Failure::file(&file, &error),
    })?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(Failure::refused(format!("{}: it is larger than 4 GiB", file.display()))
            .hint("name a file that 'starling run' or 'starling report' has written"));
    }
    Record::read(&bytes).map_err(|error| {
        Failure::refused(format!("{}: {error}", file.display())).hint(error.hint())
    })
}

/// The bytes of a record, or a few more than the largest one has. Of another file only the first
/// bytes are read.
fn read_bytes(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut file = fs::File::open(path)?;
    let mut bytes = Vec::new();
    Read::take(&mut file, MAGIC.len() as u64).read_to_end(&mut bytes)?;
    if bytes == MAGIC {
        file.take(BYTES_MAX).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// Writes the record of a run into its directory. The newest records stay; results of older runs
/// are not touched.
pub(crate) fn put_into_run(dir: &Path, record: &Record) -> Result<PathBuf, Failure> {
    let path = dir.join(NAME);
    verb::files::put(&path, &bytes(record)?)?;
    if let Some(runs) = dir.parent() {
        remove_old(runs);
    }
    Ok(path)
}

/// The names of runs begin with their time.
fn remove_old(runs: &Path) {
    let entries = fs::read_dir(runs).into_iter().flatten().flatten();
    let mut records: Vec<PathBuf> =
        entries.map(|entry| entry.path().join(NAME)).filter(|path| path.is_file()).collect();
    records.sort();
    for old in records.iter().take(records.len().saturating_sub(RECORDS_KEPT)) {
        // A record that cannot be removed is tried again by the next run.
        let _ = fs::remove_file(old);
        // A list of commands has nothing else there.
        let _ = old.parent().map(fs::remove_dir);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_records_stay_and_results_are_not_touched() {
        let root = tempfile::tempdir().unwrap();
        let dirs: Vec<PathBuf> =
            (0..RECORDS_KEPT + 2).map(|n| root.path().join(format!("2026-{n:02}"))).collect();
        for dir in &dirs {
            fs::create_dir(dir).unwrap();
            fs::write(dir.join("result"), "1").unwrap();
            put_into_run(dir, &Record::default()).unwrap();
        }
        let kept = dirs.iter().filter(|dir| dir.join(NAME).exists()).count();
        assert_eq!(kept, RECORDS_KEPT);
        assert!(!dirs[1].join(NAME).exists() && dirs[2].join(NAME).exists());
        assert!(dirs.iter().all(|dir| dir.join("result").exists()));
        assert_eq!(read(&dirs[5]).unwrap(), Record::default());
    }

    #[test]
    fn a_file_that_is_no_record_is_refused_by_name() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("x.srr");
        verb::files::put(&path, b"hello").unwrap();
        let failure = read(&path).unwrap_err();
        assert!(failure.message.ends_with("x.srr: this is not a run record"), "{failure:?}");
        assert!(read(root.path()).unwrap_err().message.contains("no run record"));
    }
}
