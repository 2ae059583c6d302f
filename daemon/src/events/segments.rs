//! Closed segments of the event log: their sizes, their ages, and their deletion.

use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use proto::limits::{HISTORY_LOOK_INTERVAL, HISTORY_RECORDS_SHARE};
use proto::{Span, Time};

use super::EVENT_BLOCK_BYTES;

const EVENT_SEGMENT_BYTES: u64 = 64 << 20;
/// The minimum number of segments in a log with a small bound.
const EVENT_SEGMENTS_MIN: u64 = 8;
/// Events of open jobs stay until they exceed the bound by this factor.
const HISTORY_OPEN_FACTOR: u64 = 2;

/// The maximum size and age of the history.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    pub bytes: u64,
    pub age: Span,
}

impl Bounds {
    /// The bytes that are left for events; the rest is for records.
    fn events_bytes(self) -> u64 {
        self.bytes - self.bytes / HISTORY_RECORDS_SHARE
    }
    /// A small bound is divided into several segments, so that one part is deleted at a time.
    pub(super) fn segment_bytes(self) -> u64 {
        let part = self.events_bytes() / EVENT_SEGMENTS_MIN;
        EVENT_SEGMENT_BYTES.min(part.max(EVENT_BLOCK_BYTES as u64))
    }
}

#[derive(Debug)]
struct Closed {
    path: PathBuf,
    bytes: u64,
    /// The time of its last event, or a later one.
    last: Time,
}

#[derive(Debug)]
pub(super) struct Segments {
    /// Oldest first.
    closed: VecDeque<Closed>,
    /// A segment of this size is closed.
    pub(super) segment_bytes: u64,
    /// The time of the next check of a segment that was due for deletion and had to stay.
    again_at: Option<Time>,
}

/// The segments in a directory, oldest first.
pub(super) fn paths(dir: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(dir)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("events-") && name.ends_with(".log") {
            paths.push(path);
        }
    }
    paths.sort(); // Zero-padded numbers: the order of names is the order of time.
    Ok(paths)
}

impl Segments {
    /// Lists the segments of earlier incarnations.
    pub(super) fn list(dir: &Path) -> io::Result<Self> {
        let mut closed = VecDeque::new();
        for path in paths(dir)? {
            let metadata = fs::metadata(&path)?;
            let since = metadata.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
            let last = Time(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
            closed.push_back(Closed { path, bytes: metadata.len(), last });
        }
        Ok(Self { closed, segment_bytes: EVENT_SEGMENT_BYTES, again_at: None })
    }

    pub(super) fn closed(&mut self, path: PathBuf, bytes: u64, last: Time) {
        self.closed.push_back(Closed { path, bytes, last });
    }

    pub(super) fn prune(
        &mut self,
        now: Time,
        open_bytes: u64,
        bounds: Bounds,
        floor: impl FnOnce() -> Time,
    ) {
        let closed = self.closed.iter().map(|it| it.bytes);
        let mut all_bytes = open_bytes + closed.sum::<u64>();
        let too_much = bounds.events_bytes().saturating_mul(HISTORY_OPEN_FACTOR);
        if all_bytes <= too_much && self.again_at.is_some_and(|at| now < at) {
            return;
        }
        self.again_at = None;
        let goes = |oldest: &Closed, all_bytes: u64| {
            all_bytes > bounds.events_bytes() || is_old(oldest, bounds.age, now)
        };
        if !self.closed.front().is_some_and(|oldest| goes(oldest, all_bytes)) {
            return;
        }
        let floor = floor();
        while let Some(oldest) = self.closed.front().filter(|oldest| goes(oldest, all_bytes)) {
            if oldest.last >= floor && all_bytes <= too_much {
                self.again_at = Some(now + HISTORY_LOOK_INTERVAL);
                return;
            }
            all_bytes -= oldest.bytes;
            // A segment that cannot be removed is found again at the next start.
            let _ = fs::remove_file(&oldest.path);
            self.closed.pop_front();
        }
    }

    pub(super) fn due(&self, bounds: Bounds) -> Option<Time> {
        let dies = |oldest: &Closed| Time(oldest.last.0.saturating_add(bounds.age.0));
        let dies = self.closed.front().map(dies).filter(|at| at.0 < u64::MAX);
        let dies = dies.map(|at| self.again_at.map_or(at, |again| again.max(at)));
        dies.or(self.again_at)
    }
}

fn is_old(segment: &Closed, age: Span, now: Time) -> bool {
    segment.last.0.saturating_add(age.0) <= now.0
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    fn segments(dir: &Path) -> Segments {
        let mut segments = Segments::list(dir).unwrap();
        for number in 1..=4u64 {
            let path = dir.join(format!("events-0000000001-{number:06}.log"));
            fs::write(&path, [7; 100]).unwrap();
            segments.closed(path, 100, Time(number * S));
        }
        segments
    }

    #[test]
    fn the_oldest_go_as_long_as_there_is_too_much() {
        let dir = tempfile::tempdir().unwrap();
        let mut segments = segments(dir.path());
        let bounds = Bounds { bytes: 2 * 350, age: Span(u64::MAX) };
        segments.prune(Time(9 * S), 100, bounds, || Time(9 * S));
        assert_eq!(paths(dir.path()).unwrap().len(), 2);
        assert_eq!(segments.due(bounds), None);
        segments.prune(Time(9 * S), 100, bounds, || unreachable!("there is not too much"));
    }

    #[test]
    fn what_an_open_job_may_have_written_stays() {
        let dir = tempfile::tempdir().unwrap();
        let mut segments = segments(dir.path());
        let bounds = Bounds { bytes: 2 * 250, age: Span(u64::MAX) };
        segments.prune(Time(9 * S), 0, bounds, || Time(2 * S));
        assert_eq!(paths(dir.path()).unwrap().len(), 3);
        let again = segments.due(bounds).unwrap();
        segments.prune(again, 0, bounds, || again);
        assert_eq!(paths(dir.path()).unwrap().len(), 2);
    }

    #[test]
    fn an_open_job_keeps_no_more_than_twice_what_there_may_be() {
        let dir = tempfile::tempdir().unwrap();
        let mut segments = segments(dir.path());
        let bounds = Bounds { bytes: 2 * 100, age: Span(u64::MAX) };
        segments.prune(Time(9 * S), 0, bounds, || Time::ZERO);
        assert_eq!(paths(dir.path()).unwrap().len(), 2);
    }

    #[test]
    fn an_open_job_that_writes_fast_keeps_no_more_either() {
        let dir = tempfile::tempdir().unwrap();
        let mut segments = segments(dir.path());
        let bounds = Bounds { bytes: 2 * 250, age: Span(u64::MAX) };
        segments.prune(Time(9 * S), 0, bounds, || Time::ZERO);
        assert_eq!(paths(dir.path()).unwrap().len(), 4, "twice the bound is not exceeded");
        segments.prune(Time(9 * S), 200, bounds, || Time::ZERO);
        assert_eq!(paths(dir.path()).unwrap().len(), 3, "before the next look is due");
    }

    #[test]
    fn what_is_too_old_goes_when_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let mut segments = segments(dir.path());
        let bounds = Bounds { bytes: u64::MAX, age: Span(7 * S) };
        assert_eq!(segments.due(bounds), Some(Time(8 * S)));
        segments.prune(Time(9 * S), 0, bounds, || Time(9 * S));
        assert_eq!(paths(dir.path()).unwrap().len(), 2);
        assert_eq!(segments.due(bounds), Some(Time(10 * S)));
        assert_eq!(Segments::list(dir.path()).unwrap().closed.len(), 2);
    }
}
