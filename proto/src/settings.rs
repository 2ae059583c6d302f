//! Settings of jobs and of commands, and what follows from them.

use crate::limits::JOB_TASKS_MAX_DEFAULT;
use crate::wire::{self, CpuPin};

impl wire::JobSettings {
    /// The maximum number of tasks, with those that tasks spawn.
    #[must_use]
    pub fn tasks_max(&self) -> u64 {
        match self.max_tasks {
            0 => JOB_TASKS_MAX_DEFAULT,
            limit => limit,
        }
    }
}

impl wire::JobState {
    /// Since when the client of an open job is silent, by the clock of the job's home.
    #[must_use]
    pub fn silent_since_ns(&self) -> Option<u64> {
        (self.silent_ns != 0 && self.ended_ns == 0).then_some(self.silent_ns)
    }
}

/// The words for how a command is pinned to its cpus, in flags, workflow files and variables.
impl CpuPin {
    const WORDS: [(Self, &'static str); 2] = [(Self::Taskset, "taskset"), (Self::Omp, "omp")];

    /// `None`: the command is not pinned.
    #[must_use]
    pub fn word(self) -> Option<&'static str> {
        Self::WORDS.into_iter().find(|(pin, _)| *pin == self).map(|(_, word)| word)
    }
    #[must_use]
    pub fn named(word: &str) -> Option<Self> {
        Self::WORDS.into_iter().find(|(_, known)| *known == word).map(|(pin, _)| pin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_pin_has_a_word() {
        assert_eq!(CpuPin::Unpinned.word(), None);
        for number in 1.. {
            let Ok(pin) = CpuPin::try_from(number) else {
                assert_eq!(number, 3);
                return;
            };
            assert_eq!(pin.word().and_then(CpuPin::named), Some(pin));
        }
    }
}
