//! Reads captured streams.

use std::fs::File;
use std::io::{self, BufReader};
use std::path::PathBuf;

use proto::{Attempt, JobId, LocalId, TaskId};

use super::record::{self, HEADER_BYTES};
use super::segment::read_whole;

/// A piece of the output of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamPiece {
    pub task: TaskId,
    pub attempt: Attempt,
    pub stderr: bool,
    /// The same command has printed it as an earlier attempt of its task.
    pub carried: bool,
    pub data: Vec<u8>,
}

/// An iterator over the pieces that existed when it was made.
#[derive(Debug)]
pub struct StreamReader {
    ranges: std::vec::IntoIter<(PathBuf, u64, u64)>,
    current: Option<Current>,
    job: JobId,
    tasks: Vec<LocalId>,
    stderr: bool,
}

#[derive(Debug)]
struct Current {
    file: BufReader<File>,
    left_bytes: u64,
}

impl StreamReader {
    pub(super) fn new(
        ranges: Vec<(PathBuf, u64, u64)>,
        job: JobId,
        tasks: &[LocalId],
        stderr: bool,
    ) -> Self {
        let mut tasks = tasks.to_vec();
        tasks.sort_unstable();
        Self { ranges: ranges.into_iter(), current: None, job, tasks, stderr }
    }

    fn advance(&mut self) -> io::Result<Option<StreamPiece>> {
        loop {
            if self.current.is_none() {
                let Some((path, start, end)) = self.ranges.next() else { return Ok(None) };
                let mut file = BufReader::with_capacity(256 << 10, File::open(path)?);
                file.seek_relative(i64::try_from(start).expect("a segment is far below 2^63"))?;
                self.current = Some(Current { file, left_bytes: end - start });
            }
            let current = self.current.as_mut().expect("set above");
            if current.left_bytes == 0 {
                self.current = None;
                continue;
            }
            if let Some(piece) = read_record(current, self.job, &self.tasks, self.stderr)? {
                return Ok(Some(piece));
            }
        }
    }
}

/// Reads or skips the next record.
fn read_record(
    current: &mut Current,
    job: JobId,
    tasks: &[LocalId],
    stderr: bool,
) -> io::Result<Option<StreamPiece>> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "a pack of streams is damaged");
    let mut bytes = [0; HEADER_BYTES];
    if !read_whole(&mut current.file, &mut bytes)? {
        return Err(damaged());
    }
    let header = record::decode(&bytes).ok_or_else(damaged)?;
    current.left_bytes = current
        .left_bytes
        .checked_sub((HEADER_BYTES + header.length) as u64)
        .ok_or_else(damaged)?;
    let wanted = header.task.job == job
        && header.stderr == stderr
        && (tasks.is_empty() || tasks.binary_search(&header.task.local).is_ok());
    if !wanted {
        current.file.seek_relative(header.length as i64)?;
        return Ok(None);
    }
    let mut data = vec![0; header.length];
    if !read_whole(&mut current.file, &mut data)? || !record::is_whole(&bytes, &header, &data) {
        return Err(damaged());
    }
    let record::Header { task, attempt, carried, .. } = header;
    Ok(Some(StreamPiece { task, attempt, stderr, carried, data }))
}

impl Iterator for StreamReader {
    type Item = io::Result<StreamPiece>;
    fn next(&mut self) -> Option<Self::Item> {
        match self.advance() {
            Ok(piece) => piece.map(Ok),
            Err(error) => {
                // The rest of this segment cannot be trusted; later segments can.
                self.current = None;
                Some(Err(error))
            }
        }
    }
}
