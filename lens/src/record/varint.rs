//! Numbers of variable length.

use super::RecordError;
use crate::limits::RECORD_BLOCK_ROWS;

pub(super) fn put(out: &mut Vec<u8>, mut n: u64) {
    while n >= 0x80 {
        out.push(n as u8 | 0x80);
        n >>= 7;
    }
    out.push(n as u8);
}

/// Small positive and negative differences become small numbers.
pub(super) fn zigzag(from: u64, to: u64) -> u64 {
    let difference = to.wrapping_sub(from) as i64;
    ((difference << 1) ^ (difference >> 63)) as u64
}

pub(super) fn unzigzag(from: u64, zigzag: u64) -> u64 {
    let difference = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
    from.wrapping_add(difference as u64)
}

/// Reads a column, or the columns of a block.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    bytes: &'a [u8],
    /// The place of the section, for errors.
    at: usize,
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    pub(super) fn wrong(&self, what: &'static str) -> RecordError {
        RecordError::Malformed { at: self.at, what }
    }

    pub(super) fn number(&mut self) -> Result<u64, RecordError> {
        let mut n = 0u64;
        for (index, &byte) in self.bytes.iter().enumerate().take(10) {
            let bits = u64::from(byte & 0x7f);
            if index == 9 && bits > 1 {
                return Err(self.wrong("a number out of range"));
            }
            n |= bits << (7 * index);
            if byte & 0x80 == 0 {
                self.bytes = &self.bytes[index + 1..];
                return Ok(n);
            }
        }
        Err(self.wrong("a number without an end"))
    }

    pub(super) fn small(&mut self) -> Result<u32, RecordError> {
        let n = self.number()?;
        u32::try_from(n).map_err(|_| self.wrong("a number out of range"))
    }

    pub(super) fn take(&mut self, length: usize) -> Result<&'a [u8], RecordError> {
        let Some((taken, rest)) = self.bytes.split_at_checked(length) else {
            return Err(self.wrong("a length beyond the end"));
        };
        self.bytes = rest;
        Ok(taken)
    }

    /// The next column of a block.
    pub(super) fn column(&mut self) -> Result<Self, RecordError> {
        let length = self.number()?;
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        Ok(Reader { bytes: self.take(length)?, at: self.at })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

/// Appends a block: its number of rows and its columns.
pub(super) fn block(rows: usize, columns: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::with_capacity(columns.iter().map(|column| column.len() + 4).sum());
    put(&mut out, rows as u64);
    for column in columns {
        put(&mut out, column.len() as u64);
        out.extend_from_slice(column);
    }
    out
}

/// Opens a block of `N` columns.
pub(super) fn open_block<const N: usize>(
    bytes: &[u8],
    at: usize,
) -> Result<(usize, [Reader<'_>; N]), RecordError> {
    let mut reader = Reader::new(bytes, at);
    let rows = reader.number()? as usize;
    if rows > RECORD_BLOCK_ROWS {
        return Err(RecordError::TooLarge("a block has too many rows"));
    }
    let mut columns = Vec::with_capacity(N);
    for _ in 0..N {
        columns.push(reader.column()?);
    }
    if !reader.is_empty() {
        return Err(reader.wrong("bytes after the last column"));
    }
    let columns = columns.try_into().map_err(|_| reader.wrong("a wrong number of columns"))?;
    Ok((rows, columns))
}
