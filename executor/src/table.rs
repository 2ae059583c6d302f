//! The running attempts. The thread that removes an attempt from the table decides its end: either
//! its outcome is reported or it is killed, never both.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use proto::{Attempt, TaskId};

pub(crate) type Key = (TaskId, Attempt);

/// The place of a running attempt.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// In this process; the flag ends it early.
    Inside(Arc<AtomicBool>),
    /// A command, by its number at the spawner.
    Command(u64),
    /// A call of a function, by its number in the pool of workers.
    Call(u64),
}

impl Phase {
    pub(crate) fn inside() -> Self {
        Self::Inside(Arc::default())
    }
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    running: Mutex<HashMap<Key, Phase>>,
}

impl Table {
    pub(crate) fn insert(&self, key: Key, phase: Phase) {
        let before = self.running().insert(key, phase);
        assert!(before.is_none(), "{} attempt {} was launched twice", key.0, key.1);
    }

    /// Changes the phase, unless the attempt was removed meanwhile.
    pub(crate) fn advance(&self, key: Key, phase: Phase) -> bool {
        let mut running = self.running();
        let present = running.get_mut(&key);
        present.map(|present| *present = phase).is_some()
    }

    pub(crate) fn remove(&self, key: Key) -> Option<Phase> {
        self.running().remove(&key)
    }

    pub(crate) fn phase(&self, key: Key) -> Option<Phase> {
        self.running().get(&key).cloned()
    }

    /// The command of an attempt becomes another attempt. `None` if it was removed meanwhile.
    pub(crate) fn rename(&self, from: Key, to: Key) -> Option<()> {
        let mut running = self.running();
        let phase = running.remove(&from)?;
        running.insert(to, phase);
        Some(())
    }

    pub(crate) fn contains(&self, key: Key) -> bool {
        self.running().contains_key(&key)
    }

    pub(crate) fn len(&self) -> usize {
        self.running().len()
    }

    /// Ends all attempts; nothing is reported afterwards. Returns the numbers of the commands and
    /// of the calls.
    pub(crate) fn cancel_all(&self) -> (Vec<u64>, Vec<u64>) {
        let (mut commands, mut calls) = (Vec::new(), Vec::new());
        for (_, phase) in self.running().drain() {
            match phase {
                Phase::Inside(cancelled) => cancelled.store(true, Ordering::Release),
                Phase::Command(number) => commands.push(number),
                Phase::Call(number) => calls.push(number),
            }
        }
        (commands, calls)
    }

    fn running(&self) -> MutexGuard<'_, HashMap<Key, Phase>> {
        self.running.lock().expect("no holder of the table panics")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_out_goes_no_further() {
        let (table, key) = (Table::default(), (TaskId::new(1, 2), Attempt(3)));
        table.insert(key, Phase::inside());
        assert!(table.advance(key, Phase::Command(7)));
        assert!(matches!(table.remove(key), Some(Phase::Command(7))));
        assert!(!table.advance(key, Phase::Command(8)) && !table.contains(key));
    }
}
