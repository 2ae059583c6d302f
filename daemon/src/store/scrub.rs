//! Reading a whole store while it is in use, to find damage where nobody reads.
//!
//! What lies in memory is written into tables first, so that all records are in files that are
//! read, and no old log is needed any more. The kernel is asked to drop what it has of these files
//! (a page in its memory says nothing of the disk), and blocks that are read are not kept. Between
//! two pieces nothing is held that would keep RocksDB from dropping old files.
//!
//! Each block is checked against RocksDB's checksum and each record against its own, and the
//! manifest against what it was at the last sync. Not seen is what no read would come by: records
//! that were written over or removed and lie in blocks that RocksDB steps over, and the copy on
//! disk of an index block that RocksDB has in its cache.

use std::fs::File;
use std::sync::Arc;

use rocksdb::ReadOptions;
use rustix::fs::{Advice, fadvise};

use super::{LAST_SEQ_KEY, RocksStore, Shared, StoreError, from_rocksdb};

/// Goes through a store from its first record to its last, again and again.
#[derive(Clone, Debug)]
pub struct Scrubber {
    shared: Arc<Shared>,
    /// The last key that was found sound in this pass; empty at its beginning.
    after: Vec<u8>,
}

/// What was read at a time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Piece {
    pub records: u64,
    /// Of keys and values. On disk they take about as many, or fewer.
    pub bytes: u64,
    /// There is nothing after it: the next piece is the first one of the next pass.
    pub is_last: bool,
}

impl RocksStore {
    #[must_use]
    pub fn scrubber(&self) -> Scrubber {
        Scrubber { shared: Arc::clone(&self.shared), after: Vec::new() }
    }
}

impl Scrubber {
    /// Before the first piece of a pass.
    pub fn begin(&mut self) -> Result<(), StoreError> {
        self.after.clear();
        let shared = &self.shared;
        // Should this fail, the next write does: whoever writes deals with it.
        shared.db.flush().map_err(|error| from_rocksdb(&shared.path, &error))?;
        self.look_at_the_disk();
        let manifest = shared.mark.lock().expect("nobody panics with the mark").manifest();
        manifest.check()
    }

    /// What is read from here on comes from the disk. Files that cannot be opened, as they have
    /// just been dropped, or whose pages stay, are read as they are.
    pub fn look_at_the_disk(&self) {
        let Ok(entries) = std::fs::read_dir(&self.shared.path) else { return };
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".sst") || name.starts_with("MANIFEST-") {
                let dropped =
                    File::open(entry.path()).map(|file| fadvise(&file, 0, None, Advice::DontNeed));
                let _ = dropped;
            }
        }
    }

    /// Reads on, up to about so many bytes. After an error the same piece comes again.
    pub fn piece(&mut self, bytes: usize) -> Result<Piece, StoreError> {
        let shared = &self.shared;
        let mut options = ReadOptions::default();
        options.set_verify_checksums(true);
        options.fill_cache(false);
        let mut records = shared.db.raw_iterator_opt(options);
        match self.after.is_empty() {
            true => records.seek_to_first(),
            false => records.seek([&self.after[..], &[0]].concat()), // The first key after it.
        }
        let (mut piece, mut last) = (Piece::default(), Vec::new());
        while let Some((key, value)) = records.item() {
            if piece.bytes >= bytes as u64 {
                self.after = last;
                return Ok(piece);
            }
            if key != LAST_SEQ_KEY {
                shared.check(key, value)?;
                piece.records += 1;
            }
            piece.bytes += (key.len() + value.len()) as u64;
            last.clear();
            last.extend_from_slice(key);
            records.next();
        }
        records.status().map_err(|error| from_rocksdb(&shared.path, &error))?;
        self.after.clear();
        piece.is_last = true;
        Ok(piece)
    }
}

#[cfg(test)]
#[path = "scrub_tests.rs"]
mod tests;
