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
    fn selections() {
        let pick = |text: &str| text.parse::<Selector>().unwrap().pick(&[2, 5]);
        assert_eq!((pick("all"), pick("last"), pick("1-3")), (vec![2, 5], vec![5], vec![1, 2, 3]));
        assert!("x".parse::<Selector>().is_err());
    }
}
