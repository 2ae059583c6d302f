//! The bounds of the history that nodes keep: `2GiB`, `30d`, or both.

use std::fmt;
use std::str::FromStr;

use proto::Span;
use scheduler::{UNLIMITED_AGE, UNLIMITED_BYTES};
use workloads::quantity;

use crate::units;

/// No bound on history is smaller: a number without its unit is not one.
const HISTORY_BYTES_MIN: u64 = 1 << 20;

/// The bounds on events and records of ended jobs on a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct History {
    pub bytes: u64,
    pub age: Span,
}

impl FromStr for History {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let history = Self::parse(text)?;
        if history.bytes < HISTORY_BYTES_MIN {
            return Err(format!(
                "'{text}' of history is less than {} MiB: write a size such as 2GiB, or an age \
                 such as 5d",
                HISTORY_BYTES_MIN >> 20
            ));
        }
        Ok(history)
    }
}

impl History {
    /// A bound that an earlier version accepted and saved. A size below today's least one becomes
    /// that.
    pub fn saved(text: &str) -> Result<Self, String> {
        let history = Self::parse(text)?;
        Ok(Self { bytes: history.bytes.max(HISTORY_BYTES_MIN), ..history })
    }

    fn parse(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("'{text}' is not a bound of history such as 2GiB, 30d, '2GiB,30d' or none");
        let mut history = Self { bytes: UNLIMITED_BYTES, age: UNLIMITED_AGE };
        if text.trim() == "none" {
            return Ok(history);
        }
        for part in text.split(',') {
            let number = part.trim();
            if number.parse::<f64>().is_ok() {
                return Err(format!(
                    "'{number}' has no unit: write {number}GiB for a size or {number}d for an age \
                     in days; 'none' for no bound"
                ));
            }
            if let Ok(age_ns) = quantity::parse_duration_ns(part) {
                if history.age != UNLIMITED_AGE {
                    return Err(wrong());
                }
                history.age = Span(age_ns);
                continue;
            }
            let bytes = quantity::parse_size_bytes(part).map_err(|_| wrong())?;
            if history.bytes != UNLIMITED_BYTES {
                return Err(wrong());
            }
            history.bytes = bytes;
        }
        Ok(history)
    }
}

/// In the format that is parsed.
impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.bytes, self.age) {
            (UNLIMITED_BYTES, UNLIMITED_AGE) => f.write_str("none"),
            (bytes, UNLIMITED_AGE) => write!(f, "{bytes}B"),
            (UNLIMITED_BYTES, Span(ns)) => write!(f, "{ns}ns"),
            (bytes, Span(ns)) => write!(f, "{bytes}B,{ns}ns"),
        }
    }
}

impl History {
    /// For people.
    pub fn shown(self) -> String {
        let bytes = (self.bytes != UNLIMITED_BYTES).then(|| units::bytes(self.bytes));
        let age = (self.age != UNLIMITED_AGE).then(|| units::seconds(self.age.as_secs_f64()));
        let both: Vec<String> = bytes.into_iter().chain(age).collect();
        if both.is_empty() { "unlimited".to_owned() } else { both.join(", ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_a_size_an_age_or_both() {
        let history = |bytes, age| Ok(History { bytes, age });
        let month = Span::from_secs(30 * 86_400);
        assert_eq!("2GiB".parse(), history(2 << 30, UNLIMITED_AGE));
        assert_eq!("30d".parse(), history(UNLIMITED_BYTES, month));
        assert_eq!("2GiB,30d".parse(), history(2 << 30, month));
        assert_eq!("30d, 2GiB".parse(), history(2 << 30, month));
        assert_eq!("none".parse(), history(UNLIMITED_BYTES, UNLIMITED_AGE));
        for wrong in ["", "much", "1GiB,2GiB", "1d,2d", "1GiB,"] {
            assert!(wrong.parse::<History>().is_err(), "{wrong}");
        }
        for text in ["5", "0", "1.5", "5,30d"] {
            let error = text.parse::<History>().unwrap_err();
            assert!(error.contains("has no unit") && error.contains("GiB"), "{error}");
        }
        for text in ["5B", "1023KiB", "30d,5kB"] {
            let error = text.parse::<History>().unwrap_err();
            assert!(error.contains("is less than 1 MiB"), "{error}");
        }
        for (text, raised) in [("5B", "1048576B"), ("5kB,7ns", "1048576B,7ns"), ("none", "none")] {
            assert_eq!(History::saved(text).unwrap().to_string(), raised);
        }
        for text in ["5000000B", "7ns", "5000000B,7ns", "none"] {
            assert_eq!(text.parse::<History>().unwrap().to_string(), text);
        }
    }
}
