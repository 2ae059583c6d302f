//! How a command is pinned to its cpus: `taskset` or `omp`.

use std::str::FromStr;

use proto::wire;
use serde::de::{Deserialize, Deserializer, Error};

/// How a command is pinned to the cpus that its attempt has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CpuPin {
    /// Its processes run on these cpus alone.
    Taskset,
    /// Its threads of OpenMP have one of these cpus each.
    Omp,
}

impl CpuPin {
    /// The form in a command.
    #[must_use]
    pub fn to_wire(self) -> wire::CpuPin {
        match self {
            Self::Taskset => wire::CpuPin::Taskset,
            Self::Omp => wire::CpuPin::Omp,
        }
    }
}

impl FromStr for CpuPin {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let known = [Self::Taskset, Self::Omp];
        let named = known.into_iter().find(|pin| pin.to_wire().word() == Some(text));
        named.ok_or_else(|| format!("'{text}' is no way to pin a command: taskset and omp exist"))
    }
}

impl<'de> Deserialize<'de> for CpuPin {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_word_has_its_form_and_others_are_refused() {
        for (word, pin) in [("taskset", wire::CpuPin::Taskset), ("omp", wire::CpuPin::Omp)] {
            assert_eq!(word.parse().map(CpuPin::to_wire), Ok(pin));
        }
        assert!("cpuset".parse::<CpuPin>().unwrap_err().contains("taskset and omp exist"));
    }
}
