//! The signal that a command gets before an end: `USR1@60s`.

use std::str::FromStr;

use proto::wire;
use serde::de::{Deserialize, Deserializer, Error};

use crate::graph::quantity::{format_duration_ns, parse_duration_ns};

/// The time before the end, where none is given.
const BEFORE_NS_DEFAULT: u64 = 60_000_000_000;
/// The longest time before an end: a year.
const BEFORE_NS_MAX: u64 = 365 * 86_400_000_000_000;

/// The numbers of signals on Linux.
const NAMES: &[(&str, u32)] = &[
    ("HUP", 1),
    ("INT", 2),
    ("QUIT", 3),
    ("KILL", KILL),
    ("USR1", 10),
    ("USR2", 12),
    ("ALRM", 14),
    ("TERM", 15),
    ("CONT", 18),
    ("STOP", STOP),
    ("TSTP", 20),
    ("URG", 23),
    ("XCPU", 24),
    ("WINCH", 28),
    ("IO", 29),
    ("PWR", 30),
];
/// No program can handle these.
const KILL: u32 = 9;
const STOP: u32 = 19;
const SIGNAL_MAX: u32 = 31;

/// A signal, and how long before the end a command gets it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Notice {
    signal: u32,
    before_ns: u64,
}

impl Notice {
    /// The form in a command.
    #[must_use]
    pub fn to_wire(self) -> wire::Notice {
        wire::Notice { signal: self.signal, before_ns: self.before_ns }
    }
    pub(crate) fn before_ns(self) -> u64 {
        self.before_ns
    }
    /// The form in a workflow file.
    pub(crate) fn text_of(notice: &wire::Notice) -> String {
        let name = NAMES.iter().find(|(_, number)| *number == notice.signal);
        let name = name.map_or_else(|| notice.signal.to_string(), |(name, _)| (*name).to_owned());
        format!("{name}@{}", format_duration_ns(notice.before_ns))
    }
}

fn signal_of(text: &str) -> Result<u32, String> {
    let upper = text.to_ascii_uppercase();
    let name = upper.strip_prefix("SIG").unwrap_or(&upper);
    let named = NAMES.iter().find(|(known, _)| *known == name).map(|(_, number)| *number);
    let number = named.or_else(|| name.parse().ok());
    match number {
        Some(KILL | STOP) => Err(format!("'{text}' is a signal that no program can handle")),
        Some(number @ 1..=SIGNAL_MAX) => Ok(number),
        _ => Err(format!("'{text}' is no signal such as USR1, SIGTERM or 10")),
    }
}

impl FromStr for Notice {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let (signal, before) = text.split_once('@').unzip();
        let before_ns = before.map_or(Ok(BEFORE_NS_DEFAULT), parse_duration_ns)?;
        if before_ns > BEFORE_NS_MAX {
            return Err(format!("'{text}': the time before the end is at most a year"));
        }
        Ok(Self { signal: signal_of(signal.unwrap_or(text))?, before_ns })
    }
}

impl<'de> Deserialize<'de> for Notice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_a_signal_and_a_time() {
        let read = |text: &str| {
            let notice = text.parse::<Notice>().ok()?.to_wire();
            Some((notice.signal, notice.before_ns / 1_000_000))
        };
        assert_eq!(read("USR1@60s"), Some((10, 60_000)));
        assert_eq!(read("SIGTERM@500ms"), Some((15, 500)));
        assert_eq!(read("sigint@0"), Some((2, 0)));
        assert_eq!((read("12"), read("TERM")), (Some((12, 60_000)), Some((15, 60_000))));
        for wrong in ["", "@5s", "USR1@", "USR1@soon", "USR9@1s", "KILL@1s", "19", "0", "64"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        for fatal in ["KILL@1s", "sigstop", "9"] {
            let error = fatal.parse::<Notice>().expect_err(fatal);
            assert!(error.contains("no program can handle"), "{error}");
        }
        for text in ["USR1@60s", "15@500ms", "7@1s"] {
            let notice = text.parse::<Notice>().expect("it is one");
            assert_eq!(Notice::text_of(&notice.to_wire()).parse(), Ok(notice));
        }
    }
}
