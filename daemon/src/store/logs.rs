//! What RocksDB must not be shown: logs with records of the kind that only recycled logs have.
//!
//! This store recycles none, so such a record is damage: one bit in the kind of another. RocksDB
//! 11.8 does not get past it (`log::Reader::ReadPhysicalRecord` returns without taking it out of
//! its buffer, and is called again for ever), and a node would start without end. Where it is the
//! first record RocksDB takes the whole log for an old one, and drops it without a word.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::{StoreError, from_io};

/// A log is a row of blocks; a record never crosses the end of its block, and begins with a
/// checksum (4 bytes), a length (2), and its kind.
const BLOCK_BYTES: u64 = 32 << 10;
const HEADER_BYTES: usize = 7;

/// `kRecyclable...` and `kRecycle...` of RocksDB's `log_format.h`.
fn is_of_recycled_log(kind: u8) -> bool {
    matches!(kind, 5..=8 | 11 | 131)
}

/// Walks the headers of all logs and manifests in the directory; reads no more than RocksDB will.
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

/// What follows a record that is longer than its block is left to RocksDB's own checks.
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
