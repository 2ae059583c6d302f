/*!
Captured output of tasks, packed: a few append-only segments per node instead of two files per task.

A segment is a sequence of records (see `record`). A record is a piece of one stream of one attempt,
in the order it was printed. Empty streams cost nothing. Segments are bounded by
`STREAM_SEGMENT_BYTES`. A closed segment has a sidecar with the range of each job in it.
So memory holds one range per job and segment, not one entry per task, and a read scans only
relevant ranges. After a crash the tail of the last segment may be torn: the records before the tear
count.
*/

mod copies;
mod reader;
mod record;
mod segment;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

use proto::{Attempt, JobId, LocalId, TaskId};

use crate::commands::captured::OutputLoss;
use crate::error::{ExecutorError, reason};
use crate::limits::STREAM_RECORD_BYTES_MAX;
pub use copies::{CopiedPacks, CopiedRecords};
pub use reader::{StreamPiece, StreamReader};
use segment::Segment;

/// A segment of captured output is closed at this size.
const STREAM_SEGMENT_BYTES: u64 = 256 << 20;

/// One piece to append.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    pub task: TaskId,
    pub attempt: Attempt,
    pub stderr: bool,
    /// The same command has printed it as an earlier attempt of its task.
    pub carried: bool,
    pub data: &'a [u8],
}

/// A place between two records of a node's packs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Place {
    pub pack: u32,
    pub offset: u64,
}

/// The captured streams of a node.
#[derive(Debug)]
pub struct Streams {
    directory: PathBuf,
    segment_bytes: u64,
    /// The limit for all segments.
    room_bytes: AtomicU64,
    state: Mutex<State>,
    copies: CopiedPacks,
    grown: OnceLock<GrowthListener>,
}

/// Called after each append; must not block.
struct GrowthListener(Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for GrowthListener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Grown")
    }
}

#[derive(Debug, Default)]
struct State {
    /// Closed segments, then the open one if `file` is some.
    segments: Vec<Segment>,
    file: Option<File>,
    next_number: u32,
    buffer: Vec<u8>,
}

impl Streams {
    /// Opens the packs of a node; complete records of earlier incarnations are readable.
    pub fn open(directory: &Path) -> Result<Self, ExecutorError> {
        Self::open_with(directory, STREAM_SEGMENT_BYTES)
    }

    fn open_with(directory: &Path, segment_bytes: u64) -> Result<Self, ExecutorError> {
        let wrong = |error: io::Error| ExecutorError::directory(directory, &error);
        crate::private::own_dir(directory).map_err(wrong)?;
        let segments = segment::load_all(directory).map_err(wrong)?;
        let next_number = segments.last().map_or(0, |segment| segment.number + 1);
        let state = Mutex::new(State { segments, next_number, ..State::default() });
        let copies = CopiedPacks::open(directory.join("copies")).map_err(wrong)?;
        let (directory, grown) = (directory.to_owned(), OnceLock::new());
        let room_bytes = AtomicU64::new(u64::MAX);
        Ok(Self { directory, segment_bytes, room_bytes, state, copies, grown })
    }

    /// Sets a function that is called after each append, from any thread. The first call counts.
    pub fn notify_when_grown(&self, grown: impl Fn() + Send + Sync + 'static) {
        let _ = self.grown.set(GrowthListener(Box::new(grown)));
    }

    /// Sets the limit for all segments. With a small limit they are closed earlier.
    pub fn set_room(&self, room_bytes: u64) {
        self.room_bytes.store(room_bytes, Ordering::Relaxed);
    }

    /// The copies of other nodes' packs.
    #[must_use]
    pub fn copies(&self) -> &CopiedPacks {
        &self.copies
    }

    /// The packs by number, each with its length.
    #[must_use]
    pub fn packs(&self) -> Vec<(u32, u64)> {
        let state = self.state();
        state.segments.iter().map(|segment| (segment.number, segment.length)).collect()
    }

    /// The lowest number of a pack that is not removed.
    #[must_use]
    pub fn first_pack(&self) -> u32 {
        let state = self.state();
        state.segments.first().map_or(state.next_number, |segment| segment.number)
    }

