//! Copies of other nodes' packs of captured output, in case those nodes lose them.
//!
//! A pack only grows, so a copy is a prefix of it: its maker sends complete records from the end of
//! the copy on. Each store of a node has its own directory of packs. A node that has lost its store
//! begins another directory, and the copies of the first one stay.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};

use proto::{JobId, LocalId, NodeId};

use super::StreamReader;
use super::record::{self, HEADER_BYTES};
use super::segment::{self, Segment};

/// A node, and the number of its store.
type Maker = (NodeId, u64);

/// Some records of another node's pack.
#[derive(Clone, Copy, Debug)]
pub struct CopiedRecords<'a> {
    pub maker: NodeId,
    pub store: u64,
    /// The maker has removed the store's packs with lower numbers.
    pub first: u32,
    /// The pack, and the offset in it at which they begin.
    pub pack: u32,
    pub offset: u64,
    /// Complete records; empty to ask for the length of the copy.
    pub data: &'a [u8],
}

/// The copies that a node keeps.
#[derive(Debug)]
pub struct CopiedPacks {
    directory: PathBuf,
    packs: Mutex<BTreeMap<Maker, Vec<Segment>>>,
}

impl CopiedPacks {
    pub(super) fn open(directory: PathBuf) -> io::Result<Self> {
        let mut packs = BTreeMap::new();
        let entries = match fs::read_dir(&directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            entries => Some(entries?),
        };
        for entry in entries.into_iter().flatten() {
            let name = entry?.file_name();
            if let Some(maker) = name.to_str().and_then(maker_of) {
                packs.insert(maker, segment::load_all(&directory.join(&name))?);
            }
        }
        Ok(Self { directory, packs: Mutex::new(packs) })
    }

    /// Appends records to a copy if it ends where they begin. Returns the length of the copy.
    ///
    /// # Errors
    /// The bytes are no records, or cannot be written.
    pub fn keep(&self, records: &CopiedRecords<'_>) -> io::Result<u64> {
        let maker = (records.maker, records.store);
        let directory = self.directory.join(name_of(maker));
        let mut packs = self.packs();
        if !packs.contains_key(&maker) {
            crate::private::own_dir(&self.directory)?;
            crate::private::own_dir(&directory)?;
        }
        let of_maker = packs.entry(maker).or_default();
        let gone = of_maker.partition_point(|pack| pack.number < records.first);
        for pack in of_maker.drain(..gone) {
            segment::remove(&directory, pack.number)?;
        }
        let at = of_maker.partition_point(|pack| pack.number < records.pack);
        let is_here = of_maker.get(at).is_some_and(|pack| pack.number == records.pack);
        let length = if is_here { of_maker[at].length } else { 0 };
        if records.data.is_empty() || length != records.offset {
            return Ok(length);
        }
        let jobs = jobs_of(records.data)?;
        append(&directory, records.pack, length, records.data)?;
        if !is_here {
            of_maker.insert(at, Segment::new(records.pack));
        }
        let pack = &mut of_maker[at];
        for (job, start, end) in jobs {
            pack.note(job, length + start, length + end);
        }
        pack.length += records.data.len() as u64;
        Ok(pack.length)
    }

    /// The pieces of a job's stdout (or stderr) that another node has captured, as far as there are
    /// copies here. As [`super::Streams::read`].
    #[must_use]
    pub fn read(&self, maker: NodeId, job: JobId, tasks: &[LocalId], stderr: bool) -> StreamReader {
        let mut ranges = Vec::new();
        let packs = self.packs();
        for (&maker, of_maker) in packs.range((maker, 0)..=(maker, u64::MAX)) {
            let directory = self.directory.join(name_of(maker));
            for pack in of_maker {
                if let Some(&(start, end)) = pack.jobs.get(&job) {
                    ranges.push((segment::path(&directory, pack.number), start, end));
                }
            }
        }
        StreamReader::new(ranges, job, tasks, stderr)
    }

    /// Forgets a job's output in the copies, like [`super::Streams::forget`].
    pub(super) fn forget(&self, job: JobId) -> io::Result<()> {
        let mut packs = self.packs();
        let mut all_forgotten = Vec::new();
        for (&maker, of_maker) in packs.iter_mut() {
            let directory = self.directory.join(name_of(maker));
            all_forgotten.push(segment::forget(&directory, of_maker, job));
        }
        drop(packs);
        all_forgotten.into_iter().try_for_each(segment::Forgotten::sync)
    }

    /// Bytes of all copies.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.packs().values().flatten().map(|pack| pack.length).sum()
    }

    fn packs(&self) -> MutexGuard<'_, BTreeMap<Maker, Vec<Segment>>> {
        self.packs.lock().expect("no holder of the copies panics")
    }
}

fn name_of((node, store): Maker) -> String {
    format!("{}-{store:016x}", node.0)
}

fn maker_of(name: &str) -> Option<Maker> {
    let (node, store) = name.split_once('-')?;
    Some((NodeId(node.parse().ok()?), u64::from_str_radix(store, 16).ok()?))
}

/// The job and the byte range of each record. Fails unless every record is complete and sound.
fn jobs_of(data: &[u8]) -> io::Result<Vec<(JobId, u64, u64)>> {
    let damaged = || io::Error::new(io::ErrorKind::InvalidData, "these are no whole records");
    let (mut jobs, mut at) = (Vec::new(), 0);
    while at < data.len() {
        let (bytes, rest) = data[at..].split_first_chunk::<HEADER_BYTES>().ok_or_else(damaged)?;
        let header = record::decode(bytes).ok_or_else(damaged)?;
        let printed = rest.get(..header.length).ok_or_else(damaged)?;
        if !record::is_whole(bytes, &header, printed) {
            return Err(damaged());
        }
        let end = at + HEADER_BYTES + header.length;
        jobs.push((header.task.job, at as u64, end as u64));
        at = end;
    }
    Ok(jobs)
}

/// Appends to a pack. Bytes behind its known length are of an incomplete write, and are cut off.
fn append(directory: &Path, pack: u32, length: u64, data: &[u8]) -> io::Result<()> {
    segment::remove_sidecar(directory, pack)?;
    let path = segment::path(directory, pack);
    let mut file: File = OpenOptions::new().append(true).create(true).mode(0o600).open(path)?;
    file.set_len(length)?;
    file.write_all(data).inspect_err(|_| drop(file.set_len(length)))
}

/// The number of leading bytes that are complete records.
pub(super) fn whole_records(data: &[u8]) -> usize {
    let mut at = 0;
    while let Some(bytes) = data[at..].first_chunk::<HEADER_BYTES>()
        && let Some(header) = record::decode(bytes)
        && at + HEADER_BYTES + header.length <= data.len()
    {
        at += HEADER_BYTES + header.length;
    }
    at
}
