/*!
The event log of a node: blocks of events appended to bounded segment files, and their reader.

```text
state/events/events-<incarnation>-<number>.log
  frame: magic "SEV1" ‖ length u32 ‖ crc32 u32 ‖ node u32 ‖ block     (little-endian)
```
[`proto::event::Encoder`] makes the blocks and [`proto::event::Decoder`] reads them. A log may end
inside a frame if the process was killed. The reader skips the torn end of a segment. Every
incarnation begins a new segment, so nothing is ever written behind a torn end.

When the segments together are too large or too old, the oldest are deleted, but only if every job
in them has its summary (`segments`).
*/

mod segments;

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use proto::event::{Decoder, Encoder};
use proto::{Event, Incarnation, JobId, LocalId, NodeId, Span, TaskId, Time, limits};

pub use segments::Bounds;
use segments::Segments;

/// The bytes of events gathered in memory before they are written.
const EVENT_BLOCK_BYTES: usize = 64 << 10;

/// Events are written at the latest after this time.
const EVENT_FLUSH_AFTER: Span = Span::from_millis(100);

const MAGIC: [u8; 4] = *b"SEV1";
const HEADER_BYTES: usize = 16;

/// Writes events as the run loop emits them.
#[derive(Debug)]
pub struct EventLog {
    dir: PathBuf,
    node: NodeId,
    incarnation: Incarnation,
    encoder: Encoder,
    /// The time of the oldest event that is not in a file yet.
    first: Option<Time>,
    file: File,
    file_bytes: u64,
    number: u32,
    /// The time of the latest event in the file.
    last: Time,
    segments: Segments,
}

impl EventLog {
    /// Begins the first segment of this incarnation.
    pub fn open(dir: &Path, node: NodeId, incarnation: Incarnation) -> io::Result<Self> {
        let segments = Segments::list(dir)?;
        let file = create(dir, incarnation, 0)?;
        Ok(Self {
            segments,
            dir: dir.to_path_buf(),
            node,
            incarnation,
            encoder: Encoder::default(),
            first: None,
            file,
            file_bytes: 0,
            number: 0,
            last: Time::ZERO,
        })
    }

    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn push(&mut self, now: Time, event: &Event) {
        self.first.get_or_insert(now);
        self.encoder.push(now, event);
    }

    /// Writes the buffer when it is full, or when its first event has waited for
    /// `EVENT_FLUSH_AFTER`.
    pub fn flush_if_due(&mut self, now: Time) -> io::Result<()> {
        let full = self.encoder.len() >= EVENT_BLOCK_BYTES;
        if full || self.flush_due().is_some_and(|due| due <= now) {
            self.flush()?;
        }
        Ok(())
    }

    /// The time at which the buffer must be written.
    #[must_use]
    pub fn flush_due(&self) -> Option<Time> {
        self.first.map(|first| first + EVENT_FLUSH_AFTER)
    }

    /// Writes the buffer.
    pub fn flush(&mut self) -> io::Result<()> {
        let first = self.first.take();
        if self.encoder.is_empty() {
            return Ok(());
        }
        if self.file_bytes >= self.segments.segment_bytes {
            let path = path(&self.dir, self.incarnation, self.number);
            self.segments.closed(path, self.file_bytes, self.last);
            self.number += 1;
            self.file = create(&self.dir, self.incarnation, self.number)?;
            self.file_bytes = 0;
        }
        self.last = first.unwrap_or_default() + EVENT_FLUSH_AFTER;
        let block = self.encoder.take();
        let mut frame = Vec::with_capacity(HEADER_BYTES + block.len());
        frame.extend_from_slice(&MAGIC);
        frame.extend_from_slice(&(block.len() as u32).to_le_bytes());
        frame.extend_from_slice(&crc32fast::hash(&block).to_le_bytes());
        frame.extend_from_slice(&self.node.0.to_le_bytes());
        frame.extend_from_slice(&block);
        self.file.write_all(&frame)?;
        self.file_bytes += frame.len() as u64;
        Ok(())
    }

