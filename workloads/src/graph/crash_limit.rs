//! The crash limit of a task: the number of crashes after which it fails.

use std::str::FromStr;

use proto::limits::{CRASH_LIMIT_MAX, CRASHES_UNLIMITED};
use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// The value in a spec. A limit that the user set counts every death of a node or process that ran
/// the task, whatever its cause. Only nodes that are stopped in order do not count.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CrashLimit(pub u32);

/// The valid forms, for error messages.
pub(crate) const FORMS: &str = "crash_limit = 5, \"never-restart\" or \"unlimited\"";

impl CrashLimit {
    /// The first crash fails the task.
    const NEVER_RESTART: &str = "never-restart";
    /// No crash fails the task.
    const UNLIMITED: &str = "unlimited";

    fn of_number(number: i64) -> Result<Self, String> {
        match u32::try_from(number) {
            Ok(limit @ 1..=CRASH_LIMIT_MAX) => Ok(Self(limit)),
            _ => Err(format!(
                "{number} is not from 1 to {CRASH_LIMIT_MAX}, '{}' or '{}'",
                Self::NEVER_RESTART,
                Self::UNLIMITED
            )),
        }
    }

    /// The form in a workflow file.
    pub(crate) fn to_toml(self) -> String {
        match self.0 {
            CRASHES_UNLIMITED => format!("\"{}\"", Self::UNLIMITED),
            limit => limit.to_string(),
        }
    }
}

impl FromStr for CrashLimit {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            Self::NEVER_RESTART => Ok(Self(1)),
            Self::UNLIMITED => Ok(Self(CRASHES_UNLIMITED)),
            text => match text.parse() {
                Ok(number) => Self::of_number(number),
                Err(_) => Err(format!(
                    "'{text}' is no number, nor '{}' or '{}'",
                    Self::NEVER_RESTART,
                    Self::UNLIMITED
                )),
            },
        }
    }
}

impl<'de> Deserialize<'de> for CrashLimit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Limit;
        impl Visitor<'_> for Limit {
            type Value = CrashLimit;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(FORMS)
            }
            fn visit_i64<E: Error>(self, number: i64) -> Result<CrashLimit, E> {
                CrashLimit::of_number(number).map_err(E::custom)
            }
            fn visit_str<E: Error>(self, text: &str) -> Result<CrashLimit, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_two_words_are_limits() {
        let limit = |text: &str| text.parse().map(|CrashLimit(limit)| limit);
        assert_eq!(limit("5"), Ok(5));
        assert_eq!(limit("never-restart"), Ok(1));
        assert_eq!(limit("unlimited"), Ok(CRASHES_UNLIMITED));
        for text in ["0", "-1", "1001", "many", ""] {
            assert!(limit(text).is_err(), "{text}");
        }
        for CrashLimit(limit) in [CrashLimit(7), CrashLimit(CRASHES_UNLIMITED)] {
            let text = CrashLimit(limit).to_toml();
            assert_eq!(text.trim_matches('"').parse(), Ok(CrashLimit(limit)));
        }
    }
}
