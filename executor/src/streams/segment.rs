//! Segment files and their sidecars, which contain the range of each job.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use proto::JobId;

use super::record::{self, HEADER_BYTES};

const SIDECAR_TITLE: &str = "starling streams 1";

/// The state of one segment in memory.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Segment {
    pub(super) number: u32,
    /// Bytes of complete records.
    pub(super) length: u64,
    /// First byte of the first record and end of the last record of each job.
    pub(super) jobs: BTreeMap<JobId, (u64, u64)>,
}

impl Segment {
    pub(super) fn new(number: u32) -> Self {
        Self { number, length: 0, jobs: BTreeMap::new() }
    }

    pub(super) fn note(&mut self, job: JobId, start: u64, end: u64) {
        self.jobs.entry(job).or_insert((start, end)).1 = end;
    }
}

pub(super) fn path(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("{number:06}.pack"))
}

fn sidecar_path(directory: &Path, number: u32) -> PathBuf {
    directory.join(format!("{number:06}.jobs"))
}

/// All segments of a directory, by number. A segment without a valid sidecar is scanned and gets
/// one.
pub(super) fn load_all(directory: &Path) -> io::Result<Vec<Segment>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let stem = name.to_str().and_then(|name| name.strip_suffix(".pack"));
        numbers.extend(stem.and_then(|stem| stem.parse::<u32>().ok()));
    }
    numbers.sort_unstable();
    let mut segments = Vec::with_capacity(numbers.len());
    for number in numbers {
        let known = fs::read_to_string(sidecar_path(directory, number))
            .ok()
            .and_then(|text| parse_sidecar(number, &text));
        if let Some(segment) = known {
            segments.push(segment);
            continue;
        }
        let segment = scan(directory, number)?;
        // Only saves the scan next time.
        let _ = store_sidecar(directory, &segment);
        segments.push(segment);
    }
    Ok(segments)
}

/// Reads a segment up to the first incomplete record.
fn scan(directory: &Path, number: u32) -> io::Result<Segment> {
    let mut segment = Segment::new(number);
    let mut file = BufReader::with_capacity(1 << 20, File::open(path(directory, number))?);
    let mut header_bytes = [0; HEADER_BYTES];
    let mut data = Vec::new();
    loop {
        if !read_whole(&mut file, &mut header_bytes)? {
            return Ok(segment);
        }
        let Some(header) = record::decode(&header_bytes) else { return Ok(segment) };
        data.resize(header.length, 0);
        let whole = read_whole(&mut file, &mut data)?;
        if !whole || !record::is_whole(&header_bytes, &header, &data) {
            return Ok(segment);
        }
        let end = segment.length + (HEADER_BYTES + header.length) as u64;
        segment.note(header.task.job, segment.length, end);
        segment.length = end;
    }
}

/// Fills the buffer; false if the file ends before.
pub(super) fn read_whole(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// The changed files of a forgotten job, which must be synced.
#[must_use]
pub(super) struct Forgotten {
    directory: PathBuf,
    sidecars: Vec<u32>,
    /// The error of a file that could not be changed.
    failed: Option<io::Error>,
}

impl Forgotten {
    /// Returns when the removal of the job is on stable storage.
    pub(super) fn sync(self) -> io::Result<()> {
        for number in self.sidecars {
            match File::open(sidecar_path(&self.directory, number)) {
                Ok(file) => file.sync_all()?,
                // The segment has grown since and is scanned at the next start, or it is removed.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        // Even if nothing is left: the process that removed it may have died before this sync.
        File::open(&self.directory)?.sync_all()?;
        self.failed.map_or(Ok(()), Err)
    }
}

/// Removes a job from all segments, and deletes those without another job. A segment that cannot be
/// changed stays as it is.
pub(super) fn forget(directory: &Path, segments: &mut Vec<Segment>, job: JobId) -> Forgotten {
    let (directory, sidecars) = (directory.to_owned(), Vec::new());
    let mut forgotten = Forgotten { directory, sidecars, failed: None };
    segments.retain_mut(|segment| {
        let Some(range) = segment.jobs.remove(&job) else { return true };
        let is_last = segment.jobs.is_empty();
        let changed = match is_last {
            true => remove(&forgotten.directory, segment.number),
            false => store_sidecar(&forgotten.directory, segment),
        };
        if let Err(error) = changed {
            segment.jobs.insert(job, range);
            forgotten.failed = Some(error);
            return true;
        }
        if !is_last {
            forgotten.sidecars.push(segment.number);
        }
        !is_last
    });
    forgotten
}

/// Removes a segment, which may be missing already.
pub(super) fn remove(directory: &Path, number: u32) -> io::Result<()> {
    remove_sidecar(directory, number)?;
    remove_file(&path(directory, number))
}

/// Removes a sidecar, which is out of date.
pub(super) fn remove_sidecar(directory: &Path, number: u32) -> io::Result<()> {
    remove_file(&sidecar_path(directory, number))
}

fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub(super) fn store_sidecar(directory: &Path, segment: &Segment) -> io::Result<()> {
    let mut text = format!("{SIDECAR_TITLE}\nlength {}\n", segment.length);
    for (job, (start, end)) in &segment.jobs {
        text.push_str(&format!("{:x} {start} {end}\n", job.0));
    }
    let sum = crc32fast::hash(text.as_bytes());
    text.push_str(&format!("sum {sum:08x}\n"));
    let target = sidecar_path(directory, segment.number);
    let part = target.with_extension("part");
    let mut file = File::create(&part)?;
    file.write_all(text.as_bytes())?;
    fs::rename(part, target)
}

fn parse_sidecar(number: u32, text: &str) -> Option<Segment> {
    let (body, sum) = text.trim_end().rsplit_once('\n')?;
    let sum = u32::from_str_radix(sum.strip_prefix("sum ")?, 16).ok()?;
    if sum != crc32fast::hash(&text.as_bytes()[..=body.len()]) {
        return None;
    }
    let mut lines = body.lines();
    if lines.next()? != SIDECAR_TITLE {
        return None;
    }
    let mut segment = Segment::new(number);
    segment.length = lines.next()?.strip_prefix("length ")?.parse().ok()?;
    for line in lines {
        let mut words = line.split(' ');
        let job = JobId(u64::from_str_radix(words.next()?, 16).ok()?);
        let start = words.next()?.parse().ok()?;
        segment.note(job, start, words.next()?.parse().ok()?);
    }
    Some(segment)
}
