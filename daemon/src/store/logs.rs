//! Detects logs that RocksDB must not open: those with records of a kind that only recycled logs
//! have.
//!
//! This store recycles no logs, so such a record is damage: one wrong bit in its kind. RocksDB 11.8
//! loops forever at it: `log::Reader::ReadPhysicalRecord` returns without removing it from its
//! buffer, and is called again. The start of the node would never end. If it is the first record,
//! RocksDB takes the whole log for an old one and drops it without an error.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::{StoreError, from_io};

/// A log is a row of blocks. A record never crosses the end of its block. It begins with a checksum
/// (4 bytes), a length (2) and its kind.
const BLOCK_BYTES: u64 = 32 << 10;
const HEADER_BYTES: usize = 7;

/// `kRecyclable...` and `kRecycle...` of RocksDB's `log_format.h`.
fn is_of_recycled_log(kind: u8) -> bool {
    matches!(kind, 5..=8 | 11 | 131)
}

/// Reads the record headers of all logs and manifests in the directory, as far as RocksDB will.
pub(super) fn check(db: &Path) -> Result<(), StoreError> {
    let io = |error: std::io::Error| from_io(db, &error);
    for entry in std::fs::read_dir(db).map_err(io)? {
        let name = entry.map_err(io)?.file_name().to_string_lossy().into_owned();
        if !name.ends_with(".log") && !name.starts_with("MANIFEST-") {
            continue;
        }
        let file = File::open(db.join(&name)).map_err(io)?;
        if let Some(at) = first_of_recycled_log(file).map_err(io)? {
            let reason = format!("{name} has a record of no known kind at byte {at}");
            return Err(StoreError::Damaged { path: db.to_path_buf(), reason });
        }
    }
    Ok(())
}

fn first_of_recycled_log(mut file: File) -> std::io::Result<Option<u64>> {
    let (mut start, mut block) = (0, Vec::with_capacity(BLOCK_BYTES as usize));
    loop {
        block.clear();
        if file.by_ref().take(BLOCK_BYTES).read_to_end(&mut block)? == 0 {
            return Ok(None);
        }
        if let Some(at) = in_block(&block) {
            return Ok(Some(start + at as u64));
        }
        start += BLOCK_BYTES;
    }
}

/// Bytes after a record that is longer than its block are left to RocksDB's own checks.
fn in_block(block: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(header) = block.get(at..at + HEADER_BYTES) {
        if is_of_recycled_log(header[6]) {
            return Some(at);
        }
        at += HEADER_BYTES + usize::from(u16::from_le_bytes([header[4], header[5]]));
    }
    None
}
