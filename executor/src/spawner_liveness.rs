//! Whether a spawner still answers.

use std::time::Duration;

use proto::{Span, limits};

/// Counts the times that the node waited for its spawner and heard nothing. It counts its own
/// waits, not the clock: a machine that was suspended counts as one.
#[derive(Debug)]
pub(crate) struct SpawnerLiveness {
    silent: u32,
    most: u32,
}

/// What a node does that waited and heard nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SilenceAction {
    /// No command is expected to end.
    Idle,
    /// The spawner is to be asked whether it goes on.
    Ask,
    /// It hangs.
    Hangs,
}

impl SpawnerLiveness {
    pub(crate) fn new(silence: Span) -> Self {
        let waits = silence.0.div_ceil(Self::wait().as_nanos() as u64);
        Self { silent: 0, most: u32::try_from(waits).unwrap_or(u32::MAX).max(2) }
    }

    /// How long one wait is.
    pub(crate) fn wait() -> Duration {
        Duration::from_nanos(limits::SPAWNER_PROBE_INTERVAL.0)
    }

    pub(crate) fn heard(&mut self) {
        self.silent = 0;
    }

    /// One wait is over, and nothing was heard. `is_waited_for`: some command has not ended.
    pub(crate) fn silence(&mut self, is_waited_for: bool) -> SilenceAction {
        if !is_waited_for {
            self.silent = 0;
            return SilenceAction::Idle;
        }
        self.silent += 1;
        if self.silent > self.most { SilenceAction::Hangs } else { SilenceAction::Ask }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_silence_after_questions_counts() {
        let mut pulse = SpawnerLiveness::new(Span::from_secs(3));
        assert_eq!([(); 9].map(|()| pulse.silence(false)), [SilenceAction::Idle; 9]);
        assert_eq!([(); 3].map(|()| pulse.silence(true)), [SilenceAction::Ask; 3]);
        pulse.heard();
        assert_eq!([(); 3].map(|()| pulse.silence(true)), [SilenceAction::Ask; 3]);
        assert_eq!(pulse.silence(true), SilenceAction::Hangs);
        assert_eq!(pulse.silence(false), SilenceAction::Idle);
        assert_eq!(pulse.silence(true), SilenceAction::Ask);
    }
}
