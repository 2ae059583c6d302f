//! What happens to running commands: they wait without a slot, go on as the next attempt of their
//! task, lose output, or have members elsewhere.

use proto::work::Launch;

use super::{Commands, Work};
use crate::commands::captured::OutputLoss;
use crate::commands::gang::MemberTotals;
use crate::spawner::wire::{SpawnerRequest, Waiting};
use crate::table::Key;

impl Commands {
    pub(crate) fn set_waiting(&self, number: u64, waits: bool) {
        if let Some(Ok(threads)) = self.threads.get() {
            let waiting = Some(Waiting { number, waits });
            let request = SpawnerRequest { waiting, ..SpawnerRequest::default() };
            self.inner.queue(&threads.sender, Work::Request(Box::new(request)));
        }
    }

    /// The command gets its signal, unless it has got it already.
    pub(crate) fn give_notice(&self, number: u64) {
        if let Some(Ok(threads)) = self.threads.get() {
            let request = SpawnerRequest { notice: Some(number), ..SpawnerRequest::default() };
            self.inner.queue(&threads.sender, Work::Request(Box::new(request)));
        }
    }

    /// Makes a command the next attempt of its task. Returns whether it has printed something;
    /// `None` if it has ended.
    pub(crate) fn go_on(&self, number: u64, parked: Key, next: &Launch) -> Option<bool> {
        // An end of the command is handled before or after this, as its key is read under the lock.
        let (key, shared) = ((next.task, next.attempt), &self.inner.shared);
        let mut state = self.inner.state();
        let running = state.running.get_mut(&number)?;
        // Before the table changes: a kill from then on releases the staged files.
        shared.hand_on_staged(parked, key);
        if shared.table.rename(parked, key).is_none() {
            shared.release(key); // The attempt was killed, which has not found them.
            return None;
        }
        running.key = key;
        *running.launch = next.clone();
        Some(!running.printed.captured.is_none())
    }

    /// Some output of a command was not kept. Returns whether the command must be killed now.
    pub(crate) fn lose(&self, number: u64, loss: OutputLoss) -> bool {
        let mut state = self.inner.state();
        let running = state.running.get_mut(&number);
        running.is_some_and(|running| running.printed.lose(loss))
    }

    /// Adds what commands on other nodes have used. A reason for a failure ends the command. False
    /// if it has ended.
    pub(crate) fn add_members(&self, number: u64, totals: MemberTotals) -> bool {
        let mut state = self.inner.state();
        let Some(running) = state.running.get_mut(&number) else { return false };
        let must_end = running.members.failure.is_empty() && !totals.failure.is_empty();
        running.members.add(totals);
        drop(state);
        if must_end {
            self.kill(number);
        }
        true
    }
}
