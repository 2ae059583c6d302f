//! The sections of a record: each compressed, with its lengths and its checksum.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::DeflateDecoder;
use flate2::write::DeflateEncoder;

use super::{Meta, Record, RecordError, VERSION, attempts, tasks, usage};
use crate::limits::{RECORD_BLOCK_ROWS, RECORD_SECTION_BYTES_MAX, RECORD_TIME_MAX_US};

/// The number of attempts or tasks in a run record.
const RECORD_ROWS_MAX: usize = 1 << 25;
/// The number of sections of a run record.
const RECORD_SECTIONS_MAX: usize = 4096;
/// The number of kinds in a run record.
const RECORD_KINDS_MAX: usize = 1024;

/// The first bytes. They show a text conversion: one is no ASCII, and both kinds of line ends
/// follow.
pub const MAGIC: [u8; 8] = *b"\x89SRR\r\n\x1a\n";
const HEAD_BYTES: usize = MAGIC.len() + 2;
/// Tag, length before compression, stored length, checksum.
const SECTION_HEAD_BYTES: usize = 13;

/// The bytes of the names of all tasks.
const NAMES_BYTES_MAX: usize = 1 << 30;
/// The slots of wide attempts besides their first ones, in all attempts.
const MORE_SLOTS_MAX: u64 = 1 << 26;

const META: u8 = b'M';
const TASKS: u8 = b'T';
const ATTEMPTS: u8 = b'A';
const PARTS: u8 = b'p';
const USAGE: u8 = b'u';
const END: u8 = b'E';

pub(super) fn write(record: &Record) -> Result<Vec<u8>, RecordError> {
    if rows_max(record) > RECORD_ROWS_MAX {
        return Err(RecordError::TooLarge("it has too many tasks or attempts"));
    }
    if record.tasks.iter().map(|row| row.name.len()).sum::<usize>() > NAMES_BYTES_MAX {
        return Err(RecordError::TooLarge("the names of the tasks"));
    }
    let wide = record.attempts.iter().chain(&record.parts);
    if wide.map(|row| row.more.len() as u64).sum::<u64>() > MORE_SLOTS_MAX {
        return Err(RecordError::TooLarge("the slots of wide attempts"));
    }
    let mut file = MAGIC.to_vec();
    file.extend_from_slice(&VERSION.to_le_bytes());
    let mut sums = Vec::new();
    let meta = serde_json::to_vec(&record.meta).map_err(|_| RecordError::TooLarge("its head"))?;
    section(&mut file, META, &meta, &mut sums)?;
    for block in record.tasks.chunks(RECORD_BLOCK_ROWS) {
        section(&mut file, TASKS, &tasks::write(block), &mut sums)?;
    }
    for block in usage::blocks(&record.tasks) {
        section(&mut file, USAGE, &block, &mut sums)?;
    }
    for block in record.attempts.chunks(RECORD_BLOCK_ROWS) {
        section(&mut file, ATTEMPTS, &attempts::write(block), &mut sums)?;
    }
    for block in record.parts.chunks(RECORD_BLOCK_ROWS) {
        section(&mut file, PARTS, &attempts::write(block), &mut sums)?;
    }
    let all = crc32fast::hash(&sums);
    section(&mut file, END, &all.to_le_bytes(), &mut sums)?;
    Ok(file)
}

/// The rows of the longest table.
fn rows_max(record: &Record) -> usize {
    record.attempts.len().max(record.tasks.len()).max(record.parts.len())
}

/// Appends a section. `sums` gets its checksum.
fn section(file: &mut Vec<u8>, tag: u8, raw: &[u8], sums: &mut Vec<u8>) -> Result<(), RecordError> {
    let too_large = |_| RecordError::TooLarge("a section");
    if raw.len() > RECORD_SECTION_BYTES_MAX {
        return Err(RecordError::TooLarge("a section"));
    }
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::default());
    // Writing to memory does not fail.
    encoder.write_all(raw).map_err(|_| RecordError::TooLarge("a section"))?;
    let stored = encoder.finish().map_err(|_| RecordError::TooLarge("a section"))?;
    let at = file.len();
    file.push(tag);
    file.extend_from_slice(&u32::try_from(raw.len()).map_err(too_large)?.to_le_bytes());
    file.extend_from_slice(&u32::try_from(stored.len()).map_err(too_large)?.to_le_bytes());
    let sum = checksum(&file[at..], &stored).to_le_bytes();
    file.extend_from_slice(&sum);
    file.extend_from_slice(&stored);
    sums.extend_from_slice(&sum);
    Ok(())
}

fn checksum(head: &[u8], stored: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(head);
    hasher.update(stored);
    hasher.finalize()
}

/// Reads the first section, which is the head.
pub(super) fn read_meta(bytes: &[u8]) -> Result<Meta, RecordError> {
    check_version(bytes)?;
    let section = open(bytes, HEAD_BYTES)?;
    match section.tag {
        META => meta(&section.raw(HEAD_BYTES)?, HEAD_BYTES),
        _ => Err(RecordError::Malformed { at: HEAD_BYTES, what: "no head" }),
    }
}