    /// Deletes the oldest segments while all together are too large or the oldest is too old.
    /// `floor`: no open job has an earlier event.
    pub fn prune(&mut self, now: Time, bounds: Bounds, floor: impl FnOnce() -> Time) {
        self.segments.segment_bytes = bounds.segment_bytes();
        self.segments.prune(now, self.file_bytes, bounds, floor);
    }

    /// The time at which a segment becomes too old.
    #[must_use]
    pub fn prune_due(&self, bounds: Bounds) -> Option<Time> {
        self.segments.due(bounds)
    }
}

fn path(dir: &Path, incarnation: Incarnation, number: u32) -> PathBuf {
    dir.join(format!("events-{:010}-{number:06}.log", incarnation.0))
}

fn create(dir: &Path, incarnation: Incarnation, number: u32) -> io::Result<File> {
    let path = path(dir, incarnation, number);
    OpenOptions::new().create_new(true).append(true).mode(0o600).open(path)
}

/// A selection of events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Filter {
    All,
    Job(JobId),
    Task(TaskId),
}

impl Filter {
    /// The filter of a request; job 0 means all.
    #[must_use]
    pub fn of(request: &proto::wire::EventsRequest) -> Self {
        match (request.job, request.one_task) {
            (0, _) => Self::All,
            (job, false) => Self::Job(JobId(job)),
            (job, true) => Self::Task(TaskId { job: JobId(job), local: LocalId(request.task) }),
        }
    }

    /// Events of the node itself pass every filter: they contain the number of its slots over time.
    fn takes(self, event: &Event) -> bool {
        let Some(job) = event.job() else { return true };
        match self {
            Self::All => true,
            Self::Job(wanted) => job == wanted,
            Self::Task(wanted) => event.task().map_or(job == wanted.job, |task| task == wanted),
        }
    }
}

/// Reads all segments of a node, oldest first.
#[derive(Debug)]
pub struct Reader {
    segments: std::vec::IntoIter<PathBuf>,
    current: Option<io::BufReader<File>>,
    filter: Filter,
}

impl Reader {
    pub fn open(dir: &Path, filter: Filter) -> io::Result<Self> {
        let segments = segments::paths(dir)?;
        Ok(Self { segments: segments.into_iter(), current: None, filter })
    }

    /// The next block; `None` at the end.
    fn next_block(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(file) = &mut self.current
                && let Some(block) = read_frame(file)?
            {
                return Ok(Some(block));
            }
            match self.segments.next() {
                Some(path) => match File::open(path) {
                    Ok(file) => self.current = Some(io::BufReader::new(file)),
                    // The segment was deleted meanwhile.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                },
                None => return Ok(None),
            }
        }
    }

    fn filtered(&self, block: Vec<u8>) -> Option<Vec<u8>> {
        if self.filter == Filter::All {
            return Some(block);
        }
        let mut kept = Encoder::default();
        for item in Decoder::new(&block) {
            // The checksum of the frame held, so a decoding error means a writer of another
            // version.
            let Ok((time, event)) = item else { break };
            if self.filter.takes(&event) {
                kept.push(time, &event);
            }
        }
        (!kept.is_empty()).then(|| kept.take())
    }
}

impl Iterator for Reader {
    type Item = io::Result<Vec<u8>>;
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            match self.next_block() {
                Ok(Some(block)) => {
                    if let Some(block) = self.filtered(block) {
                        return Some(Ok(block));
                    }
                }
                Ok(None) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

/// Reads one frame; `None` at the end of a segment, complete or torn.
fn read_frame(file: &mut impl Read) -> io::Result<Option<Vec<u8>>> {
    let mut header = [0; HEADER_BYTES];
    if !read_whole(file, &mut header)? || header[..4] != MAGIC {
        return Ok(None);
    }
    let number = |at: usize| {
        u32::from_le_bytes(*header[at..].first_chunk().expect("the header has 16 bytes"))
    };
    let (length, crc) = (number(4) as usize, number(8));
    if length > limits::FRAME_BYTES_MAX {
        return Ok(None); // No writer makes such a block: the end is torn.
    }
    let mut block = vec![0; length];
    let whole = read_whole(file, &mut block)? && crc32fast::hash(&block) == crc;
    Ok(whole.then_some(block))
}

/// False if the file ends first.
fn read_whole(file: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(e) => Err(e),
    }
}

/// Blocks in the format of the `Events` call (`length u32 little-endian ‖ block`), gathered in
/// pieces.
#[derive(Debug)]
pub(crate) struct EventChunks(pub(crate) Reader);

impl Iterator for EventChunks {
    type Item = io::Result<Vec<u8>>;
    fn next(&mut self) -> Option<Self::Item> {
        let mut piece = Vec::new();
        while piece.len() < limits::PIECE_BYTES {
            match self.0.next() {
                Some(Ok(block)) => {
                    piece.extend_from_slice(&(block.len() as u32).to_le_bytes());
                    piece.extend_from_slice(&block);
                }
                Some(Err(error)) => return Some(Err(error)),
                None => break,
            }
        }
        (!piece.is_empty()).then_some(Ok(piece))
    }
}

const _: () = assert!(EVENT_FLUSH_AFTER.0 > Span::ZERO.0);

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn read(dir: &Path, filter: Filter) -> Vec<(Time, Event)> {
        Reader::open(dir, filter)
            .unwrap()
            .flat_map(|block| Decoder::new(&block.unwrap()).map(Result::unwrap).collect::<Vec<_>>())
            .collect()
    }

