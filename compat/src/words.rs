//! Words of the command line: numbers of tasks, and selections of jobs and workers.

use std::str::FromStr;

use crate::ids;

/// Numbers of tasks: `1-10:2,20`. Not sorted, without repetitions.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ids(pub(crate) Vec<u64>);

impl FromStr for Ids {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        ids::parse(text).map(Self)
    }
}

/// Some of all numbers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Selector {
    All,
    Last,
    Some(Vec<u64>),
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            "last" => Ok(Self::Last),
            text => ids::parse(text).map(Self::Some),
        }
    }
}

impl Selector {
    /// The selected ones, also those that are not there but named. `present` ascends.
    pub(crate) fn pick(&self, present: &[u64]) -> Vec<u64> {
        match self {
            Self::All => present.to_vec(),
            Self::Last => present.last().copied().into_iter().collect(),
            Self::Some(ids) => ids.clone(),
        }
    }
}

/// The text of a time span, in whole units.
pub(crate) fn span(ns: u64) -> String {
    let units = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)];
    let mut left = ns / 1_000_000;
    let mut parts = Vec::new();
    for (unit, ms) in units {
        if left >= ms {
            parts.push(format!("{}{unit}", left / ms));
            left %= ms;
        }
    }
    if parts.is_empty() { "0s".to_owned() } else { parts.join(" ") }
}

/// A date and a time of the day, in UTC.
struct Civil {
    date: [i64; 3],
    time: [u64; 3],
}

impl Civil {
    /// The civil calendar from the number of days, with years that begin in March.
    fn of(ns: u64) -> Self {
        let seconds = ns / 1_000_000_000;
        let (days, rest) = ((seconds / 86_400) as i64, seconds % 86_400);
        let shifted = days + 719_468;
        let era = shifted.div_euclid(146_097);
        let of_era = shifted.rem_euclid(146_097);
        let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * march + 2) / 5 + 1;
        let month = if march < 10 { march + 3 } else { march - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        Self { date: [year, month, day], time: [rest / 3600, rest / 60 % 60, rest % 60] }
    }
}

/// `31.12.2026 23:59:59`, in UTC; 0: empty.
pub(crate) fn time_of_day(ns: u64) -> String {
    let Civil { date: [year, month, day], time: [hour, minute, second] } = Civil::of(ns);
    match ns {
        0 => String::new(),
        _ => format!("{day:02}.{month:02}.{year} {hour:02}:{minute:02}:{second:02}"),
    }
}

/// `2026-12-31T23:59:59.123Z`.
pub(crate) fn iso_time(ns: u64) -> String {
    let Civil { date: [year, month, day], time: [hour, minute, second] } = Civil::of(ns);
    let ms = ns / 1_000_000 % 1000;
    format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_in_whole_units() {
        assert_eq!(span(500_000_000), "500ms");
        assert_eq!(span(70_000_000_000), "1m 10s");
        assert_eq!(span(1_200_000_000), "1s 200ms");
        assert_eq!(span(0), "0s");
    }

    #[test]
    fn days_have_dates() {
        assert_eq!(time_of_day(1_000_000_000), "01.01.1970 00:00:01");
        assert_eq!(time_of_day(1_709_251_199_000_000_000), "29.02.2024 23:59:59");
        assert_eq!(iso_time(1_709_251_199_500_000_000), "2024-02-29T23:59:59.500Z");
    }

    #[test]
    fn selections() {
        let pick = |text: &str| text.parse::<Selector>().unwrap().pick(&[2, 5]);
        assert_eq!((pick("all"), pick("last"), pick("1-3")), (vec![2, 5], vec![5], vec![1, 2, 3]));
        assert!("x".parse::<Selector>().is_err());
    }
}