fn check_version(bytes: &[u8]) -> Result<(), RecordError> {
    let Some((head, _)) = bytes.split_at_checked(HEAD_BYTES) else {
        let is_begun = !bytes.is_empty() && MAGIC.starts_with(&bytes[..bytes.len().min(8)]);
        return Err(if is_begun { RecordError::Cut(bytes.len()) } else { RecordError::NotARecord });
    };
    if head[..MAGIC.len()] != MAGIC {
        return Err(RecordError::NotARecord);
    }
    let version = u16::from_le_bytes([head[8], head[9]]);
    if version != VERSION {
        return Err(RecordError::Version(version));
    }
    Ok(())
}

pub(super) fn read(bytes: &[u8]) -> Result<Record, RecordError> {
    check_version(bytes)?;
    let mut record = Record::default();
    let (mut at, mut sums, mut has_meta) = (HEAD_BYTES, Vec::new(), false);
    let (mut names_left, mut more_left) = (NAMES_BYTES_MAX, MORE_SLOTS_MAX);
    for _ in 0..RECORD_SECTIONS_MAX {
        let section = open(bytes, at)?;
        let raw = section.raw(at)?;
        match section.tag {
            META => {
                record.meta = meta(&raw, at)?;
                has_meta = true;
            }
            TASKS => tasks::read(&raw, at, &mut record.tasks, &mut names_left)?,
            ATTEMPTS => attempts::read(&raw, at, &mut record.attempts, &mut more_left)?,
            PARTS => {
                let known = record.parts.len();
                attempts::read(&raw, at, &mut record.parts, &mut more_left)?;
                record.parts[known..].iter_mut().for_each(|row| row.is_part = true);
            }
            USAGE => usage::read(&raw, at, &mut record.tasks)?,
            END => {
                let wrong = |what| Err(RecordError::Malformed { at, what });
                if raw != crc32fast::hash(&sums).to_le_bytes() {
                    return wrong("a section is missing, or in another place,");
                }
                if section.end != bytes.len() {
                    return wrong("bytes after the end");
                }
                if !has_meta {
                    return wrong("no head");
                }
                return Ok(record);
            }
            // Small letters: a program may leave such a section out.
            tag if tag.is_ascii_lowercase() => {}
            tag => return Err(RecordError::UnknownSection(char::from(tag))),
        }
        if rows_max(&record) > RECORD_ROWS_MAX {
            return Err(RecordError::TooLarge("it has too many tasks or attempts"));
        }
        sums.extend_from_slice(&section.sum.to_le_bytes());
        at = section.end;
    }
    Err(RecordError::TooLarge("it has too many sections"))
}

/// A section with a right checksum.
struct Section<'a> {
    tag: u8,
    raw_bytes: usize,
    stored: &'a [u8],
    sum: u32,
    end: usize,
}

fn open(bytes: &[u8], at: usize) -> Result<Section<'_>, RecordError> {
    let cut = RecordError::Cut(bytes.len());
    let Some((head, rest)) = bytes[at..].split_at_checked(SECTION_HEAD_BYTES) else {
        return Err(cut);
    };
    let number = |from: usize| {
        u32::from_le_bytes([head[from], head[from + 1], head[from + 2], head[from + 3]])
    };
    let (raw_bytes, stored_bytes, sum) = (number(1) as usize, number(5) as usize, number(9));
    let Some(stored) = rest.get(..stored_bytes) else { return Err(cut) };
    if checksum(&head[..9], stored) != sum {
        return Err(RecordError::Checksum(at));
    }
    if raw_bytes > RECORD_SECTION_BYTES_MAX {
        return Err(RecordError::TooLarge("a section"));
    }
    let end = at + SECTION_HEAD_BYTES + stored_bytes;
    Ok(Section { tag: head[0], raw_bytes, stored, sum, end })
}

impl Section<'_> {
    fn raw(&self, at: usize) -> Result<Vec<u8>, RecordError> {
        let mut raw = Vec::new();
        // One byte more shows a stream that is longer than announced.
        let mut decoder = DeflateDecoder::new(self.stored).take(self.raw_bytes as u64 + 1);
        let read = decoder.read_to_end(&mut raw);
        if read.is_err() || raw.len() != self.raw_bytes {
            return Err(RecordError::Malformed { at, what: "compressed bytes are wrong" });
        }
        Ok(raw)
    }
}

fn meta(raw: &[u8], at: usize) -> Result<Meta, RecordError> {
    let wrong = |what| RecordError::Malformed { at, what };
    let meta: Meta =
        serde_json::from_slice(raw).map_err(|_| wrong("the head is not as expected"))?;
    if meta.submitted_us.max(meta.ended_us.unwrap_or(0)) > RECORD_TIME_MAX_US {
        return Err(wrong("a time out of range"));
    }
    match meta.kinds.len() {
        0..=RECORD_KINDS_MAX => Ok(meta),
        _ => Err(RecordError::TooLarge("it has too many kinds")),
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A file of these sections, with right checksums.
    pub(in crate::record) fn of_sections(sections: &[(u8, &[u8])]) -> Vec<u8> {
        let mut file = MAGIC.to_vec();
        file.extend_from_slice(&VERSION.to_le_bytes());
        let mut sums = Vec::new();
        for (tag, raw) in sections {
            section(&mut file, *tag, raw, &mut sums).unwrap();
        }
        let all = crc32fast::hash(&sums).to_le_bytes();
        section(&mut file, END, &all, &mut sums).unwrap();
        file
    }
}
