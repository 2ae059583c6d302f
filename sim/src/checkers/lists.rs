//! *Linear*, for keys that are only appended to and read, many times a second. The value of every
//! read is a prefix of the longest value. A later read finds no less, and all appends acknowledged
//! before it. It finds nothing that was appended after it.
//!
//! Such a history is checked in the time of a sort, for any length. The search of `linear.rs`
//! cannot do that.

use std::collections::BTreeMap;

use bytes::Bytes;
use proto::Time;

use super::{Verdict, Violation};

const NAME: &str = "linear";
/// The end mark of each part of a list.
pub(crate) const PART_ENDS: u8 = b';';

#[derive(Clone, Copy, Debug)]
struct Append {
    called: Time,
    answered: Option<Time>,
}

#[derive(Clone, Debug)]
struct Read {
    called: Time,
    answered: Time,
    value: Bytes,
}

/// The operations of clients on one key.
#[derive(Debug, Default)]
pub(crate) struct List {
    appends: BTreeMap<Bytes, Append>,
    reads: Vec<Read>,
}

impl List {
    /// Records an append. Each part is appended once.
    pub(crate) fn appends(&mut self, part: Bytes, called: Time) {
        let before = self.appends.insert(part, Append { called, answered: None });
        assert!(before.is_none(), "a part is appended once");
    }
    pub(crate) fn appended(&mut self, part: &Bytes, now: Time) {
        self.appends.get_mut(part).expect("asked for before").answered = Some(now);
    }
    pub(crate) fn read(&mut self, called: Time, answered: Time, value: Bytes) {
        self.reads.push(Read { called, answered, value });
    }

    pub(crate) fn check(&self, key: &str) -> Verdict {
        let wrong = |text: String| Err(Violation::new(NAME, format!("{key}: {text}")));
        let Some(longest) = self.reads.iter().max_by_key(|read| read.value.len()) else {
            return Ok(());
        };
        let mut ends = BTreeMap::new();
        let mut end = 0;
        for part in longest.value.split_inclusive(|&byte| byte == PART_ENDS) {
            end += part.len();
            let part = Bytes::copy_from_slice(part);
            if !self.appends.contains_key(&part) || ends.insert(part.clone(), end).is_some() {
                return wrong(format!("{part:?} was appended twice, or never"));
            }
        }
        let end_of = |part: &Bytes| ends.get(part).copied().unwrap_or(usize::MAX);
        // The length that a read must find by each time, and the reason.
        let mut due: Vec<(Time, usize, String)> = Vec::new();
        for (part, append) in &self.appends {
            let end = end_of(part);
            if let Some(at) = append.answered {
                due.push((at, end, format!("{part:?} was appended by {at:?}")));
            }
        }
        for read in &self.reads {
            if !longest.value.starts_with(&read.value) {
                return wrong(format!("{:?} and {:?} were read", read.value, longest.value));
            }
            due.push((read.answered, read.value.len(), format!("read by {:?}", read.answered)));
            let late = self.appends.iter().find(|&(part, append)| {
                append.called > read.answered && end_of(part) <= read.value.len()
            });
            if let Some((part, append)) = late {
                let at = append.called;
                return wrong(format!("{part:?} was read before it was appended at {at:?}"));
            }
        }
        self.nothing_is_stale(due).or_else(wrong)
    }

    fn nothing_is_stale(&self, mut due: Vec<(Time, usize, String)>) -> Result<(), String> {
        due.sort_by_key(|&(at, end, _)| (at, end));
        let mut reads: Vec<&Read> = self.reads.iter().collect();
        reads.sort_by_key(|read| read.called);
        let mut due = due.iter().peekable();
        let (mut most, mut why) = (0, "");
        for read in reads {
            while let Some((_, end, text)) = due.next_if(|(at, ..)| *at < read.called) {
                if *end > most {
                    (most, why) = (*end, text);
                }
            }
            if read.value.len() < most {
                let Read { called, answered, value } = read;
                return Err(format!(
                    "a read from {called:?} to {answered:?} found {} bytes ({value:?}), not {}",
                    value.len(),
                    if most == usize::MAX { why.to_owned() } else { format!("{most}: {why}") }
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(
        appends: &[(&'static str, u64, Option<u64>)],
        reads: &[(u64, u64, &'static str)],
    ) -> List {
        let mut list = List::default();
        for &(part, called, answered) in appends {
            let part = Bytes::from_static(part.as_bytes());
            list.appends(part.clone(), Time(called));
            if let Some(at) = answered {
                list.appended(&part, Time(at));
            }
        }
        for &(called, answered, value) in reads {
            list.read(Time(called), Time(answered), Bytes::from_static(value.as_bytes()));
        }
        list
    }
    fn is_right(
        appends: &[(&'static str, u64, Option<u64>)],
        reads: &[(u64, u64, &'static str)],
    ) -> bool {
        list(appends, reads).check("k").is_ok()
    }

    #[test]
    fn a_stale_read_is_found() {
        let appends = [("a;", 1, Some(2)), ("b;", 5, Some(9)), ("c;", 20, None)];
        assert!(is_right(&appends, &[(3, 4, "a;"), (6, 7, "a;"), (10, 11, "a;b;")]));
        assert!(is_right(&appends, &[(6, 8, "a;b;"), (7, 9, "a;"), (30, 31, "a;b;c;")]));
        assert!(!is_right(&appends, &[(10, 11, "a;"), (12, 13, "a;b;")]), "b was acknowledged");
        assert!(!is_right(&appends, &[(6, 7, "a;b;"), (8, 9, "a;")]), "b was read before");
        assert!(!is_right(&appends, &[(10, 11, "a;")]), "b is lost");
        assert!(!is_right(&appends, &[(10, 11, "a;b;c;")]), "c was not asked for yet");
    }

    #[test]
    fn there_is_one_order_and_each_part_is_in_it_once() {
        let appends = [("a;", 1, None), ("b;", 1, None)];
        assert!(is_right(&appends, &[(3, 4, "b;"), (5, 6, "b;a;")]));
        assert!(!is_right(&appends, &[(3, 4, "a;"), (3, 6, "b;a;")]));
        assert!(!is_right(&appends, &[(3, 4, "a;a;")]));
        assert!(!is_right(&appends, &[(3, 4, "x;")]));
    }
}
