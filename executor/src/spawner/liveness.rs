//! Detects a spawner that does not answer.

use std::time::Duration;

use proto::Span;

/// While a node waits for a command, it queries a silent spawner at this interval.
const SPAWNER_PROBE_INTERVAL: Span = Span::from_secs(1);

/// Counts the node's consecutive waits without a report from its spawner. It counts waits and not
/// the clock, so a suspended machine counts as one.
#[derive(Debug)]
pub(crate) struct SpawnerLiveness {
    silent: u32,
    most: u32,
}

/// The action of a node after a wait without a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SilenceAction {
    /// None: no command is expected to end.
    Idle,
    /// Send a ping to the spawner.
    Ask,
    /// The spawner hangs.
    Hangs,
}

impl SpawnerLiveness {
    pub(crate) fn new(silence: Span) -> Self {
        let waits = silence.0.div_ceil(Self::wait().as_nanos() as u64);
        Self { silent: 0, most: u32::try_from(waits).unwrap_or(u32::MAX).max(2) }
    }

    /// The length of one wait.
    pub(crate) fn wait() -> Duration {
        Duration::from_nanos(SPAWNER_PROBE_INTERVAL.0)
    }

    pub(crate) fn heard(&mut self) {
        self.silent = 0;
    }

    /// Counts a wait without a report. `is_waited_for`: some command has not ended.
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