    fn task_event(job: u64, local: u64) -> Event {
        Event::MissedWakeupRepaired { task: TaskId::new(job, local) }
    }

    #[test]
    fn a_torn_end_loses_only_the_torn_block() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = EventLog::open(dir.path(), NodeId(3), Incarnation(1)).unwrap();
        for i in 0..10 {
            log.push(Time(1000 + i), &task_event(1, i));
            log.flush().unwrap();
        }
        let path = fs::read_dir(dir.path()).unwrap().next().unwrap().unwrap().path();
        let bytes = fs::read(&path).unwrap();
        for cut in [1, 5, HEADER_BYTES, HEADER_BYTES + 3] {
            fs::write(&path, &bytes[..bytes.len() - cut]).unwrap();
            let kept = if cut < bytes.len() / 10 { 9 } else { 8 };
            assert_eq!(read(dir.path(), Filter::All).len(), kept, "cut {cut}");
        }
        // The events of the next incarnation follow in another segment.
        let mut log = EventLog::open(dir.path(), NodeId(3), Incarnation(2)).unwrap();
        log.push(Time(5000), &task_event(1, 77));
        log.flush().unwrap();
        assert_eq!(read(dir.path(), Filter::All).last(), Some(&(Time(5000), task_event(1, 77))));
    }

    #[test]
    fn filters_keep_a_job_a_task_and_the_nodes_own_events() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = EventLog::open(dir.path(), NodeId(0), Incarnation(1)).unwrap();
        log.push(Time(1), &Event::NodeStarted { node: NodeId(0), incarnation: 1, slots: 2 });
        for i in 0..6 {
            log.push(Time(2 + i), &task_event(1 + i % 2, i));
        }
        log.flush().unwrap();
        assert_eq!(read(dir.path(), Filter::Job(JobId(2))).len(), 4);
        let one = read(dir.path(), Filter::Task(TaskId::new(1, 4)));
        assert_eq!(one.len(), 2);
        assert_eq!(one[1], (Time(6), task_event(1, 4)));
        assert_eq!(read(dir.path(), Filter::All).len(), 7);
    }

    #[test]
    fn events_wait_for_the_flush_time() {
        let dir = tempfile::tempdir().unwrap();
        let mut log = EventLog::open(dir.path(), NodeId(0), Incarnation(1)).unwrap();
        assert_eq!(log.flush_due(), None);
        log.push(Time(10), &task_event(1, 1));
        let due = log.flush_due().unwrap();
        log.flush_if_due(Time(11)).unwrap();
        assert_eq!(read(dir.path(), Filter::All).len(), 0);
        log.flush_if_due(due).unwrap();
        assert_eq!(read(dir.path(), Filter::All).len(), 1);
        let pieces: Vec<_> = EventChunks(Reader::open(dir.path(), Filter::All).unwrap()).collect();
        let piece = pieces[0].as_ref().unwrap();
        assert_eq!(piece.len() - 4, u32::from_le_bytes(piece[..4].try_into().unwrap()) as usize);
    }
}
