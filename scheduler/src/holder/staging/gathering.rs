//! The wait of an idle node for more ready tasks.

use proto::Time;

/// Whether an idle node waits for more tasks to choose from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Gathering {
    No,
    Until(Time),
    /// The wait is over. No other wait begins, even if no queued task can start.
    Over,
}

impl Gathering {
    pub(crate) fn tick(&mut self, now: Time) {
        if self.deadline().is_some_and(|until| until <= now) {
            *self = Self::Over;
        }
    }
    pub(crate) fn deadline(self) -> Option<Time> {
        if let Self::Until(until) = self { Some(until) } else { None }
    }
}
