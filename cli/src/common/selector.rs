//! `all | last | 5 | 1-3,7`: the jobs that a verb acts on.

use std::collections::BTreeSet;
use std::str::FromStr;

/// A selection of numbered things.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Selector {
    All,
    Last,
    /// Inclusive ranges.
    Ranges(Vec<(u64, u64)>),
}

impl FromStr for Selector {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("'{text}' selects nothing: write all, last, 5 or 1-3,7");
        match text {
            "all" => return Ok(Self::All),
            "last" => return Ok(Self::Last),
            _ => {}
        }
        let number = |part: &str| part.trim().parse::<u64>().map_err(|_| wrong());
        let mut ranges = Vec::new();
        for part in text.split(',') {
            let (first, last) = match part.split_once('-') {
                Some((first, last)) => (number(first)?, number(last)?),
                None => (number(part)?, number(part)?),
            };
            if first > last {
                return Err(wrong());
            }
            ranges.push((first, last));
        }
        Ok(Self::Ranges(ranges))
    }
}

impl Selector {
    /// The number, if it selects only one. Such a number need not be listed first.
    pub(crate) fn single(&self) -> Option<u64> {
        match self {
            Self::Ranges(ranges) => match ranges[..] {
                [(first, last)] if first == last => Some(first),
                _ => None,
            },
            _ => None,
        }
    }

    /// The selected numbers of `present` (ascending). A single number must be present; a range
    /// selects those present.
    pub(crate) fn pick(&self, present: &[u64]) -> Result<Vec<u64>, String> {
        let ranges = match self {
            Self::All => return Ok(present.to_vec()),
            Self::Last => return Ok(present.last().copied().into_iter().collect()),
            Self::Ranges(ranges) => ranges,
        };
        let mut picked = BTreeSet::new();
        for &(first, last) in ranges {
            let from = present.partition_point(|number| *number < first);
            let to = present.partition_point(|number| *number <= last);
            if from == to && first == last {
                return Err(format!("no job {first}"));
            }
            picked.extend(&present[from..to]);
        }
        Ok(picked.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pick(text: &str) -> Result<Vec<u64>, String> {
        text.parse::<Selector>()?.pick(&[1, 2, 3, 7, 9])
    }

    #[test]
    fn selections() {
        assert_eq!(pick("all"), Ok(vec![1, 2, 3, 7, 9]));
        assert_eq!(pick("last"), Ok(vec![9]));
        assert_eq!(pick("2"), Ok(vec![2]));
        assert_eq!(pick("1-3,7"), Ok(vec![1, 2, 3, 7]));
        assert_eq!(pick("7, 1"), Ok(vec![1, 7]));
        assert_eq!(pick("4-6"), Ok(vec![]));
        assert_eq!(pick("1-18446744073709551615"), Ok(vec![1, 2, 3, 7, 9]));
        assert_eq!(pick("5"), Err("no job 5".to_owned()));
        for wrong in ["", "x", "3-1", "1,,2", "-1", "1-2-3"] {
            let error = format!("'{wrong}' selects nothing: write all, last, 5 or 1-3,7");
            assert_eq!(pick(wrong), Err(error));
        }
    }

    #[test]
    fn a_single_number_is_distinguished() {
        assert_eq!("5".parse::<Selector>().unwrap().single(), Some(5));
        assert_eq!("5-6".parse::<Selector>().unwrap().single(), None);
        assert_eq!("last".parse::<Selector>().unwrap().single(), None);
    }
}
