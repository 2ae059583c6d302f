//! The node's own log: rare lines for whoever asks why a node did not start or lost a peer.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use proto::Time;

use crate::clock::Clock;

/// Lines that are kept in any ten seconds, by what they are about; the rest are counted.
const REFUSALS_PER_WINDOW: u32 = 20;
const PEERS_PER_WINDOW: u32 = 200;
const WINDOW_NS: u64 = 10_000_000_000;

/// An append-only text file. A line that cannot be written is dropped: the log is a courtesy.
#[derive(Debug)]
pub(crate) struct NodeLog {
    clock: Clock,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    file: File,
    refusals: Window,
    peers: Window,
}

/// Lines of one kind in a span of time.
#[derive(Debug)]
struct Window {
    most: u32,
    start: Time,
    lines: u32,
    suppressed: u64,
}

impl Window {
    fn of(most: u32) -> Self {
        Self { most, start: Time::ZERO, lines: 0, suppressed: 0 }
    }

    /// Whether one more line has room, and how many had none in a window that is over now.
    fn take(&mut self, now: Time) -> (bool, u64) {
        let mut left_out = 0;
        if now.since(self.start).0 > WINDOW_NS {
            left_out = std::mem::take(&mut self.suppressed);
            (self.start, self.lines) = (now, 0);
        }
        let room = self.lines < self.most;
        if room {
            self.lines += 1;
        } else {
            self.suppressed += 1;
        }
        (room, left_out)
    }
}

impl NodeLog {
    pub(crate) fn open(path: &Path, clock: Clock) -> std::io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).mode(0o600).open(path)?;
        let (refusals, peers) = (Window::of(REFUSALS_PER_WINDOW), Window::of(PEERS_PER_WINDOW));
        Ok(Self { clock, state: Mutex::new(State { file, refusals, peers }) })
    }

    /// For what happens rarely by its nature: start and stop.
    pub(crate) fn line(&self, text: &str) {
        let now = self.clock.now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.write(now, text);
    }

    /// For what others can cause as often as they like: at most a few in each window.
    pub(crate) fn refusal(&self, text: &str) {
        self.limited(text, |state| &mut state.refusals);
    }

    /// For peers that come and go: enough for a large cluster, not for one that flaps.
    pub(crate) fn peer(&self, text: &str) {
        self.limited(text, |state| &mut state.peers);
    }

    fn limited(&self, text: &str, window: impl Fn(&mut State) -> &mut Window) {
        let now = self.clock.now();
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let (room, left_out) = window(&mut state).take(now);
        if left_out > 0 {
            state.write(now, &format!("{left_out} further lines like these were left out"));
        }
        if room {
            state.write(now, text);
        }
    }
}

impl State {
    fn write(&mut self, now: Time, text: &str) {
        // One write call a line, so that lines of an earlier life and of this one never mix.
        let line = format!("{} {}\n", now.utc(), text.replace('\n', " "));
        let _ = self.file.write_all(line.as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_limited_and_lines_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let log = NodeLog::open(&dir.path().join("log"), Clock::start()).unwrap();
        for i in 0..100 {
            log.refusal(&format!("refused {i}\nsecond line"));
        }
        log.line("started");
        let text = std::fs::read_to_string(dir.path().join("log")).unwrap();
        assert_eq!(text.lines().count(), REFUSALS_PER_WINDOW as usize + 1);
        assert!(text.lines().last().unwrap().ends_with("Z started"));
        (0..10_000).for_each(|_| log.peer("link to node 1 up"));
        let text = std::fs::read_to_string(dir.path().join("log")).unwrap();
        let links = text.lines().filter(|line| line.contains("link")).count();
        assert_eq!(links, PEERS_PER_WINDOW as usize);
    }

    #[test]
    fn a_new_window_reports_the_lines_that_the_last_one_dropped() {
        let mut window = Window::of(2);
        let at = |seconds: u64| Time(seconds * 1_000_000_000);
        assert_eq!([20, 21, 22, 23].map(|now| window.take(at(now)).0), [true, true, false, false]);
        assert_eq!(window.take(at(31)), (true, 2));
        assert_eq!(window.take(at(32)), (true, 0));
    }
}
