/*!
One record of a pack: a header of 44 bytes, then the printed bytes. All numbers are little-endian.

```text
magic u32 │ crc32 u32 │ job u64 │ task u64 │ attempt u64 │ flags u32 │ length u32 │ check u32 │
bytes
```
`crc32` covers everything from `job` on except `check`. `check` covers only the header, so a reader
may trust the length of a record and skip it without reading its bytes.
*/

use proto::{Attempt, JobId, LocalId, TaskId};

use super::Piece;
use crate::limits::STREAM_RECORD_BYTES_MAX;

pub(super) const HEADER_BYTES: usize = 44;
const MAGIC: u32 = 0x5354_5231;
const FLAG_STDERR: u32 = 1;
/// The same command has printed it as an earlier attempt of its task.
const FLAG_CARRIED: u32 = 2;
/// The range of the header's fields that `crc32` covers.
const FIELDS: std::ops::Range<usize> = 8..40;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) task: TaskId,
    pub(super) attempt: Attempt,
    pub(super) stderr: bool,
    pub(super) carried: bool,
    pub(super) length: usize,
    crc: u32,
}

pub(super) fn encode(out: &mut Vec<u8>, piece: &Piece<'_>, data: &[u8]) {
    assert!(data.len() <= STREAM_RECORD_BYTES_MAX, "the caller cuts long pieces");
    let start = out.len();
    out.extend_from_slice(&MAGIC.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&piece.task.job.0.to_le_bytes());
    out.extend_from_slice(&piece.task.local.0.to_le_bytes());
    out.extend_from_slice(&piece.attempt.0.to_le_bytes());
    let stderr = if piece.stderr { FLAG_STDERR } else { 0 };
    let carried = if piece.carried { FLAG_CARRIED } else { 0 };
    let flags: u32 = stderr | carried;
    out.extend_from_slice(&flags.to_le_bytes());
    out.extend_from_slice(&(data.len() as u32).to_le_bytes());
    let crc = checksum(&out[start + FIELDS.start..start + FIELDS.end], data);
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
    let check = crc32fast::hash(&out[start..start + FIELDS.end]);
    out.extend_from_slice(&check.to_le_bytes());
    out.extend_from_slice(data);
}

/// Reads a header; `None` if these bytes are not one.
pub(super) fn decode(bytes: &[u8; HEADER_BYTES]) -> Option<Header> {
    let u32_at = |at: usize| {
        u32::from_le_bytes(bytes[at..at + 4].try_into().expect("the slice has four bytes"))
    };
    let u64_at = |at: usize| {
        u64::from_le_bytes(bytes[at..at + 8].try_into().expect("the slice has eight bytes"))
    };
    if u32_at(0) != MAGIC || u32_at(40) != crc32fast::hash(&bytes[..FIELDS.end]) {
        return None;
    }
    let length = u32_at(36) as usize;
    let task = TaskId { job: JobId(u64_at(8)), local: LocalId(u64_at(16)) };
    let header = Header {
        task,
        attempt: Attempt(u64_at(24)),
        stderr: u32_at(32) & FLAG_STDERR != 0,
        carried: u32_at(32) & FLAG_CARRIED != 0,
        length,
        crc: u32_at(4),
    };
    (length <= STREAM_RECORD_BYTES_MAX).then_some(header)
}

/// True if `data` is the data that the header was written with.
pub(super) fn is_whole(bytes: &[u8; HEADER_BYTES], header: &Header, data: &[u8]) -> bool {
    data.len() == header.length && checksum(&bytes[FIELDS], data) == header.crc
}

fn checksum(fields: &[u8], data: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(fields);
    hasher.update(data);
    hasher.finalize()
}
