//! The signal that a command gets once, before an end.

use std::collections::BTreeSet;
use std::time::Duration;

use rustix::process::Signal;

use super::wire::Start;

/// Notices for commands that have not come yet; more of them are dropped.
const EARLY_MAX: usize = 4096;

/// The signal of a command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Notice {
    signal: Signal,
    before: Duration,
    /// It was asked for before the command had a process.
    pub(super) is_due: bool,
    /// It was sent in this attempt.
    pub(super) is_given: bool,
}

impl Notice {
    /// `None`: the command gets none.
    pub(super) fn of(start: &Start) -> Option<Self> {
        let signal = Signal::from_named_raw(start.notice_signal)?;
        let before = Duration::from_nanos(start.notice_before_ns);
        Some(Self { signal, before, is_due: false, is_given: false })
    }
    pub(super) fn is_signalled(self) -> bool {
        self.is_due || self.is_given
    }
    pub(super) fn signal(self) -> Signal {
        self.signal
    }
    /// When it is sent, if the time limit of the command is over then.
    pub(super) fn wait(self, limit: Duration) -> Duration {
        limit.saturating_sub(self.before)
    }
}

/// The numbers of commands with a notice that came before their start order.
#[derive(Debug, Default)]
pub(super) struct EarlyNotices(BTreeSet<u64>);

impl EarlyNotices {
    pub(super) fn add(&mut self, number: u64) {
        if self.0.len() >= EARLY_MAX {
            self.0.pop_first(); // Its command has ended long ago.
        }
        self.0.insert(number);
    }
    pub(super) fn take(&mut self, number: u64) -> bool {
        self.0.remove(&number)
    }
}