    /// Complete records of a pack from `offset` on, at least one if there is one.
    ///
    /// # Errors
    /// The pack cannot be read, or is damaged there.
    pub fn records_from(&self, pack: u32, offset: u64) -> io::Result<Vec<u8>> {
        let length = self.packs().iter().find(|(number, _)| *number == pack).map(|it| it.1);
        let left_bytes = length.unwrap_or(0).saturating_sub(offset);
        let most = (STREAM_RECORD_BYTES_MAX + record::HEADER_BYTES) as u64;
        let mut file = File::open(segment::path(&self.directory, pack))?;
        file.seek(SeekFrom::Start(offset))?;
        let mut data = Vec::new();
        file.take(left_bytes.min(most)).read_to_end(&mut data)?;
        data.truncate(copies::whole_records(&data));
        match data.is_empty() && left_bytes > 0 {
            true => Err(io::Error::new(io::ErrorKind::InvalidData, "a pack is damaged")),
            false => Ok(data),
        }
    }

    /// Appends pieces with one write. On an error none of them is kept.
    pub fn append(&self, pieces: &[Piece<'_>]) -> io::Result<()> {
        let mut state = self.state();
        let mut batch = std::mem::take(&mut state.buffer);
        batch.clear();
        let mut spans = Vec::with_capacity(pieces.len());
        for piece in pieces {
            // A long piece becomes several records, because a reader never takes more than that at
            // once.
            for data in piece.data.chunks(STREAM_RECORD_BYTES_MAX) {
                let start = batch.len() as u64;
                record::encode(&mut batch, piece, data);
                spans.push((piece.task.job, start, batch.len() as u64));
            }
        }
        let result = if batch.is_empty() { Ok(()) } else { self.write(&mut state, &batch, &spans) };
        let is_grown = result.is_ok() && !batch.is_empty();
        state.buffer = batch;
        drop(state);
        if let Some(GrowthListener(tell)) = self.grown.get().filter(|_| is_grown) {
            tell();
        }
        result
    }

    fn write(
        &self,
        state: &mut State,
        batch: &[u8],
        spans: &[(JobId, u64, u64)],
    ) -> io::Result<()> {
        if state.segments.last().is_some_and(|open| open.length >= self.segment_bytes()) {
            self.close(state);
        }
        if state.file.is_none() {
            let number = state.next_number;
            let path = segment::path(&self.directory, number);
            let file = OpenOptions::new().append(true).create_new(true).mode(0o600).open(path)?;
            state.next_number += 1;
            state.file = Some(file);
            state.segments.push(Segment::new(number));
        }
        let file = state.file.as_mut().expect("opened above");
        let open = state.segments.last_mut().expect("a file comes with its segment");
        if let Err(error) = file.write_all(batch) {
            // The written part of the batch is cut off. If even that fails, the tear ends the
            // segment.
            if file.set_len(open.length).is_err() {
                self.close(state);
            }
            return Err(error);
        }
        let base = open.length;
        for (job, start, end) in spans {
            open.note(*job, base + start, base + end);
        }
        open.length += batch.len() as u64;
        Ok(())
    }

    fn close(&self, state: &mut State) {
        if state.file.take().is_some() {
            let closed = state.segments.last().expect("a file comes with its segment");
            // Without its sidecar the segment is scanned at the next start, which is slower and not
            // wrong.
            let _ = segment::store_sidecar(&self.directory, closed);
        }
    }

    /// The pieces of a job's stdout (or stderr) kept here, of all attempts, in the order printed
    /// within each attempt. `tasks`: only these; none means all.
    #[must_use]
    pub fn read(&self, job: JobId, tasks: &[LocalId], stderr: bool) -> StreamReader {
        self.read_after(job, tasks, stderr, Place::default()).0
    }

    /// As [`Self::read`], the pieces behind a place. Returns the place behind the last of them.
    #[must_use]
    pub fn read_after(
        &self,
        job: JobId,
        tasks: &[LocalId],
        stderr: bool,
        after: Place,
    ) -> (StreamReader, Place) {
        let mut ranges = Vec::new();
        let mut end_place = after;
        for segment in &self.state().segments {
            if segment.number < after.pack {
                continue;
            }
            let behind = if segment.number == after.pack { after.offset } else { 0 };
            end_place = Place { pack: segment.number, offset: segment.length.max(behind) };
            if let Some(&(start, end)) = segment.jobs.get(&job)
                && end > behind
            {
                let path = segment::path(&self.directory, segment.number);
                ranges.push((path, start.max(behind), end));
            }
        }
        (StreamReader::new(ranges, job, tasks, stderr), end_place)
    }

    /// Passes what an attempt has printed to `keep`, as output of the next attempt of the task: its
    /// command goes on as that attempt.
    pub(crate) fn copy_attempt(
        &self,
        task: TaskId,
        attempt: Attempt,
        next: Attempt,
        keep: impl Fn(&Piece<'_>) -> Result<(), OutputLoss>,
    ) -> Result<(), OutputLoss> {
        for stderr in [false, true] {
            for piece in self.read(task.job, &[task.local], stderr) {
                let data = match piece {
                    Ok(piece) if piece.attempt == attempt => piece.data,
                    Ok(_) => continue,
                    // The pack was removed to make room, as the oldest packs are.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                    Err(error) => return Err(OutputLoss::Failed(reason(&error))),
                };
                keep(&Piece { task, attempt: next, stderr, carried: true, data: &data })?;
            }
        }
        Ok(())
    }

    /// Forgets a job's output, here and in the copies of other nodes. A segment is deleted with its
    /// last job. The change is on stable storage afterwards.
    ///
    /// # Errors
    /// Some output cannot be removed, and is registered as before.
    pub fn forget(&self, job: JobId) -> io::Result<()> {
        self.forget_own(job)?;
        self.copies.forget(job)
    }

    fn forget_own(&self, job: JobId) -> io::Result<()> {
        let mut state = self.state();
        if state.segments.last().is_some_and(|open| open.jobs.contains_key(&job)) {
            self.close(&mut state); // A closed segment gets a sidecar, which lists its jobs.
        }
        let forgotten = segment::forget(&self.directory, &mut state.segments, job);
        drop(state);
        // This announces removed packs to the nodes with copies.
        if let Some(GrowthListener(tell)) = self.grown.get() {
            tell();
        }
        forgotten.sync()
    }

    /// Removes the oldest segments until the new bytes fit into the limit. Returns whether they do.
    /// Reads of the removed output report it as lost.
    pub fn make_room(&self, new_bytes: u64, room_bytes: u64) -> bool {
        let mut state = self.state();
        let mut left_bytes: u64 = state.segments.iter().map(|segment| segment.length).sum();
        let fits = |left_bytes: u64| left_bytes.saturating_add(new_bytes) <= room_bytes;
        if new_bytes > room_bytes {
            return false;
        }
        while !fits(left_bytes) && !state.segments.is_empty() {
            if state.segments.len() == 1 {
                self.close(&mut state);
            }
            let oldest = state.segments.remove(0);
            left_bytes -= oldest.length;
            // A segment that cannot be removed is found again at the next start.
            let _ = segment::remove(&self.directory, oldest.number);
        }
        fits(left_bytes)
    }

    /// A small limit is divided into several segments, so that one part is removed at a time.
    fn segment_bytes(&self) -> u64 {
        self.segment_bytes.min(self.room_bytes.load(Ordering::Relaxed) / 4)
    }

    /// Bytes in all segments.
    #[must_use]
    pub fn size_bytes(&self) -> u64 {
        self.state().segments.iter().map(|segment| segment.length).sum()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the packs panics")
    }
}

impl Drop for Streams {
    fn drop(&mut self) {
        if let Ok(mut state) = self.state.lock() {
            let mut taken = std::mem::take(&mut *state);
            self.close(&mut taken);
        }
    }
}

#[cfg(test)]
mod tests;
