//! Reads a whole store while it is in use, to find damage that no other read would.
//!
//! Records in memory are first written into tables, so that all records are in files and no old log
//! is needed. The kernel is asked to drop its cached pages of these files, which could hide damage
//! on disk. Blocks are not kept in RocksDB's cache. Between two pieces the scrubber holds nothing
//! that would keep RocksDB from deleting old files.
//!
//! Each block is checked against RocksDB's checksum, each record against its own, and the manifest
//! against its state at the last sync. Two kinds of damage stay unseen. One is in overwritten or
//! deleted records, in blocks that RocksDB skips. The other is in an index block on disk that
//! RocksDB has in its cache.

use std::fs::File;
use std::sync::Arc;

use rocksdb::ReadOptions;
use rustix::fs::{Advice, fadvise};

use super::{LAST_SEQ_KEY, RocksStore, Shared, StoreError, from_rocksdb};

/// Reads a store from its first record to its last, repeatedly.
#[derive(Clone, Debug)]
pub struct Scrubber {
    shared: Arc<Shared>,
    /// The last key that was found sound in this pass; empty at its beginning.
    after: Vec<u8>,
}

/// The part of the store that one call reads.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Piece {
    pub records: u64,
    /// Bytes of keys and values. They take about as many on disk, or fewer.
    pub bytes: u64,
    /// True for the last piece: the next one is the first of the next pass.
    pub is_last: bool,
}

impl RocksStore {
    #[must_use]
    pub fn scrubber(&self) -> Scrubber {
        Scrubber { shared: Arc::clone(&self.shared), after: Vec::new() }
    }
}

impl Scrubber {
    /// Begins a pass.
    pub fn begin(&mut self) -> Result<(), StoreError> {
        self.after.clear();
        let shared = &self.shared;
        // If this fails, the next write fails too, and its caller handles that.
        shared.db.flush().map_err(|error| from_rocksdb(&shared.path, &error))?;
        self.look_at_the_disk();
        let manifest = shared.mark.lock().expect("no thread panics with the mark").manifest();
        manifest.check()
    }

    /// Drops cached pages, so that later reads come from the disk. Skips files that cannot be
    /// opened, because they were just deleted, and pages that stay cached.
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

    /// Reads about this number of bytes. After an error the next call reads the same piece again.
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
mod tests;
