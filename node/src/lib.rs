/*!
One node: routes inputs to the store and the scheduler and emits effects.

It never opens a socket, reads a clock, or draws randomness of its own (the seed is given).
*/
mod config;
mod io;
pub use config::Config;
pub use io::{Effect, Input};
use proto::Time;

/// One node of the cluster, as a pure state machine.
#[derive(Debug)]
pub struct Node {
    config: Config,
}

/// The stored records do not make sense together.
#[derive(Debug, thiserror::Error)]
#[error("stored state of partition {partition} is damaged: {what}")]
pub struct RecoverError {
    pub partition: u32,
    pub what: String,
}

impl Node {
    /// A node with the records that an earlier incarnation left (none for a new one).
    /// What it has to say at once comes with the first [`Self::flush`].
    pub fn recover(
        config: Config,
        records: impl Iterator<Item = kvs::Record>,
        now: Time,
    ) -> Result<Self, RecoverError> {
        let _ = (records.count(), now);
        Ok(Self { config })
    }
    /// Takes one input, runs to completion, never blocks. Effects wait for [`Self::flush`].
    pub fn handle(&mut self, now: Time, input: Input) {
        let _ = (now, input, &self.config);
    }
    /// Ends a step (any number of inputs): one batch first, then what depends on it.
    pub fn flush(&mut self, now: Time, effects: &mut Vec<Effect>) {
        let _ = (now, effects);
    }
    /// When it wants `Input::Timer`.
    #[must_use]
    pub fn deadline(&self) -> Option<Time> {
        None
    }
}
