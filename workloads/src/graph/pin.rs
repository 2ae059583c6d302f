//! How a command is bound to its cpus: `taskset` or `omp`.

use std::str::FromStr;

use proto::wire;
use serde::de::{Deserialize, Deserializer, Error};

/// How a command is bound to the cpus that its attempt has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pin {
    /// Its processes run on these cpus alone.
    Taskset,
    /// Its threads of OpenMP have one of these cpus each.
    Omp,
}

impl Pin {
    /// The form in a command.
    #[must_use]
    pub fn to_wire(self) -> wire::Pin {
        match self {
            Self::Taskset => wire::Pin::Taskset,
            Self::Omp => wire::Pin::Omp,
        }
    }
    /// The word in a workflow file; `None`: the command is not bound.
    pub(crate) fn word_of(pin: wire::Pin) -> Option<&'static str> {
        match pin {
            wire::Pin::Unpinned => None,
            wire::Pin::Taskset => Some("taskset"),
            wire::Pin::Omp => Some("omp"),
        }
    }
}

impl FromStr for Pin {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "taskset" => Ok(Self::Taskset),
            "omp" => Ok(Self::Omp),
            _ => Err(format!("'{text}' is no way to pin a command: taskset and omp exist")),
        }
    }
}

impl<'de> Deserialize<'de> for Pin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_has_its_form_and_others_are_refused() {
        for (word, pin) in [("taskset", wire::Pin::Taskset), ("omp", wire::Pin::Omp)] {
            assert_eq!(word.parse().map(Pin::to_wire), Ok(pin));
            assert_eq!(Pin::word_of(pin), Some(word));
        }
        assert!("cpuset".parse::<Pin>().unwrap_err().contains("taskset and omp exist"));
        assert_eq!(Pin::word_of(wire::Pin::Unpinned), None);
    }
}
